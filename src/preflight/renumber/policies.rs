//! `policies`: whether admission accepts the objects that the plan creates. The check sends dry runs.

use serde_json::{Value, json};

use super::Renumber;
use crate::inventory::unread;
use crate::kube_api::{ClusterError, MANAGED_BY, sentinel};
use crate::preflight::{Check, Judged, Read, Source};
use crate::renumber::Renumbering;
use crate::renumber::hold::Hold;
use crate::survey::Era;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "policies",
    why: "an admission policy that rejects a change stops the renumbering half way",
    needs: &[Source::Etcd, Source::Api],
    judge: |input| Box::pin(read(input)),
};

/// Tests with dry runs whether admission accepts the objects that the plan creates.
async fn read(input: &Renumber) -> Read<Judged> {
    let (plan, cluster) = (input.plan().await?, input.read.cluster()?);
    let mut kinds = vec![("", "services")];
    if plan.work.era != Era::Bitmap {
        kinds.push(("networking.k8s.io", "servicecidrs"));
    }
    let mut unasked = Vec::new();
    for kind in kinds {
        if !cluster.may("create", kind, None).await.map_err(unread)? {
            unasked.push(format!("create {}", kind.1));
        }
    }
    if !unasked.is_empty() {
        return Ok(Judged::unknown(
            format!(
                "no dry run was sent: a dry run needs the permission to create its object, and this user lacks {}",
                unasked.join(", ")
            ),
            "run this check as the user of `renumber apply`, with the ClusterRole `netsurgeon-renumber`; or skip this check: \
             `--skip policies`",
        ));
    }
    let mut refused = Vec::new();
    for manifest in trials(&plan.work) {
        match cluster.try_create(&manifest).await {
            Ok(_) | Err(ClusterError::AlreadyExists { .. }) => {}
            Err(error) => refused.push(error.to_string()),
        }
    }
    if refused.is_empty() {
        return Ok(Judged::pass("admission accepts every object that the renumbering creates"));
    }
    Ok(Judged::fail(
        refused.join("; "),
        "exempt the user of netsurgeon from that policy, or use `--hold shadow` if the policy forbids external IPs",
    ))
}

/// Returns the objects for the dry runs: the new range, a Service with an external IP as hold, a shadow, and the sentinel of a
/// barrier.
fn trials(work: &Renumbering) -> Vec<Value> {
    let service = |name: &str, namespace: &str, spec: Value| {
        let labels = json!({MANAGED_BY.0: MANAGED_BY.1});
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    };
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    let mut trials = vec![sentinel("preflight", "kube-system", work.family)];
    if work.era != Era::Bitmap {
        trials.push(json!({
            "apiVersion": work.api_version, "kind": "ServiceCIDR", "metadata": {"name": "netsurgeon-preflight"},
            "spec": {"cidrs": [work.to.to_string()]},
        }));
    }
    let first = |hold: Hold| work.moves.iter().find(|candidate| candidate.hold == hold);
    if let Some(held) = first(Hold::ExternalIp) {
        let spec =
            json!({"ports": ports, "externalIPs": [held.old_address], "externalTrafficPolicy": "Local"});
        trials.push(service("netsurgeon-preflight-hold", &held.namespace, spec));
    }
    if let Some(held) = first(Hold::Shadow) {
        trials.push(service("netsurgeon-preflight-shadow", &held.namespace, json!({"ports": ports})));
    }
    trials
}
