//! Counts the progress of an operation on a live cluster, from the executor's events. The progress bar, the log and the metrics
//! show these figures. This module does not read the clock; the caller passes the current time.

mod metrics;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::operation::{Event, Journal, OperationError, Stage, State, StepId, Told, Work};
use crate::renumber::verify::Phase;
use crate::renumber::{Action, Move, Renumbering, Step};
use crate::session::metrics::Page;
use crate::session::progress::{Pace, Progress};
use crate::words::{counted, in_words, titled};

/// The kind of change that counts as progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Services get their new address.
    Move,
    /// Old addresses are retired.
    Retire,
    /// Services get their old address back.
    Back,
}

impl Goal {
    /// Returns the name of the goal in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Move => "move",
            Self::Retire => "retire",
            Self::Back => "back",
        }
    }

    /// Returns the words that follow a number of Services that have reached the goal, for example `moved` in `12 Services moved`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Move => "moved",
            Self::Retire => "retired",
            Self::Back => "with their old addresses",
        }
    }
}

/// Number of Services in each phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Phases {
    /// Number of Services that have their old address.
    pub waiting: usize,
    /// Number of Services that have their new address and still hold their old address.
    pub held: usize,
    /// Number of Services whose old address is retired.
    pub retired: usize,
}

impl Phases {
    /// Counts the Services in each phase. The states of a Service's steps in the journal determine its phase.
    pub fn of(moves: &[Move], journal: &Journal) -> Self {
        let mut phases = Self::default();
        for candidate in moves {
            let count = phases.of_phase(Phase::of(candidate, |step| journal.state(step)));
            *count = count.saturating_add(1);
        }
        phases
    }

    fn of_phase(&mut self, phase: Phase) -> &mut usize {
        match phase {
            Phase::Waiting => &mut self.waiting,
            Phase::Held => &mut self.held,
            Phase::Retired => &mut self.retired,
        }
    }

    fn pass(&mut self, from: Phase, to: Phase) {
        let from = self.of_phase(from);
        *from = from.saturating_sub(1);
        let to = self.of_phase(to);
        *to = to.saturating_add(1);
    }
}

/// Number of steps by outcome, in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Steps that were run.
    pub done: u64,
    /// Steps that were undone.
    pub undone: u64,
    /// Steps that were already done, or already undone.
    pub skipped: u64,
    /// Steps that failed.
    pub failed: u64,
    /// Steps that could not be run or undone, and were skipped.
    pub left_alone: u64,
}

/// Completed waits for the data plane, in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// Number of completed waits.
    pub count: u64,
    /// Total duration of all waits.
    pub sum: Duration,
    /// Duration of the last wait.
    pub last: Duration,
}

/// The current stage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Current {
    /// Short name of the stage, for example `flip`.
    pub name: String,
    /// Title of the stage.
    pub title: String,
    /// Number of the batch to which the stage belongs, starting at 1; 0 if the stage belongs to no batch.
    pub batch: usize,
    /// Whether the stage is being undone.
    pub back: bool,
}

/// The progress figures of an operation.
#[derive(Debug, Clone)]
pub struct MoveProgress {
    /// The operation's id.
    pub operation: String,
    /// The kind of change that counts as progress.
    pub goal: Goal,
    /// Number of Services in the plan.
    pub services: usize,
    /// Number of batches in the plan.
    pub batches: usize,
    /// Number of Services in each phase.
    pub phases: Phases,
    /// Number of steps by outcome.
    pub steps: Outcomes,
    /// Completed waits for the data plane.
    pub barriers: Waits,
    /// The current stage.
    pub stage: Current,
    /// Whether the operation waits for a manual step.
    pub paused: bool,
    /// Number of Services that had reached the goal when this process started.
    before: usize,
    /// Barriers under way, each with its start time. Two barriers can be under way at the same time.
    waiting_since: HashMap<StepId, Instant>,
    /// End of the current linger wait.
    lingers_until: Option<Instant>,
    pace: Pace,
}

impl MoveProgress {
    /// Returns the figures at the start of a run. They contain the progress that the journal records.
    pub fn new(operation: &str, goal: Goal, (work, journal): (&Renumbering, &Journal), now: Instant) -> Self {
        let mut progress = Self {
            operation: operation.to_string(),
            goal,
            services: work.moves.len(),
            batches: work.batches().len(),
            phases: Phases::of(&work.moves, journal),
            steps: Outcomes::default(),
            barriers: Waits::default(),
            stage: Current::default(),
            paused: false,
            before: 0,
            waiting_since: HashMap::new(),
            lingers_until: None,
            pace: Pace::new(now),
        };
        progress.before = progress.there();
        progress
    }

