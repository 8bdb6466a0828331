//! Reads and writes the nodes' documents about clients of old addresses. A document is in a file, or in a ConfigMap with the name
//! of its Node.

use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::evidence::{Evidence, documents};
use crate::kube_api::{Cluster, ClusterError, MANAGED_BY};
use crate::session::{Failure, Ui};

/// The namespace of the ConfigMaps in `deploy/evidence.yaml`.
pub const NAMESPACE: &str = "netsurgeon-evidence";
/// Label of the documents. Other ConfigMaps in the namespace, such as `kube-root-ca.crt`, do not have it.
const PART: (&str, &str) = ("netsurgeon.io/part", "evidence");
const KEY: &str = "evidence.json";

/// Writes a node's document into its ConfigMap.
pub async fn publish(cluster: &Cluster, namespace: &str, found: &Evidence) -> Result<(), ClusterError> {
    let text = serde_json::to_string(found).unwrap_or_default();
    let labels = json!({MANAGED_BY.0: MANAGED_BY.1, PART.0: PART.1});
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": found.node, "namespace": namespace, "labels": labels},
        "data": {KEY: text},
    });
    cluster.apply(&map).await.map(drop)
}

/// Returns the documents that the nodes published. Reports and ignores an unreadable document, so that an invalid document of one
/// node blocks only the operations that need the evidence of this node.
pub async fn published(ui: &Ui, cluster: &Cluster, namespace: &str) -> Result<Vec<Evidence>, Failure> {
    let selector = format!("{}={}", PART.0, PART.1);
    let maps: Vec<ConfigMap> = cluster.objects(Some(namespace), Some(&selector)).await?;
    let mut found = Vec::new();
    for map in &maps {
        let name = map.metadata.name.as_deref().unwrap_or_default();
        let text = map.data.as_ref().and_then(|data| data.get(KEY));
        match documents(text.map(String::as_str).unwrap_or_default()) {
            Ok(read) => found.extend(read.into_iter().filter(|document| document.node == name)),
            Err(reason) => ui.warn(&format!(
                "the evidence in ConfigMap `{namespace}/{name}` is ignored: {reason}; its node recreates it after `kubectl \
                 -n {namespace} delete configmap {name}`"
            )),
        }
    }
    Ok(found)
}

/// Reads the documents of a file.
pub fn read(path: &Path) -> Result<Vec<Evidence>, Failure> {
    let unusable = |failure: Failure| {
        failure.context(format!("cannot use the evidence in `{}`", path.display()))
            .hint("give the output of `netsurgeon audit --old CIDR --host --flows --for SECONDS -o json` of each node, with `--node NAME` if its host has another name")
    };
    let text = std::fs::read_to_string(path).map_err(|error| unusable(error.into()))?;
    documents(&text).map_err(|reason| unusable(Failure::refused(reason)))
}
