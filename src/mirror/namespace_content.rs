//! Whether a namespace of the mirror still contains objects, so that its deletion would delete the objects of other clients.

use futures_util::{StreamExt as _, stream};
use std::collections::BTreeSet;

use crate::inventory::AT_ONCE;
use crate::inventory::kinds::{Copying, KINDS, is_made_anew};
use crate::kube_api::{Cluster, ClusterError, ServedKind};

/// Returns an object of a namespace that neither the API server nor a controller creates; `None` if there is none.
pub(super) async fn first_object(cluster: &Cluster, namespace: &str) -> Result<Option<String>, ClusterError> {
    let served = cluster.served_kinds().await?;
    let mut seen = BTreeSet::new();
    let is_asked = |kind: &&ServedKind| {
        let is_stored = kind.is_namespaced && kind.verbs.contains("list") && kind.verbs.contains("create");
        is_stored && !is_by_controller(kind) && seen.insert((kind.group.clone(), kind.plural.clone()))
    };
    let asked: Vec<&ServedKind> = served.kinds.iter().filter(is_asked).collect();
    let answers = asked.into_iter().map(async |kind| {
        let found = cluster.first_of(kind, Some(namespace), &[], |one| !is_made_anew(&kind.kind, one)).await?;
        let name = |name: &String| format!("{} {namespace}/{name}", kind.kind);
        Ok::<_, ClusterError>(found.and_then(|found| found.name.as_ref().map(name)))
    });
    let mut answers = stream::iter(answers).buffered(AT_ONCE);
    while let Some(answer) = answers.next().await {
        if let Some(found) = answer? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns whether a controller or the API server creates every object of a kind. A Pod can have no controller.
fn is_by_controller(kind: &ServedKind) -> bool {
    let of = (kind.group.as_str(), kind.plural.as_str());
    let rule = KINDS.iter().find(|rule| rule.resource == of);
    of.1 != "pods" && rule.is_some_and(|rule| matches!(rule.copying, Copying::MadeAnew(_)))
}
