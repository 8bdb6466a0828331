//! The plan of a cutover: the record sets of every name before the cutover, at each stage and after the cutover. The steps depend
//! only on this plan.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::annotations::{Annotating, Annotations, Published};
use super::measured_share::{SeenShare, ShareQuery};
use super::mix::share;
use super::probe::Probing;
use crate::inventory::ZoneService;
use crate::nameserver::{RecordKind, RecordSet, SetChange};
use crate::operation::{Effect, Journal, OperationKind, Stage, State, StepId, WaitKind, Work as _};

/// The kind of operation.
pub const KIND: &str = "dns-cutover";

/// Name of the stage that waits for the soak time after each change of the share.
pub(super) const SOAK: &str = "soak";

/// A cutover of DNS names, in stages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cutover {
    /// Zone of the names.
    pub zone: String,
    /// The DNS provider that hosts the zone.
    pub service: ZoneService,
    /// A resolver that clients use. It must return the new records before a stage ends.
    pub resolver: SocketAddr,
    /// Maximum TTL while the cutover runs, in seconds.
    pub ttl: u32,
    /// How long each stage waits after the resolver returns the new records, in seconds.
    pub soak: u64,
    /// How long a resolver caches the negative answer for a record type that does not exist, in seconds (RFC 2308).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub negative_ttl: u64,
    /// The requested share of the mirror at each stage, in percent. The last share is 100.
    pub shares: Vec<Share>,
    /// Additional CA certificates that probes trust, as PEM.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trusted: Vec<String>,
    /// How long the ExternalDNS of the old cluster caches the owners of names, in seconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub owner_cache: u64,
    /// The owner of the names after the cutover: the ExternalDNS of the mirror. `None` if the mirror has no ExternalDNS with TXT
    /// ownership records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heir: Option<String>,
    /// The metrics query for the mirror's share, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<ShareQuery>,
    /// The names.
    pub names: Vec<Name>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The share of clients that the mirror gets, in percent.
pub type Share = u8;

/// A name, and its record sets at each point of the cutover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// The name.
    pub name: String,
    /// Objects that contain the name, as text.
    pub by: Vec<String>,
    /// Objects of the mirror whose addresses the name gets, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_mirror: Vec<String>,
    /// The record sets before the cutover.
    pub before: Vec<RecordSet>,
    /// The record sets at each stage, in the order of [`Cutover::shares`].
    pub stages: Vec<Vec<RecordSet>>,
    /// The record sets after the cutover. They have the original TTLs.
    pub after: Vec<RecordSet>,
    /// The ownership records of ExternalDNS, if the name has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ownership: Option<Ownership>,
    /// The object with the annotations to change, if ExternalDNS changes the records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// How to check that the mirror serves the name.
    pub probe: Probing,
}

/// The TXT ownership records of ExternalDNS for a name. While netsurgeon is the owner, no ExternalDNS changes or deletes the
/// records of the name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ownership {
    /// The record sets before the cutover, when the ExternalDNS of the old cluster is the owner.
    pub before: Vec<RecordSet>,
    /// The record sets during the cutover, when netsurgeon is the owner.
    pub held: Vec<RecordSet>,
    /// The record sets after the cutover, when the ExternalDNS of the mirror is the owner. If the mirror has no ExternalDNS with
    /// TXT ownership records, netsurgeon is still the owner.
    pub after: Vec<RecordSet>,
}

/// One update that changes a name to its next record sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The name.
    pub name: String,
    /// The changes to the record sets of the name.
    pub sets: Vec<SetChange>,
    /// The annotation change that makes ExternalDNS write these changes, if ExternalDNS manages the records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotating: Option<Annotating>,
    /// The probe of the mirror, if the change sends clients to the mirror.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probing>,
    /// Whether the change takes the name straight back ([`super::straight_rollback`]), from whichever point its records are at.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_straight: bool,
}

impl Change {
    /// Returns the change that undoes this change.
    pub(super) fn reversed(&self) -> Self {
        Self {
            name: self.name.clone(),
            sets: self.sets.iter().map(SetChange::reversed).collect(),
            annotating: self.annotating.as_ref().map(Annotating::reversed),
            probe: self.probe.clone(),
            is_straight: self.is_straight,
        }
    }
}

impl Effect for Change {
    type Wait = Awaited;
}

