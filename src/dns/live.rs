//! The environment of a cutover: the provider of the zone, the probes of the mirror, and a resolver that clients use.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cutover::{Awaited, Change, Cutover, Name, Point};
use super::probe::Prober;
use super::provider::{Compared, Provider};
use crate::nameserver::{AT_ONCE, RecordSet, Server, described, is_answer};
use crate::operation::{
    Answer, Applied, Doing, Environment, Fault, Fence, Manual, Observed, Records, State, Wait,
};
use crate::session::first_few;
use crate::store::Revision;

/// Pause between two checks of a wait.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum time until servers and the resolver return new records, in addition to the TTL.
const GRACE: Duration = Duration::from_mins(1);

/// The environment of a live cutover.
pub(super) struct Live<'a> {
    pub work: &'a Cutover,
    pub provider: &'a dyn Provider,
    pub resolver: Server,
    pub prober: &'a Prober,
    /// The names that were given up. No wait waits for them.
    pub given_up: BTreeSet<&'a str>,
}

impl Live<'_> {
    /// Waits until every name server and the resolver return these record sets. `cached` is the time for which the resolver can
    /// still return other record sets.
    async fn confirm(&self, names: Vec<(&Name, Vec<RecordSet>)>, cached: Duration) -> Result<(), Fault> {
        let started = Instant::now();
        let limit = cached.saturating_add(GRACE).saturating_add(self.provider.delay());
        let mut open = names;
        loop {
            let mut asked = Vec::with_capacity(open.len());
            for (name, sets) in open {
                asked.push(self.asked(name, sets));
            }
            let (mut still, mut last) = (Vec::new(), String::new());
            for (name, sets, behind) in stream::iter(asked).buffered(AT_ONCE).collect::<Vec<_>>().await {
                match behind {
                    Ok(None) => {}
                    Ok(Some(reason)) => {
                        still.push((name, sets));
                        last = reason;
                    }
                    Err(Fault::Retry { why, .. } | Fault::InDoubt(why)) => {
                        still.push((name, sets));
                        last = why;
                    }
                    Err(fault) => return Err(fault),
                }
            }
            if still.is_empty() {
                return Ok(());
            }
            if started.elapsed() > limit {
                let waited = limit.as_secs();
                return Err(Fault::Halt(format!("after {waited} s, {last}")));
            }
            open = still;
            sleep(LOOK).await;
        }
    }

    async fn asked<'n>(
        &self,
        name: &'n Name,
        sets: Vec<RecordSet>,
    ) -> (&'n Name, Vec<RecordSet>, Result<Option<String>, Fault>) {
        let behind = self.behind(name, &sets).await;
        (name, sets, behind)
    }

    /// Returns a text about a server that does not return these record sets yet; `None` if all servers return them. Also returns
    /// `None` if another client changed the records, because the next change of the name detects this.
    async fn behind(&self, name: &Name, sets: &[RecordSet]) -> Result<Option<String>, Fault> {
        let kinds = name.kinds();
        if !self.provider.is_unchanged(&name.name, &kinds, sets).await? {
            return Ok(None);
        }
        if let Some(reason) = self.provider.behind(&name.name, &kinds, sets).await? {
            return Ok(Some(reason));
        }
        let at = self.resolver.at();
        Ok(match self.resolver.sets(&name.name, &kinds, true).await {
            Ok(found) if is_answer(&found, &self.with_addresses(sets).await?) => None,
            Ok(found) => Some(format!("the resolver {at} returns {} for `{}`", described(&found), name.name)),
            Err(error) => Some(error.to_string()),
        })
    }

    /// Stops the cutover if a stage has changed no name because all of them were skipped: there is nothing to observe.
    fn refuse_empty(
        &self,
        point: Point,
        moved: &[(&Name, Vec<RecordSet>)],
        records: Records<'_>,
    ) -> Result<(), Fault> {
        let points = self.work.points();
        let why = |name: &Name| {
            let failed = |point: &Point| {
                records(&self.work.step(name, *point)).filter(|record| record.state == State::Failed)
            };
            let error = points.iter().rev().find_map(failed)?.error.unwrap_or_default();
            Some(format!("`{}`: {error}", name.name))
        };
        if !moved.is_empty() || !self.work.has_change(point) {
            return Ok(());
        }
        let skipped: Vec<String> = self.names().filter_map(why).collect();
        if skipped.is_empty() {
            return Ok(());
        }
        Err(Fault::Halt(format!(
            "every name of this stage was skipped, so it does not start to soak: {}",
            first_few(&skipped)
        )))
    }

    fn negative_ttl(&self) -> Duration {
        Duration::from_secs(self.work.negative_ttl)
    }

    /// Returns how long a resolver can cache the answer that a name has no AAAA record. An AAAA alias gives this answer while its
    /// target has no IPv6 address.
    fn absent(&self) -> Duration {
        if self.work.has_aaaa_alias() { self.negative_ttl() } else { Duration::ZERO }
    }

    /// Returns the record sets with the current addresses of their aliases.
    async fn with_addresses(&self, sets: &[RecordSet]) -> Result<Vec<RecordSet>, Fault> {
        let mut found = Vec::with_capacity(sets.len());
        for set in sets {
            let Some(target) = set.alias.as_ref().and(set.data.first()) else {
                found.push(set.clone());
                continue;
            };
            let answer = self.resolver.resolve(target, set.kind).await;
            let answer = answer.map_err(|error| Fault::InDoubt(error.to_string()))?;
            let data = answer.of(set.kind).into_iter().map(str::to_string).collect();
            found.push(RecordSet { data, ..set.clone() });
        }
        Ok(found)
    }

    /// Returns the names for which the step to this point is done, with their record sets at this point.
    fn moved(&self, point: Point, records: Records<'_>) -> Vec<(&Name, Vec<RecordSet>)> {
        let is_done = |name: &&Name| {
            records(&self.work.step(name, point)).is_some_and(|record| record.state == State::Done)
        };
        self.names().filter(is_done).map(|name| (name, self.work.sets(name, Some(point)))).collect()
    }

    /// Returns the names that were not given up.
    fn names(&self) -> impl Iterator<Item = &Name> {
        self.work.names.iter().filter(|name| !self.given_up.contains(name.name.as_str()))
    }
}

