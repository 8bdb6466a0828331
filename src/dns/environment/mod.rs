//! The environment of a cutover: the provider of the zone, the probes of the mirror, and a resolver that clients use.

mod confirmation;

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use self::confirmation::{GRACE, Servers};
use super::cutover::{Awaited, Change, Cutover, Name, Point};
use super::probe::Prober;
use super::provider::{Compared, Expected, Provider};
use crate::nameserver::Server;
use crate::operation::{
    Answer, Applied, Doing, Environment, Fence, Manual, Observed, Records, State, StepFault, Wait,
};
use crate::session::Ui;
use crate::store::Revision;
use crate::words::first_few;

/// The environment of a live cutover.
pub(super) struct Live<'a> {
    pub work: &'a Cutover,
    pub provider: &'a dyn Provider,
    pub resolver: Server,
    pub prober: &'a Prober,
    /// Reports for which server a wait waits.
    pub ui: &'a Ui,
    /// The names that were given up. No wait waits for them.
    pub given_up: BTreeSet<&'a str>,
}

/// What a step still has to do.
enum Due {
    /// Nothing: everything is as after the step.
    Nothing,
    /// This change.
    Change(Box<Change>),
    /// Nothing can be done, because another client made a change. Contains the message.
    Foreign(String),
}

impl Live<'_> {
    /// Stops the cutover if a stage has changed no name because all of them were skipped: there is nothing to observe.
    fn refuse_empty(
        &self,
        point: Point,
        moved: &[Expected<'_>],
        records: Records<'_>,
    ) -> Result<(), StepFault> {
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
        Err(StepFault::Halt(format!(
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

    /// Returns the names for which the step to this point is done, with their record sets at this point. Tells the provider about
    /// their changes, because an earlier process can have made these changes.
    fn moved(&self, point: Point, records: Records<'_>) -> Vec<Expected<'_>> {
        let (mut moved, mut made) = (Vec::new(), Vec::new());
        for name in self.names() {
            let record = records(&self.work.step(name, point));
            if let Some(record) = record.filter(|record| record.state == State::Done) {
                moved.push(Expected::new(name, self.work.sets(name, Some(point))));
                made.push(record.made);
            }
        }
        self.provider.recall(&made);
        moved
    }

    /// Returns all names with their old record sets.
    fn old(&self) -> Vec<Expected<'_>> {
        self.provider.recall(&[]);
        self.names().map(|name| Expected::new(name, self.work.sets(name, None))).collect()
    }

    /// Returns the names that were not given up.
    fn names(&self) -> impl Iterator<Item = &Name> {
        self.work.names.iter().filter(|name| !self.given_up.contains(name.name.as_str()))
    }

    /// Returns how long servers can need to return a change. `cached`: how long the resolver can return the previous records.
    fn limit(&self, cached: Duration) -> Duration {
        cached.saturating_add(GRACE).saturating_add(self.provider.delay())
    }

    /// Returns what a step still has to do.
    async fn due(&self, doing: &Doing<'_, Change>) -> Result<Due, StepFault> {
        if doing.back && doing.effect.is_straight {
            return self.due_home(doing.effect).await;
        }
        let change = if doing.back { doing.effect.reversed() } else { doing.effect.clone() };
        Ok(match self.provider.compare(&change).await? {
            Compared::After => Due::Nothing,
            Compared::Before => Due::Change(Box::new(change)),
            Compared::Neither(why) => Due::Foreign(why),
        })
    }

    /// Returns the change that takes a name straight back, from whichever point of the cutover it is at now.
    async fn due_home(&self, effect: &Change) -> Result<Due, StepFault> {
        let named = |name: &&Name| name.name == effect.name;
        let Some(name) = self.work.names.iter().find(named) else { return Ok(Due::Nothing) };
        let mut places = self.work.places(name);
        // If the records of earlier runs are lost, the name can have no change at all.
        let start = places.len();
        places.push(self.work.start(name));
        let Some(home) = places.first() else { return Ok(Due::Nothing) };
        Ok(match self.provider.find(&places).await? {
            Ok(index) if index == 0 || index == start => Due::Nothing,
            Ok(index) => Due::Change(Box::new(places.get(index).unwrap_or(home).to(name, home))),
            Err(found) => Due::Foreign(found),
        })
    }
}

/// The fence of a change that reverts an own change, which arrived too late. The update compares the records.
struct Unfenced;

#[async_trait]
impl Fence for Unfenced {
    async fn still_ours(&self) -> Result<(), StepFault> {
        Ok(())
    }
}

#[async_trait]
impl Environment<Change> for Live<'_> {
    async fn apply(&self, doing: &Doing<'_, Change>) -> Result<Applied, StepFault> {
        let change = match self.due(doing).await? {
            Due::Nothing => return Ok(Applied::NOTHING),
            Due::Foreign(why) => return Err(StepFault::Skip(why)),
            Due::Change(change) => change,
        };
        if let (Some(probe), false) = (&doing.effect.probe, doing.back) {
            let outcome = self.prober.check(&doing.effect.name, probe, &self.resolver).await;
            outcome
                .map_err(|reason| StepFault::Skip(format!("the mirror does not serve the name: {reason}")))?;
        }
        Ok(Applied::Made(self.provider.replace(&change, doing.fence).await?))
    }

    /// Reverts a change if the process that took over has rolled the step back before this change arrived. That process has taken
    /// the name straight back, so this change is reverted to the same records.
    async fn take_back(&self, doing: &Doing<'_, Change>, _: Option<Revision>) -> Result<bool, StepFault> {
        let record = (doing.records)(doing.step);
        if doing.back || record.is_none_or(|record| record.state != State::UndoDone) {
            return Ok(false);
        }
        self.provider.refresh().await;
        if !matches!(self.provider.compare(&doing.effect.reversed()).await?, Compared::Before) {
            return Ok(false);
        }
        let Due::Change(change) = self.due_home(doing.effect).await? else { return Ok(false) };
        self.provider.replace(&change, &Unfenced).await?;
        Ok(true)
    }

    async fn observe(&self, doing: &Doing<'_, Change>) -> Result<Observed, StepFault> {
        Ok(match self.due(doing).await? {
            Due::Nothing => Observed::Done(Value::Null),
            Due::Change(_) => Observed::NotDone,
            Due::Foreign(why) => Observed::Changed(why),
        })
    }

    fn lasts(&self, wait: &Wait<Awaited>) -> Option<Duration> {
        self.work.lasts(wait.kind)
    }

    /// Caches drop the old TTLs only after no name server returns them. The resolver itself can still have them.
    async fn ready(&self, wait: &Wait<Awaited>, records: Records<'_>) -> Result<(), StepFault> {
        if wait.kind != Awaited::Caches {
            return Ok(());
        }
        let lowered = self.moved(Point::Lowered, records);
        self.confirm(lowered, Servers::Authorities, self.limit(Duration::ZERO)).await
    }

    async fn wait(&self, wait: &Wait<Awaited>, records: Records<'_>) -> Result<(), StepFault> {
        let (stage_ttl, all) = (self.work.stage_ttl(), Servers::All);
        match wait.kind {
            Awaited::Confirmed => {
                let point = Point::Stage(wait.batch.unwrap_or_default());
                let absent = if self.work.has_new_kind(point) { self.negative_ttl() } else { self.absent() };
                let moved = self.moved(point, records);
                self.refuse_empty(point, &moved, records)?;
                self.confirm(moved, all, self.limit(stage_ttl.max(absent))).await
            }
            Awaited::Published => {
                let lowered = self.moved(Point::Lowered, records);
                self.confirm(lowered, all, self.limit(self.work.longest_ttl())).await
            }
            Awaited::Settled => {
                self.confirm(self.moved(Point::Final, records), all, self.limit(stage_ttl)).await
            }
            Awaited::Restored | Awaited::Republished => {
                let limit = self.limit(Duration::ZERO);
                self.confirm_back(self.old(), Servers::Authorities, limit).await
            }
            // Caches have dropped the records of the mirror.
            Awaited::Resolved => {
                let limit = GRACE.saturating_add(self.absent());
                self.confirm_back(self.old(), Servers::Resolver, limit).await
            }
            // These waits last for a fixed time.
            Awaited::Owners
            | Awaited::Caches
            | Awaited::Soak
            | Awaited::Drained
            | Awaited::DrainedAfterEnd => Ok(()),
        }
    }

    /// Returns the share that the mirror's metrics show at the end of a stage, or null if they show no share.
    async fn found(&self, wait: &Wait<Awaited>) -> Value {
        let (Awaited::Soak, Some(query)) = (wait.kind, &self.work.seen) else { return Value::Null };
        let names: Vec<&str> = self.work.names.iter().map(|name| name.name.as_str()).collect();
        json!(query.mean(&names).await)
    }

    async fn manual(&self, manual: &Manual, _back: bool) -> Result<Answer, StepFault> {
        Err(StepFault::Halt(format!("a cutover has no manual step: {}", manual.what)))
    }
}
