//! Name servers with dynamic updates (RFC 2136), signed with TSIG (RFC 8945). The prerequisites of an update are the current
//! record sets, so the server rejects the update if another client changed one of them.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::Provider;
use crate::dns::{Change, Cutover};
use crate::nameserver::{Kind, NameserverError, RecordSet, Server, Soa, described_with_ttls};
use crate::operation::{Fault, Fence};
use crate::session::{Failure, first_few};

/// Maximum time for a change to reach every server (NOTIFY, RFC 1996). Servers that still differ after this time are an error.
const SPREAD: Duration = Duration::from_secs(30);
/// Pause between two checks.
const LOOK: Duration = Duration::from_secs(1);

/// A zone on name servers that accept updates.
pub(super) struct Rfc2136 {
    zone: String,
    primary: Server,
    /// All authoritative servers, each with its name.
    servers: Vec<(String, Server)>,
}

impl Rfc2136 {
    /// Finds the authoritative servers of a zone. `resolver` resolves their names.
    pub async fn open(zone: &str, primary: Server, resolver: &Server) -> Result<Self, Failure> {
        let found = primary.authorities(zone, resolver).await.map_err(|error| refused(&error))?;
        let mut servers = Vec::new();
        for (name, server) in found {
            servers.push((name, server.map_err(|error| refused(&error))?));
        }
        Ok(Self { zone: zone.to_string(), primary, servers })
    }

    /// Returns a zone with only the primary server.
    pub fn reader(zone: &str, primary: Server) -> Self {
        Self { zone: zone.to_string(), primary, servers: Vec::new() }
    }

    /// Waits until all servers serve the same version of the zone. Fails if the versions still differ after [`SPREAD`], because a
    /// change would then not reach all servers.
    pub async fn refuse_behind(&self) -> Result<(), Failure> {
        let started = Instant::now();
        loop {
            let (mut serials, mut seen) = (BTreeSet::new(), Vec::new());
            for (name, server) in &self.servers {
                let answer = server.ask(&self.zone, Kind::Soa).await.map_err(|error| refused(&error))?;
                let serial = answer.records.iter().find_map(Soa::of).map(|soa| soa.serial);
                let text = serial.map_or_else(|| "none".to_string(), |serial| serial.to_string());
                seen.push(format!("`{name}` {text}"));
                serials.insert(serial);
            }
            if serials.len() < 2 {
                return Ok(());
            }
            if started.elapsed() > SPREAD {
                let (zone, seen) = (&self.zone, first_few(&seen));
                let text =
                    format!("the name servers of `{zone}` serve different versions of the zone: {seen}");
                return Err(Failure::refused(text)
                    .hint("wait until every server has the newest version, or repair the zone transfer to the outdated servers"));
            }
            sleep(LOOK).await;
        }
    }
}

fn refused(error: &NameserverError) -> Failure {
    let hint = error.hint();
    Failure::refused(error.to_string()).hints(hint)
}

/// Converts an error to a fault. If the answer to an update was lost, the caller must check whether the server executed the
/// update.
fn fault(error: &NameserverError) -> Fault {
    let words = match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    };
    match error {
        _ if error.is_conflict() => Fault::Skip("another client changed the records".to_string()),
        _ if error.is_in_doubt() => Fault::InDoubt(words),
        NameserverError::Refused { code, .. } if code == "SERVFAIL" => {
            Fault::Retry { why: words, after: None }
        }
        _ => Fault::Halt(words),
    }
}

#[async_trait]
impl Provider for Rfc2136 {
    /// Checks that the primary accepts updates with the key, and that all servers serve the same version of the zone.
    async fn check(&self, _work: &Cutover) -> Result<(), Failure> {
        self.primary.knows_us(&self.zone).await.map_err(|error| refused(&error))?;
        self.refuse_behind().await
    }

    async fn read(&self, name: &str, kinds: &[Kind]) -> Result<Vec<RecordSet>, Fault> {
        self.primary.sets(name, kinds, false).await.map_err(|error| fault(&error))
    }

    async fn replace(&self, change: &Change, fence: &dyn Fence) -> Result<Value, Fault> {
        let update = self.primary.update(&self.zone, &change.sets).await.map_err(|error| fault(&error))?;
        fence.still_ours().await?;
        update.send().await.map_err(|error| fault(&error))?;
        Ok(Value::Null)
    }

    async fn behind(&self, name: &str, kinds: &[Kind], sets: &[RecordSet]) -> Result<Option<String>, Fault> {
        for (server, at) in &self.servers {
            let found = at.sets(name, kinds, false).await;
            let served = match found {
                Ok(found) if found == sets => continue,
                Ok(found) => described_with_ttls(&found),
                Err(error) => return Ok(Some(format!("`{server}`: {error}"))),
            };
            return Ok(Some(format!("`{server}` serves {served} for `{name}`")));
        }
        Ok(None)
    }
}
