//! Checks a renumbering once: its journal, its operation lease, and every Service of its plan.

use std::fmt::{self, Display};
use std::sync::Arc;

use serde::Serialize;

use super::flows::flows_of;
use super::probe::{Asked, Probed, probe};
use super::progress::{Phases, stage_now};
use super::situation::Situation;
use super::{later_renumbering, open_operation};
use crate::operation::{Journal, Lock, Status};
use crate::renumber::old_address_clients::Used;
use crate::renumber::{Move, Renumbering, verify};
use crate::session::{Failure, LiveEtcd, if_killed, is_leased};
use crate::survey::{Finding, Layout, Survey};
use crate::words::counted;

/// The result of a check. The option `-o json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Look {
    version: u8,
    /// Id of the operation.
    pub operation: String,
    /// Status of the operation.
    pub status: Status,
    /// Name of the open manual step.
    manual_step: Option<String>,
    /// `forward` or `back`.
    direction: &'static str,
    /// The command that continues the operation; `None` while a process runs the operation, and after the operation has ended.
    next: Option<String>,
    /// Why the last run stopped before its target, for example a closed gate; `None` while a process runs the operation, after its
    /// end, and at a manual step.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// The status as text.
    #[serde(skip)]
    words: String,
    digest: String,
    from: Vec<String>,
    to: String,
    /// Title of the current or next stage; `None` if no stage is left.
    pub stage: Option<String>,
    /// The holder of the operation lease, as text; `None` if no process holds it.
    pub lock: Option<String>,
    /// Number of Services that have their old address.
    waiting: usize,
    /// Number of Services that have their new address and still hold their old address.
    held: usize,
    /// Number of Services whose old address was retired.
    retired: usize,
    /// Numbers of waiting, held and retired Services for each tier, in the order of the tiers; empty if the plan has no tiers.
    tiers: Vec<TierLook>,
    /// Services that were created in the old range after planning.
    newcomers: Vec<String>,
    /// The results of the requested probes.
    pub probes: Vec<Probed>,
    /// Clients that use old addresses of moved Services, from this host's connection tracking; `None` if not requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<Used>>,
    /// Findings of the check.
    pub findings: Vec<Finding>,
}

/// The progress of a tier.
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
    /// Checks the operation with this id. Without an id, checks the operation under way.
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
        if let Some(later) = later_renumbering(store.as_ref(), &cluster, &ongoing).await? {
            verified = verified.superseded_by(&later);
        }
        let (probes, unanswered) = probe(asked, &ongoing, &survey).await?;
        verified.findings.extend(unanswered);
        let users = if with_flows { Some(flows_of(&ongoing).await?) } else { None };
        let [waiting, held, retired] = verified.counts;
        let situation = Situation::of_ongoing(&ongoing, is_leased(holder.as_ref(), &ongoing.operation));
        let newcomers = ongoing.newcomers(&survey);
        let is_open = !situation.status.is_at_work() && !situation.status.has_ended();
        let why = ongoing.summary.why_stopped().filter(|_| is_open && situation.manual_step.is_none());
        Ok(Self {
            version: 1,
            why: why.map(str::to_string),
            status: situation.status,
            direction: if situation.back { "back" } else { "forward" },
            words: situation.words(),
            manual_step: situation.manual_step.clone(),
            next: situation.with_newcomers(&newcomers).next(),
            digest: ongoing.plan.digest,
            from: work.from.iter().map(ToString::to_string).collect(),
            to: work.to.to_string(),
            stage: stage_now(work, &ongoing.journal),
            lock: holder.map(|held| held.claim.to_string()),
            waiting,
            held,
            retired,
            tiers: TierLook::all(work, &ongoing.journal),
            newcomers,
            probes,
            users,
            findings: verified.findings,
            operation: ongoing.operation,
        })
    }

    /// Returns whether the result has figures that change with every check, even if nothing else has changed.
    pub fn has_figures(&self) -> bool {
        !self.probes.is_empty() || self.users.is_some()
    }

    /// Returns whether the operation has ended, or is stuck until an operator continues it.
    pub fn has_ended(&self) -> bool {
        self.lock.is_none() && (self.status.has_ended() || self.status == Status::Stuck)
    }
}

impl Look {
    /// Returns the parts of the status: what stands where, what runs now, and what to do next.
    pub fn parts(&self) -> Vec<String> {
        let Self { operation, words, to, waiting, held, retired, .. } = self;
        let mut parts = vec![format!("{operation}: {words}, to {to}")];
        parts.extend(self.why.iter().map(|why| format!("why: {why}")));
        let born = match self.newcomers.len() {
            0 => String::new(),
            count => format!(", {count} created in the old range"),
        };
        parts.push(format!("Services: {waiting} waiting, {held} moved and held, {retired} retired{born}"));
        if !self.tiers.is_empty() {
            let words: Vec<String> = self.tiers.iter().map(ToString::to_string).collect();
            parts.push(format!("moved by tier: {}", words.join(", ")));
        }
        parts.extend(self.users.iter().map(|users| {
            let count = counted(users.len(), "port of an old address", "ports of old addresses");
            format!("{count} in use from this host")
        }));
        parts.push(counted(self.findings.len(), "finding", "findings"));
        parts.extend(self.stage.iter().map(|stage| format!("now: {stage}")));
        parts.extend(self.next.iter().map(|next| format!("next: `{next}`")));
        parts.extend(self.lock.iter().map(|lock| format!("lease holder: {lock}")));
        if self.status.is_at_work() {
            parts.push(if_killed(operation));
        }
        parts
    }
}

/// Formats the status as one line.
impl Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts().join("; "))
    }
}
