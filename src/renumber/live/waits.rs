//! What a renumbering waits for, each looked at until it is true or its time is up.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::LiveWorld;
use crate::cluster::{ApiServerClient, ClusterError, ObjectRef};
use crate::ip::Family;
use crate::operation::{Wait, WorldError};
use crate::renumber::intention::Move;
use crate::renumber::steps::word;
use crate::store::{Key, Revision, StoreError};
use crate::survey::{Era, Layout};

/// A look costs a few requests to every API server.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What a look has found instead of what is waited for.
pub(super) enum NotYet {
    /// It may come.
    Seen(String),
    /// It will not.
    Never(WorldError),
}

impl From<ClusterError> for NotYet {
    fn from(error: ClusterError) -> Self {
        if error.is_transient() { Self::Seen(error.to_string()) } else { Self::Never(error.into()) }
    }
}

impl From<StoreError> for NotYet {
    fn from(error: StoreError) -> Self {
        Self::Never(WorldError(error.to_string()))
    }
}

impl LiveWorld<'_> {
    pub(super) async fn wait_for(&self, wait: &Wait) -> Result<(), WorldError> {
        if wait.name == word::LINGER {
            sleep(self.options.linger).await;
            return Ok(());
        }
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            // A look may put copies of endpoints in step, and a barrier makes a Service: not without the lock.
            self.look_at_guards().await?;
            let seen = match self.look(wait).await {
                Ok(()) => break,
                Err(NotYet::Never(error)) => return Err(error),
                Err(NotYet::Seen(seen)) => seen,
            };
            let deadline = self.options.deadline;
            if begun.elapsed().saturating_add(pause) >= deadline {
                let (seconds, until) = (deadline.as_secs(), &wait.until);
                return Err(WorldError(format!("not within {seconds} s: {until}; seen last: {seen}")));
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
        // The nodes come last: what they have applied must include what was looked at.
        if wait.name == word::BARRIER {
            self.look_at_guards().await?;
            self.barrier().await?;
        }
        Ok(())
    }

    /// Whoever has the lock now may have undone what is waited for.
    async fn look_at_guards(&self) -> Result<(), WorldError> {
        for guard in &self.options.guards {
            let entry = self.store.get(guard.key()).await.map_err(|error| WorldError(error.to_string()))?;
            if !guard.holds(entry.as_ref()) {
                return Err(WorldError(format!("given up: `{}` is not ours any more", guard.key())));
            }
        }
        Ok(())
    }

    async fn look(&self, wait: &Wait) -> Result<(), NotYet> {
        let moves = wait.batch.map(|batch| self.work.batch(batch)).unwrap_or_default();
        match wait.name.as_str() {
            word::BARRIER | word::SEEN => self.api_servers_have_seen(moves).await,
            word::ENDPOINTS => self.shadows_have_endpoints(moves).await,
            word::ALLOCATION => self.allocation_has(&self.work.to.to_string()).await,
            word::ALLOCATION_BACK => {
                let before = self.work.bitmap.as_ref().map(|bitmap| bitmap.from.as_str());
                self.allocation_has(before.unwrap_or_default()).await
            }
            word::RANGE_READY => self.range_is_ready().await,
            word::RANGE_REPLACED => self.range_is_replaced().await,
            word::TEMPORARY_GONE => self.temporary_is_gone().await,
            other => Err(NotYet::Never(WorldError(format!("nobody knows how to wait for `{other}`")))),
        }
    }

    /// Returns a client of every API server, all of which are ready.
    async fn ready_api_servers(&self) -> Result<Vec<ApiServerClient>, NotYet> {
        let mut clients = Vec::new();
        for server in self.cluster.api_servers().await? {
            let client = self.cluster.dial(server).await?;
            client.ready().await?;
            clients.push(client);
        }
        Ok(clients)
    }

    /// Whether every API server is ready, and has in its cache the Services of these moves, their shadows and their
    /// IPAddress objects as they are in etcd now. A repair loop that is told of a Service before it is told what
    /// became of its address would take the address for a broken one, delete it and make it again (`syncService`,
    /// `pkg/registry/core/service/ipallocator/controller/repairip.go`, v1.36.3).
    async fn api_servers_have_seen(&self, moves: &[Move]) -> Result<(), NotYet> {
        let clients = self.ready_api_servers().await?;
        if self.work.era == Era::Bitmap {
            return Ok(());
        }
        let layout = Layout::new(&self.work.prefix);
        let (mut services, mut addresses) = (Vec::new(), Vec::new());
        for candidate in moves {
            let shadow = candidate.shadow.as_ref();
            let temporary = shadow.iter().flat_map(|shadow| shadow.temporary);
            for address in [candidate.old_address, candidate.new_address].into_iter().chain(temporary) {
                let name = address.to_string();
                addresses.push((layout.ip_address(address), (None, name)));
            }
            let names = shadow.iter().flat_map(|shadow| [shadow.hold_name.as_str(), &shadow.warm_name]);
            for name in names.chain([candidate.name.as_str()]) {
                let key = layout.service(&candidate.namespace, name);
                services.push((key, (Some(candidate.namespace.as_str()), name.to_string())));
            }
        }
        let kinds = [("v1", "Service", services), (&self.work.api_version, "IPAddress", addresses)];
        for (api_version, kind, objects) in kinds {
            let Some(((namespace, name), revision)) = self.newest(objects).await? else { continue };
            let object = ObjectRef::new(api_version, kind, namespace, &name);
            for client in &clients {
                has_seen(client, &object, revision).await?;
            }
        }
        Ok(())
    }

    /// Returns which of these objects of a kind was changed last, and when: a cache that has got there has seen
    /// all the others.
    async fn newest<T>(&self, objects: Vec<(Key, T)>) -> Result<Option<(T, Revision)>, NotYet> {
        let mut newest: Option<(T, Revision)> = None;
        for (key, object) in objects {
            let Some(entry) = self.store.get(&key).await? else { continue };
            if newest.as_ref().is_none_or(|(_, revision)| *revision < entry.mod_revision) {
                newest = Some((object, entry.mod_revision));
            }
        }
        Ok(newest)
    }

    /// Whether each shadow has the endpoints of the Service that it stands in for. A shadow, or a Service, that
    /// is not there is none of this wait's concern: the steps that change it will say so.
    async fn shadows_have_endpoints(&self, moves: &[Move]) -> Result<(), NotYet> {
        for candidate in moves {
            let Some(shadow) = &candidate.shadow else { continue };
            if !self.service_exists(&candidate.namespace, &candidate.name).await? {
                continue;
            }
            let wanted = self.endpoints(&candidate.namespace, &candidate.name).await?;
            for name in [&shadow.hold_name, &shadow.warm_name] {
                if !self.service_exists(&candidate.namespace, name).await? {
                    continue;
                }
                if shadow.has_copies() {
                    self.copy_endpoints(candidate, name).await?;
                }
                let found = self.endpoints(&candidate.namespace, name).await?;
                if found != wanted {
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

    async fn service_exists(&self, namespace: &str, name: &str) -> Result<bool, NotYet> {
        let service = ObjectRef::new("v1", "Service", Some(namespace), name);
        Ok(self.cluster.get(&service).await?.is_some())
    }

    /// Returns the endpoints of a Service in the family that is renumbered: one text each, with everything that
    /// decides whether traffic goes there.
    async fn endpoints(&self, namespace: &str, name: &str) -> Result<BTreeSet<String>, NotYet> {
        let slices = self.cluster.slices(namespace, name).await?;
        Ok(slices.iter().flat_map(|slice| of_slice(slice, self.work.family)).collect())
    }

    /// Whether every API server has seen the ServiceCIDR of the new range to be ready. Its allocator follows a
    /// moment later, which [`LiveWorld::create`] sits out; it cannot be asked beforehand, because a dry run asks
    /// the allocator of any range (`MetaAllocator.DryRun`, `ipallocator/cidrallocator.go`, v1.36.3).
    async fn range_is_ready(&self) -> Result<(), NotYet> {
        let name = self.work.range_name();
        let object = ObjectRef::new(&self.work.api_version, "ServiceCIDR", None, &name);
        for client in self.ready_api_servers().await? {
            // Revision 0: as it is in this server's own cache.
            let found = client.get_not_older(&object, 0).await?;
            let conditions = found.as_ref().and_then(|found| found.pointer("/status/conditions"));
            let is_ready = |condition: &Value| {
                let is = |name, value| condition.get(name).and_then(Value::as_str) == Some(value);
                is("type", "Ready") && is("status", "True")
            };
            let list = conditions.and_then(Value::as_array);
            if !list.is_some_and(|conditions| conditions.iter().any(is_ready)) {
                let seen = conditions.map_or("no conditions".to_string(), ToString::to_string);
                let server = client.server();
                return Err(NotYet::Seen(format!("on the API server `{server}` {object} has {seen}")));
            }
        }
        Ok(())
    }
}

async fn has_seen(
    client: &ApiServerClient,
    object: &ObjectRef<'_>,
    revision: Revision,
) -> Result<(), NotYet> {
    let found = client.get_not_older(object, revision.0).await?;
    let version = found.as_ref().and_then(|found| found.pointer("/metadata/resourceVersion"));
    let version = version.and_then(Value::as_str);
    // The API's resourceVersion is etcd's mod_revision.
    if version.and_then(|text| text.parse::<i64>().ok()).is_some_and(|seen| seen >= revision.0) {
        return Ok(());
    }
    let seen = version.map_or("does not exist".to_string(), |version| format!("has revision {version}"));
    let server = client.server();
    Err(NotYet::Seen(format!("to the API server `{server}` {object} {seen}, in etcd it has {revision}")))
}

fn of_slice(slice: &Value, family: Family) -> Vec<String> {
    if slice.get("addressType").and_then(Value::as_str) != Some(family.to_string().as_str()) {
        return Vec::new();
    }
    let list =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut ports: Vec<String> = list(slice, "ports").iter().map(ToString::to_string).collect();
    ports.sort_unstable();
    let ports = ports.join(",");
    let mut found = Vec::new();
    for endpoint in list(slice, "endpoints") {
        let conditions = endpoint.get("conditions").cloned().unwrap_or_default();
        let conditions =
            ["ready", "serving", "terminating"].map(|name| conditions.get(name) == Some(&true.into()));
        let node = endpoint.get("nodeName").and_then(Value::as_str).unwrap_or_default().to_string();
        for address in list(&endpoint, "addresses") {
            found.push(format!("{address} {conditions:?} {node} {ports}"));
        }
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
            json!({
                "addressType": "IPv4", "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
                "endpoints": [{"addresses": ["10.244.1.2"], "nodeName": "a", "conditions": {"ready": ready}}],
            })
        };
        let of = |slice: &Value| of_slice(slice, Family::V4);
        assert_eq!(of(&slice(true, 80)).len(), 1);
        assert_eq!(of(&slice(true, 80)), of(&slice(true, 80)));
        assert_ne!(of(&slice(true, 80)), of(&slice(false, 80)));
        assert_ne!(of(&slice(true, 80)), of(&slice(true, 81)));
        assert_eq!(of_slice(&slice(true, 80), Family::V6), Vec::<String>::new());
    }
}
