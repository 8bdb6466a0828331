//! Describes the state of a cutover, and what the operator can do next. This module builds all commands in hints from the
//! journal.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::cutover::{Awaited, Cutover, Name, Point, Share};
use super::waiver::MOST_NAMED;
use crate::nameserver::{RecordKind, RecordSet};
use crate::operation::{Journal, State, Status, StepId, WaitKind as _, Waiver, instant};
use crate::session::{Recorded, give_up};
use crate::words::counted;

/// The situation of a cutover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Situation {
    /// The operation's id.
    pub operation: String,
    /// Current status of the operation.
    pub status: Status,
    /// Whether the whole operation is being rolled back.
    pub back: bool,
    /// Number of the first stage that is not complete, from 1; `None` if every stage is complete.
    pub next_stage: Option<usize>,
    /// The names, in the order of the plan.
    pub names: Vec<NameState>,
    /// What a rollback could not confirm, and at which server.
    pub unconfirmed: Vec<String>,
    /// How long caches can keep records that point to the mirror.
    pub mirror_ttl: Duration,
    /// Options to repeat in the next command, each with a leading space.
    pub options: String,
    /// The options for gates that a command which continues the cutover must repeat, each with a leading space.
    pub gates: String,
}

/// The state of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NameState {
    /// The name.
    pub name: String,
    /// The record sets of the name according to the journal.
    pub expected: Vec<RecordSet>,
    /// The share of clients that these sets send to the mirror, by record type, in percent.
    pub shares: BTreeMap<RecordKind, Share>,
    /// Why the last change of the name was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// When the last change of the name was skipped, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped_at: Option<i64>,
    /// Who gave the name up, when, and the records at that time. The cutover leaves the records of this name as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_up: Option<Waiver>,
    /// Whether the journal does not show what the name has, because the records of earlier runs are lost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// The last point that the name has reached; `None` if no step has changed the name, or every change was undone.
    #[serde(skip)]
    pub(super) reached: Option<Point>,
}

impl NameState {
    fn of(work: &Cutover, journal: &Journal, name: &Name) -> Self {
        let reached = work.reached(name, journal);
        let expected = work.sets(name, reached);
        // If only the mirror has records of a type, the name gets these records at the last stage.
        let shares = name.shares_of(&expected);
        let failed = |point: &Point| journal.find(&work.step(name, *point)).filter(|it| it.error.is_some());
        let failed = work.points().iter().rev().find_map(failed);
        let skipped = failed.and_then(|record| record.error.clone());
        let skipped_at = failed.and_then(|record| record.history.last()).map(|(_, time)| *time);
        let given_up = journal.waiver(&name.name).cloned();
        let is_open = |point: &Point| journal.state(&work.step(name, *point)) == Some(State::Started);
        let unknown = journal.is_recovered() && work.points().iter().any(is_open);
        Self { name: name.name.clone(), expected, shares, skipped, skipped_at, given_up, unknown, reached }
    }

    /// Returns a remark about the name: that it was given up, or why its last change was skipped.
    pub fn remark(&self) -> Option<String> {
        if let Some(waiver) = &self.given_up {
            return Some(waiver.to_string());
        }
        let at = self.skipped_at.map(|at| format!("at {}: ", instant(at))).unwrap_or_default();
        self.skipped.as_ref().map(|why| format!("{at}{why}"))
    }

    /// Returns the share as text, for example `50 %` or `A 50 %, AAAA 0 %`.
    pub fn share(&self) -> String {
        if self.unknown {
            return "an unknown share".to_string();
        }
        let mut shares: Vec<Share> = self.shares.values().copied().collect();
        shares.dedup();
        match shares.as_slice() {
            [] => "0 %".to_string(),
            [one] => format!("{one} %"),
            _ => {
                let each = self.shares.iter().map(|(kind, share)| format!("{kind} {share} %"));
                each.collect::<Vec<_>>().join(", ")
            }
        }
    }
}

impl Situation {
    /// Returns the situation of a cutover. `is_leased`: whether a process holds the operation lease for it.
    pub fn of(recorded: &Recorded<Cutover>, is_leased: bool) -> Self {
        let Recorded { operation, plan, journal, summary } = recorded;
        let work = &plan.work;
        let names: Vec<NameState> =
            work.names.iter().map(|name| NameState::of(work, journal, name)).collect();
        Self {
            operation: operation.clone(),
            status: summary.status_now(journal.is_being_undone(), is_leased),
            back: journal.is_going_back(summary),
            next_stage: next_stage(work, journal),
            mirror_ttl: work.mirror_ttl(work.has_ended(|step| journal.state(step).is_some())),
            names,
            unconfirmed: unconfirmed(journal),
            options: String::new(),
            gates: String::new(),
        }
    }

    /// Repeats these options in the commands.
    #[must_use]
    pub fn repeating(self, options: &str) -> Self {
        Self { options: options.to_string(), ..self }
    }

