//! A Service without effect, created to check how an API server stores one, and deleted.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use serde_json::json;

use super::barrier::passing;
use super::{Cluster, ClusterError};

impl Cluster {
    /// Creates a headless Service without a selector, which has no address and no endpoints, and passes its name to `look`.
    /// Deletes it, also on failure. A later barrier deletes one that a killed process left behind.
    pub async fn with_a_trial<T>(
        &self,
        namespace: &str,
        look: impl AsyncFnOnce(&str) -> T,
    ) -> Result<T, ClusterError> {
        let manifest = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": passing("trial", namespace, "trial"),
            "spec": {"clusterIP": "None", "ports": [{"port": 1, "protocol": "TCP"}]},
        });
        let made: Service = self.connection.create(&manifest, false).await?;
        let seen = look(&made.name_any()).await;
        self.remove(&made).await?;
        Ok(seen)
    }
}