/// The conditions that steps of a cutover wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Awaited {
    /// The ExternalDNS of the old cluster has read the new owners.
    Owners,
    /// ExternalDNS has lowered the TTLs.
    Published,
    /// In a rollback, ExternalDNS has restored the TTLs.
    Republished,
    /// At the end of the cutover, ExternalDNS has restored the original TTLs.
    Settled,
    /// Caches have dropped the records with the original TTL.
    Caches,
    /// Every name server and the resolver return the new records.
    Confirmed,
    /// The soak time of the stage is over.
    Soak,
    /// In a rollback, every name server returns the old records again.
    Restored,
    /// In a rollback, the resolver returns the old records again, after caches have dropped the records of the mirror.
    Resolved,
    /// In a rollback, caches have dropped the records that point to the mirror.
    Drained,
    /// In a rollback after the end of the cutover, caches have dropped the mirror's records with the original TTLs. This wait is
    /// in addition to [`Self::Drained`].
    DrainedAfterEnd,
}

impl Awaited {
    /// The waits that a rollback does not need to confirm.
    pub(super) const CONFIRMATIONS: [Self; 3] = [Self::Restored, Self::Republished, Self::Resolved];
}

impl WaitKind for Awaited {
    fn name(self) -> &'static str {
        match self {
            Self::Owners => "owners",
            Self::Published => "published",
            Self::Republished => "republished",
            Self::Settled => "settled",
            Self::Caches => "caches",
            Self::Confirmed => "confirmed",
            Self::Soak => "soak",
            Self::Restored => "restored",
            Self::Resolved => "resolved",
            Self::Drained => "drained",
            Self::DrainedAfterEnd => "drained-after-end",
        }
    }
}

impl OperationKind for Cutover {
    const NAME: &'static str = KIND;
    const VERSION: u32 = 2;
}

/// Returns the longest of these TTLs. The TTLs are in seconds.
fn longest(ttls: impl Iterator<Item = u32>) -> Duration {
    Duration::from_secs(ttls.max().unwrap_or_default().into())
}

/// A state of a name during the cutover. Each state has its own record sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// netsurgeon is the owner, so no ExternalDNS changes the records of the name.
    Held,
    /// The TTLs are lowered.
    Lowered,
    /// A stage. The first stage has the number 0.
    Stage(usize),
    /// The original TTLs are restored, and the mirror has all clients.
    Final,
}

impl Name {
    /// Returns the record sets of the name at a point, without ownership records. `ttl` is the maximum TTL while the cutover
    /// runs.
    fn sets(&self, point: Option<Point>, ttl: u32) -> Vec<RecordSet> {
        match point {
            None | Some(Point::Held) => self.before.clone(),
            Some(Point::Lowered) => self.before.iter().map(|set| set.lowered(ttl)).collect(),
            Some(Point::Stage(stage)) => self.stages.get(stage).cloned().unwrap_or_default(),
            Some(Point::Final) => self.after.clone(),
        }
    }

    /// Returns all record sets at a point, with ownership records.
    pub(super) fn all_sets(&self, point: Option<Point>, ttl: u32) -> Vec<RecordSet> {
        let owned = self.ownership.iter().flat_map(|ownership| match point {
            None => &ownership.before,
            Some(Point::Final) => &ownership.after,
            Some(_) => &ownership.held,
        });
        self.sets(point, ttl).into_iter().chain(owned.cloned()).collect()
    }

    /// Returns the annotations of the name's object at a point; `None` if ExternalDNS does not manage the records.
    pub(super) fn annotations(&self, point: Option<Point>, ttl: u32) -> Option<Annotations> {
        let published = self.published.as_ref()?;
        Some(match point {
            None => published.before.clone(),
            Some(_) => published.annotations(&self.sets(point, ttl), &self.before),
        })
    }

    /// Returns the annotation change of the name's object between two points; `None` if the annotations stay the same.
    fn annotating(&self, before: Option<Point>, point: Point, ttl: u32) -> Option<Annotating> {
        let object = self.published.as_ref()?.object.clone();
        let (from, to) = (self.annotations(before, ttl)?, self.annotations(Some(point), ttl)?);
        (from != to).then_some(Annotating { object, from, to })
    }

    /// Returns the record types of the name before and after the cutover.
    pub fn kinds(&self) -> Vec<RecordKind> {
        let kinds: BTreeSet<RecordKind> = self.before.iter().chain(&self.after).map(|set| set.kind).collect();
        kinds.into_iter().collect()
    }

