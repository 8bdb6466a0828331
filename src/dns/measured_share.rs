//! The mirror's share of the requests for a name, according to metrics in Prometheus.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::nameserver::AT_ONCE;
use crate::session::gates::{prometheus_number, prometheus_probe};

/// Time limit for one query.
const LIMIT: Duration = Duration::from_secs(5);

/// Time limit for the queries for all names.
const ALL: Duration = Duration::from_secs(15);

/// The placeholder for the name in the query.
const NAME: &str = "{name}";

/// A Prometheus query for the mirror's share of the requests for one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareQuery {
    /// URL of the Prometheus server.
    pub prometheus: String,
    /// The query. It returns one number, from 0 to 100. `{name}` stands for the name.
    pub query: String,
}

/// The measured share at the end of a stage. It is stored in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SeenShare {
    /// The mean share of the names that have requests, in percent.
    pub mean: f64,
    /// Number of names that have requests.
    pub names: usize,
}

impl ShareQuery {
    /// Fails with the reason if the query does not contain the placeholder for the name, or if the URL cannot be used.
    pub fn check(&self) -> Result<(), String> {
        if self.query.contains(NAME) {
            return prometheus_probe(&self.prometheus, &self.query).map(drop);
        }
        Err(format!("the query needs `{NAME}`, where the name is inserted"))
    }

    /// Returns the mirror's share of the requests for a name, in percent.
    pub async fn of(&self, name: &str) -> Result<f64, String> {
        let number = prometheus_number(&self.prometheus, &self.query.replace(NAME, name), LIMIT).await?;
        match number {
            number if number.is_nan() => Err("no requests".to_string()),
            // A division can return slightly more than 100.
            number if (0.0..=100.5).contains(&number) => Ok(number.min(100.0)),
            number => Err(format!("the query returned {number}, expected 0 to 100")),
        }
    }

    /// Returns the mean share of some names; `None` if no name has requests, or if Prometheus does not answer.
    pub(super) async fn mean(&self, names: &[&str]) -> Option<SeenShare> {
        let mut asked = Vec::with_capacity(names.len());
        for name in names {
            asked.push(self.of(name));
        }
        let answers = stream::iter(asked).buffered(AT_ONCE).collect::<Vec<Result<f64, String>>>();
        let answers = timeout(ALL, answers).await.ok()?;
        let shares: Vec<f64> = answers.into_iter().filter_map(Result::ok).collect();
        let names = u32::try_from(shares.len()).ok().filter(|count| *count > 0)?;
        Some(SeenShare { mean: shares.iter().sum::<f64>() / f64::from(names), names: shares.len() })
    }
}
