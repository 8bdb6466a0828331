//! Updates shadow Services. A shadow must have the endpoints of its Service. So the shadow gets the current selector and ports of
//! the Service, which may have changed after planning.

use std::collections::BTreeSet;

use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::LiveEnvironment;
use super::waits::WaitStatus;
use crate::ip::Family;
use crate::kube_api::{Cluster, ClusterError, ObjectRef};
use crate::operation::StepFault;
use crate::renumber::guard::{Followed, behind};
use crate::renumber::intention::Move;
use crate::survey::{Layout, ServiceRecord};
use crate::wire::StoredService;

impl LiveEnvironment<'_> {
    /// Checks that each shadow has the endpoints of its Service, and updates shadows that differ. Ignores a missing shadow or
    /// Service, because the steps that change the missing object report it.
    pub(super) async fn shadows_have_endpoints(
        &self,
        moves: impl Iterator<Item = &Move>,
    ) -> Result<(), WaitStatus> {
        for candidate in moves {
            let Some(shadow) = &candidate.shadow else { continue };
            let Some(service) = self.record(&candidate.namespace, &candidate.name).await? else { continue };
            let wanted = self.endpoints(&candidate.namespace, &candidate.name).await?;
            for name in shadow.names() {
                let Some(stands_in) = self.stored(&candidate.namespace, name).await? else { continue };
                if let Some(follow) = behind(candidate, &service, &stands_in, self.work.family) {
                    self.follow(&follow.namespace, name, &follow.what).await?;
                }
                // The owner may have removed the selector of the Service after planning.
                if service.spec.selector.is_empty() || shadow.has_copies() {
                    self.copy_endpoints(candidate, name).await?;
                }
                let found = self.endpoints(&candidate.namespace, name).await?;
                // If the Service is being deleted, the garbage collector may have deleted its EndpointSlices.
                let is_behind =
                    if service.is_being_deleted { !found.is_superset(&wanted) } else { found != wanted };
                if is_behind {
                    let (found, wanted) = (found.len(), wanted.len());
                    return Err(WaitStatus::Pending(format!(
                        "the endpoints of shadow `{}/{name}` ({found}) differ from the endpoints of `{}` ({wanted})",
                        candidate.namespace, candidate.name
                    )));
                }
            }
        }
        Ok(())
    }

    /// Checks that every Service whose deletion a finalizer delayed is now deleted. If such a Service remains, deletes the
    /// Service again. If the deletion is refused, the operation still continues, because the move itself is complete.
    pub(super) async fn deleted_are_gone(
        &self,
        moves: impl Iterator<Item = &Move>,
    ) -> Result<(), WaitStatus> {
        for candidate in moves {
            let found = self.record(&candidate.namespace, &candidate.name).await?;
            let is_left = found.is_some_and(|it| it.uid == candidate.uid && it.is_left_over());
            if is_left && delete_again(self.cluster, candidate).await?.is_none() {
                return Err(WaitStatus::Pending(format!(
                    "Service `{}` is being deleted",
                    candidate.subject()
                )));
            }
        }
        Ok(())
    }

    /// Copies the endpoints of a Service to its shadow, which has no selector.
    async fn copy_endpoints(&self, candidate: &Move, shadow: &str) -> Result<(), WaitStatus> {
        let (namespace, of) = (&candidate.namespace, (candidate.name.as_str(), shadow));
        let changes = self.cluster.slice_changes(namespace, of, self.work.family).await?;
        match self.cluster.change_slices(namespace, &changes).await {
            Err(error @ (ClusterError::Conflict { .. } | ClusterError::AlreadyExists { .. })) => {
                Err(WaitStatus::Pending(error.to_string()))
            }
            outcome => Ok(outcome?),
        }
    }

    /// Gives a shadow the selector and the ports of its Service.
    async fn follow(&self, namespace: &str, shadow: &str, what: &Followed) -> Result<(), WaitStatus> {
        let Followed::Spec(change) = what else { return Ok(()) };
        let object = ObjectRef::new("v1", "Service", Some(namespace), shadow);
        match self.cluster.merge(&object, change).await {
            Ok(_) => {
                tracing::info!(%object, "updated to the selector and ports of its Service");
                Ok(())
            }
            Err(error @ ClusterError::Conflict { .. }) => Err(WaitStatus::Pending(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a shadow. Also returns `None` for a shadow that is being deleted, because the garbage collector may have deleted its
    /// EndpointSlices, and no controller recreates them.
    async fn stored(&self, namespace: &str, name: &str) -> Result<Option<ServiceRecord>, WaitStatus> {
        let found = self.record(namespace, name).await?;
        Ok(found.filter(|service| !service.is_being_deleted))
    }

    async fn record(&self, namespace: &str, name: &str) -> Result<Option<ServiceRecord>, WaitStatus> {
        let key = Layout::new(&self.work.prefix).service(namespace, name);
        let Some(entry) = self.store.get(&key).await? else { return Ok(None) };
        let service = StoredService::decode(&entry.value)
            .map_err(|error| WaitStatus::Failed(StepFault::Halt(format!("`{key}`: {error}"))))?;
        Ok(Some(ServiceRecord::of(key, entry.mod_revision, service)))
    }

    /// Returns the endpoints of a Service in the renumbered IP family. Each endpoint is a text with all values that decide
    /// whether it gets traffic.
    async fn endpoints(&self, namespace: &str, name: &str) -> Result<BTreeSet<String>, WaitStatus> {
        let slices = self.cluster.endpoint_slices(namespace, name).await?;
        Ok(slices.iter().flat_map(|slice| of_slice(slice, self.work.family)).collect())
    }
}

/// Repeats the deletion of a Service that has a deletion timestamp but no finalizer. Returns the error if a policy, a webhook or
/// the API refuses the deletion.
pub async fn delete_again(cluster: &Cluster, candidate: &Move) -> Result<Option<ClusterError>, ClusterError> {
    let object = ObjectRef::new("v1", "Service", Some(&candidate.namespace), &candidate.name);
    match cluster.delete(&object, Some(&candidate.uid)).await {
        // A conflict means that another Service has this name now.
        Ok(()) | Err(ClusterError::Conflict { .. }) => Ok(None),
        Err(error) if error.is_of_one_object() => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

fn of_slice(slice: &EndpointSlice, family: Family) -> Vec<String> {
    if slice.address_type != family.to_string() {
        return Vec::new();
    }
    let mut ports: Vec<String> = slice.ports.iter().flatten().map(|port| format!("{port:?}")).collect();
    ports.sort_unstable();
    let ports = ports.join(",");
    let mut found = Vec::new();
    for endpoint in slice.endpoints.iter().flatten() {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let conditions = [conditions.ready, conditions.serving, conditions.terminating];
        let conditions = conditions.map(Option::unwrap_or_default);
        let node = endpoint.node_name.as_deref().unwrap_or_default();
        let texts =
            endpoint.addresses.iter().map(|address| format!("{address} {conditions:?} {node} {ports}"));
        found.extend(texts);
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn endpoints_differ_by_values_that_route_traffic() {
        let slice = |ready: bool, port: u16| {
            let slice = json!({
                "addressType": "IPv4", "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
                "endpoints": [{"addresses": ["10.244.1.2"], "nodeName": "a", "conditions": {"ready": ready}}],
            });
            serde_json::from_value(slice).unwrap()
        };
        let of = |slice: &EndpointSlice| of_slice(slice, Family::V4);
        assert_eq!(of(&slice(true, 80)).len(), 1);
        assert_eq!(of(&slice(true, 80)), of(&slice(true, 80)));
        assert_ne!(of(&slice(true, 80)), of(&slice(false, 80)));
        assert_ne!(of(&slice(true, 80)), of(&slice(true, 81)));
        assert_eq!(of_slice(&slice(true, 80), Family::V6), Vec::<String>::new());
    }
}
