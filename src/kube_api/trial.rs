//! Creates a Service without traffic to check how an API server stores it, then deletes the Service.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use kube::api::PostParams;
use serde_json::json;

use super::barrier::passing;
use super::{Cluster, ClusterError};

impl Cluster {
    /// Creates a headless Service without a selector, and passes its name to `look`. The Service has no address and no endpoints.
    /// Deletes the Service afterwards, even if `look` returns an error. If this process is killed, a later barrier deletes the
    /// Service.
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
        let made: Service = self.connection.create(&manifest, &PostParams::default()).await?;
        let seen = look(&made.name_any()).await;
        self.remove(&made).await?;
        Ok(seen)
    }
}
