//! Name servers with dynamic updates (RFC 2136), signed with TSIG (RFC 8945). The prerequisites of an update are the current
//! record sets, so the server rejects the update if another client changed one of them.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::{Behind, Expected, Provider, stale_servers};
use crate::dns::{Change, Cutover};
use crate::nameserver::{AT_ONCE, NameserverError, RecordKind, RecordSet, Server, Soa, described_with_ttls};
use crate::operation::{Fence, StepFault};
use crate::session::Failure;
use crate::words::first_few;

/// Maximum time for a change to reach every server (NOTIFY, RFC 1996). Servers that still differ after this time are an error.
const SPREAD: Duration = Duration::from_secs(30);
/// Pause between two checks.
const LOOK: Duration = Duration::from_secs(1);

/// A zone on name servers that accept updates.
pub(super) struct Rfc2136 {
    zone: String,
    primary: Server,
    /// Resolves the names of the authoritative servers.
    resolver: Server,
    /// The authoritative servers, once all of them have been found.
    servers: Mutex<Option<Vec<Authority>>>,
}

/// An authoritative server with its name, or why its address is not known.
type Authority = (String, Result<Server, NameserverError>);

impl Rfc2136 {
    /// Returns a zone without sending a request.
    pub fn new(zone: &str, primary: Server, resolver: Server) -> Self {
        Self { zone: zone.to_string(), primary, resolver, servers: Mutex::default() }
    }

    /// Returns the server that accepts updates.
    pub fn primary(&self) -> &Server {
        &self.primary
    }

    /// Finds the authoritative servers of the zone. Searches again as long as the address of a server is not known.
    async fn authorities(&self) -> Result<Vec<Authority>, NameserverError> {
        let mut known = self.servers.lock().await;
        if let Some(known) = known.as_ref() {
            return Ok(known.clone());
        }
        let found = self.primary.authorities(&self.zone, &self.resolver).await?;
        if found.iter().all(|(_, server)| server.is_ok()) {
            *known = Some(found.clone());
        }
        Ok(found)
    }

    /// Waits until every server has the newest version of the zone that any of them has now. The versions can differ all the time
    /// if other clients change the zone. Fails if a server does not have this version after [`SPREAD`], because a change would
    /// then not reach all servers.
    pub async fn refuse_behind(&self) -> Result<(), Failure> {
        let mut servers = Vec::new();
        for (name, server) in self.authorities().await.map_err(|error| refused(&error))? {
            servers.push((name, server.map_err(|error| refused(&error))?));
        }
        let (started, mut newest) = (Instant::now(), None);
        loop {
            let mut seen = Vec::with_capacity(servers.len());
            for (name, server) in &servers {
                let answer =
                    server.ask(&self.zone, RecordKind::Soa).await.map_err(|error| refused(&error))?;
                seen.push((name, answer.records.iter().find_map(Soa::of).map(|soa| soa.serial)));
            }
            let serials = || seen.iter().filter_map(|(_, serial)| *serial);
            let newest = *newest.get_or_insert_with(|| serials().reduce(newer).unwrap_or_default());
            if seen.iter().all(|(_, serial)| serial.is_some_and(|serial| newer(newest, serial) == serial)) {
                return Ok(());
            }
            if started.elapsed() > SPREAD {
                let told = |(name, serial): &(&String, Option<u32>)| {
                    format!(
                        "`{name}` {}",
                        serial.map_or_else(|| "none".to_string(), |serial| serial.to_string())
                    )
                };
                let (zone, seen) = (&self.zone, first_few(&seen.iter().map(told).collect::<Vec<_>>()));
                let text =
                    format!("the name servers of `{zone}` serve different versions of the zone: {seen}");
                return Err(Failure::refused(text)
                    .hint("wait until every server has the newest version, or repair the zone transfer to the outdated servers"));
            }
            sleep(LOOK).await;
        }
    }

