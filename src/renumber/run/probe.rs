//! Connects from this host to the old and the new address of Services.

use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;

use super::Ongoing;
use crate::host::conntrack::PROBE_PORTS;
use crate::kube_api::dial;
use crate::renumber::expected_answers::{Address, ExpectedAnswers};
use crate::session::Failure;
use crate::survey::{Finding, Survey};

/// Time limit to open a connection. It is longer than the time after which a lost packet is sent again.
const LIMIT: Duration = Duration::from_secs(2);

/// A Service to probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    subject: String,
    port: Option<u16>,
}

/// Parses `NAMESPACE/NAME` or `NAMESPACE/NAME:PORT`.
pub fn parse(text: &str) -> Result<Asked, String> {
    let expected = || "expected NAMESPACE/NAME or NAMESPACE/NAME:PORT".to_string();
    let (subject, port) = match text.split_once(':') {
        None => (text, None),
        Some((subject, port)) => {
            (subject, Some(port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(expected)?))
        }
    };
    match subject.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(Asked { subject: subject.to_string(), port })
        }
        _ => Err(expected()),
    }
}

/// The result of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probed {
    service: String,
    old: Dialled,
    new: Dialled,
}

/// A connection attempt.
#[derive(Debug, Clone, Serialize)]
struct Dialled {
    /// `IP:PORT`.
    address: String,
    /// Whether the address must answer in the current phase of the Service.
    expected: bool,
    answered: bool,
    /// Time to open the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    milliseconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Ignores the duration, which differs between attempts, and the text of the error.
impl PartialEq for Dialled {
    fn eq(&self, other: &Self) -> bool {
        (&self.address, self.expected, self.answered) == (&other.address, other.expected, other.answered)
    }
}

impl Eq for Dialled {}

impl Dialled {
    async fn at(address: &Address) -> Self {
        let outcome = dial(address.at, LIMIT, PROBE_PORTS).await;
        Self {
            address: address.at.to_string(),
            expected: address.is_to_answer,
            answered: outcome.is_ok(),
            // Rounded to the microsecond.
            milliseconds: outcome.as_ref().ok().map(|took| (took.as_secs_f64() * 1e6).round() / 1e3),
            error: outcome.err(),
        }
    }

    fn words(&self) -> String {
        match self.milliseconds {
            Some(took) => format!("{} answers in {took:.1} ms", self.address),
            None => format!("{}: {}", self.address, self.error.as_deref().unwrap_or_default()),
        }
    }
}

impl Probed {
    /// Returns the result as one line of text.
    pub fn words(&self) -> String {
        format!("probe of {}: old {}, new {}", self.service, self.old.words(), self.new.words())
    }
}

/// Probes all requested Services concurrently. Returns the results, and a finding for each address that must answer but does not.
pub async fn probe(
    asked: &[Asked],
    ongoing: &Ongoing,
    survey: &Survey,
) -> Result<(Vec<Probed>, Vec<Finding>), Failure> {
    let state = |step: &_| ongoing.journal.state(step);
    let reach = |asked: &Asked| {
        ExpectedAnswers::of(&ongoing.plan.work, survey, (&asked.subject, asked.port), state)
            .map_err(Failure::usage)
    };
    let all = asked.iter().map(reach).collect::<Result<Vec<ExpectedAnswers>, Failure>>()?;
    let tried = join_all(all.iter().map(|reach| async move {
        let (old, new) = tokio::join!(Dialled::at(&reach.old), Dialled::at(&reach.new));
        (reach, Probed { service: reach.subject.clone(), old, new })
    }));
    let (mut probed, mut findings) = (Vec::new(), Vec::new());
    for (reach, outcome) in tried.await {
        for (address, dialled) in [(&reach.old, &outcome.old), (&reach.new, &outcome.new)] {
            let reason = dialled.error.as_ref().filter(|_| address.is_to_answer);
            findings.extend(reason.map(|reason| reach.unanswered(address, reason)));
        }
        probed.push(outcome);
    }
    Ok((probed, findings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_is_parsed_only_with_namespace() {
        let asked = |port| Asked { subject: "default/web".into(), port };
        assert_eq!(parse("default/web"), Ok(asked(None)));
        assert_eq!(parse("default/web:443"), Ok(asked(Some(443))));
        for wrong in ["web", "default/", "/web", "a/b/c", "default/web:", "default/web:0", "default/web:http"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
