//! A Prometheus query with a threshold as a gate (`GET /api/v1/query`, prometheus.io/docs/prometheus/latest/querying/api).

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::kube_api::{Probe, Response, escaped};
use crate::words::counted;

/// A query and the limits for its samples.
pub struct Query {
    /// Probe that sends the query.
    pub probe: Probe,
    /// Limits for the samples.
    pub limits: Limits,
}

/// The allowed range of every sample, including both limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Minimum value.
    pub min: Option<f64>,
    /// Maximum value.
    pub max: Option<f64>,
}

impl Limits {
    fn allow(self, number: f64) -> bool {
        !number.is_nan()
            && self.min.is_none_or(|min| number >= min)
            && self.max.is_none_or(|max| number <= max)
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) => write!(f, "{min} to {max}"),
            (Some(min), None) => write!(f, "at least {min}"),
            (None, Some(max)) => write!(f, "at most {max}"),
            (None, None) => f.write_str("any number"),
        }
    }
}

impl Query {
    /// Returns the URL of a query to the Prometheus server at this base URL. The base URL can have a path.
    pub fn url(base: &str, query: &str) -> Result<String, String> {
        if base.contains(['?', '#']) {
            return Err(
                "give the URL of Prometheus without a query, for example `http://prometheus:9090`".into()
            );
        }
        Ok(format!("{}/api/v1/query?query={}", base.trim_end_matches('/'), escaped(query)))
    }

    /// Runs the query. Returns why the gate is open, or fails with the reason why it is closed.
    pub async fn ask(&self, limit: Duration) -> Result<String, String> {
        judge(&self.probe.get(limit).await?, self.limits)
    }
}

/// Returns the probe that sends an instant query. Fails if the URL cannot be used.
pub fn prometheus_probe(base: &str, query: &str) -> Result<Probe, String> {
    Probe::new(&Query::url(base, query)?).map_err(|error| error.to_string())
}

/// Runs an instant query that returns one number.
pub async fn prometheus_number(base: &str, query: &str, limit: Duration) -> Result<f64, String> {
    match samples(&prometheus_probe(base, query)?.get(limit).await?)?.as_slice() {
        [] => Err("the query returned no sample".to_string()),
        [(_, number)] => Ok(*number),
        all => Err(format!("the query returned {} samples, expected one", all.len())),
    }
}

/// Checks an answer. The gate is open only if every sample is certainly within the limits. So it is closed if there is no sample,
/// if a sample is not a number, or if the answer has a warning and may be incomplete.
fn judge(response: &Response, limits: Limits) -> Result<String, String> {
    let samples = samples(response)?;
    let mut extremes: Option<(f64, f64)> = None;
    for (name, number) in &samples {
        if !limits.allow(*number) {
            return Err(format!("{name} is {number}, allowed: {limits}"));
        }
        let (least, greatest) = extremes.unwrap_or((*number, *number));
        extremes = Some((least.min(*number), greatest.max(*number)));
    }
    let (least, greatest) = extremes.ok_or("the query returned no sample")?;
    let found = if samples.len() < 2 { greatest.to_string() } else { format!("{least} to {greatest}") };
    Ok(format!("{} of {found}, allowed: {limits}", counted(samples.len(), "sample", "samples")))
}

/// Returns the samples of an answer, each with its labels. Fails if the answer may be incomplete.
fn samples(response: &Response) -> Result<Vec<(String, f64)>, String> {
    let code = response.code;
    let answer: Value = serde_json::from_slice(&response.body)
        .map_err(|_| format!("HTTP status {code}, and the response is not from Prometheus"))?;
    let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("status") != "success" || !(200..300).contains(&code) {
        return Err(format!("HTTP status {code}: {} {}", text("errorType"), text("error"))
            .trim_end()
            .to_string());
    }
    if let Some(warning) = answer.pointer("/warnings/0").and_then(Value::as_str) {
        return Err(format!("the answer may be incomplete: {warning}"));
    }
    let result = answer.pointer("/data/result").unwrap_or(&Value::Null);
    let samples = match answer.pointer("/data/resultType").and_then(Value::as_str) {
        Some("scalar") => vec![("the value".to_string(), result.get(1))],
        Some("vector") => {
            let series = result.as_array().map(Vec::as_slice).unwrap_or_default();
            series.iter().map(|one| (name_of(one), one.pointer("/value/1"))).collect()
        }
        other => {
            return Err(format!(
                "expected numbers, but the query returned a {}",
                other.unwrap_or("result without a type")
            ));
        }
    };
    let number = |(name, sample): (String, Option<&Value>)| {
        let number = sample.and_then(Value::as_str).and_then(|text| text.parse::<f64>().ok());
        number.map(|number| (name.clone(), number)).ok_or_else(|| format!("{name} is not a number"))
    };
    samples.into_iter().map(number).collect()
}