    /// Returns the number of Services that have reached the goal.
    pub fn there(&self) -> usize {
        match self.goal {
            Goal::Move => self.phases.held.saturating_add(self.phases.retired),
            Goal::Retire => self.phases.retired,
            Goal::Back => self.phases.waiting,
        }
    }

    fn started(&mut self, step: Told<'_>, left: Option<Duration>, now: Instant) {
        if step.manual.is_some() {
            self.paused = true;
            self.pace.rest(now);
        }
        if let Some(left) = left {
            self.lingers_until = now.checked_add(left);
            self.pace.rest(now);
        } else if step.wait == Some("barrier") {
            self.waiting_since.insert(step.id.clone(), now);
        }
    }

    fn wake(&mut self, now: Instant) {
        self.lingers_until = None;
        self.pace.wake(now);
    }

    fn done(&mut self, step: Told<'_>, now: Instant) -> bool {
        self.wake(now);
        self.paused = false;
        let count = if self.stage.back { &mut self.steps.undone } else { &mut self.steps.done };
        *count = count.saturating_add(1);
        if let Some(since) = self.waiting_since.remove(step.id) {
            let took = now.saturating_duration_since(since);
            let Waits { count, sum, .. } = self.barriers;
            self.barriers =
                Waits { count: count.saturating_add(1), sum: sum.saturating_add(took), last: took };
        }
        let before = self.there();
        match (step.id.kind(), self.stage.back) {
            ("flip", false) => self.phases.pass(Phase::Waiting, Phase::Held),
            ("flip", true) => self.phases.pass(Phase::Held, Phase::Waiting),
            ("retire", false) => self.phases.pass(Phase::Held, Phase::Retired),
            _ => {}
        }
        self.there() > before
    }

    /// Returns the rate in Services per second, and the remaining time at this rate. The rate does not include idle time. Returns
    /// `None` until a Service has reached the goal in this process.
    pub fn pace(&self, now: Instant) -> Option<(f64, Duration)> {
        let there = self.there();
        self.pace.of(there.saturating_sub(self.before), self.services.saturating_sub(there), now)
    }
}

impl Progress for MoveProgress {
    fn note(&mut self, event: &Event<'_>, now: Instant) -> bool {
        match event {
            Event::StageStarted { stage, back, .. } => {
                self.stage = Current {
                    name: stage.name.clone(),
                    title: stage.title.clone(),
                    batch: stage.batch.map_or(0, |batch| batch.saturating_add(1)),
                    back: *back,
                };
            }
            Event::StepStarted { step, left } => self.started(*step, *left, now),
            Event::CheckpointAsked { .. } => self.pace.rest(now),
            Event::CheckpointAnswered => self.wake(now),
            Event::StepDone { step } => return self.done(*step, now),
            Event::StepSkipped { .. } => self.steps.skipped = self.steps.skipped.saturating_add(1),
            Event::StepFailed { error, .. } => {
                self.wake(now);
                self.paused = matches!(error, OperationError::Paused { .. });
                self.steps.failed = self.steps.failed.saturating_add(u64::from(!error.is_pause()));
            }
            Event::LeftAlone { .. } => self.steps.left_alone = self.steps.left_alone.saturating_add(1),
        }
        false
    }

    fn reached(&self) -> (usize, usize) {
        (self.there(), self.services)
    }

    fn line_after(&self) -> Option<usize> {
        let share = self.services.div_ceil(self.batches.max(1)).max(1);
        (self.goal == Goal::Retire).then_some(share)
    }

    fn words(&self, now: Instant) -> String {
        let (there, all) = (self.there(), self.services);
        let percent = there.saturating_mul(100).checked_div(all).unwrap_or(100);
        let mut words =
            format!("{there} of {} {} ({percent} %)", counted(all, "Service", "Services"), self.goal.word());
        if let Some((per_second, left)) = self.pace(now) {
            let _ = write!(words, ", {per_second:.1} a second");
            if there < all {
                let _ = write!(words, ", {} left", in_words(left));
            }
        }
        words
    }

