//! The history of an operation, from the times in the records of its steps: when each stage ran, and when the operation paused.
//!
//! The journal has only one time for each state of a step: the time of the transaction. So the history assumes that a stage
//! starts when the previous step ends. Pauses come from the runs in the summary. Journals of older versions have no runs. There, if
//! a long time passed between two steps, either no process ran, or a manual step was open.

use std::collections::VecDeque;
use std::ops::Range;

use super::runs;
use crate::operation::{Action, Effect, Journal, Run, Stage, State, Status, Step, StepId, Summary, Work};

/// Time without a step, in seconds, after which the operation counts as paused. Steps take milliseconds.
const STANDSTILL: i64 = 30;
/// Time without a step, in seconds, after which a wait counts as paused. Waits take at most a minute.
const LONG_WAIT: i64 = 90;

/// A period in which a stage ran. Times are in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Position of the stage in the plan.
    pub stage: usize,
    /// Whether the stage was rolled back.
    pub back: bool,
    /// Whether the operation waited for a manual step in this period.
    pub others: bool,
    /// Start.
    pub from: i64,
    /// End.
    pub to: i64,
}

/// A period in which the operation did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Start.
    pub from: i64,
    /// End.
    pub to: i64,
    /// Name of the manual step that the operation waited for; `None` if there was none.
    pub external: Option<String>,
    /// The reason, as text.
    pub what: String,
}

/// A manual step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outside {
    /// Name of the step, for example `flags`.
    pub name: String,
    /// Description of the step.
    pub what: String,
    /// Why the step is needed at this point of the operation.
    pub why: String,
    /// Time when the step was confirmed.
    pub confirmed: Option<i64>,
    /// Time when the undo of the step was confirmed.
    pub undone: Option<i64>,
    /// Total time that the operation waited for the step, forward and in a rollback, in seconds.
    pub waited: i64,
}

/// A step that is in progress, has failed, or could not be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The step.
    pub step: StepId,
    /// State of the step.
    pub state: State,
    /// Time when the step got this state.
    pub since: i64,
    /// The error.
    pub error: Option<String>,
}

/// Consecutive batches of one tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    /// Name of the tier.
    pub name: String,
    /// Number of Services of the tier that move.
    pub services: usize,
    /// Positions of the tier's batches in the plan, counted from 0.
    pub batches: Range<usize>,
}

/// The whole history.
#[derive(Debug, Default)]
pub struct History {
    /// The stages of the plan.
    pub stages: Vec<Stage>,
    /// The tiers of the plan that have a batch, in order.
    pub tiers: Vec<Tier>,
    /// Periods in which stages ran, ordered by start.
    pub spans: Vec<Span>,
    /// Pauses, in order of time.
    pub pauses: Vec<Pause>,
    /// Manual steps, in the order of the plan.
    pub outside: Vec<Outside>,
    /// Steps in progress, failed or stuck, in the order of the plan.
    pub troubles: Vec<Trouble>,
    /// Number of steps in the state `Done`.
    pub done: usize,
    /// Number of steps that were undone.
    pub undone: usize,
    /// Time of the first event.
    pub from: i64,
    /// Time of the last event.
    pub to: i64,
}

/// A change of the state of one step.
struct Moment {
    time: i64,
    stage: usize,
    back: bool,
    what: What,
}

enum What {
    Step,
    Wait,
    Manual(String, String),
}

impl History {
    /// Builds the history of an operation of any kind from its journal, without tiers.
    pub fn of<W: Work>(work: &W, journal: &Journal, summary: &Summary) -> Self {
        let mut history = Self { stages: work.stages(), from: summary.started, ..Self::default() };
        let mut moments = Vec::new();
        for stage in history.stages.clone() {
            for step in work.steps(&stage) {
                history.take(journal, &stage, &step, &mut moments);
            }
        }
        let place = |moment: &Moment| {
            let stage = i64::try_from(moment.stage).unwrap_or(i64::MAX);
            (moment.time, moment.back, if moment.back { stage.saturating_neg() } else { stage })
        };
        moments.sort_by_key(place);
        history.tell(&moments, &summary.runs);
        let last = moments.last().map(|moment| moment.time);
        let ended = summary.runs.last().and_then(|run| run.ended);
        history.to = last.max(ended).unwrap_or(history.from).max(history.from);
        history
    }

    fn take<E: Effect>(
        &mut self,
        journal: &Journal,
        stage: &Stage,
        step: &Step<E>,
        moments: &mut Vec<Moment>,
    ) {
        let record = journal.find(&step.id);
        if let Action::Manual(manual) = &step.action {
            let at = |wanted: State| {
                let states = record.iter().flat_map(|record| &record.history);
                states.rev().find(|(state, _)| *state == wanted).map(|(_, time)| *time)
            };
            self.outside.push(Outside {
                name: manual.name.clone(),
                what: manual.what.clone(),
                why: manual.why.clone(),
                confirmed: at(State::Done),
                undone: at(State::UndoDone).filter(|_| manual.undo.is_some()),
                waited: 0,
            });
        }
        let Some(record) = record else { return };
        let is_asked = |state: State| matches!(state, State::Started | State::UndoStarted);
        match record.state {
            // Manual steps have their own table, and a wait is not a failure.
            asked if is_asked(asked) && matches!(step.action, Action::Manual(_) | Action::Wait(_)) => {}
            State::Done => self.done = self.done.saturating_add(1),
            State::UndoDone | State::Reset => self.undone = self.undone.saturating_add(1),
            open => self.troubles.push(Trouble {
                step: step.id.clone(),
                state: open,
                since: record.history.last().map_or(0, |(_, time)| *time),
                error: record.error.clone(),
            }),
        }
        for (state, time) in &record.history {
            let back = state.is_of_the_way_back() || *state == State::Reset;
            let what = match &step.action {
                Action::Manual(manual) if !is_asked(*state) && (!back || manual.undo.is_some()) => {
                    let words = manual.undo.as_ref().filter(|_| back).unwrap_or(&manual.what);
                    What::Manual(manual.name.clone(), words.clone())
                }
                Action::Wait(_) => What::Wait,
                _ => What::Step,
            };
            moments.push(Moment { time: *time, stage: stage.index, back, what });
        }
    }

