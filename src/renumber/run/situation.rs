//! Describes the situation of an operation, and what the operator can do next. This module composes every sentence about the
//! situation, and every command in a hint. It reads the direction, the point of no return and the held addresses only from the
//! journal.

use super::progress::{Phases, next_stage};
use super::waiver::left_over;
use super::{DELETED, Ongoing};
use crate::operation::{Journal, Stage, State, Status, StepId, Summary, Work as _};
use crate::renumber::verify::Phase;
use crate::renumber::{Action, Move, Renumbering, Step, is_past_no_return};
use crate::session::give_up;
use crate::words::counted;

/// The situation of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Situation {
    /// The operation's id.
    pub operation: String,
    /// Current status of the operation.
    pub status: Status,
    /// Whether the whole operation is being rolled back.
    pub back: bool,
    /// Whether the operation is past the point of no return.
    pub past_no_return: bool,
    /// Whether the next command retires the old addresses.
    pub is_to_retire: bool,
    /// Name of the open manual step.
    pub manual_step: Option<String>,
    /// Number of Services in each phase.
    pub phases: Phases,
    /// The subjects that the next command would skip again, and that can be given up.
    pub left_over: Vec<String>,
    /// Options to repeat in the next command, in the form in which they were given.
    pub options: String,
    /// The options for gates that a command which moves more Services must repeat, each with a leading space.
    pub gates: String,
}

impl Situation {
    /// Returns the situation of an operation. `is_leased` is true if a process holds the operation lease for this operation.
    pub fn of(
        operation: &str,
        work: &Renumbering,
        journal: &Journal,
        summary: &Summary,
        is_leased: bool,
    ) -> Self {
        let status = summary.status_now(journal.is_being_undone(), is_leased);
        let waits = (status == Status::WaitingForManualStep).then(|| summary.manual_step.clone()).flatten();
        let past_no_return = is_past_no_return(|step| journal.state(step));
        let is_of_the_end = status == Status::Soaking
            || waits.as_deref().is_some_and(|name| is_of_the_end(work, |step| is_manual(step, name)))
            || is_of_the_end(work, |step| journal.state(&step.id).is_some())
            || is_all_moved(work, journal);
        let is_to_retire = past_no_return || (is_of_the_end && !leaves_some(work, journal));
        Self {
            operation: operation.to_string(),
            status,
            back: journal.is_going_back(summary),
            past_no_return,
            is_to_retire,
            manual_step: waits,
            phases: Phases::of(&work.moves, journal),
            left_over: Vec::new(),
            options: String::new(),
            gates: String::new(),
        }
    }

    /// Returns the situation of an opened operation.
    pub fn of_ongoing(ongoing: &Ongoing, is_leased: bool) -> Self {
        let Ongoing { operation, plan, journal, summary, .. } = ongoing;
        let situation = Self::of(operation, &plan.work, journal, summary, is_leased);
        let options = if situation.past_no_return { String::new() } else { ongoing.options.clone() };
        let left_over = left_over(ongoing, situation.back);
        Self { left_over, options, gates: ongoing.gates.clone(), ..situation }
    }

    /// Returns the status as text, for tables and sentences: ``waiting for manual step `flags` ``.
    pub fn words(&self) -> String {
        let status = match &self.manual_step {
            Some(name) => format!("{} `{name}`", self.status),
            None => self.status.to_string(),
        };
        let is_told = self.status.has_ended() || self.status == Status::RollingBack || !self.back;
        if is_told { status } else { format!("{status} while rolling back") }
    }

    /// Returns the progress as text: `20 of 31 Services moved`.
    pub fn progress(&self) -> String {
        let Phases { waiting, held, retired } = self.phases;
        let moved = held.saturating_add(retired);
        let all = counted(waiting.saturating_add(moved), "Service", "Services");
        let have = if waiting == 1 { "has its old address" } else { "have their old addresses" };
        match () {
            () if waiting.saturating_add(moved) == 0 => "no Service moves".to_string(),
            () if self.past_no_return => format!("{retired} of {all} retired"),
            () if self.back => format!("{waiting} of {all} {have}"),
            () => format!("{moved} of {all} moved"),
        }
    }

    /// Returns how many old addresses are held, as text.
    pub fn held(&self) -> String {
        let Phases { waiting, held, .. } = self.phases;
        match (held, self.past_no_return || waiting == 0) {
            (0, true) => "no old address is held".to_string(),
            (0, false) => "every Service has its old address".to_string(),
            (held, _) => format!("{} held", counted(held, "old address is", "old addresses are")),
        }
    }