    /// Returns the share of clients that these record sets send to the mirror, by record type, in percent.
    pub fn shares_of(&self, sets: &[RecordSet]) -> BTreeMap<RecordKind, Share> {
        let kinds: BTreeSet<RecordKind> = sets.iter().map(|set| set.kind).collect();
        let share = |kind| share(sets.iter().filter(|set| set.kind == kind), &self.after);
        kinds.into_iter().map(|kind| (kind, share(kind))).collect()
    }
}

impl Cutover {
    /// Returns all points of the cutover, in order. Every name has the same points.
    pub fn points(&self) -> Vec<Point> {
        let stages = (0..self.shares.len()).map(Point::Stage);
        [Point::Held, Point::Lowered].into_iter().chain(stages).chain([Point::Final]).collect()
    }

    /// Returns the previous point; `None` for the first point.
    fn before(&self, point: Point) -> Option<Point> {
        self.points().into_iter().take_while(|other| *other < point).last()
    }

    /// Returns the name of a point for step ids.
    fn tag(&self, point: Point) -> String {
        match point {
            Point::Held => "own".to_string(),
            Point::Lowered => "ttl".to_string(),
            Point::Stage(stage) => format!("share-{}", self.shares.get(stage).copied().unwrap_or_default()),
            Point::Final => "final".to_string(),
        }
    }

    /// Returns the id of the step that brings a name to a point.
    pub fn step(&self, name: &Name, point: Point) -> StepId {
        StepId(format!("{}/{}", self.tag(point), name.name))
    }

    /// Returns the record sets of a name at a point, without ownership records. If `point` is `None`, returns the record sets
    /// before the cutover.
    pub fn sets(&self, name: &Name, point: Option<Point>) -> Vec<RecordSet> {
        name.sets(point, self.ttl)
    }

    /// Returns the change that brings a name from the previous point to this point; `None` if its record sets stay the same.
    pub(super) fn change(&self, name: &Name, point: Point) -> Option<Change> {
        let before = self.before(point);
        let sets =
            SetChange::between(&name.all_sets(before, self.ttl), &name.all_sets(Some(point), self.ttl));
        let annotating = name.annotating(before, point, self.ttl);
        let probe = matches!(point, Point::Stage(_)).then(|| name.probe.clone());
        let is_change = !sets.is_empty() || annotating.is_some();
        let name = name.name.clone();
        is_change.then_some(Change { name, sets, annotating, probe, is_straight: false })
    }

    /// Returns the last point that a name has reached; `None` if no step of the name is in force.
    pub fn reached(&self, name: &Name, journal: &Journal) -> Option<Point> {
        let is_done = |point: &Point| journal.state(&self.step(name, *point)).is_some_and(State::is_in_force);
        let is_passed = |point: &Point| self.change(name, *point).is_none() || is_done(point);
        let points = self.points();
        let has_begun = points.iter().any(is_done);
        has_begun.then(|| points.iter().take_while(|point| is_passed(point)).last().copied()).flatten()
    }

    /// Returns the longest TTL that the cutover lowers. Caches can keep a record for this time.
    pub fn longest_ttl(&self) -> Duration {
        let is_lowered = |set: &&RecordSet| set.lowered(self.ttl) != **set;
        longest(self.names.iter().flat_map(|name| &name.before).filter(is_lowered).map(|set| set.ttl))
    }

    /// Returns the longest TTL while the cutover runs. An alias has the TTL of its target, which can be longer than the maximum.
    pub fn stage_ttl(&self) -> Duration {
        let sets = self.names.iter().flat_map(|name| name.before.iter().chain(&name.after));
        longest(sets.map(|set| set.lowered(self.ttl).ttl))
    }

    /// Returns the longest TTL after the cutover.
    pub fn final_ttl(&self) -> Duration {
        longest(self.names.iter().flat_map(|name| &name.after).map(|set| set.ttl))
    }

    /// Returns how long caches can keep records that point to the mirror. `has_ended` means that a name can have its original
    /// TTLs again.
    pub fn mirror_ttl(&self, has_ended: bool) -> Duration {
        if has_ended { self.stage_ttl().max(self.final_ttl()) } else { self.stage_ttl() }
    }

    /// Returns whether the step that restores the original TTLs is recorded for any name.
    pub(super) fn has_ended(&self, is_recorded: impl Fn(&StepId) -> bool) -> bool {
        self.names.iter().any(|name| is_recorded(&self.step(name, Point::Final)))
    }

