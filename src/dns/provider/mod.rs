//! The DNS provider that hosts a zone, with only the functions that a cutover needs. Each provider is one file. To add a
//! provider, implement [`Provider`], and add it to [`Service`] and to [`open`].

mod external_dns;
mod rfc2136;
mod route53;
mod stale_servers;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use self::external_dns::ByExternalDns;
use self::rfc2136::Rfc2136;
use self::route53::Route53Zone;
pub(super) use self::stale_servers::{Behind, Expected, stale_servers};
use super::cutover::{Change, Cutover};
use super::straight_rollback::Place;
use crate::inventory::ZoneService;
use crate::kube_api::Cluster;
use crate::nameserver::{Key, RecordKind, RecordSet, Server, SetChange, are_same, described_with_ttls};
use crate::operation::{Fence, StepFault};
use crate::session::Failure;

/// Reads and replaces the record sets of one zone.
#[async_trait]
pub(super) trait Provider: Send + Sync {
    /// Checks that the zone can be changed, before a forward run. This check changes nothing.
    async fn check(&self, work: &Cutover) -> Result<(), Failure>;

    /// Checks before a rollback only whether the server that accepts changes can be reached. Whatever else is wrong must not
    /// stop a rollback. This check changes nothing.
    async fn check_back(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns the current record sets of a name with these types, sorted.
    async fn read(&self, name: &str, kinds: &[RecordKind]) -> Result<Vec<RecordSet>, StepFault>;

    /// Compares a change with the current record sets and their TTLs.
    async fn compare(&self, change: &Change) -> Result<Compared, StepFault> {
        let mut kinds: BTreeMap<&str, Vec<RecordKind>> = BTreeMap::new();
        for (name, kind) in change.sets.iter().filter_map(SetChange::of) {
            kinds.entry(name).or_default().push(kind);
        }
        let mut present = Vec::new();
        for (name, kinds) in kinds {
            present.extend(self.read(name, &kinds).await?);
        }
        Ok(Compared::of(&present, &change.sets))
    }

    /// Returns the index of the first of these places at which a name is now. Otherwise returns the message that another client
    /// made a change, with the current state. Compares the TTLs, too.
    async fn find(&self, places: &[Place]) -> Result<Result<usize, String>, StepFault> {
        let mut kinds: BTreeMap<&str, BTreeSet<RecordKind>> = BTreeMap::new();
        for set in places.iter().flat_map(|place| &place.sets) {
            kinds.entry(&set.name).or_default().insert(set.kind);
        }
        let mut present = Vec::new();
        for (name, kinds) in kinds {
            present.extend(self.read(name, &kinds.into_iter().collect::<Vec<_>>()).await?);
        }
        let index = places.iter().position(|place| are_same(&present, &place.sets));
        Ok(index
            .ok_or_else(|| format!("another client changed the records: {}", described_with_ttls(&present))))
    }

    /// Executes a change completely or not at all. Fails with [`StepFault::Skip`] if the current state differs from the state before
    /// the change, and with [`StepFault::InDoubt`] if the answer was lost. Returns the value that [`Self::recall`] needs.
    ///
    /// Checks the fence directly before each request. After a rollback, the state is again the state before the change, so the
    /// comparison with that state does not stop a process that was suspended. The request itself becomes invalid soon after the
    /// check (docs/dns.md, "Processes that were suspended").
    async fn replace(&self, change: &Change, fence: &dyn Fence) -> Result<Value, StepFault>;

    /// Drops cached record sets, so that the next read returns the current state.
    async fn refresh(&self) {}

    /// Returns whether a name still has these record sets, which the journal expects.
    async fn is_unchanged(
        &self,
        name: &str,
        kinds: &[RecordKind],
        sets: &[RecordSet],
    ) -> Result<bool, StepFault> {
        Ok(are_same(&self.read(name, kinds).await?, sets))
    }

    /// Returns the usual maximum time that the provider needs to execute a change.
    fn delay(&self) -> Duration {
        Duration::ZERO
    }

    /// Passes the results of [`Self::replace`] to the provider before [`Self::behind`] is called, because an earlier process can
    /// have made these changes. An entry is `None` if the answer was lost. The list is empty if nothing is known about the
    /// changes.
    fn recall(&self, _made: &[Option<Box<Value>>]) {}

    /// Returns the authoritative servers that do not serve the record sets of these names yet. A name must have no records of a
    /// type that has no set.
    async fn behind(&self, names: &[Expected<'_>]) -> Vec<Behind>;
}

/// The current state, compared with a change.
pub(super) enum Compared {
    /// Everything is as before the change.
    Before,
    /// Everything is as after the change.
    After,
    /// Another client made a change. Contains the message, with the current state.
    Neither(String),
}

impl Compared {
    /// Compares a change with the current record sets of its names and types, including their TTLs.
    pub(super) fn of(present: &[RecordSet], changes: &[SetChange]) -> Self {
        let is =
            |side: fn(&SetChange) -> Option<&RecordSet>| are_same(present, changes.iter().filter_map(side));
        match () {
            () if is(|change| change.to.as_ref()) => Self::After,
            () if is(|change| change.from.as_ref()) => Self::Before,
            () => {
                let expected: Vec<RecordSet> =
                    changes.iter().filter_map(|change| change.from.clone()).collect();
                let (present, expected) = (described_with_ttls(present), described_with_ttls(&expected));
                Self::Neither(format!("another client changed the records: {present} instead of {expected}"))
            }
        }
    }
}

/// Returns the provider of a zone, to change records. `key` signs updates. With ExternalDNS, netsurgeon changes annotations in
/// `cluster`. `back`: whether the records are changed for a rollback.
pub(super) async fn open(
    work: &Cutover,
    key: Option<Key>,
    cluster: &Cluster,
    back: bool,
) -> Result<Box<dyn Provider>, Failure> {
    let resolver = Server::new(work.resolver, None);
    let servers = |server, key| Rfc2136::new(&work.zone, Server::new(server, key), resolver.clone());
    let provider: Box<dyn Provider> = match &work.service {
        ZoneService::Rfc2136 { server, .. } => Box::new(servers(*server, key)),
        ZoneService::ExternalDns { server, delay } => {
            let (servers, delay) = (servers(*server, None), Duration::from_secs(*delay));
            Box::new(ByExternalDns::new(servers, cluster.clone(), delay, work))
        }
        ZoneService::Route53 { id, .. } => Box::new(Route53Zone::new(id).await?),
    };
    if back {
        provider.check_back().await?;
    } else {
        provider.check(work).await?;
    }
    Ok(provider)
}

/// Returns the provider of a zone, to read records. This function sends no request to the provider, but it can search for
/// credentials. If a server has several views, `key` selects a view.
pub(super) async fn reader(work: &Cutover, key: Option<Key>) -> Result<Box<dyn Provider>, Failure> {
    Ok(match &work.service {
        ZoneService::Rfc2136 { server, .. } | ZoneService::ExternalDns { server, .. } => {
            Box::new(Rfc2136::new(&work.zone, Server::new(*server, key), Server::new(work.resolver, None)))
        }
        ZoneService::Route53 { id, .. } => Box::new(Route53Zone::new(id).await?),
    })
}
