//! Explains why an operation stopped before its end. The reason is either a pause, which is not an error, or a failure.

use super::rollback::NEW_OPERATION;
use super::situation::Situation;
use super::{Direction, Ongoing};
use crate::operation::{self, OperationError};
use crate::session::{ExitKind, Failure};

/// Adds hints to a failure that happened outside of a step. The operation has not ended, so the hints show how to continue.
pub(super) fn left_open(failure: Failure, ongoing: &Ongoing, way: Direction) -> Failure {
    let failure = failure.kind(ExitKind::Stuck);
    with_hints(failure, &ahead(ongoing, way), "every completed step is recorded in the journal")
}

/// Returns the message of an operation that stopped before its end.
pub(super) fn stopped(failure: operation::RunFailure, ongoing: &Ongoing, way: Direction) -> Failure {
    let situation = ahead(ongoing, way);
    if failure.source.is_pause() {
        return paused(&failure, &situation);
    }
    let is_of_a_service = || ongoing.plan.work.moves.iter().any(|moved| moved.has_step(&failure.step));
    let skips = way.is_forward() && failure.source.is_about_one_object() && is_of_a_service();
    let is_batch = matches!(failure.source, OperationError::BatchStuck { .. });
    let instead = matches!(failure.source, OperationError::PointOfNoReturn { .. }).then_some(NEW_OPERATION);
    let words = Failure::from(failure).kind(ExitKind::Stuck).hints(instead);
    match situation.next().filter(|_| skips || is_batch) {
        Some(next) if skips => {
            let words = words.hint(format!("to skip the Service of that step: `{next} --max-failures 1`"));
            words.hints(situation.rollback_hint())
        }
        Some(next) => words.hint(format!("then continue: `{next}`")).hints(situation.rollback_hint()),
        None => with_hints(words, &situation, "every earlier step is done and recorded in the journal"),
    }
}

/// Returns the situation that the next command will find. The direction of this run is added, because the copy of the journal in
/// this process may be outdated.
fn ahead(ongoing: &Ongoing, way: Direction) -> Situation {
    let situation = Situation::of_ongoing(ongoing, false);
    let back = situation.back || !way.is_forward();
    let is_to_retire = situation.is_to_retire || way == Direction::Retire;
    Situation { back, is_to_retire, ..situation }
}

/// Returns the message of a pause, in one sentence.
fn paused(failure: &operation::RunFailure, situation: &Situation) -> Failure {
    let progress = situation.progress();
    let next = situation.next().unwrap_or_default();
    let text = match &failure.source {
        OperationError::Paused { name, .. } => {
            format!("{progress}, waiting for manual step `{name}`; when it is complete: `{next}`")
        }
        OperationError::GateClosed { gate, reason, .. } => {
            format!("{progress}, the gate `{gate}` is closed: {reason}; next: `{next}`")
        }
        OperationError::BatchRolledBack { batch, gate, reason } => format!(
            "{progress}, the gate `{gate}` was closed: {reason}; batch {} was rolled back; to check the gates and run the batch again: `{next}`",
            batch.saturating_add(1)
        ),
        _ => format!("{progress}; next: `{next}`"),
    };
    let words = Failure::of(ExitKind::Paused, text);
    Failure { step: Some(failure.step.to_string()), ..words }.hints(situation.rollback_hint())
}

fn with_hints(words: Failure, situation: &Situation, done: &str) -> Failure {
    let (progress, held) = (situation.progress(), situation.held());
    let next = situation.next().map(|next| format!("to continue: `{next}`"));
    let words = words.hint(format!("{done}: {progress}, {held}")).hints(next);
    words.hints(situation.without_skipped()).hints(situation.rollback_hint())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Status;
    use crate::operation::StepId;
    use crate::renumber::run::progress::Phases;
    use crate::session::MessageKind;

    fn situation(past_no_return: bool) -> Situation {
        Situation {
            operation: "op".into(),
            status: Status::Paused,
            back: false,
            past_no_return,
            is_to_retire: past_no_return,
            manual_step: None,
            phases: Phases { waiting: 11, held: 20, retired: 0 },
            left_over: Vec::new(),
            options: String::new(),
            gates: String::new(),
        }
    }

    fn said(source: OperationError, situation: &Situation) -> Vec<(MessageKind, String)> {
        let failure = paused(&operation::RunFailure { step: StepId("flip/a".into()), source }, situation);
        assert_eq!((failure.kind.code(), failure.step.as_deref()), (6, Some("flip/a")));
        failure.lines()
    }

    #[test]
    fn pause_prints_one_sentence_with_next_command_and_is_no_error() {
        let back = (MessageKind::Hint, "to go back: `netsurgeon operation rollback op`".to_string());
        let next = "20 of 31 Services moved; next: `netsurgeon operation resume op`";
        let expected = vec![(MessageKind::Paused, next.to_string()), back];
        assert_eq!(said(OperationError::Stopped, &situation(false)), expected);
        let closed = || OperationError::GateClosed { gate: "http".into(), reason: "503".into(), after: None };
        let text =
            "20 of 31 Services moved, the gate `http` is closed: 503; next: `netsurgeon operation resume op`";
        assert_eq!(said(closed(), &situation(false))[0], (MessageKind::Paused, text.to_string()));
    }

    #[test]
    fn pause_past_point_of_no_return_offers_no_rollback() {
        let waits = Situation { manual_step: Some("certificates-after".into()), ..situation(true) };
        let open = OperationError::Paused {
            name: "certificates-after".into(),
            what: String::new(),
            why: String::new(),
        };
        let lines = said(open, &waits);
        let command = "`netsurgeon renumber retire --operation op --confirm certificates-after`";
        assert!(lines[0].1.contains(command), "{lines:?}");
        assert!(lines.iter().all(|(_, line)| !line.contains("rollback")), "{lines:?}");
    }
}
