//! Subjects that the operator gives up, in a rollback or while the old addresses are retired. Before that, a Service that cannot
//! move keeps its old address, and the old range must stay open for it. So only a rollback can end the operation without it.

use std::collections::BTreeSet;

use super::{Ongoing, RenumberSession};
use crate::operation::{Lock, State, Status, Waiver, Work as _};
use crate::renumber::{Action, Renumbering, Step};
use crate::session::{Failure, give_up};
use crate::words::and_more;

/// Maximum number of subjects that one message or one command contains.
const MOST_NAMED: usize = 50;

/// Returns the name with which the subject of a step is given up: the Service, or the id of a step that belongs to no Service.
fn subject_of(step: &Step) -> &str {
    let is_service = step.subject.contains('/') && !step.subject.contains(' ');
    if is_service { &step.subject } else { &step.id.0 }
}

/// Returns the steps that can be given up. Past the point of no return, these are the remaining steps.
fn steps(work: &Renumbering, back: bool) -> impl Iterator<Item = Step> {
    let first = if back { 0 } else { work.no_return_stage().unwrap_or(usize::MAX) };
    let stages = work.stages().into_iter().skip(first);
    let steps = stages.flat_map(move |stage| work.steps(&stage));
    steps.filter(|step| !matches!(step.action, Action::PointOfNoReturn))
}

/// Returns the subjects of the steps that could not be undone in a rollback, or could not be executed past the point of no
/// return.
pub(super) fn left_over(ongoing: &Ongoing, back: bool) -> Vec<String> {
    let Ongoing { plan, journal, summary, .. } = ongoing;
    if !back && !ongoing.has_begun_to_retire() {
        return Vec::new();
    }
    // A step without an outcome has failed only if the run recorded a failure.
    let has_failed = summary.status == Status::Stopped;
    let is_left = |state| match state {
        State::UndoFailed => back,
        State::UndoStarted => back && has_failed,
        State::Failed => !back,
        State::Started => !back && has_failed,
        State::Done | State::UndoDone | State::Reset => false,
    };
    if !journal.records().into_iter().any(|(_, record)| is_left(record.state)) {
        return Vec::new();
    }
    let left = steps(&plan.work, back).filter(|step| journal.state(&step.id).is_some_and(is_left));
    let left: BTreeSet<String> = left.map(|step| subject_of(&step).to_string()).collect();
    left.into_iter().filter(|subject| journal.waiver(subject).is_none()).take(MOST_NAMED).collect()
}

impl RenumberSession {
    /// Records the subjects to give up. `back`: whether the operation is being rolled back.
    pub(super) async fn give_up(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        back: bool,
    ) -> Result<(), Failure> {
        let given = &self.choices.give_up;
        if given.is_empty() {
            return Ok(());
        }
        let operation = &ongoing.operation;
        if !back && !ongoing.has_begun_to_retire() {
            let options = give_up(given.iter().map(String::as_str));
            return Err(Failure::usage(
                "a Service that has not moved needs the old range, so the operation cannot end without it",
            )
            .hint("to continue now, and move or delete the Service later: `--max-failures 1` instead of `--give-up`")
            .hint(format!("to go back without it: `netsurgeon operation rollback {operation}{options}`")));
        }
        let known: BTreeSet<String> =
            steps(&ongoing.plan.work, back).map(|step| subject_of(&step).to_string()).collect();
        if let Some(unknown) = given.iter().find(|subject| !known.contains(*subject)) {
            // The subjects that were skipped come first.
            let skipped = left_over(ongoing, back);
            let others = known.iter().filter(|name| !skipped.contains(name));
            let names = skipped.iter().chain(others).take(MOST_NAMED).map(|name| format!("`{name}`"));
            let names = names.collect::<Vec<_>>().join(", ");
            let more = and_more(known.len().saturating_sub(MOST_NAMED));
            return Err(Failure::usage(format!("operation `{operation}` has no subject `{unknown}`"))
                .hint(format!("its subjects: {names}{more}")));
        }
        let now = self.ambient().now();
        let waivers: Vec<Waiver> = given
            .iter()
            .map(|subject| {
                let records = ongoing.journal.records();
                let about =
                    |id: &str| id == subject || id.split_once('/').is_some_and(|(_, of)| of == subject);
                let error = records.iter().rev().find_map(|(step, record)| {
                    record.error.as_ref().filter(|_| about(&step.0)).map(|error| format!("`{step}`: {error}"))
                });
                Waiver::of(subject, back, &error.unwrap_or_default(), now)
            })
            .collect();
        let ledger = self.ledger(&ongoing.journal, lock);
        ongoing.journal.give_up(&ledger, &waivers).await?;
        ongoing.summary.give_up(&waivers);
        for Waiver { subject, .. } in &waivers {
            self.ui.progress(&format!("gave up `{subject}`: it stays as it is"));
        }
        Ok(())
    }
}
