//! Shadow Services that are to have the endpoints of the Services that they stand in for: they follow selector and ports
//! of the Service as it is, which may have changed since it was planned.

use std::collections::BTreeSet;

use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::LiveEnvironment;
use super::waits::NotYet;
use crate::cluster::{Cluster, ClusterError, ObjectRef};
use crate::ip::Family;
use crate::operation::Fault;
use crate::renumber::guard::{Followed, behind};
use crate::renumber::intention::Move;
use crate::survey::{Layout, ServiceRecord};
use crate::wire::StoredService;

impl LiveEnvironment<'_> {
    /// Whether each shadow has the endpoints of the Service that it stands in for. A shadow, or a Service, that
    /// is not there is none of this wait's concern: the steps that change it will say so.
    pub(super) async fn shadows_have_endpoints(
        &self,
        moves: impl Iterator<Item = &Move>,
    ) -> Result<(), NotYet> {
        for candidate in moves {
            let Some(shadow) = &candidate.shadow else { continue };
            let Some(service) = self.record(&candidate.namespace, &candidate.name).await? else { continue };
            let wanted = self.endpoints(&candidate.namespace, &candidate.name).await?;
            for name in shadow.names() {
                let Some(stands_in) = self.stored(&candidate.namespace, name).await? else { continue };
                if let Some(follow) = behind(candidate, &service, &stands_in, self.work.family) {
                    self.follow(&follow.namespace, name, &follow.what).await?;
                }
                // Its owner may have taken the selector away since it was planned.
                if service.spec.selector.is_empty() || shadow.has_copies() {
                    self.copy_endpoints(candidate, name).await?;
                }
                let found = self.endpoints(&candidate.namespace, name).await?;
                // The garbage collector may have deleted the EndpointSlices of one that is being deleted.
                let is_behind =
                    if service.is_being_deleted { !found.is_superset(&wanted) } else { found != wanted };
                if is_behind {
                    let (found, wanted) = (found.len(), wanted.len());
                    return Err(NotYet::Seen(format!(
                        "the shadow `{}/{name}` has other endpoints ({found}) than `{}` ({wanted})",
                        candidate.namespace, candidate.name
                    )));
                }
            }
        }
        Ok(())
    }

    /// Whether each Service is gone that was deleted while a finalizer kept it. One that may not be deleted has moved
    /// all the same: it is no reason to stop.
    pub(super) async fn deleted_are_gone(&self, moves: impl Iterator<Item = &Move>) -> Result<(), NotYet> {
        for candidate in moves {
            let found = self.record(&candidate.namespace, &candidate.name).await?;
            let is_left = found.is_some_and(|it| it.uid == candidate.uid && it.is_left_over());
            if is_left && delete_again(self.cluster, candidate).await?.is_none() {
                return Err(NotYet::Seen(format!("Service `{}` is being deleted", candidate.subject())));
            }
        }
        Ok(())
    }

    /// Gives a shadow without a selector the endpoints of its Service.
    async fn copy_endpoints(&self, candidate: &Move, shadow: &str) -> Result<(), NotYet> {
        let (namespace, of) = (&candidate.namespace, (candidate.name.as_str(), shadow));
        let changes = self.cluster.slice_changes(namespace, of, self.work.family).await?;
        match self.cluster.change_slices(namespace, &changes).await {
            Err(error @ (ClusterError::Conflict { .. } | ClusterError::AlreadyExists { .. })) => {
                Err(NotYet::Seen(error.to_string()))
            }
            outcome => Ok(outcome?),
        }
    }

    /// Gives a shadow the selector and the ports of its Service.
    async fn follow(&self, namespace: &str, shadow: &str, what: &Followed) -> Result<(), NotYet> {
        let Followed::Spec(change) = what else { return Ok(()) };
        let object = ObjectRef::new("v1", "Service", Some(namespace), shadow);
        match self.cluster.merge(&object, change).await {
            Ok(_) => {
                tracing::info!(%object, "it has the selector and ports of its Service again");
                Ok(())
            }
            Err(error @ ClusterError::Conflict { .. }) => Err(NotYet::Seen(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a shadow. One that is being deleted is none: the garbage collector may have deleted its EndpointSlices, and no
    /// controller creates them again.
    async fn stored(&self, namespace: &str, name: &str) -> Result<Option<ServiceRecord>, NotYet> {
        let found = self.record(namespace, name).await?;
        Ok(found.filter(|service| !service.is_being_deleted))
    }

    async fn record(&self, namespace: &str, name: &str) -> Result<Option<ServiceRecord>, NotYet> {
        let key = Layout::new(&self.work.prefix).service(namespace, name);
        let Some(entry) = self.store.get(&key).await? else { return Ok(None) };
        let service = StoredService::decode(&entry.value)
            .map_err(|error| NotYet::Never(Fault::Halt(format!("`{key}`: {error}"))))?;
        Ok(Some(ServiceRecord::of(key, entry.mod_revision, service)))
    }

    /// Returns the endpoints of a Service in the family that is renumbered: one text each, with everything that
    /// decides whether traffic goes there.
    async fn endpoints(&self, namespace: &str, name: &str) -> Result<BTreeSet<String>, NotYet> {
        let slices = self.cluster.endpoint_slices(namespace, name).await?;
        Ok(slices.iter().flat_map(|slice| of_slice(slice, self.work.family)).collect())
    }
}

/// Asks the API to delete a Service that somebody has deleted and no finalizer keeps any more. Returns why a policy, a webhook
/// or the API refuses that, if one does.
pub async fn delete_again(cluster: &Cluster, candidate: &Move) -> Result<Option<ClusterError>, ClusterError> {
    let object = ObjectRef::new("v1", "Service", Some(&candidate.namespace), &candidate.name);
    match cluster.delete(&object, Some(&candidate.uid)).await {
        // Another one has its name by now.
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
    fn endpoints_differ_by_what_decides_where_traffic_goes() {
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
