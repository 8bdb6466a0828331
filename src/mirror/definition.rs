//! Waits until the mirror serves the kind of a new CustomResourceDefinition.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::refusal::fault;
use super::work::Reference;
use crate::inventory::{list, text};
use crate::kube_api::Cluster;
use crate::operation::{StepFault, Stop};

/// Maximum time until the API server serves a new kind. It usually takes less than a second.
const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(200);

/// Waits until a definition has the condition `Established` (`k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1/types.go`).
pub(super) async fn established(
    mirror: &Cluster,
    definition: &Reference,
    stop: &Stop,
) -> Result<(), StepFault> {
    let started = Instant::now();
    loop {
        let found = mirror.get(&definition.object()).await.map_err(|error| fault(&error, false))?;
        let found = found.unwrap_or_default();
        let conditions = list(&found, "/status/conditions");
        let has = |kind: &str, status: &str| {
            conditions.iter().find(|one| text(one, "/type") == kind && text(one, "/status") == status)
        };
        if has("Established", "True").is_some() {
            return Ok(());
        }
        if let Some(refused) = has("NamesAccepted", "False") {
            return Err(StepFault::Skip(text(refused, "/message").to_string()));
        }
        if started.elapsed() >= PATIENCE {
            let seconds = PATIENCE.as_secs();
            return Err(StepFault::Skip(format!("the API server does not serve the kind after {seconds} s")));
        }
        tokio::select! {
            () = stop.asked() => return Err(StepFault::InDoubt("stopped before the kind was served".to_string())),
            () = sleep(PAUSE) => {}
        }
    }
}
