//! Which objects of the source are not copied, each with a code and the reason.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::strip::TOKEN_TYPE;
use crate::inventory::kinds::is_made_anew;
use crate::inventory::{list, text};

/// Why an object is not copied, or not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// Code for programs.
    pub code: &'static str,
    /// The reason for people.
    pub text: &'static str,
}

const fn reason(code: &'static str, text: &'static str) -> Reason {
    Reason { code, text }
}

pub(super) const BEING_DELETED: Reason = reason("being-deleted", "it is being deleted");
pub(super) const DEFAULT_ACCOUNT: Reason =
    reason("default-account", "every namespace has it, and this one declares nothing");
pub(super) const OF_EVERY_NAMESPACE: Reason = reason("of-every-namespace", "every namespace has it");
pub(super) const CONTROLLED: Reason = reason("controlled", "a controller creates it from another object");
pub(super) const OWNED_BY_POD: Reason =
    reason("owned-by-pod", "a Pod or a Node owns it, as with the lock of a process");
pub(super) const TOKEN: Reason =
    reason("service-account-token", "the source signed the token, so the mirror does not accept it");
pub(super) const LEADER_LOCK: Reason = reason("leader-lock", "a process of the source holds it as its lock");
pub(super) const FINISHED_JOB: Reason = reason("finished-job", "a copy would run again");
pub(super) const UNFINISHED_JOB: Reason =
    reason("unfinished-job", "a copy would run at the same time in both clusters");
pub(super) const BARE_POD: Reason =
    reason("bare-pod", "no controller owns it, so a copy would run in both clusters");
pub(super) const KIND_NOT_COPIED: Reason = reason("kind-not-copied", "objects of this kind are not copied");
pub(super) const NOT_SERVED: Reason = reason(
    "not-served",
    "the mirror serves no version of this kind, and its definition cannot be copied; install its operator in the mirror first",
);
pub(super) const NO_SERVICE: Reason = reason(
    "no-service",
    "no Service selects its Pods, so they could do the same work in both clusters; to copy it: `--run NAMESPACE/NAME`",
);
pub(super) const SHARED_BINDING: Reason = reason(
    "shared-binding",
    "it also gives permissions to users, groups or other namespaces; create it in the mirror if they need these permissions there",
);
pub(super) const SHARED_WEBHOOK: Reason = reason(
    "shared-webhook",
    "it also calls servers outside of the copied namespaces; create it in the mirror if these servers answer there",
);
pub(super) const CONVERSION_WEBHOOK: Reason = reason(
    "conversion-webhook",
    "its API server could not read an object until the webhook answers; install the operator of this kind in the mirror first",
);

/// Why an object is written in another way than by server-side apply.
pub(super) const WITHOUT_APPLY: Reason = reason(
    "without-apply",
    "server-side apply refuses this object, so it is created, and changed field by field, without server-side apply",
);
pub(super) const WITH_DATA: Reason = reason("kind-not-copied", "its data stays in the source");
pub(super) const NOT_CHOSEN: Reason = reason(
    "kind-not-copied",
    "objects of this kind are copied only if `passive.workloads`, `run` or `--run` chooses them",
);
pub(super) const PASSIVE_DAEMON_SET: Reason =
    reason("passive-daemon-set", "a DaemonSet has no number of replicas, so a copy cannot be passive");
pub(super) const PASSIVE_BUDGET: Reason =
    reason("passive-budget", "its workloads are passive, so it would only keep nodes from being drained");
pub(super) const PASSIVE_SCALER: Reason =
    reason("passive-scaler", "its workload is passive, and it would start Pods of it");
pub(super) const SCHEDULED: Reason = reason(
    "scheduled",
    "it has a schedule, so it could run at its scheduled times in both clusters; to copy this kind: `kinds.include` of the configuration",
);
pub(super) const OUTSIDE_OWNER: Reason = reason(
    "outside-owner",
    "it owns things outside of the cluster by a name in its options, and a copy would have the same name; to copy it: \
     `--run NAMESPACE/NAME`, with a rule that changes the name",
);
pub(super) const REPLACED: Reason =
    reason("pull-secret", "the configuration makes a pull secret of this name");
