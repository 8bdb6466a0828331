//! A Prometheus query with a threshold as a gate (`GET /api/v1/query`, prometheus.io/docs/prometheus/latest/querying/api).

use std::time::Duration;

use serde_json::Value;

use crate::cluster::{Probe, Response, escaped};

/// A query, and what its samples may be at most.
pub struct Query {
    /// Asks.
    pub probe: Probe,
    /// The threshold.
    pub max: f64,
}

impl Query {
    /// Returns where to put a query to the Prometheus at a URL, which may have a path.
    pub fn url(base: &str, query: &str) -> Result<String, String> {
        if base.contains(['?', '#']) {
            return Err("`--gate-prometheus`: give the URL without a query, as in `http://prometheus:9090`".into());
        }
        Ok(format!("{}/api/v1/query?query={}", base.trim_end_matches('/'), escaped(query)))
    }

    /// Asks; returns what speaks for going on, or what against it.
    pub async fn ask(&self, limit: Duration) -> Result<String, String> {
        judge(&self.probe.get(limit).await?, self.max)
    }
}

/// Judges an answer. Whatever is not surely below the threshold is above it: no sample, one that is no number, and an
/// answer with a warning, which may lack samples.
fn judge(response: &Response, max: f64) -> Result<String, String> {
    let code = response.code;
    let answer: Value = serde_json::from_slice(&response.body)
        .map_err(|_| format!("HTTP status {code} with something else than a Prometheus' answer"))?;
    let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("status") != "success" || !(200..300).contains(&code) {
        return Err(format!("HTTP status {code}: {} {}", text("errorType"), text("error")).trim_end().to_string());
    }
    if let Some(warning) = answer.pointer("/warnings/0").and_then(Value::as_str) {
        return Err(format!("the answer may not be whole: {warning}"));
    }
    let result = answer.pointer("/data/result").unwrap_or(&Value::Null);
    let samples = match answer.pointer("/data/resultType").and_then(Value::as_str) {
        Some("scalar") => vec![("the value".to_string(), result.get(1))],
        Some("vector") => {
            let series = result.as_array().map(Vec::as_slice).unwrap_or_default();
            series.iter().map(|one| (name_of(one), one.pointer("/value/1"))).collect()
        }
        other => return Err(format!("expected numbers, the query has a {}", other.unwrap_or("result of no type"))),
    };
    let mut greatest: Option<f64> = None;
    for (name, sample) in &samples {
        let Some(number) = sample.and_then(Value::as_str).and_then(|text| text.parse::<f64>().ok()) else {
            return Err(format!("{name} is not a number"));
        };
        if number.is_nan() || number > max {
            return Err(format!("{name} is {number}, at most {max} is good"));
        }
        greatest = Some(greatest.map_or(number, |greatest| greatest.max(number)));
    }
    let greatest = greatest.ok_or("the query has no sample")?;
    Ok(format!("at most {greatest} in {} (limit {max})", super::super::output::counted(samples.len(), "sample", "samples")))
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

    fn judged(answer: &Value) -> Result<String, String> {
        judge(&Response { code: 200, body: answer.to_string().into_bytes() }, 0.5)
    }

    fn vector(values: &[&str]) -> Value {
        let series = values.iter().map(|value| json!({"metric": {"job": "web"}, "value": [1.8e9, value]}));
        let result: Vec<Value> = series.collect();
        json!({"status": "success", "data": {"resultType": "vector", "result": result}})
    }

    #[test]
    fn every_sample_must_be_at_most_the_threshold() {
        assert_eq!(judged(&vector(&["0.5", "0"])).unwrap(), "at most 0.5 in 2 samples (limit 0.5)");
        assert!(judged(&vector(&["-Inf"])).is_ok());
        let scalar = json!({"status": "success", "data": {"resultType": "scalar", "result": [1.8e9, "0.1"]}});
        assert_eq!(judged(&scalar).unwrap(), "at most 0.1 in 1 sample (limit 0.5)");
        let over = judged(&vector(&["0", "0.51"])).unwrap_err();
        assert_eq!(over, "{job=\"web\"} is 0.51, at most 0.5 is good");
    }

    #[test]
    fn what_is_not_known_is_not_good() {
        for value in ["NaN", "+Inf", "much"] {
            assert!(judged(&vector(&[value])).is_err(), "{value}");
        }
        assert_eq!(judged(&vector(&[])).unwrap_err(), "the query has no sample");
        let mut warned = vector(&["0"]);
        warned["warnings"] = json!(["one store did not answer"]);
        assert!(judged(&warned).unwrap_err().contains("one store did not answer"));
        let histogram = json!({"metric": {}, "histogram": [1.8e9, {"count": "1"}]});
        let histogram =
            json!({"status": "success", "data": {"resultType": "vector", "result": [histogram]}});
        assert!(judged(&histogram).is_err());
        let matrix = json!({"status": "success", "data": {"resultType": "matrix", "result": []}});
        assert!(judged(&matrix).unwrap_err().contains("matrix"));
        let body = br#"{"status":"error","errorType":"bad_data","error":"parse error"}"#.to_vec();
        let refused = judge(&Response { code: 400, body }, 0.5).unwrap_err();
        assert_eq!(refused, "HTTP status 400: bad_data parse error");
        let page = Response { code: 200, body: b"<html>".to_vec() };
        assert!(judge(&page, 0.5).is_err());
    }
}
