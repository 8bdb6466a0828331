//! The ExternalDNS of the cluster. ExternalDNS writes the records of objects to any DNS provider that it supports. netsurgeon
//! changes the annotations of the objects, and waits until every name server of the zone returns the records that follow from
//! the annotations.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::rfc2136::Rfc2136;
use super::{Behind, Compared, Expected, Provider};
use crate::dns::annotations::{in_text, present};
use crate::dns::straight_rollback::Place;
use crate::dns::{Annotating, Annotations, Change, Cutover, Name, Published};
use crate::inventory::host_object::HostObject;
use crate::kube_api::{Cluster, ClusterError};
use crate::nameserver::{RecordKind, RecordSet};
use crate::operation::{Fence, StepFault};
use crate::session::Failure;

/// A zone with records that ExternalDNS writes.
pub(super) struct ByExternalDns {
    servers: Rfc2136,
    cluster: Cluster,
    delay: Duration,
    /// For each name, the object from which ExternalDNS publishes the name, and the record sets before the cutover.
    published: BTreeMap<String, (Published, Vec<RecordSet>)>,
}

impl ByExternalDns {
    /// Returns the zone of a cutover.
    pub fn new(servers: Rfc2136, cluster: Cluster, delay: Duration, work: &Cutover) -> Self {
        let of = |name: &Name| Some((name.name.clone(), (name.published.clone()?, name.before.clone())));
        Self { servers, cluster, delay, published: work.names.iter().filter_map(of).collect() }
    }

    /// Reads an object; fails with [`StepFault::Skip`] if it does not exist.
    async fn get(&self, object: &HostObject) -> Result<Value, StepFault> {
        let found = self.cluster.get(&object.reference()).await.map_err(|error| fault(&error))?;
        found.ok_or_else(|| StepFault::Skip(format!("{object} no longer exists")))
    }
}

fn fault(error: &ClusterError) -> StepFault {
    match error {
        // The user can be allowed to change the objects of other namespaces.
        ClusterError::Forbidden { .. } => StepFault::Skip(
            [Some(error.to_string()), error.hint().map(str::to_string)]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join("; "),
        ),
        // Another client changed the object after it was read.
        ClusterError::Conflict { .. } => StepFault::Retry { why: error.to_string(), after: None },
        error if error.is_transient() => StepFault::InDoubt(error.to_string()),
        _ => StepFault::of(error),
    }
}

/// Compares the current annotations of an object with a change.
fn compared(object: &Value, change: &Annotating) -> Compared {
    let present = present(&change.from, object);
    match () {
        () if present == change.to => Compared::After,
        () if present == change.from => Compared::Before,
        () => Compared::Neither(changed(&change.object, &present)),
    }
}

fn changed(object: &HostObject, present: &Annotations) -> String {
    format!("another client changed the annotations of {object}: {}", in_text(present))
}

#[async_trait]
impl Provider for ByExternalDns {
    /// Checks that the user is allowed to change the objects, and that all servers serve the same version of the zone.
    async fn check(&self, _work: &Cutover) -> Result<(), Failure> {
        let objects = self.published.values().map(|(published, _)| &published.object);
        let places: BTreeSet<_> =
            objects.map(|object| (object.kind.resource(), object.namespace.as_str())).collect();
        for (resource, namespace) in places {
            for verb in ["get", "patch"] {
                if !self.cluster.may(verb, resource, Some(namespace)).await? {
                    let text = format!("the user is not allowed to {verb} {} in `{namespace}`", resource.1);
                    return Err(Failure::refused(text).hint(
                        "bind the ClusterRole `netsurgeon-dns-annotations` of deploy/rbac.yaml to this user",
                    ));
                }
            }
        }
        self.servers.refuse_behind().await
    }

    async fn read(&self, name: &str, kinds: &[RecordKind]) -> Result<Vec<RecordSet>, StepFault> {
        self.servers.read(name, kinds).await
    }

    async fn compare(&self, change: &Change) -> Result<Compared, StepFault> {
        let Some(annotating) = &change.annotating else { return Ok(Compared::After) };
        Ok(compared(&self.get(&annotating.object).await?, annotating))
    }

    async fn find(&self, places: &[Place]) -> Result<Result<usize, String>, StepFault> {
        let Some((object, known)) = places.iter().find_map(|place| place.published.as_ref()) else {
            return Ok(Err("the plan has no object for the name".to_string()));
        };
        let present = present(known, &self.get(object).await?);
        let is_there =
            |place: &Place| place.published.as_ref().is_some_and(|(_, annotations)| *annotations == present);
        Ok(places.iter().position(is_there).ok_or_else(|| changed(object, &present)))
    }

    /// Changes the annotations only if the object still has the version that was just read.
    async fn replace(&self, change: &Change, fence: &dyn Fence) -> Result<Value, StepFault> {
        let Some(annotating) = &change.annotating else { return Ok(Value::Null) };
        let object = self.get(&annotating.object).await?;
        if let Compared::Neither(why) = compared(&object, annotating) {
            return Err(StepFault::Skip(why));
        }
        let version = object.pointer("/metadata/resourceVersion");
        let patch = json!({"metadata": {"resourceVersion": version, "annotations": annotating.to}});
        fence.still_ours().await?;
        let patched = self.cluster.merge(&annotating.object.reference(), &patch).await;
        patched.map(|_| Value::Null).map_err(|error| fault(&error))
    }

    /// The annotations show whether another client changed the name. ExternalDNS writes the record sets later.
    async fn is_unchanged(
        &self,
        name: &str,
        _kinds: &[RecordKind],
        sets: &[RecordSet],
    ) -> Result<bool, StepFault> {
        let Some((published, old)) = self.published.get(name) else { return Ok(false) };
        let expected = published.annotations(sets, old);
        let object = match self.get(&published.object).await {
            Err(StepFault::Skip(_)) => return Ok(false),
            object => object?,
        };
        Ok(present(&expected, &object) == expected)
    }

    fn delay(&self) -> Duration {
        self.delay
    }

    /// If the server of the plan does not serve the records, ExternalDNS has not written them: a rollback must not end then.
    async fn behind(&self, names: &[Expected<'_>]) -> Vec<Behind> {
        let server = self.servers.primary();
        let at = server.at().to_string();
        let decisive = self.servers.behind_at(&at, server, names).await;
        let decisive = decisive.map(|behind| Behind { is_decisive: true, ..behind });
        match decisive {
            Some(behind) => vec![behind],
            None => self.servers.behind(names).await,
        }
    }
}