    fn fields(&self, now: Instant) -> Vec<(&'static str, Value)> {
        let pace = self.pace(now);
        let rounded = |value: f64| Value::from((value * 10.0).round() / 10.0);
        vec![
            ("direction", Value::from(if self.stage.back { "back" } else { "forward" })),
            ("stage", Value::from(self.stage.name.as_str())),
            ("batch", if self.stage.batch == 0 { Value::Null } else { Value::from(self.stage.batch) }),
            ("batches", Value::from(self.batches)),
            ("services", Value::from(self.services)),
            ("services_there", Value::from(self.there())),
            ("services_per_second", pace.map_or(Value::Null, |(per_second, _)| rounded(per_second))),
            ("seconds_left", pace.map_or(Value::Null, |(_, left)| Value::from(left.as_secs()))),
            ("steps_done", Value::from(self.steps.done.saturating_add(self.steps.undone))),
        ]
    }

    fn batch(&self) -> usize {
        self.stage.batch
    }

    fn stage_title(&self) -> String {
        titled(&self.stage.title, self.stage.back)
    }

    fn lingers(&self, now: Instant) -> Option<(String, Duration)> {
        let left = self.lingers_until?.saturating_duration_since(now);
        Some(("the new addresses continue to answer".to_string(), left))
    }

    fn write(&self, page: &mut Page) {
        metrics::operation(page, self);
        metrics::counts(page, self);
        metrics::barriers(page, self);
    }
}

/// Returns the current or next stage, and whether this stage is being undone; `None` if no stage is left.
pub fn next_stage(work: &Renumbering, journal: &Journal) -> Option<(Stage, bool)> {
    let has = |stage: &Stage, is_open: &dyn Fn(&Step) -> bool| work.steps(stage).iter().any(is_open);
    let returning = journal.returning().map(|returning| returning.batch);
    if returning.is_some() || journal.is_being_undone() {
        let was_begun = |step: &StepId| !matches!(journal.state(step), None | Some(State::Failed));
        let is_wait = |step: &Step| matches!(step.action, Action::Wait(_));
        // In a rollback, one wait can replace several other waits. The replaced waits have no record, so they do not count as
        // open.
        let is_open = |step: &Step| {
            let is_due = step.is_for_the_way_back() && !is_wait(step) && step.back_of.iter().any(was_begun);
            (is_due || was_begun(&step.id)) && journal.state(&step.id) != Some(State::UndoDone)
        };
        let mut its =
            work.way_back().into_iter().filter(|stage| returning.is_none() || stage.batch == returning);
        return its.find(|stage| has(stage, &is_open)).map(|stage| (stage, true));
    }
    // Steps of a skipped Service or object do not count as open, so they do not determine the current stage.
    let mut left = HashSet::new();
    let mut is_open = |step: Step| {
        let state = journal.state(&step.id).filter(|_| !left.contains(&step.subject));
        if state == Some(State::Failed) && !step.subject.is_empty() {
            left.insert(step.subject.clone());
        }
        !step.is_for_the_way_back() && state != Some(State::Done) && !left.contains(&step.subject)
    };
    let stages = work.stages().into_iter();
    let mut open = stages.filter(|stage| work.steps(stage).into_iter().any(&mut is_open));
    open.next().map(|stage| (stage, false))
}

