//! Whether a namespace of the mirror still contains objects, so that its deletion would delete the objects of other clients.

use std::collections::BTreeSet;

use futures_util::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::inventory::AT_ONCE;
use crate::inventory::kinds::{Copying, copying_of, is_made_anew};
use crate::kube_api::{Cluster, ClusterError, ServedKind};

/// Returns an object of a namespace that neither the API server nor a controller creates; `None` if there is none.
pub(super) async fn first_object(cluster: &Cluster, namespace: &str) -> Result<Option<String>, ClusterError> {
    let served = cluster.served_kinds().await?;
    let mut seen = BTreeSet::new();
    let is_asked = |kind: &ServedKind| {
        let is_stored = kind.is_namespaced && kind.verbs.contains("list") && kind.verbs.contains("create");
        is_stored && !is_by_controller(kind) && seen.insert((kind.group.clone(), kind.plural.clone()))
    };
    let mut asked = served.kinds;
    asked.retain(is_asked);
    let mut questions = Vec::with_capacity(asked.len());
    for kind in asked {
        questions.push(first_of_kind(cluster, namespace, kind));
    }
    let mut answers = stream::iter(questions).buffered(AT_ONCE);
    while let Some(answer) = answers.next().await {
        if let Some(found) = answer? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

async fn first_of_kind(
    cluster: &Cluster,
    namespace: &str,
    kind: ServedKind,
) -> Result<Option<String>, ClusterError> {
    let is_wanted = |one: &ObjectMeta| !is_made_anew(&kind.kind, one);
    let found = cluster.first_of(&kind, Some(namespace), &[], is_wanted).await?;
    let name = |name: &String| format!("{} {namespace}/{name}", kind.kind);
    Ok(found.and_then(|found| found.name.as_ref().map(name)))
}

/// Returns whether a controller or the API server creates every object of a kind. A Pod can have no controller.
fn is_by_controller(kind: &ServedKind) -> bool {
    kind.plural != "pods" && matches!(copying_of(&kind.group, &kind.plural), Some(Copying::MadeAnew(_)))
}