/// Code of an object that a rule cannot change.
pub const RULE_FAILED: &str = "rule-failed";
pub(super) const FAULTY_RULE: Reason = reason(RULE_FAILED, "a rule of the configuration failed");

/// Codes of conflicts.
pub(super) const EXISTS: Reason =
    reason("exists", "the mirror has another object of this name, which no mirror operation created");
pub(super) const FOREIGN_SECRET: Reason = reason(
    "foreign-secret",
    "the mirror has another Secret of this name; it is never adopted, because its values are not recorded and could not be restored",
);
pub(super) const TOO_LARGE: Reason =
    reason("too-large", "its previous values are too large to be recorded, so it could not be restored");
pub(super) const TERMINATING: Reason = reason("terminating", "the object of the mirror is being deleted");
pub(super) const NAMESPACE_TERMINATING: Reason =
    reason("namespace-terminating", "the namespace of the mirror is being deleted");
pub(super) const OTHER_MANAGER: Reason =
    reason("other-manager", "another client has changed the fields in the mirror");

/// The annotation of a leader lock (`LeaderElectionRecordAnnotationKey`, `client-go/tools/leaderelection/resourcelock`).
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// Returns why an object is not copied, from the object alone; `None` if it is copied. `kind`: `GROUP/PLURAL`.
pub(super) fn left_out(kind: &str, object: &Value) -> Option<Reason> {
    if object.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string) {
        return Some(BEING_DELETED);
    }
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap_or_default();
    if metadata.annotations.iter().flatten().any(|(name, _)| name == LEADER) {
        return Some(LEADER_LOCK);
    }
    if (kind == SLICES || kind == ENDPOINTS) && is_managed(&metadata) {
        return Some(CONTROLLED);
    }
    let name = metadata.name.as_deref().unwrap_or_default();
    if is_default_account(kind, name) || (kind == "/secrets" && is_requested_token(object, &metadata)) {
        return None;
    }
    if is_made_anew(text(object, "/kind"), &metadata) {
        return Some(why_again(kind, &metadata));
    }
    match kind {
        "/secrets" if text(object, "/type") == TOKEN_TYPE => Some(TOKEN),
        "batch/jobs" => Some(if is_finished(object) { FINISHED_JOB } else { UNFINISHED_JOB }),
        _ => None,
    }
}

fn why_again(kind: &str, metadata: &ObjectMeta) -> Reason {
    let mut owners = metadata.owner_references.iter().flatten();
    if owners.clone().any(|owner| matches!(owner.kind.as_str(), "Pod" | "Node")) {
        return OWNED_BY_POD;
    }
    if owners.any(|owner| owner.controller == Some(true)) {
        return CONTROLLED;
    }
    match kind {
        "/secrets" => TOKEN,
        _ => OF_EVERY_NAMESPACE,
    }
}

/// EndpointSlices, as `GROUP/PLURAL`. Only those that no controller writes are copied.
pub(super) const SLICES: &str = "discovery.k8s.io/endpointslices";
/// Endpoints, as `GROUP/PLURAL`. Only those of a Service without a selector are copied; a controller writes all others
/// (`pkg/controller/endpoint/endpoints_controller.go`).
pub(super) const ENDPOINTS: &str = "/endpoints";

/// Returns whether a controller or an API server writes an EndpointSlice or Endpoints. API servers write those of `default/kubernetes`
/// (`pkg/controlplane/reconcilers`).
fn is_managed(slice: &ObjectMeta) -> bool {
    let label = slice.labels.as_ref().and_then(|labels| labels.get("endpointslice.kubernetes.io/managed-by"));
    let is_of_servers =
        (slice.namespace.as_deref(), slice.name.as_deref()) == (Some("default"), Some("kubernetes"));
    is_of_servers || label.is_some_and(|by| by.ends_with("controller.k8s.io"))
}

/// Returns whether an object is the ServiceAccount that every namespace has. `kind`: `GROUP/PLURAL`.
pub(super) fn is_default_account(kind: &str, name: &str) -> bool {
    kind == "/serviceaccounts" && name == "default"
}

