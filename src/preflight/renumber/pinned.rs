//! `pinned`: whether manifests pin the address of a Service. The API server rejects a later apply with the old address, because
//! `clusterIP` is immutable (`ValidateServiceClusterIPsRelatedFields` and `ValidateServiceUpdate`,
//! `pkg/apis/core/validation/validation.go`, v1.36.3).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;

use super::Renumber;
use crate::inventory::service::TrimmedService;
use crate::kube_api::accessors::{name, namespace};
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::renumber::Move;
use crate::renumber::hold::Hold;
use crate::words::counted;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "pinned",
    why: "applying a manifest with the old address fails, or deletes the Service",
    needs: &[Source::Etcd, Source::Api],
    judge: |input| Box::pin(read(input)),
};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Field managers that never apply an old address again. The API server creates `default/kubernetes`. kubeadm computes the
/// address of the cluster's DNS from its ConfigMap, which the renumbering updates.
const OWN: [&str; 3] = ["kube-apiserver", "kubeadm", "netsurgeon"];

/// Reads the Services that move, and the owners of their fields, from the API. Then checks the Services.
async fn read(input: &Renumber) -> Read<Judged> {
    let of = |candidate: &Move| {
        (format!("{}/{}", candidate.namespace, candidate.name), candidate.hold == Hold::ExternalIp)
    };
    let moves: BTreeMap<String, bool> = input.plan().await?.work.moves.iter().map(of).collect();
    Ok(judge(input.read.services().await?, &moves))
}

/// Checks Services that were read from the API with their `managedFields`. `moves`: Services that move, by `namespace/name`, and
/// whether an external IP will hold the old address.
fn judge(services: &[TrimmedService], moves: &BTreeMap<String, bool>) -> Judged {
    let (mut pinned, mut owned) = (Vec::new(), Vec::new());
    for service in services {
        let subject = format!("{}/{}", namespace(service), name(service));
        let Some(by_external_ip) = moves.get(&subject) else { continue };
        let who = pinned_by(service);
        if !who.is_empty() {
            pinned.push(format!("`{subject}` ({})", who.join(", ")));
        }
        let who = owners(service, &["f:externalIPs"]);
        if *by_external_ip && !who.is_empty() {
            owned.push(format!("`{subject}` ({})", who.join(", ")));
        }
    }
    let pins = "manifests pin the address of";
    let services = counted(moves.len(), "Service", "Services");
    match (pinned.len(), owned.len()) {
        (0, 0) => Judged::pass(format!("no manifest pins an address of {services}")),
        (0, count) => Judged::warn(
            format!(
                "on {} another field manager owns `externalIPs`, which would hold the old address: {}",
                counted(count, "Service", "Services"),
                first_few(&owned)
            ),
            "remove `externalIPs` from the manifests, or use `--hold shadow`; otherwise the next apply of the manifest removes the hold",
        ),
        (count, _) => Judged::warn(
            format!("{pins} {count} of {services}: {}", first_few(&pinned)),
            "remove `clusterIP` from manifests, charts and repositories, or set the new address there after the \
             move; until then an apply is rejected, and `kubectl replace --force` deletes the Service",
        ),
    }
}

/// Returns what pins the address of a Service: field managers, and the annotation of `kubectl apply`.
fn pinned_by(service: &TrimmedService) -> Vec<String> {
    let mut who: Vec<String> = owners(service, &["f:clusterIP", "f:clusterIPs"]);
    let applied = service.metadata.annotations.as_ref().and_then(|all| all.get(LAST_APPLIED));
    let applied = applied.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let pins = |applied: &Value| {
        let address = applied.pointer("/spec/clusterIP").and_then(Value::as_str).unwrap_or_default();
        let list = applied.pointer("/spec/clusterIPs").and_then(Value::as_array);
        !matches!(address, "" | "None") || list.is_some_and(|list| !list.is_empty())
    };
    if applied.is_some_and(|applied| pins(&applied)) {
        who.push("the annotation of `kubectl apply`".to_string());
    }
    who
}

/// Returns the field managers that own one of these fields of `spec`. An address that the API server chose has no owner.
fn owners(service: &TrimmedService, fields: &[&str]) -> Vec<String> {
    let entries = service.metadata.managed_fields.iter().flatten();
    let owns = |entry: &&ManagedFieldsEntry| {
        let spec = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:spec"));
        spec.is_some_and(|spec| fields.iter().any(|field| spec.get(field).is_some()))
    };
    let manager = |entry: &ManagedFieldsEntry| entry.manager.as_deref().unwrap_or("unknown").to_string();
    let mut found: Vec<String> = entries.filter(owns).map(manager).collect();
    found.retain(|manager| !OWN.contains(&manager.as_str()));
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(|manager| format!("manager `{manager}`")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;

    fn service(manager: &str, field: &str, applied: &Value) -> TrimmedService {
        let annotations =
            if applied.is_null() { json!({}) } else { json!({LAST_APPLIED: applied.to_string()}) };
        let service = json!({"metadata": {
            "namespace": "shop", "name": "web", "annotations": annotations,
            "managedFields": [{"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {field: {}}}}],
        }});
        serde_json::from_value(service).unwrap()
    }

    #[test]
    fn owner_of_a_pinned_address_is_reported() {
        let moves = |by_external_ip| BTreeMap::from([("shop/web".to_string(), by_external_ip)]);
        let judged = |service: TrimmedService| judge(&[service], &moves(false));
        let by_manager = judged(service("argocd", "f:clusterIP", &Value::Null));
        assert_eq!(by_manager.verdict, Verdict::Warn);
        assert!(
            by_manager.observed.ends_with("1 of 1 Service: `shop/web` (manager `argocd`)"),
            "{by_manager:?}"
        );
        assert_eq!(judged(service("kubeadm", "f:clusterIP", &Value::Null)).verdict, Verdict::Pass);
        let spec = |spec: Value| judged(service("kubectl", "f:ports", &json!({"spec": spec})));
        assert!(
            spec(json!({"clusterIP": "10.96.0.5"})).observed.contains("the annotation of `kubectl apply`")
        );
        assert_eq!(spec(json!({"clusterIPs": ["10.96.0.5"]})).verdict, Verdict::Warn);
        assert_eq!(spec(json!({"clusterIP": "None"})).verdict, Verdict::Pass);
        assert_eq!(spec(json!({"ports": []})).verdict, Verdict::Pass);
        let external = [service("helm", "f:externalIPs", &Value::Null)];
        assert_eq!(judge(&external, &moves(true)).verdict, Verdict::Warn);
        assert_eq!(
            judge(&external, &moves(false)).verdict,
            Verdict::Pass,
            "a shadow does not use that field"
        );
        let other = [service("helm", "f:clusterIP", &Value::Null)];
        assert_eq!(judge(&other, &BTreeMap::new()).verdict, Verdict::Pass, "it does not move");
    }
}
