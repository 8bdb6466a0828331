//! The service that holds the records of a zone, as far as a cutover needs it. Each provider is one file. To add one, implement
//! [`Provider`], and add it to [`Service`] and to [`open`].

mod external_dns;
mod rfc2136;
mod route53;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use self::external_dns::ByExternalDns;
use self::rfc2136::Rfc2136;
use self::route53::Route53Zone;
use super::cutover::{Change, Cutover, Service};
use crate::kube_api::Cluster;
use crate::nameserver::{Key, Kind, RecordSet, Server, SetChange, are_same, described_with_ttls};
use crate::operation::Fault;
use crate::session::Failure;

/// Reads and replaces the record sets of one zone.
#[async_trait]
pub(super) trait Provider: Send + Sync {
    /// Checks that the zone can be changed. Changes nothing.
    async fn check(&self, work: &Cutover) -> Result<(), Failure>;

    /// Returns the present record sets of a name, of these types, sorted.
    async fn read(&self, name: &str, kinds: &[Kind]) -> Result<Vec<RecordSet>, Fault>;

    /// Compares the present record sets, with their TTLs, with a change.
    async fn compare(&self, change: &Change) -> Result<Compared, Fault> {
        let mut kinds: BTreeMap<&str, Vec<Kind>> = BTreeMap::new();
        for (name, kind) in change.sets.iter().filter_map(SetChange::of) {
            kinds.entry(name).or_default().push(kind);
        }
        let mut present = Vec::new();
        for (name, kinds) in kinds {
            present.extend(self.read(name, &kinds).await?);
        }
        Ok(Compared::of(&present, &change.sets))
    }

    /// Makes a change: all of it, or nothing. Fails with [`Fault::Skip`] if a present state differs from that in the change, and
    /// with [`Fault::InDoubt`] if the answer was lost. Returns what [`Self::recall`] needs.
    async fn replace(&self, change: &Change) -> Result<Value, Fault>;

    /// Returns whether a name still is as this operation left it, with these record sets.
    async fn is_unchanged(&self, name: &str, kinds: &[Kind], sets: &[RecordSet]) -> Result<bool, Fault> {
        Ok(are_same(&self.read(name, kinds).await?, sets))
    }

    /// Returns how long a change may take until the service executes it.
    fn delay(&self) -> Duration {
        Duration::ZERO
    }

    /// Tells the provider, before [`Self::behind`], which changes an earlier process may have made, by what [`Self::replace`]
    /// returned. `None` if the answer was lost; an empty list if nothing is known about them.
    fn recall(&self, _made: &[Option<Box<Value>>]) {}

    /// Returns which authoritative server does not serve these record sets of a name yet, and what it serves; `None` if all of
    /// them do. `kinds`: the types to compare; a type without a set must not exist.
    async fn behind(&self, name: &str, kinds: &[Kind], sets: &[RecordSet]) -> Result<Option<String>, Fault>;
}

/// The present state, compared with a change.
pub(super) enum Compared {
    /// Everything is as before the change.
    Before,
    /// Everything is as after the change.
    After,
    /// Another client changed something. Contains the message, with the present state.
    Neither(String),
}

impl Compared {
    /// Compares the present record sets of the names and types of a change, with their TTLs.
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
                Self::Neither(format!("another client changed its records: {present} instead of {expected}"))
            }
        }
    }
}

/// Returns the provider of a zone for changes. `key` signs updates. `cluster`: its annotations change if ExternalDNS changes the
/// records.
pub(super) async fn open(
    work: &Cutover,
    key: Option<Key>,
    cluster: &Cluster,
) -> Result<Box<dyn Provider>, Failure> {
    let resolver = Server::new(work.resolver, None);
    let servers = async |server, key| Rfc2136::open(&work.zone, Server::new(server, key), &resolver).await;
    let provider: Box<dyn Provider> = match &work.service {
        Service::Rfc2136 { server, .. } => Box::new(servers(*server, key).await?),
        Service::ExternalDns { server, delay } => {
            let (servers, delay) = (servers(*server, None).await?, Duration::from_secs(*delay));
            Box::new(ByExternalDns::new(servers, cluster.clone(), delay, work))
        }
        Service::Route53 { id, .. } => Box::new(Route53Zone::new(id).await?),
    };
    provider.check(work).await?;
    Ok(provider)
}

/// Returns the provider of a zone, to read from. Sends no request to it, but may look for credentials. `key` selects the view of
/// a server that has several.
pub(super) async fn reader(work: &Cutover, key: Option<Key>) -> Result<Box<dyn Provider>, Failure> {
    Ok(match &work.service {
        Service::Rfc2136 { server, .. } | Service::ExternalDns { server, .. } => {
            Box::new(Rfc2136::reader(&work.zone, Server::new(*server, key)))
        }
        Service::Route53 { id, .. } => Box::new(Route53Zone::new(id).await?),
    })
}
