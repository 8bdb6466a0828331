//! Whether the server of a webhook is ready in the mirror. A webhook without a server would reject the objects of every client.

use std::collections::BTreeSet;

use serde_json::Value;

use super::refusal::fault;
use super::strip::WEBHOOKS;
use crate::inventory::webhooks::ready;
use crate::inventory::{list, text};
use crate::kube_api::Cluster;
use crate::operation::StepFault;

/// Skips a webhook configuration whose Service has no ready endpoint in the mirror. `kind`: `GROUP/PLURAL`.
pub(super) async fn refuse_without_server(
    mirror: &Cluster,
    kind: &str,
    manifest: &Value,
) -> Result<(), StepFault> {
    if !WEBHOOKS.contains(&kind) {
        return Ok(());
    }
    for (namespace, name) in servers(manifest) {
        let slices = mirror.endpoint_slices(namespace, name).await.map_err(|error| fault(&error, false))?;
        if ready(&slices) == 0 {
            return Err(StepFault::Skip(format!(
                "its server, the Service `{namespace}/{name}`, has no ready Pod in the mirror yet; what helps: wait until `netsurgeon mirror verify --wait 300 \
                 --mirror-context NAME` finds it ready, and apply a new plan"
            )));
        }
    }
    Ok(())
}

/// Returns namespace and name of the Services that the webhooks of a configuration call.
fn servers(configuration: &Value) -> BTreeSet<(&str, &str)> {
    let service = |webhook| {
        (text(webhook, "/clientConfig/service/namespace"), text(webhook, "/clientConfig/service/name"))
    };
    list(configuration, "/webhooks").iter().map(service).collect()
}
