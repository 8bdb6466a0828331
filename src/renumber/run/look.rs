//! One look at a renumbering: its journal, its lock, and every Service that it is about.

use std::fmt::{self, Display};
use std::sync::Arc;

use serde::Serialize;

use super::flows::flows_of;
use super::open_operation;
use super::probe::{Asked, Probed, probe};
use super::situation::Situation;
use super::tally::{Phases, stage_now};
use crate::operation::{Journal, Lock, Status};
use crate::renumber::users::Used;
use crate::renumber::{Move, Renumbering, current, verify};
use crate::session::{Failure, LiveEtcd, counted, is_leased};
use crate::survey::{Finding, Layout, Survey};

/// What is seen; printed with `-o json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Look {
    version: u8,
    /// Its id.
    pub operation: String,
    /// How it stands.
    pub status: Status,
    /// The manual step that is open.
    manual_step: Option<String>,
    /// `forward` or `back`.
    direction: &'static str,
    /// The command that continues the operation; `None` while a process is at work on it, and when it has ended.
    next: Option<String>,
    /// The status in words.
    #[serde(skip)]
    words: String,
    digest: String,
    from: Vec<String>,
    to: String,
    /// The stage that is under way, or comes next, in words; `None` when there is none left.
    pub stage: Option<String>,
    /// Who is at work, in words; `None` if nobody is.
    pub lock: Option<String>,
    /// Services with their old address.
    waiting: usize,
    /// Services with their new address, whose old one is held.
    held: usize,
    /// Services whose old address was retired.
    retired: usize,
    /// The same by tier, in their order; empty where the plan has none.
    tiers: Vec<TierLook>,
    /// Services born in the old range.
    newcomers: Vec<String>,
    /// What came of the connections that were asked for.
    pub probes: Vec<Probed>,
    /// Who uses old addresses of Services that have moved, by what this host tracks; `None` if nobody asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<Used>>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// How far a tier is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct TierLook {
    name: String,
    waiting: usize,
    held: usize,
    retired: usize,
}

impl TierLook {
    fn all(work: &Renumbering, journal: &Journal) -> Vec<Self> {
        let of = |(name, moves): (&str, &[Move])| {
            let Phases { waiting, held, retired } = Phases::of(moves, journal);
            Self { name: name.to_string(), waiting, held, retired }
        };
        work.tier_moves().into_iter().map(of).collect()
    }
}

impl Display for TierLook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moved = self.held.saturating_add(self.retired);
        write!(f, "{} {moved} of {}", self.name, moved.saturating_add(self.waiting))
    }
}

impl Look {
    /// Looks at an operation, or at the one that is under way.
    pub async fn take(
        store: &Arc<LiveEtcd>,
        layout: &Layout,
        operation: Option<&str>,
        (asked, with_flows): (&[Asked], bool),
    ) -> Result<Self, Failure> {
        let survey = Survey::read(store.as_ref(), layout, None).await?;
        let cluster = survey.cluster_id.clone().unwrap_or_default();
        let ongoing = open_operation(store.as_ref(), &cluster, operation, Some(survey.revision)).await?;
        let holder = Lock::holder(store.as_ref(), &cluster).await?;
        let work = &ongoing.plan.work;
        let mut verified = verify::verify(work, &survey, |step| ongoing.journal.state(step));
        let (probes, unanswered) = probe(asked, &ongoing, &survey).await?;
        verified.findings.extend(unanswered);
        let users = if with_flows { Some(flows_of(&ongoing).await?) } else { None };
        let [waiting, held, retired] = verified.counts;
        let situation = Situation::of_ongoing(&ongoing, is_leased(holder.as_ref(), &ongoing.operation));
        Ok(Self {
            version: 1,
            status: situation.status,
            direction: if situation.back { "back" } else { "forward" },
            next: situation.next(),
            words: situation.words(),
            manual_step: situation.manual_step,
            digest: ongoing.plan.digest,
            from: work.from.iter().map(ToString::to_string).collect(),
            to: work.to.to_string(),
            stage: stage_now(work, &ongoing.journal),
            lock: holder.map(|held| held.claim.to_string()),
            waiting,
            held,
            retired,
            tiers: TierLook::all(work, &ongoing.journal),
            newcomers: current::compare(work, &survey).newcomers,
            probes,
            users,
            findings: verified.findings,
            operation: ongoing.operation,
        })
    }

    /// Whether there is something that differs from look to look and is no news.
    pub fn has_figures(&self) -> bool {
        !self.probes.is_empty() || self.users.is_some()
    }

    /// Whether nothing more will become of the operation, unless somebody goes on with it.
    pub fn has_ended(&self) -> bool {
        self.lock.is_none() && (self.status.has_ended() || self.status == Status::Stuck)
    }
}

impl Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, words, to, waiting, held, retired, .. } = self;
        write!(
            f,
            "{operation}: {words}, to {to}; {waiting} waiting, {held} moved and held, {retired} retired"
        )?;
        if !self.newcomers.is_empty() {
            write!(f, ", {} born in the old range", self.newcomers.len())?;
        }
        if !self.tiers.is_empty() {
            let words: Vec<String> = self.tiers.iter().map(ToString::to_string).collect();
            write!(f, "; moved by tier: {}", words.join(", "))?;
        }
        if let Some(users) = &self.users {
            let count = counted(users.len(), "port of an old address", "ports of old addresses");
            write!(f, "; {count} in use from here")?;
        }
        write!(f, "; {}", counted(self.findings.len(), "finding", "findings"))?;
        if let Some(stage) = &self.stage {
            write!(f, "; now: {stage}")?;
        }
        if let Some(next) = &self.next {
            write!(f, "; next: `{next}`")?;
        }
        match &self.lock {
            Some(lock) => write!(f, "; at work: {lock}"),
            None => Ok(()),
        }
    }
}