/// Returns the labels of a series.
fn name_of(series: &Value) -> String {
    match series.get("metric").and_then(Value::as_object) {
        Some(labels) if !labels.is_empty() => {
            let labels = labels.iter().map(|(name, value)| format!("{name}={value}"));
            format!("{{{}}}", labels.collect::<Vec<_>>().join(","))
        }
        _ => "the value".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ANY: Limits = Limits { min: None, max: None };

    fn judged(answer: &Value) -> Result<String, String> {
        let limits = Limits { min: None, max: Some(0.5) };
        judge(&Response { code: 200, body: answer.to_string().into_bytes() }, limits)
    }

    fn vector(values: &[&str]) -> Value {
        let series = values.iter().map(|value| json!({"metric": {"job": "web"}, "value": [1.8e9, value]}));
        let result: Vec<Value> = series.collect();
        json!({"status": "success", "data": {"resultType": "vector", "result": result}})
    }

    #[test]
    fn every_sample_must_be_at_most_the_threshold() {
        assert_eq!(judged(&vector(&["0.5", "0"])).unwrap(), "2 samples of 0 to 0.5, allowed: at most 0.5");
        assert!(judged(&vector(&["-Inf"])).is_ok());
        let scalar = json!({"status": "success", "data": {"resultType": "scalar", "result": [1.8e9, "0.1"]}});
        assert_eq!(judged(&scalar).unwrap(), "1 sample of 0.1, allowed: at most 0.5");
        let over = judged(&vector(&["0", "0.51"])).unwrap_err();
        assert_eq!(over, "{job=\"web\"} is 0.51, allowed: at most 0.5");
    }

    #[test]
    fn limits_can_have_a_minimum_and_a_maximum() {
        for (min, max, good, bad) in [
            (Some(0.99), None, vec!["0.99", "1", "+Inf"], vec!["0.98", "NaN", "-Inf"]),
            (Some(1.0), Some(3.0), vec!["1", "3"], vec!["0", "4", "NaN"]),
        ] {
            let limits = Limits { min, max };
            let of = |value: &str| {
                judge(&Response { code: 200, body: vector(&[value]).to_string().into_bytes() }, limits)
            };
            assert!(good.iter().all(|value| of(value).is_ok()), "{good:?}");
            assert!(bad.iter().all(|value| of(value).is_err()), "{bad:?}");
        }
    }

    #[test]
    fn unknown_results_close_the_gate() {
        for value in ["NaN", "+Inf", "much"] {
            assert!(judged(&vector(&[value])).is_err(), "{value}");
        }
        assert_eq!(judged(&vector(&[])).unwrap_err(), "the query returned no sample");
        let mut warned = vector(&["0"]);
        warned["warnings"] = json!(["one store did not answer"]);
        assert!(judged(&warned).unwrap_err().contains("one store did not answer"));
        let histogram = json!({"metric": {}, "histogram": [1.8e9, {"count": "1"}]});
        let histogram = json!({"status": "success", "data": {"resultType": "vector", "result": [histogram]}});
        assert!(judged(&histogram).is_err());
        let matrix = json!({"status": "success", "data": {"resultType": "matrix", "result": []}});
        assert!(judged(&matrix).unwrap_err().contains("matrix"));
        let body = br#"{"status":"error","errorType":"bad_data","error":"parse error"}"#.to_vec();
        let refused = judge(&Response { code: 400, body }, ANY).unwrap_err();
        assert_eq!(refused, "HTTP status 400: bad_data parse error");
        let page = Response { code: 200, body: b"<html>".to_vec() };
        assert!(judge(&page, ANY).is_err());
    }
}
