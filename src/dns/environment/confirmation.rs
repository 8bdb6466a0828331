//! Waits until every name server of the zone and a resolver return the records of names.
//!
//! A forward run stops if a server does not return new records in time. A rollback continues: the records have changed, and the
//! operators of the other name servers and of the resolver can be other people. It then reports which server could not be confirmed.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, sleep};

use super::Live;
use crate::dns::provider::{Behind, Expected, stale_servers};
use crate::nameserver::{AT_ONCE, RecordSet, described, is_answer};
use crate::operation::StepFault;
use crate::words::first_few;

/// Pause between two checks of a wait.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum time until servers and the resolver return new records, in addition to the TTL.
pub(super) const GRACE: Duration = Duration::from_mins(1);
/// Time after which a wait reports which server it waits for.
const SILENCE: Duration = Duration::from_secs(10);

/// The servers that must return the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Servers {
    /// Every authoritative name server.
    Authorities,
    /// The resolver of the plan.
    Resolver,
    /// Every authoritative name server, and the resolver of the plan.
    All,
}

impl Live<'_> {
    /// Waits until the servers return the records. Fails after `limit`.
    pub(super) async fn confirm(
        &self,
        names: Vec<Expected<'_>>,
        servers: Servers,
        limit: Duration,
    ) -> Result<(), StepFault> {
        match self.unconfirmed(names, servers, limit).await.as_slice() {
            [] => Ok(()),
            behind => Err(StepFault::Halt(late(limit, behind))),
        }
    }

    /// Waits like [`Self::confirm`], in a rollback. After `limit`, the rollback can continue, unless a server is decisive.
    pub(super) async fn confirm_back(
        &self,
        names: Vec<Expected<'_>>,
        servers: Servers,
        limit: Duration,
    ) -> Result<(), StepFault> {
        match self.unconfirmed(names, servers, limit).await.as_slice() {
            [] => Ok(()),
            behind if behind.iter().any(|one| one.is_decisive) => Err(StepFault::Halt(late(limit, behind))),
            behind => Err(StepFault::Skip(late(limit, behind))),
        }
    }

    /// Waits until the servers return the records, at most for `limit`. Returns the servers that still do not return them.
    async fn unconfirmed(
        &self,
        mut open: Vec<Expected<'_>>,
        servers: Servers,
        limit: Duration,
    ) -> Vec<Behind> {
        let (started, mut is_told) = (Instant::now(), false);
        loop {
            let behind = self.look(&mut open, servers).await;
            if behind.is_empty() || started.elapsed() > limit {
                return behind;
            }
            if !is_told && started.elapsed() > SILENCE {
                is_told = true;
                let (most, why) = (limit.as_secs(), told(&behind));
                self.ui.warn(&format!("not confirmed yet: {why}; waiting for at most {most} s"));
            }
            sleep(LOOK).await;
        }
    }

    /// Checks the servers once. Removes the names that every server returns as expected, and the names that another client
    /// changed, because their next change detects this.
    async fn look(&self, open: &mut Vec<Expected<'_>>, servers: Servers) -> Vec<Behind> {
        let mut read = Vec::with_capacity(open.len());
        for Expected { name, kinds, sets } in open.iter() {
            read.push(self.provider.is_unchanged(&name.name, kinds, sets));
        }
        let read: Vec<Result<bool, StepFault>> = stream::iter(read).buffered(AT_ONCE).collect().await;
        let mut unread: Option<Behind> = None;
        let (mut asked, mut rest) = (Vec::new(), Vec::new());
        for (expected, read) in std::mem::take(open).into_iter().zip(read) {
            match read {
                Ok(true) => asked.push(expected),
                Ok(false) => {}
                Err(fault) => {
                    rest.push(expected);
                    let why = fault.to_string();
                    unread.get_or_insert(Behind { why, names: Vec::new(), is_decisive: false });
                }
            }
        }
        let mut behind = Vec::new();
        if servers != Servers::Resolver {
            behind.extend(self.provider.behind(&asked).await);
        }
        if servers != Servers::Authorities {
            behind.extend(self.resolver_behind(&asked).await);
        }
        let late: BTreeSet<usize> = behind.iter().flat_map(|one| one.names.iter().copied()).collect();
        let late = asked.into_iter().enumerate().filter(|(index, _)| late.contains(index));
        rest.extend(late.map(|(_, expected)| expected));
        *open = rest;
        behind.into_iter().chain(unread).collect()
    }

    async fn resolver_behind(&self, asked: &[Expected<'_>]) -> Option<Behind> {
        let mut resolved = Vec::with_capacity(asked.len());
        for expected in asked {
            resolved.push(self.resolved(expected));
        }
        let resolved: Vec<Option<String>> = stream::iter(resolved).buffered(AT_ONCE).collect().await;
        stale_servers(resolved)
    }

    /// Returns what the resolver returns instead of the expected records, or why it does not answer.
    async fn resolved(&self, Expected { name, kinds, sets }: &Expected<'_>) -> Option<String> {
        let at = self.resolver.at();
        let addresses = match self.with_addresses(sets).await {
            Ok(addresses) => addresses,
            Err(fault) => return Some(fault.to_string()),
        };
        match self.resolver.sets(&name.name, kinds, true).await {
            Ok(found) if is_answer(&found, &addresses) => None,
            Ok(found) => Some(format!("the resolver {at} returns {} for `{}`", described(&found), name.name)),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Returns the record sets with the current addresses of their aliases.
    async fn with_addresses(&self, sets: &[RecordSet]) -> Result<Vec<RecordSet>, StepFault> {
        let mut found = Vec::with_capacity(sets.len());
        for set in sets {
            let Some(target) = set.alias.as_ref().and(set.data.first()) else {
                found.push(set.clone());
                continue;
            };
            let answer = self.resolver.resolve(target, set.kind).await;
            let answer = answer.map_err(|error| StepFault::InDoubt(error.to_string()))?;
            let data = answer.of(set.kind).into_iter().map(str::to_string).collect();
            found.push(RecordSet { data, ..set.clone() });
        }
        Ok(found)
    }
}

fn told(behind: &[Behind]) -> String {
    let more = |one: &Behind| match one.names.len().saturating_sub(1) {
        0 => one.why.clone(),
        more => format!("{} (and {})", one.why, crate::words::counted(more, "more name", "more names")),
    };
    first_few(&behind.iter().map(more).collect::<Vec<_>>())
}

fn late(limit: Duration, behind: &[Behind]) -> String {
    format!("after {} s, {}", limit.as_secs(), told(behind))
}