/// Returns whether a Secret is one that a controller fills with a token of a ServiceAccount, and that a client created: an older control
/// plane created such Secrets itself, with the name of the ServiceAccount and five random characters
/// (`pkg/controller/serviceaccount/tokens_controller.go`, Kubernetes 1.23).
fn is_requested_token(secret: &Value, metadata: &ObjectMeta) -> bool {
    let account = metadata.annotations.as_ref().and_then(|all| all.get("kubernetes.io/service-account.name"));
    let name = metadata.name.as_deref().unwrap_or_default();
    let is_generated = |account: &String| {
        let end = name.strip_prefix(account.as_str()).and_then(|rest| rest.strip_prefix("-token-"));
        end.is_some_and(|end| end.len() == 5)
    };
    text(secret, "/type") == TOKEN_TYPE && account.is_some_and(|account| !is_generated(account))
}

fn is_finished(job: &Value) -> bool {
    list(job, "/status/conditions").iter().any(|condition| {
        matches!(text(condition, "/type"), "Complete" | "Failed") && text(condition, "/status") == "True"
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_reason_has_its_object() {
        let of = |kind: &str, object: Value| left_out(kind, &object).map(|reason| reason.code);
        let meta = |more: Value| {
            let mut metadata = json!({"namespace": "shop", "name": "a"});
            metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            metadata
        };
        let owner = |kind: &str, controller: bool| {
            meta(
                json!({"ownerReferences": [{"apiVersion": "v1", "kind": kind, "name": "x", "uid": "1", "controller": controller}]}),
            )
        };
        let token = |name: &str| {
            json!({"kind": "Secret", "type": TOKEN_TYPE, "metadata": {"namespace": "shop", "name": name,
                "annotations": {"kubernetes.io/service-account.name": "a"}}})
        };
        let finished = json!({"conditions": [{"type": "Failed", "status": "True"}]});
        for (kind, object, expected) in [
            ("/configmaps", json!({"kind": "ConfigMap", "metadata": meta(json!({}))}), None),
            (
                "/configmaps",
                json!({"kind": "ConfigMap", "metadata": meta(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}))}),
                Some("being-deleted"),
            ),
            (
                "/configmaps",
                json!({"kind": "ConfigMap", "metadata": meta(json!({"name": "kube-root-ca.crt"}))}),
                Some("of-every-namespace"),
            ),
            (
                "/configmaps",
                json!({"kind": "ConfigMap", "metadata": meta(json!({"annotations": {LEADER: "{}"}}))}),
                Some("leader-lock"),
            ),
            (
                "/configmaps",
                json!({"kind": "ConfigMap", "metadata": owner("Pod", false)}),
                Some("owned-by-pod"),
            ),
            (
                "/secrets",
                json!({"kind": "Secret", "metadata": owner("Certificate", true)}),
                Some("controlled"),
            ),
            ("/configmaps", json!({"kind": "ConfigMap", "metadata": owner("Config", false)}), None),
            (
                "/serviceaccounts",
                json!({"kind": "ServiceAccount", "metadata": meta(json!({"name": "default"}))}),
                None,
            ),
            (
                "/secrets",
                json!({"kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": meta(json!({}))}),
                Some("service-account-token"),
            ),
            (
                "/secrets",
                json!({"kind": "Secret", "metadata": meta(json!({"annotations": {"kubernetes.io/service-account.name": "a"}}))}),
                Some("service-account-token"),
            ),
            ("/secrets", token("a-token-x2b4c"), Some("service-account-token")),
            ("/secrets", token("a-for-the-pipeline"), None),
            ("/secrets", json!({"kind": "Secret", "type": "Opaque", "metadata": meta(json!({}))}), None),
            (
                "batch/jobs",
                json!({"kind": "Job", "metadata": meta(json!({})), "status": finished}),
                Some("finished-job"),
            ),
            ("batch/jobs", json!({"kind": "Job", "metadata": meta(json!({}))}), Some("unfinished-job")),
            ("batch/jobs", json!({"kind": "Job", "metadata": owner("CronJob", true)}), Some("controlled")),
            ("batch/cronjobs", json!({"kind": "CronJob", "metadata": meta(json!({}))}), None),
        ] {
            assert_eq!(of(kind, object.clone()), expected, "{kind} {object}");
        }
    }
}