    /// Returns the command that continues the operation; `None` while a process runs the operation, and after the operation has
    /// ended.
    pub fn next(&self) -> Option<String> {
        let id = &self.operation;
        let command = match self.status {
            Status::Running | Status::RollingBack | Status::Done | Status::RolledBack => return None,
            Status::Removing => return Some(format!("netsurgeon operation resume {id}")),
            _ if self.back => format!("netsurgeon operation rollback {id}{}", self.options),
            _ if self.is_to_retire => self.retire(),
            _ => format!("netsurgeon operation resume {id}{}", self.gates),
        };
        Some(match &self.manual_step {
            Some(name) => format!("{command} --confirm {name}"),
            None => command,
        })
    }

    /// Takes into account Services that were created in the old range (`newcomers`). These Services must move before the old
    /// addresses can be retired, so [`Self::next`] then continues the operation instead of retiring.
    #[must_use]
    pub fn with_newcomers(self, newcomers: &[String]) -> Self {
        if newcomers.is_empty() || !self.starts_to_retire() {
            return self;
        }
        Self { is_to_retire: false, manual_step: None, ..self }
    }

    /// Returns whether the next command would start to retire the old addresses.
    pub fn starts_to_retire(&self) -> bool {
        self.is_to_retire && !self.past_no_return && !self.back && self.next().is_some()
    }

    /// Returns the command that retires the old addresses.
    pub fn retire(&self) -> String {
        format!("netsurgeon renumber retire --operation {}{}", self.operation, self.options)
    }

    /// Returns the command that rolls the operation back. Returns `None` past the point of no return, and during a rollback.
    pub fn rollback(&self) -> Option<String> {
        let is_possible =
            !self.back && !self.past_no_return && !self.status.has_ended() && !self.status.is_at_work();
        is_possible.then(|| format!("netsurgeon operation rollback {}", self.operation))
    }

    /// Returns the command that continues and ends the operation without the subjects that were skipped. `None` if there are none, or
    /// if [`Self::next`] returns no command.
    pub fn give_up(&self) -> Option<String> {
        self.next().filter(|_| !self.left_over.is_empty())?;
        let verb = if self.back { "rollback" } else { "resume" };
        let options = give_up(self.left_over.iter().map(String::as_str));
        Some(format!("netsurgeon operation {verb} {}{options}", self.operation))
    }

    /// Returns the hint with the command of [`Self::give_up`].
    pub fn without_skipped(&self) -> Option<String> {
        let what = if self.back { "to end the rollback" } else { "to end the operation" };
        let command = self.give_up()?;
        Some(format!("{what} without the objects that were skipped, and leave them as they are: `{command}`"))
    }

    /// Returns the hint about a rollback, which is shown in addition to [`Self::next`].
    pub fn rollback_hint(&self) -> Option<String> {
        match self.rollback() {
            Some(command) => Some(format!("to go back: `{command}`")),
            None if self.past_no_return => {
                Some("the operation is past the point of no return: it can only be completed".to_string())
            }
            None => None,
        }
    }
}

fn is_manual(step: &Step, name: &str) -> bool {
    matches!(&step.action, Action::Manual(manual) if manual.name == name)
}

/// Returns whether `is_one` returns true for one of the [`steps_of_the_end`].
fn is_of_the_end(work: &Renumbering, is_one: impl Fn(&Step) -> bool) -> bool {
    steps_of_the_end(work).any(|step| is_one(&step))
}

/// Returns the steps from the soak to the end, without the steps of single Services.
pub fn steps_of_the_end(work: &Renumbering) -> impl Iterator<Item = Step> {
    let of_services = |stage: &Stage| matches!(stage.name.as_str(), "retire" | "settle");
    let stages = work.stages().into_iter().skip(work.soak_stage().unwrap_or(usize::MAX));
    stages.filter(move |stage| !of_services(stage)).flat_map(move |stage| work.steps(&stage))
}

/// Returns whether a Service still has to move. Such a Service was skipped for a reason other than its deletion.
fn leaves_some(work: &Renumbering, journal: &Journal) -> bool {
    let failed = journal.records().into_iter().filter(|(_, record)| record.state == State::Failed);
    let failed: Vec<(&StepId, bool)> =
        failed.map(|(step, record)| (step, record.error.as_deref() == Some(DELETED))).collect();
    let is_left = |moved: &&Move| {
        let mut own = failed.iter().filter(|(step, _)| moved.has_step(step)).peekable();
        own.peek().is_some() && own.all(|(_, is_deleted)| !is_deleted)
    };
    let is_waiting = |moved: &&Move| Phase::of(moved, |step| journal.state(step)) == Phase::Waiting;
    !failed.is_empty() && work.moves.iter().filter(is_waiting).any(|moved| is_left(&moved))
}

/// Returns whether every step before the soak is done.
fn is_all_moved(work: &Renumbering, journal: &Journal) -> bool {
    let soak = work.soak_stage().unwrap_or(usize::MAX);
    !journal.is_being_undone()
        && next_stage(work, journal).is_none_or(|(stage, back)| !back && stage.index >= soak)
}
