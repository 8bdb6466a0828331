//! A Service that does nothing, made to see how an API server stores one, and removed.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use serde_json::json;

use super::barrier::passing;
use super::{Cluster, ClusterError};

impl Cluster {
    /// Makes a headless Service without a selector, which has no address and no endpoints, and gives its name to `look`;
    /// removes it whatever comes of that. One that is left behind by a killed process goes with a later barrier.
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
