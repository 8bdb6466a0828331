//! A Service that does nothing, made to see how an API server stores one, and removed.

use serde_json::{Value, json};

use super::barrier::{OPERATION, PART};
use super::{Cluster, ClusterError, MANAGED_BY, ObjectRef};

impl Cluster {
    /// Makes a headless Service without a selector, which has no address and no endpoints, and gives its name to `look`;
    /// removes it whatever comes of that. One that is left behind by a killed process goes with a later barrier.
    pub async fn with_a_trial<T>(
        &self,
        namespace: &str,
        look: impl AsyncFnOnce(&str) -> T,
    ) -> Result<T, ClusterError> {
        let unique: String = uuid::Uuid::new_v4().simple().to_string().chars().take(16).collect();
        let name = format!("netsurgeon-trial-{unique}");
        let labels = json!({MANAGED_BY.0: MANAGED_BY.1, PART.0: PART.1, OPERATION: "trial"});
        let made = self
            .create(&json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
                "spec": {"clusterIP": "None", "ports": [{"port": 1, "protocol": "TCP"}]},
            }))
            .await?;
        let seen = look(&name).await;
        let uid = made.pointer("/metadata/uid").and_then(Value::as_str);
        self.delete(&ObjectRef::of(&made)?, uid).await?;
        Ok(seen)
    }
}
