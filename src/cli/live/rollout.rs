//! Whether a DaemonSet has made its Pods anew.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, ObjectRef};

/// A small cluster is done by then; a large one is looked at again by `operation resume`.
const PATIENCE: Duration = Duration::from_mins(2);
const PAUSE: Duration = Duration::from_secs(1);

/// Waits a while until every Pod of a DaemonSet is of its present template; says how far it is if that takes longer.
pub(super) async fn rolled_out(cluster: &Cluster, namespace: &str, name: &str) -> Result<String, String> {
    let object = ObjectRef::new("apps/v1", "DaemonSet", Some(namespace), name);
    let begun = Instant::now();
    loop {
        let found = cluster.get(&object).await.map_err(|error| error.to_string())?;
        let found = found.ok_or_else(|| format!("{object} does not exist"))?;
        match progress(&found) {
            Ok(count) => return Ok(format!("seen to be done, on {count} nodes")),
            Err(seen) if begun.elapsed() >= PATIENCE => return Err(format!("{object}: {seen}")),
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// As `kubectl rollout status` judges it (`pkg/polymorphichelpers/rollout_status.go`, kubectl v0.36.3).
fn progress(found: &Value) -> Result<u64, String> {
    let number = |path: &str| found.pointer(path).and_then(Value::as_u64).unwrap_or_default();
    let (wanted, updated) =
        (number("/status/desiredNumberScheduled"), number("/status/updatedNumberScheduled"));
    let available = number("/status/numberAvailable");
    if number("/metadata/generation") > number("/status/observedGeneration") {
        return Err("its controller has not seen the change yet".to_string());
    }
    if updated < wanted || available < wanted {
        return Err(format!("{updated} of {wanted} Pods were made anew, {available} are available"));
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_pod_must_be_new_and_available() {
        let found = |generation: u64, updated: u64, available: u64| {
            progress(&json!({
                "metadata": {"generation": generation},
                "status": {
                    "observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": updated,
                    "numberAvailable": available,
                },
            }))
        };
        assert_eq!(found(2, 3, 3), Ok(3));
        assert_eq!(found(3, 3, 3).unwrap_err(), "its controller has not seen the change yet");
        assert_eq!(found(2, 2, 3).unwrap_err(), "2 of 3 Pods were made anew, 3 are available");
        assert!(found(2, 3, 2).is_err());
    }
}
