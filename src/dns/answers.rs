//! The records that the server of the plan and the resolver return now, for `dns status`.

use futures_util::{StreamExt as _, stream};
use serde::Serialize;

use super::cutover::{Cutover, Name};
use super::provider::{self, Provider};
use super::situation::{NameState, Situation};
use crate::nameserver::{AT_ONCE, Key, Server, are_same, described, described_with_ttls};

/// The records that name servers return for a name now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answers {
    /// The records at the server that accepts updates, or the error.
    pub server: String,
    /// The records at the resolver, or the error. After a change, a resolver returns the old records until their TTL ends.
    pub resolver: String,
    /// How the records at the server differ from the expected records. For a name that was given up, no records are expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
    /// The share of requests that the mirror gets now, in percent, if Prometheus returns a share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Why the share is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_error: Option<String>,
}

/// Queries every name of a cutover, in the order of the plan. `key`: the key of the plan, if this host has it.
pub async fn query(work: &Cutover, situation: &Situation, key: Option<Key>) -> Vec<Answers> {
    let (provider, resolver) = (provider::reader(work, key).await, Server::new(work.resolver, None));
    let provider = provider.as_deref().map_err(|failure| failure.error.to_string());
    let mut asked = Vec::with_capacity(work.names.len());
    for (name, standing) in work.names.iter().zip(&situation.names) {
        asked.push(of_name((work, name), standing, provider.clone(), &resolver));
    }
    stream::iter(asked).buffered(AT_ONCE).collect().await
}

async fn of_name(
    (work, name): (&Cutover, &Name),
    standing: &NameState,
    provider: Result<&dyn Provider, String>,
    resolver: &Server,
) -> Answers {
    let (kinds, expected, is_given_up) = (name.kinds(), &standing.expected, standing.given_up.is_some());
    let read = async { provider?.read(&name.name, &kinds).await.map_err(|fault| fault.to_string()) };
    let share = async { Some(work.seen.as_ref()?.of(&name.name).await) };
    let (at_server, at_resolver, share) = tokio::join!(read, resolver.sets(&name.name, &kinds, true), share);
    let difference = match &at_server {
        Ok(sets) if is_given_up || are_same(sets, expected) => None,
        Ok(sets) => {
            let (present, expected) = (described_with_ttls(sets), described_with_ttls(expected));
            Some(format!("{present} instead of {expected}"))
        }
        Err(_) if is_given_up => None,
        Err(_) => Some("the current records could not be read".to_string()),
    };
    let server = at_server.map_or_else(|error| error, |sets| described(&sets));
    let resolver = at_resolver.map_or_else(|error| error.to_string(), |sets| described(&sets));
    let (share, share_error) = match share {
        None => (None, None),
        Some(Ok(share)) => (Some(share), None),
        Some(Err(error)) => (None, Some(error)),
    };
    Answers { server, resolver, difference, share, share_error }
}
