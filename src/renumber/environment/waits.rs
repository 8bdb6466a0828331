//! Runs the waits of a renumbering: polls a condition until it holds or the deadline passes.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::LiveEnvironment;
use crate::ip::ServiceCidr;
use crate::kube_api::{ApiServerClient, ApiServerLease, ClusterError, ObjectRef};
use crate::operation::StepFault;
use crate::renumber::effect::Awaited;
use crate::renumber::intention::Move;
use crate::renumber::steps::Wait;
use crate::store::{Key, Revision, StoreError};
use crate::survey::{Era, Layout};

/// Pause after the first check. Each check sends a few requests to every API server.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The condition of a wait.
#[derive(Clone, Copy)]
pub(super) enum Look<'n> {
    /// The condition of a step of the plan.
    Step(&'n Wait),
    /// The ServiceCIDR of this name is ready on every API server.
    Ready(&'n str),
    /// The API servers' own ServiceCIDR has these ranges, and is ready.
    OwnRange(&'n [ServiceCidr]),
    /// The RangeAllocation has this range.
    Allocation(&'n str),
    /// An object with a deletion timestamp is deleted.
    Gone(&'n ObjectRef<'n>),
}

/// Reason why the condition of a wait does not hold yet.
pub(super) enum WaitStatus {
    /// The condition may still hold later; the text is the last observation.
    Pending(String),
    /// The condition will never hold.
    Failed(StepFault),
}

impl From<ClusterError> for WaitStatus {
    fn from(error: ClusterError) -> Self {
        if error.is_transient() { Self::Pending(error.to_string()) } else { Self::Failed(error.into()) }
    }
}

impl From<StoreError> for WaitStatus {
    fn from(error: StoreError) -> Self {
        Self::Failed(StepFault::Halt(error.to_string()))
    }
}

impl LiveEnvironment<'_> {
    pub(super) async fn wait_for(&self, wait: &Wait) -> Result<(), StepFault> {
        self.poll(&wait.until, Look::Step(wait)).await?;
        // The nodes are checked last, because they must have applied the changes that the API servers have observed.
        if wait.kind == Awaited::Barrier {
            self.look_at_guards().await?;
            self.barrier().await?;
        }
        Ok(())
    }

    /// Polls until the condition holds. Fails if the condition can never hold, or if the deadline passes. `until` names the
    /// condition in messages.
    pub(super) async fn poll(&self, until: &str, what: Look<'_>) -> Result<(), StepFault> {
        let start = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            // A check may update copies of endpoints, and a barrier creates a Service. Both need the operation lease.
            self.look_at_guards().await?;
            let seen = match self.look(what).await {
                Ok(()) => return Ok(()),
                Err(WaitStatus::Failed(error)) => return Err(error),
                Err(WaitStatus::Pending(seen)) => seen,
            };
            let deadline = self.options.deadline;
            if start.elapsed().saturating_add(pause) >= deadline {
                let seconds = deadline.as_secs();
                return Err(StepFault::Halt(format!(
                    "timeout after {seconds} s; expected: {until}; last observed: {seen}"
                )));
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    /// Fails if this process no longer holds the operation lease, because the new holder may have reverted the expected change.
    pub(super) async fn look_at_guards(&self) -> Result<(), StepFault> {
        for guard in &self.options.guards {
            let entry =
                self.store.get(guard.key()).await.map_err(|error| StepFault::Halt(error.to_string()))?;
            if !guard.holds(entry.as_ref()) {
                return Err(StepFault::Halt(format!(
                    "stopped: this process no longer holds the operation lease `{}`",
                    guard.key()
                )));
            }
        }
        Ok(())
    }

    async fn look(&self, what: Look<'_>) -> Result<(), WaitStatus> {
        match what {
            Look::Step(wait) => self.look_for_step(wait).await,
            Look::Ready(name) => self.range_is_ready(name).await,
            Look::OwnRange(flag) => self.own_range_has(flag).await,
            Look::Allocation(range) => self.allocation_has(range).await,
            Look::Gone(object) => match self.cluster.get(object).await? {
                None => Ok(()),
                Some(_) => Err(WaitStatus::Pending(format!("{object} is being deleted"))),
            },
        }
    }

    async fn look_for_step(&self, wait: &Wait) -> Result<(), WaitStatus> {
        let moves = wait.batch.map_or(self.work.moves.as_slice(), |batch| self.work.batch(batch));
        let is_its = |candidate: &&Move| wait.subject.as_ref().is_none_or(|id| *id == candidate.id());
        match wait.kind {
            Awaited::Barrier | Awaited::Seen => self.api_servers_have_seen(moves).await,
            Awaited::Endpoints => self.shadows_have_endpoints(moves.iter().filter(is_its)).await,
            Awaited::Released => self.deleted_are_gone(moves.iter().filter(is_its)).await,
            Awaited::RangeReady => self.range_is_ready(&self.work.range_name()).await,
            Awaited::Linger => Ok(()),
        }
    }

    /// Returns a client of every API server. Fails unless all API servers are ready and none is missing.
    async fn ready_api_servers(&self) -> Result<Vec<ApiServerClient>, WaitStatus> {
        let mut clients = Vec::new();
        for server in self.cluster.api_servers().await? {
            let client = self.cluster.dial(server).await?;
            client.ready().await?;
            clients.push(client);
        }
        let without = &self.options.without_api_servers;
        match missing(self.cluster.api_server_leases().await?, without, clients.len()) {
            None => Ok(clients),
            Some(what) => Err(WaitStatus::Pending(what)),
        }
    }

    /// Checks that every API server is ready, and that its cache has the current objects of these moves. The objects are the
    /// Services, their shadows, and their IPAddress objects. An API server with an older Service in its cache would treat the
    /// changed address as broken. Its repair loop would delete and recreate the address (`syncService`,
    /// `pkg/registry/core/service/ipallocator/controller/repairip.go`, v1.36.3).
    async fn api_servers_have_seen(&self, moves: &[Move]) -> Result<(), WaitStatus> {
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
            let names = shadow.iter().flat_map(|shadow| shadow.names());
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

    /// Returns the object that was changed last, with its revision. All objects must be of the same kind. Then a cache of this
    /// kind at the returned revision has the current version of all of them.
    async fn newest<T>(&self, objects: Vec<(Key, T)>) -> Result<Option<(T, Revision)>, WaitStatus> {
        let (keys, objects): (Vec<Key>, Vec<T>) = objects.into_iter().unzip();
        let found = self.store.get_many(&keys).await?;
        let changed = objects.into_iter().zip(found);
        let changed = changed.filter_map(|(object, entry)| Some((object, entry?.mod_revision)));
        Ok(changed.max_by_key(|(_, revision)| *revision))
    }

    /// Checks that every API server has observed that a ServiceCIDR is ready. The allocator of its range is ready a moment later;
    /// [`LiveEnvironment::create`] waits for the allocator. A dry run cannot check this, because it uses the allocator of any
    /// range (`MetaAllocator.DryRun`, `ipallocator/cidrallocator.go`, v1.36.3).
    pub(super) async fn range_is_ready(&self, name: &str) -> Result<(), WaitStatus> {
        let object = ObjectRef::new(&self.work.api_version, "ServiceCIDR", None, name);
        for client in self.ready_api_servers().await? {
            // Revision 0 reads the object from this API server's own cache.
            let found = client.get_not_older(&object, 0).await?;
            let conditions = found.as_ref().and_then(|found| found.pointer("/status/conditions"));
            if !found.as_ref().is_some_and(is_ready) {
                let seen = conditions.map_or("no conditions".to_string(), ToString::to_string);
                let server = client.server();
                return Err(WaitStatus::Pending(format!("on API server `{server}`, {object} has {seen}")));
            }
        }
        Ok(())
    }
}

/// Returns whether a ServiceCIDR is ready to allocate addresses.
pub(super) fn is_ready(range: &Value) -> bool {
    let conditions = range.pointer("/status/conditions").and_then(Value::as_array);
    let is = |condition: &Value, name, value| condition.get(name).and_then(Value::as_str) == Some(value);
    let ready = |condition: &Value| is(condition, "type", "Ready") && is(condition, "status", "True");
    conditions.is_some_and(|conditions| conditions.iter().any(ready))
}

/// Returns a message that names the API servers that have an unexpired Lease but are not ready. `ready` is the number of ready
/// API servers. A frozen API server is removed from the EndpointSlice after 15 s. Its Lease lasts an hour, unless the API server
/// shuts down gracefully.
fn missing(leases: Vec<ApiServerLease>, without: &BTreeSet<String>, ready: usize) -> Option<String> {
    let newest = leases.iter().filter_map(|lease| lease.renewed).max();
    let is_counted = |lease: &ApiServerLease| {
        !without.contains(&lease.host) && !without.contains(&lease.name) && !lease.has_expired(newest)
    };
    let mut counted: Vec<ApiServerLease> = leases.into_iter().filter(is_counted).collect();
    let count = counted.len().checked_sub(ready).filter(|count| *count > 0)?;
    // The missing API servers are the ones with the least recently renewed Leases.
    counted.sort_by_key(|lease| lease.renewed);
    let named = counted.iter().take(count).map(|lease| {
        let since = lease
            .renewed
            .zip(newest)
            .map_or(0, |(renewed, newest)| newest.unix_timestamp().saturating_sub(renewed.unix_timestamp()));
        format!("`{}` (Lease `kube-system/{}`, not renewed for {since} s)", lease.host, lease.name)
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let flags: Vec<String> =
        counted.iter().take(count).map(|lease| format!("`--without-api-server {}`", lease.host)).collect();
    Some(format!(
        "{ready} of {} API servers ready, no answer from {named}; if an API server is stopped permanently, give its option: {}",
        ready.saturating_add(count),
        flags.join(" ")
    ))
}

async fn has_seen(
    client: &ApiServerClient,
    object: &ObjectRef<'_>,
    revision: Revision,
) -> Result<(), WaitStatus> {
    let found = client.get_not_older(object, revision.0).await?;
    let version = found.as_ref().and_then(|found| found.pointer("/metadata/resourceVersion"));
    let version = version.and_then(Value::as_str);
    // The API's resourceVersion is etcd's mod_revision.
    if version.and_then(|text| text.parse::<i64>().ok()).is_some_and(|seen| seen >= revision.0) {
        return Ok(());
    }
    let seen = version.map_or("does not exist".to_string(), |version| format!("has revision {version}"));
    let server = client.server();
    Err(WaitStatus::Pending(format!(
        "on API server `{server}`, {object} {seen}, but etcd has revision {revision}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(host: &str, renewed: i64) -> ApiServerLease {
        let renewed = time::OffsetDateTime::from_unix_timestamp(renewed).ok();
        let duration = time::Duration::seconds(3600);
        ApiServerLease { name: format!("apiserver-{host}"), host: host.to_string(), renewed, duration }
    }

    #[test]
    fn missing_api_servers_are_listed_oldest_first() {
        let leases = || vec![lease("a", 10_000), lease("b", 9_960), lease("c", 9_995), lease("dead", 6_000)];
        let none = BTreeSet::new();
        assert_eq!(missing(leases(), &none, 3), None, "an expired Lease does not count");
        let said = missing(leases(), &none, 2).unwrap();
        assert!(said.contains("`b` (Lease `kube-system/apiserver-b`, not renewed for 40 s)"), "{said}");
        assert!(!said.contains("`c`"), "{said}");
        let without = BTreeSet::from(["b".to_string()]);
        assert_eq!(missing(leases(), &without, 2), None);
        assert_eq!(missing(Vec::new(), &none, 2), None, "before 1.26 there are none");
    }
}
