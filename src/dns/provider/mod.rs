//! The service that holds the records of a zone, as far as a cutover needs it. Each provider is one file. To add one, implement
//! [`Provider`], and add it to [`Service`] and to [`open`].

mod rfc2136;
mod route53;

use async_trait::async_trait;
use serde_json::Value;

use self::rfc2136::Rfc2136;
use self::route53::Route53Zone;
use super::cutover::{Cutover, Service};
use crate::nameserver::{Key, Kind, RecordSet, Server, SetChange, are_same, described};
use crate::operation::Fault;
use crate::session::Failure;

/// Reads and replaces the record sets of one zone.
#[async_trait]
pub(super) trait Provider: Send + Sync {
    /// Checks that the zone can be changed. Changes nothing.
    async fn check(&self, work: &Cutover) -> Result<(), Failure>;

    /// Returns the present record sets of a name, of these types, sorted.
    async fn read(&self, name: &str, kinds: &[Kind]) -> Result<Vec<RecordSet>, Fault>;

    /// Replaces record sets: all of them, or none. Fails with [`Fault::Skip`] if one differs from its present set in the change,
    /// and with [`Fault::InDoubt`] if the answer was lost. Returns what [`Self::recall`] needs.
    async fn replace(&self, changes: &[SetChange]) -> Result<Value, Fault>;

    /// Tells the provider, before [`Self::behind`], which changes an earlier process may have made, by what [`Self::replace`]
    /// returned. `None` if the answer was lost; an empty list if nothing is known about them.
    fn recall(&self, _made: &[Option<Box<Value>>]) {}

    /// Returns which authoritative server does not serve these record sets of a name yet, and what it serves; `None` if all of
    /// them do. `kinds`: the types to compare; a type without a set must not exist.
    async fn behind(&self, name: &str, kinds: &[Kind], sets: &[RecordSet]) -> Result<Option<String>, Fault>;
}

/// The state of record sets, compared with a change.
pub(super) enum Compared {
    /// Every set is as before the change.
    Before,
    /// Every set is as after the change.
    After,
    /// Another client changed a set. Contains the message, with the present sets.
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
            () => Self::Neither(format!("another client changed its records: {}", described(present))),
        }
    }
}

/// Returns the provider of a zone for changes. `key` signs updates.
pub(super) async fn open(work: &Cutover, key: Option<Key>) -> Result<Box<dyn Provider>, Failure> {
    let provider: Box<dyn Provider> = match &work.service {
        Service::Rfc2136 { server, .. } => {
            let resolver = Server::new(work.resolver, None);
            Box::new(Rfc2136::open(&work.zone, Server::new(*server, key), &resolver).await?)
        }
        Service::Route53 { id, .. } => Box::new(Route53Zone::new(id).await?),
    };
    provider.check(work).await?;
    Ok(provider)
}

/// Returns the provider of a zone, to read from. Sends no request to it, but may look for credentials.
pub(super) async fn reader(work: &Cutover) -> Result<Box<dyn Provider>, Failure> {
    Ok(match &work.service {
        Service::Rfc2136 { server, .. } => Box::new(Rfc2136::reader(&work.zone, Server::new(*server, None))),
        Service::Route53 { id, .. } => Box::new(Route53Zone::new(id).await?),
    })
}