/// Returns the title of the current or next stage.
pub fn stage_now(work: &Renumbering, journal: &Journal) -> Option<String> {
    next_stage(work, journal).map(|(stage, back)| titled(&stage.title, back))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Manual, StepFault, Swap, Wait};
    use crate::renumber::Awaited;

    fn progress(now: Instant) -> MoveProgress {
        MoveProgress {
            operation: "op".into(),
            goal: Goal::Move,
            services: 100,
            batches: 4,
            phases: Phases { waiting: 80, held: 20, retired: 0 },
            steps: Outcomes::default(),
            barriers: Waits::default(),
            stage: Current::default(),
            paused: false,
            before: 20,
            waiting_since: HashMap::new(),
            lingers_until: None,
            pace: Pace::new(now),
        }
    }

    fn step(id: &str, action: Action) -> Step {
        Step {
            id: StepId(id.into()),
            subject: String::new(),
            action,
            independent: false,
            back_of: Vec::new(),
        }
    }

    fn flip() -> Step {
        step("flip/default/web", Action::Swap { forward: Swap::default(), backward: None })
    }

    #[test]
    fn services_moved_before_count_for_share_but_not_for_rate() {
        let start = Instant::now();
        let mut progress = progress(start);
        assert_eq!(progress.words(start), "20 of 100 Services moved (20 %)");
        assert_eq!(progress.pace(start), None);
        for _ in 0..10 {
            assert!(progress.note(&Event::StepDone { step: (&flip()).into() }, start));
        }
        let now = start + Duration::from_secs(4);
        assert_eq!(progress.words(now), "30 of 100 Services moved (30 %), 2.5 a second, 28 s left");
        assert_eq!(progress.phases, Phases { waiting: 70, held: 30, retired: 0 });
    }

    #[test]
    fn rate_excludes_manual_steps_gates_and_linger_waits() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut progress = progress(start);
        let manual = Manual { name: "flags".into(), what: String::new(), why: String::new(), undo: None };
        let manual = step("manual/flags", Action::Manual(manual));
        let wait = Wait { kind: Awaited::Linger, batch: None, subject: None, until: String::new() };
        let linger =
            Step { back_of: vec![StepId("flip/web".into())], ..step("linger/00000", Action::Wait(wait)) };
        let stage = Stage { index: 3, name: "flip".into(), batch: Some(0), title: String::new() };
        for _ in 0..10 {
            progress.note(&Event::StepDone { step: (&flip()).into() }, at(4));
        }
        let words = "30 of 100 Services moved (30 %), 2.5 a second, 28 s left";
        assert_eq!(progress.words(at(4)), words);
        progress.note(&Event::StepStarted { step: (&manual).into(), left: None }, at(4));
        assert_eq!(progress.words(at(3604)), words, "while it waits");
        progress.note(&Event::StepDone { step: (&manual).into() }, at(3604));
        progress.note(&Event::CheckpointAsked { stage: &stage }, at(3604));
        progress.note(&Event::CheckpointAnswered, at(7204));
        assert_eq!(progress.words(at(7204)), words, "after it has waited");
        assert_eq!(progress.lingers(at(7204)), None);
        progress.note(
            &Event::StepStarted { step: (&linger).into(), left: Some(Duration::from_mins(1)) },
            at(7204),
        );
        let lingers = progress.lingers(at(7222)).map(|(_, left)| left);
        assert_eq!(lingers, Some(Duration::from_secs(42)));
        progress.note(&Event::StepDone { step: (&linger).into() }, at(7264));
        assert_eq!((progress.lingers(at(7264)), progress.words(at(7264)).as_str()), (None, words));
    }

    #[test]
    fn rollback_counts_services_moved_back() {
        let now = Instant::now();
        let mut progress = MoveProgress { goal: Goal::Back, before: 80, ..progress(now) };
        let stage = Stage { index: 3, name: "flip".into(), batch: Some(0), title: String::new() };
        progress.note(&Event::StageStarted { stage: &stage, steps: 1, back: true }, now);
        assert!(progress.note(&Event::StepDone { step: (&flip()).into() }, now));
        assert_eq!((progress.there(), progress.steps.undone, progress.steps.done), (81, 1, 0));
        assert_eq!(progress.stage.batch, 1);
    }

    #[test]
    fn barriers_are_timed_and_pauses_are_no_failures() {
        let start = Instant::now();
        let mut progress = progress(start);
        let wait = Wait { kind: Awaited::Barrier, batch: Some(0), subject: None, until: String::new() };
        let barrier = step("barrier/00000", Action::Wait(wait));
        for seconds in [3, 1] {
            progress.note(&Event::StepStarted { step: (&barrier).into(), left: None }, start);
            progress.note(&Event::StepDone { step: (&barrier).into() }, start + Duration::from_secs(seconds));
        }
        let Waits { count, sum, last } = progress.barriers;
        assert_eq!((count, sum.as_secs(), last.as_secs()), (2, 4, 1));
        let paused = OperationError::Paused { name: "flags".into(), what: String::new(), why: String::new() };
        progress.note(&Event::StepFailed { step: (&barrier).into(), error: &paused }, start);
        assert!(progress.paused && progress.steps.failed == 0, "a pause is no failure");
        let failed = OperationError::Environment(StepFault::Halt("no".into()));
        progress.note(&Event::StepFailed { step: (&barrier).into(), error: &failed }, start);
        assert!(!progress.paused && progress.steps.failed == 1);
    }
}