    /// Returns how long the cutover takes without gates. First, ExternalDNS must drop its cached owners, and caches must drop the
    /// records with the old TTLs. Then each stage waits up to one TTL until resolvers return the new records, and after that for
    /// the soak time.
    pub fn duration(&self) -> Duration {
        let caches = if self.has_change(Point::Lowered) { self.longest_ttl() } else { Duration::ZERO };
        let stages = u32::try_from(self.shares.len()).unwrap_or(u32::MAX);
        let caches = caches.saturating_add(Duration::from_secs(self.owner_cache));
        let stage = Duration::from_secs(self.soak).saturating_add(self.stage_ttl());
        caches.saturating_add(stage.saturating_mul(stages))
    }

    /// Returns the duration of a wait with a fixed time; `None` for a wait on a condition.
    pub(super) fn lasts(&self, awaited: Awaited) -> Option<Duration> {
        match awaited {
            Awaited::Owners => Some(Duration::from_secs(self.owner_cache)),
            Awaited::Caches => Some(self.longest_ttl()),
            Awaited::Soak => Some(Duration::from_secs(self.soak)),
            Awaited::Drained => Some(self.stage_ttl()),
            Awaited::DrainedAfterEnd => Some(self.final_ttl().saturating_sub(self.stage_ttl())),
            Awaited::Published
            | Awaited::Republished
            | Awaited::Confirmed
            | Awaited::Restored
            | Awaited::Resolved
            | Awaited::Settled => None,
        }
    }

    /// Returns the id of the wait with this name for a share. `share` is the index of the share, from 0.
    pub(super) fn wait_of(&self, name: &str, share: usize) -> StepId {
        StepId(format!("{name}/{}", self.shares.get(share).copied().unwrap_or_default()))
    }

    /// Returns whether the stage of a share is over: its soak is complete, and at least one name has changed. If no name changes
    /// at this stage, apart from names that were given up, only the soak counts. `share` is the index of the share, from 0.
    pub(super) fn is_over(&self, share: usize, journal: &Journal) -> bool {
        let point = Point::Stage(share);
        let is_to_change =
            |name: &&Name| journal.waiver(&name.name).is_none() && self.change(name, point).is_some();
        let mut changes = self.names.iter().filter(is_to_change).peekable();
        let is_empty = changes.peek().is_none();
        let is_done = |name: &Name| journal.state(&self.step(name, point)) == Some(State::Done);
        let is_soaked = journal.state(&self.wait_of(SOAK, share)) == Some(State::Done);
        is_soaked && (is_empty || changes.any(is_done))
    }

    /// Returns when the soak of a share ended, in seconds since 1970. `share` is the index of the share, from 0.
    pub fn soaked_at(&self, share: usize, journal: &Journal) -> Option<i64> {
        let record = journal.find(&self.wait_of(SOAK, share))?;
        record.history.iter().rev().find(|(state, _)| *state == State::Done).map(|(_, time)| *time)
    }

    /// Returns the share that the mirror's metrics showed at the end of a soak. `share` is the index of the share, from 0.
    pub fn seen_at(&self, share: usize, journal: &Journal) -> Option<SeenShare> {
        let record = journal.find(&self.wait_of(SOAK, share))?;
        serde_json::from_value(*record.made.clone()?).ok()
    }

    /// Returns the index of the stage before which a run up to this share ends. `None` for the last share, because the run then
    /// continues to the end.
    pub fn end_of_share(&self, share: usize) -> Option<usize> {
        let is_later = |stage: &Stage| stage.batch.is_some_and(|batch| batch > share);
        self.stages().into_iter().find(is_later).map(|stage| stage.index)
    }

    /// Returns whether any name gets a new record type at a point.
    pub(super) fn has_new_kind(&self, point: Point) -> bool {
        let before = self.before(point);
        self.names.iter().any(|name| {
            let old = name.sets(before, self.ttl);
            name.sets(Some(point), self.ttl).iter().any(|new| !old.iter().any(|set| set.kind == new.kind))
        })
    }

    /// Returns whether any name has an AAAA alias before or after the cutover.
    pub(super) fn has_aaaa_alias(&self) -> bool {
        let is_it = |set: &RecordSet| set.kind == RecordKind::Aaaa && set.alias.is_some();
        self.names.iter().any(|name| name.before.iter().chain(&name.after).any(is_it))
    }

    /// Returns whether any name changes at a point.
    pub(super) fn has_change(&self, point: Point) -> bool {
        self.names.iter().any(|name| self.change(name, point).is_some())
    }
}