    /// Builds spans and pauses from the moments, in order.
    fn tell(&mut self, moments: &[Moment], runs: &[Run]) {
        let mut last = self.from;
        let since = runs.first().map_or(i64::MAX, |run| run.started);
        let mut between: VecDeque<Pause> = between(runs, moments).into();
        for moment in moments {
            let (stage, back, to) = (moment.stage, moment.back, moment.time);
            let mut pauses = Vec::new();
            while let Some(pause) = between.pop_front_if(|pause| pause.to <= moment.time) {
                last = last.max(pause.to);
                pauses.push(pause);
            }
            let gap = moment.time.saturating_sub(last);
            // In the runs that the journal contains, only a manual step at a prompt is a pause.
            let is_asked = matches!(moment.what, What::Manual(..));
            pauses.extend(pause_before(moment, last, gap).filter(|_| is_asked || moment.time < since));
            // A manual step lasts as long as the operation waits for it. In any other pause, no process ran.
            let others = pauses.iter().any(|pause| pause.external.is_some());
            let is_still = pauses.iter().any(|pause| pause.external.is_none());
            let begin = pauses.iter().filter(|pause| pause.external.is_some()).map(|pause| pause.from).min();
            let from = if is_still { to } else { begin.unwrap_or(last) };
            match self.spans.last_mut() {
                Some(span) if pauses.is_empty() && goes_on(span, stage, back) => span.to = to,
                _ => self.spans.push(Span { stage, back, others, from, to }),
            }
            self.add(pauses);
            last = last.max(moment.time);
        }
        // Runs after the last step: nothing was done between them.
        self.add(between.into());
    }

    fn add(&mut self, pauses: Vec<Pause>) {
        for pause in pauses {
            let name = pause.external.as_ref();
            if let Some(outside) = self.outside.iter_mut().find(|outside| Some(&outside.name) == name) {
                outside.waited = outside.waited.saturating_add(pause.to.saturating_sub(pause.from));
            }
            self.pauses.push(pause);
        }
    }

    /// Returns the total time in which the operation did not run, in seconds.
    pub fn paused(&self) -> i64 {
        self.pauses.iter().fold(0, |sum, pause| sum.saturating_add(pause.to.saturating_sub(pause.from)))
    }

    /// Returns when these batches ran, forward or in a rollback: the times of their first and last change.
    pub fn of_batches(&self, batches: &Range<usize>, back: bool) -> Option<(i64, i64)> {
        let batch = |span: &Span| self.stages.get(span.stage).and_then(|stage| stage.batch);
        let of =
            |span: &&Span| span.back == back && batch(span).is_some_and(|batch| batches.contains(&batch));
        let from = self.spans.iter().filter(of).map(|span| span.from).min()?;
        let to = self.spans.iter().filter(of).map(|span| span.to).max()?;
        Some((from, to))
    }
}

/// Returns whether a change in this stage belongs to this span.
fn goes_on(span: &Span, stage: usize, back: bool) -> bool {
    span.stage == stage && span.back == back && !span.others
}

/// Returns the pauses between consecutive runs. The end of a run that was killed is the time of its last step.
fn between(runs: &[Run], moments: &[Moment]) -> Vec<Pause> {
    let pairs = runs.iter().zip(runs.iter().skip(1));
    let pauses = pairs.filter_map(|(run, next)| {
        // A step in the second in which the next run started is a step of that run: it first waited for the lease.
        let steps = moments.iter().map(|moment| moment.time).filter(|time| *time < next.started);
        let from = run.ended.unwrap_or_else(|| steps.max().unwrap_or(run.started).max(run.started));
        let waits = run.status == Some(Status::WaitingForManualStep);
        let external = run.manual_step.clone().filter(|_| waits);
        let what = runs::outcome(run, false);
        (next.started > from || run.ended.is_none()).then_some(Pause {
            from,
            to: next.started.max(from),
            external,
            what,
        })
    });
    pauses.collect()
}

fn pause_before(moment: &Moment, last: i64, gap: i64) -> Option<Pause> {
    let (external, what) = match &moment.what {
        What::Manual(name, what) if gap > 0 => (Some(name.clone()), what.clone()),
        What::Step if gap >= STANDSTILL => {
            (None, "the operation was stopped, or no process ran it".to_string())
        }
        What::Wait if gap >= LONG_WAIT => {
            (None, "the operation was stopped, or the wait for the data plane failed".to_string())
        }
        _ => return None,
    };
    Some(Pause { from: last, to: moment.time, external, what })
}