/// Returns the change of a step. In a rollback, the change is reversed.
fn oriented(doing: &Doing<'_, Change>) -> Change {
    if doing.back { doing.effect.reversed() } else { doing.effect.clone() }
}

/// The fence of a change that reverts an own change, which arrived too late. The update compares the records.
struct Unfenced;

#[async_trait]
impl Fence for Unfenced {
    async fn still_ours(&self) -> Result<(), Fault> {
        Ok(())
    }
}

#[async_trait]
impl Environment<Change> for Live<'_> {
    async fn apply(&self, doing: &Doing<'_, Change>) -> Result<Applied, Fault> {
        let change = oriented(doing);
        match self.provider.compare(&change).await? {
            Compared::After => return Ok(Applied::NOTHING),
            Compared::Neither(why) => return Err(Fault::Skip(why)),
            Compared::Before => {}
        }
        if let (Some(probe), false) = (&doing.effect.probe, doing.back) {
            let outcome = self.prober.check(&doing.effect.name, probe, &self.resolver).await;
            outcome.map_err(|reason| Fault::Skip(format!("the mirror does not serve the name: {reason}")))?;
        }
        Ok(Applied::Made(self.provider.replace(&change, doing.fence).await?))
    }

    /// Reverts a change if the process that took over has rolled the step back before this change arrived.
    async fn take_back(&self, doing: &Doing<'_, Change>, _: Option<Revision>) -> Result<bool, Fault> {
        let record = (doing.records)(doing.step);
        if doing.back || record.is_none_or(|record| record.state != State::UndoDone) {
            return Ok(false);
        }
        let change = doing.effect.reversed();
        self.provider.refresh().await;
        let is_there = matches!(self.provider.compare(&change).await?, Compared::Before);
        if is_there {
            self.provider.replace(&change, &Unfenced).await?;
        }
        Ok(is_there)
    }

    async fn observe(&self, doing: &Doing<'_, Change>) -> Result<Observed, Fault> {
        Ok(match self.provider.compare(&oriented(doing)).await? {
            Compared::After => Observed::Done(Value::Null),
            Compared::Before => Observed::NotDone,
            Compared::Neither(why) => Observed::Changed(why),
        })
    }

    fn lasts(&self, wait: &Wait<Awaited>) -> Option<Duration> {
        self.work.lasts(wait.kind)
    }

    async fn wait(&self, wait: &Wait<Awaited>, records: Records<'_>) -> Result<(), Fault> {
        if wait.kind == Awaited::Confirmed {
            let point = Point::Stage(wait.batch.unwrap_or_default());
            let names = self.moved(point, records);
            self.refuse_empty(point, &names, records)?;
            let steps = names.iter().filter_map(|(name, _)| records(&self.work.step(name, point)));
            self.provider.recall(&steps.map(|record| record.made).collect::<Vec<_>>());
            let absent = if self.work.has_new_kind(point) { self.negative_ttl() } else { self.absent() };
            return self.confirm(names, self.work.stage_ttl().max(absent)).await;
        }
        self.provider.recall(&[]);
        if wait.kind == Awaited::Published {
            return self.confirm(self.moved(Point::Lowered, records), self.work.longest_ttl()).await;
        }
        if wait.kind == Awaited::Settled {
            return self.confirm(self.moved(Point::Final, records), self.work.stage_ttl()).await;
        }
        if wait.kind == Awaited::Republished {
            let names = self.names().map(|name| (name, self.work.sets(name, None)));
            return self.confirm(names.collect(), self.work.stage_ttl()).await;
        }
        let lowered = |name| (name, self.work.sets(name, Some(Point::Lowered)));
        let has_ended = self.work.has_ended(|step| records(step).is_some());
        let cached = self.work.mirror_ttl(has_ended).max(self.absent());
        self.confirm(self.names().map(lowered).collect(), cached).await
    }

    /// Returns the share that the mirror's metrics show at the end of a stage, or null if they show no share.
    async fn found(&self, wait: &Wait<Awaited>) -> Value {
        let (Awaited::Soak, Some(query)) = (wait.kind, &self.work.seen) else { return Value::Null };
        let names: Vec<&str> = self.work.names.iter().map(|name| name.name.as_str()).collect();
        json!(query.mean(&names).await)
    }

    async fn manual(&self, manual: &Manual, _back: bool) -> Result<Answer, Fault> {
        Err(Fault::Halt(format!("a cutover has no manual step: {}", manual.what)))
    }
}
