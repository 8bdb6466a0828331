//! The service that holds the records of a zone, as far as a cutover needs it. Each provider is one file. To add one, implement
//! [`Provider`], and add it to the plan ([`Cutover`](super::Cutover)) and to [`super::run`].

mod rfc2136;

use async_trait::async_trait;

pub use rfc2136::Rfc2136;

use crate::nameserver::{Kind, RecordSet, SetChange};
use crate::operation::Fault;

/// Reads and replaces the record sets of one zone.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Returns the present record sets of a name, of these types, ordered by type.
    async fn read(&self, name: &str, kinds: &[Kind]) -> Result<Vec<RecordSet>, Fault>;

    /// Replaces record sets: all of them, or none. Fails with [`Fault::Skip`] if one differs from its present set in the change,
    /// and with [`Fault::InDoubt`] if the answer was lost.
    async fn replace(&self, changes: &[SetChange]) -> Result<(), Fault>;

    /// Returns which authoritative server does not serve these record sets of a name yet, and what it serves; `None` if all of
    /// them do. `kinds`: the types to compare; a type without a set must not exist.
    async fn behind(&self, name: &str, kinds: &[Kind], sets: &[RecordSet]) -> Result<Option<String>, Fault>;
}