    /// Returns what a server serves instead of the expected records. Does not ask a server again that does not answer.
    pub async fn behind_at(&self, name: &str, server: &Server, expected: &[Expected<'_>]) -> Option<Behind> {
        let silence = Mutex::new(None);
        let mut asked = Vec::with_capacity(expected.len());
        for one in expected {
            asked.push(serves(name, server, one, &silence));
        }
        stale_servers(stream::iter(asked).buffered(AT_ONCE).collect().await)
    }
}

/// Returns what a server serves instead of the expected records of a name. `silence`: why the server does not answer.
async fn serves(
    server: &str,
    at: &Server,
    Expected { name, kinds, sets }: &Expected<'_>,
    silence: &Mutex<Option<String>>,
) -> Option<String> {
    let known = silence.lock().await.clone();
    if known.is_some() {
        return known;
    }
    match at.sets(&name.name, kinds, false).await {
        Ok(found) if found == *sets => None,
        Ok(found) => Some(format!("`{server}` serves {} for `{}`", described_with_ttls(&found), name.name)),
        Err(error) => {
            let why = format!("`{server}`: {error}");
            if error.is_in_doubt() {
                *silence.lock().await = Some(why.clone());
            }
            Some(why)
        }
    }
}

/// Returns the newer of two serial numbers of a zone (RFC 1982, section 3.2).
fn newer(one: u32, other: u32) -> u32 {
    let is_other = other.wrapping_sub(one) < 1 << 31;
    if is_other { other } else { one }
}

fn refused(error: &NameserverError) -> Failure {
    let hint = error.hint();
    Failure::refused(error.to_string()).hints(hint)
}

/// Converts an error to a fault. If the answer to an update was lost, the caller must check whether the server executed the
/// update.
fn fault(error: &NameserverError) -> StepFault {
    let words = match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    };
    match error {
        _ if error.is_conflict() => StepFault::Skip("another client changed the records".to_string()),
        _ if error.is_in_doubt() => StepFault::InDoubt(words),
        NameserverError::Refused { code, .. } if code == "SERVFAIL" => {
            StepFault::Retry { why: words, after: None }
        }
        // The server can refuse the change of one name and accept the changes of others.
        NameserverError::Refused { .. } | NameserverError::Name { .. } | NameserverError::Data { .. } => {
            StepFault::Skip(words)
        }
        _ => StepFault::Halt(words),
    }
}

#[async_trait]
impl Provider for Rfc2136 {
    /// Checks that the primary accepts updates with the key, and that all servers receive the changes of the zone.
    async fn check(&self, _work: &Cutover) -> Result<(), Failure> {
        self.primary.knows_us(&self.zone).await.map_err(|error| refused(&error))?;
        self.refuse_behind().await
    }

    /// Checks that the primary answers, and accepts the key.
    async fn check_back(&self) -> Result<(), Failure> {
        match self.primary.knows_us(&self.zone).await {
            Err(error) if error.is_in_doubt() || error.is_of_key() => Err(refused(&error)),
            _ => Ok(()),
        }
    }

    async fn read(&self, name: &str, kinds: &[RecordKind]) -> Result<Vec<RecordSet>, StepFault> {
        self.primary.sets(name, kinds, false).await.map_err(|error| fault(&error))
    }

    async fn replace(&self, change: &Change, fence: &dyn Fence) -> Result<Value, StepFault> {
        let update = self.primary.update(&self.zone, &change.sets).await.map_err(|error| fault(&error))?;
        fence.still_ours().await?;
        update.send().await.map_err(|error| fault(&error))?;
        Ok(Value::Null)
    }

    async fn behind(&self, names: &[Expected<'_>]) -> Vec<Behind> {
        let all = |why: String| stale_servers(names.iter().map(|_| Some(why.clone())).collect());
        let servers = match self.authorities().await {
            Ok(servers) => servers,
            Err(error) => {
                let zone = &self.zone;
                return all(format!("the name servers of `{zone}` are not known: {error}"))
                    .into_iter()
                    .collect();
            }
        };
        let mut asked = Vec::with_capacity(servers.len());
        for (name, server) in &servers {
            asked.push(async move {
                match server {
                    Ok(server) => self.behind_at(name, server, names).await,
                    Err(error) => all(format!("`{name}`: {error}")),
                }
            });
        }
        join_all(asked).await.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_wrap_around() {
        assert_eq!((newer(1, 2), newer(2, 1), newer(7, 7)), (2, 2, 7));
        assert_eq!((newer(u32::MAX, 3), newer(3, u32::MAX)), (3, 3));
    }
}