    /// Repeats these options for gates in the command that continues the cutover.
    #[must_use]
    pub fn with_gates(self, gates: &str) -> Self {
        Self { gates: gates.to_string(), ..self }
    }

    /// Returns whether every name has reached the end.
    pub fn is_complete(&self) -> bool {
        let has_ended = |name: &NameState| name.given_up.is_some() || name.reached == Some(Point::Final);
        self.next_stage.is_none() && self.names.iter().all(has_ended)
    }

    /// Returns the names that the operator has given up.
    pub fn given_up(&self) -> Vec<&Waiver> {
        self.names.iter().filter_map(|name| name.given_up.as_ref()).collect()
    }

    /// Returns the progress as text, for example `3 names, by the share of clients on the mirror: 1 with 0 %, 2 with 50 %`.
    pub fn progress(&self) -> String {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let names = self.names.iter().filter(|name| name.given_up.is_none());
        for name in names.clone() {
            let count = counts.entry(name.share()).or_default();
            *count = count.saturating_add(1);
        }
        let all = counted(names.count(), "name", "names");
        let text = match counts.iter().collect::<Vec<_>>().as_slice() {
            [] => all,
            [(share, _)] => format!("{all} with {share} of clients on the mirror"),
            counts => {
                let each = counts.iter().map(|(share, count)| format!("{count} with {share}"));
                format!(
                    "{all}, by the share of clients on the mirror: {}",
                    each.collect::<Vec<_>>().join(", ")
                )
            }
        };
        match self.given_up().len() {
            0 => text,
            count => format!("{text}; {} given up", counted(count, "name was", "names were")),
        }
    }

    /// Returns the command that continues the cutover; `None` while a process runs the cutover, or if the cutover has ended.
    pub fn next(&self) -> Option<String> {
        let (id, options, gates) = (&self.operation, &self.options, &self.gates);
        match self.status {
            status if status.is_at_work() || status.has_ended() => None,
            _ if self.back => Some(format!("netsurgeon dns rollback {id}{options}")),
            _ => Some(match self.next_stage {
                Some(stage) => format!("netsurgeon dns cutover {id} --stage {stage}{options}{gates}"),
                None => format!("netsurgeon dns cutover {id} --all{options}{gates}"),
            }),
        }
    }

    /// Returns the command that continues the cutover, or its rollback, without the names that were skipped. `None` if there are no
    /// such names, or if [`Self::next`] returns no command. The command contains at most [`MOST_NAMED`] names.
    pub fn give_up(&self) -> Option<String> {
        let is_left = |name: &&NameState| {
            let is_open = !self.back || name.reached.is_some();
            name.skipped.is_some() && name.given_up.is_none() && is_open
        };
        let names = self.names.iter().filter(is_left).take(MOST_NAMED);
        let options = give_up(names.map(|name| name.name.as_str()));
        Some(format!("{}{options}", self.next()?)).filter(|_| !options.is_empty())
    }

    /// Returns the hint with the command of [`Self::give_up`].
    pub fn without_skipped(&self) -> Option<String> {
        let what = if self.back { "to end the rollback" } else { "to continue" };
        let command = self.give_up()?;
        Some(format!("{what} without the skipped names, and leave their records as they are: `{command}`"))
    }

    /// Returns a text for each server that a rollback could not confirm, and the command that checks them again.
    pub fn not_confirmed(&self) -> Vec<String> {
        let (id, options) = (&self.operation, &self.options);
        let said = |why: &String| {
            format!(
                "not confirmed: {why}; clients of this server can still get the records of the mirror, so keep the mirror; to check again: `netsurgeon dns rollback {id}{options}`"
            )
        };
        self.unconfirmed.iter().map(said).collect()
    }

    /// Returns the command that rolls the cutover back, even if the cutover is complete. `None` while a process runs the cutover,
    /// after a rollback has started, and while the journal is being deleted.
    pub fn rollback(&self) -> Option<String> {
        let is_over = matches!(self.status, Status::RolledBack | Status::Removing);
        let is_possible = !self.back && !self.status.is_at_work() && !is_over;
        is_possible.then(|| format!("netsurgeon dns rollback {}{}", self.operation, self.options))
    }
}

/// Returns what a rollback could not confirm, and at which server.
fn unconfirmed(journal: &Journal) -> Vec<String> {
    let record = |wait: Awaited| journal.find(&StepId(wait.name().to_string()));
    let failed = Awaited::CONFIRMATIONS.into_iter().filter_map(record);
    failed.filter(|record| record.state == State::UndoFailed).filter_map(|one| one.error.clone()).collect()
}

/// Returns the number of the first stage that is not complete, from 1; `None` if every stage is complete.
fn next_stage(work: &Cutover, journal: &Journal) -> Option<usize> {
    (0..work.shares.len()).find(|share| !work.is_over(*share, journal)).map(|share| share.saturating_add(1))
}
