//! `stateless`: which objects are not copied, or are copied without their data or endpoints.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Volume};
use serde_json::{Map, Value};

use super::Mirror;
use crate::inventory::kinds::is_made_anew;
use crate::inventory::pod::{TrimmedPod, is_alive};
use crate::inventory::pod_templates::Template;
use crate::inventory::service::TrimmedService;
use crate::kube_api::accessors::{Labels, controller, subject};
use crate::preflight::{Check, Judged, Read, Source, first_few};

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "stateless",
    why: "stateful workloads and their data are not copied",
    needs: &[Source::Api],
    judge: |input| Box::pin(read(input)),
};

async fn read(input: &Mirror) -> Read<Judged> {
    let (sets, claims, services, pods) = tokio::try_join!(
        input.source.selected(),
        input.source.selected(),
        input.source.selected(),
        input.source.selected()
    )?;
    Ok(judge(input.source.templates().await?, &sets, &claims, &services, &pods))
}

/// Volume types without their own data. Their content is copied, is recreated, or comes with an image (`VolumeSource`,
/// `k8s.io/api/core/v1/types.go`, v1.36.3). `persistentVolumeClaim` and `hostPath` are reported separately.
const WITHOUT_DATA: [&str; 11] = [
    "name",
    "configMap",
    "secret",
    "emptyDir",
    "projected",
    "downwardAPI",
    "ephemeral",
    "image",
    "gitRepo",
    "persistentVolumeClaim",
    "hostPath",
];

/// Checks for objects that are not copied, or that are copied without their data or endpoints.
fn judge(
    templates: &[Template],
    sets: &[StatefulSet],
    claims: &[PersistentVolumeClaim],
    services: &[TrimmedService],
    pods: &[TrimmedPod],
) -> Judged {
    let with = |is_it: fn(&Volume) -> bool| -> Vec<String> {
        let holding = templates.iter().filter(|template| template.volumes().any(is_it));
        holding.map(|one| one.of.clone()).collect()
    };
    let bare = pods.iter().filter(|pod| is_alive(pod) && controller(*pod).is_none());
    let by_hand = services.iter().filter(|service| is_without_selector(service));
    let lists: [(&str, Vec<String>); 7] = [
        ("StatefulSets", sets.iter().map(subject).collect()),
        ("PersistentVolumeClaims", claims.iter().map(subject).collect()),
        ("templates with a claim", with(|volume| volume.persistent_volume_claim.is_some())),
        ("templates with a `hostPath`", with(|volume| volume.host_path.is_some())),
        ("templates with an external volume", templates.iter().filter_map(elsewhere).collect()),
        ("Pods without a controller", bare.map(subject).collect()),
        ("Services without a selector, whose endpoints are not copied", by_hand.map(subject).collect()),
    ];
    let told = lists.iter().filter(|(_, list)| !list.is_empty());
    let told: Vec<String> =
        told.map(|(what, list)| format!("{what} ({}): {}", list.len(), first_few(list))).collect();
    if told.is_empty() {
        return Judged::pass("no StatefulSet, claim, volume with data, or object created by hand");
    }
    Judged::warn(
        told.join("; "),
        "StatefulSets, PersistentVolumeClaims and Pods without a controller are not copied; the other listed objects are copied without their data and endpoints: let both clusters use one external database, move the data with its own tools, or exclude \
         the namespace; create Pods without a controller, and endpoints, by hand on the mirror (`kubectl apply`)",
    )
}

/// Returns a template and the types of its volumes that can contain data, as text. Returns `None` if there are no such volumes.
/// In JSON, the type of a volume is the name of its field.
fn elsewhere(template: &Template) -> Option<String> {
    let volumes = serde_json::to_value(&template.spec.volumes).unwrap_or_default();
    let volumes = volumes.as_array().into_iter().flatten().filter_map(Value::as_object);
    let kinds = volumes.flat_map(Map::keys).filter(|kind| !WITHOUT_DATA.contains(&kind.as_str()));
    let kinds: BTreeSet<String> = kinds.map(|kind| format!("`{kind}`")).collect();
    let kinds: Vec<String> = kinds.into_iter().collect();
    (!kinds.is_empty()).then(|| format!("{} ({})", template.of, kinds.join(", ")))
}

fn is_without_selector(service: &TrimmedService) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.selector.as_ref()).is_none_or(Labels::is_empty)
        && spec.and_then(|spec| spec.type_.as_deref()) != Some("ExternalName")
        && !is_made_anew("Service", &service.metadata)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inventory::pod_templates::testing::{deployed, typed};
    use crate::preflight::Verdict;

    #[test]
    fn objects_with_data_are_a_warning() {
        let plain = deployed(&json!({"volumes": [{"configMap": {}}]}));
        assert_eq!(judge(&plain, &[], &[], &[], &[]).verdict, Verdict::Pass);
        let volumes =
            json!({"volumes": [{"persistentVolumeClaim": {"claimName": "x"}}, {"hostPath": {"path": "/x"}}]});
        let kept = deployed(&volumes);
        let named = json!({"metadata": {"namespace": "shop", "name": "db"}});
        let (sets, claims) = ([typed(named.clone())], [typed(named)]);
        let judged = judge(&kept, &sets, &claims, &[], &[]);
        assert_eq!(
            judged.observed,
            "StatefulSets (1): `shop/db`; PersistentVolumeClaims (1): `shop/db`; templates with a claim (1): Deployment `shop/web`; templates with a `hostPath` (1): Deployment `shop/web`"
        );
    }

    #[test]
    fn objects_that_no_controller_recreates_are_a_warning() {
        let nfs = json!({"volumes": [{"name": "a", "nfs": {}}, {"name": "b", "ephemeral": {}}, {"name": "c", "csi": {}}]});
        let kept = deployed(&nfs);
        let service =
            |name: &str, spec: Value| json!({"metadata": {"namespace": "shop", "name": name}, "spec": spec});
        let mut own = service("kubernetes", json!({}));
        own["metadata"]["namespace"] = json!("default");
        let services = [
            service("db", json!({"type": "ClusterIP"})),
            service("none", json!({"selector": {}})),
            service("web", json!({"selector": {"app": "web"}})),
            service("out", json!({"type": "ExternalName"})),
            own,
        ]
        .map(typed);
        let mut pods =
            ["bare", "made", "over"].map(|name| json!({"metadata": {"namespace": "shop", "name": name}}));
        pods[1]["metadata"]["ownerReferences"] = json!([{"kind": "ReplicaSet", "controller": true}]);
        pods[2]["status"] = json!({"phase": "Succeeded"});
        let pods = pods.map(typed);
        assert_eq!(
            judge(&kept, &[], &[], &services, &pods).observed,
            "templates with an external volume (1): Deployment `shop/web` (`csi`, `nfs`); Pods without a controller (1): `shop/bare`; \
             Services without a selector, whose endpoints are not copied (2): `shop/db`, `shop/none`"
        );
    }
}
