//! Manual steps: a rollback asks for the opposite of each step that was asked for, confirmed or not.

use std::sync::Mutex;

use async_trait::async_trait;
use netsurgeon::operation::{
    Answer, Applied, Doing, Environment, Executor, Manual, Observed, OperationError, Records, Report,
    RunFailure, Silent, State, StepFault, StepId, Wait, Work as _,
};
use netsurgeon::renumber::environment::MANUAL_STEPS;
use netsurgeon::renumber::simulate::Simulation;
use netsurgeon::renumber::{Action, Awaited, Effect};

use crate::harness::{Bench, Constant, keys};
use crate::loops::picks;
use crate::saboteur::{Sabotage, Saboteur};

/// A rehearsal with its own answer for the flags, in which a deleted range never becomes ready.
struct Asking<'a> {
    simulation: Simulation<'a>,
    store: &'a Saboteur,
    /// The answer for `flags`; `None`: the answer of the rehearsal.
    flags: Option<Answer>,
    /// The directions in which the flags were asked for; `true` is a rollback.
    asked: Mutex<Vec<bool>>,
}

impl<'a> Asking<'a> {
    fn new(bench: &'a Bench, store: &'a Saboteur, flags: Option<Answer>) -> Self {
        let simulation = Simulation::new(store, &bench.plan.work, &Constant);
        Self { simulation, store, flags, asked: Mutex::default() }
    }

    fn asked(self) -> Vec<bool> {
        self.asked.into_inner().expect("no thread panics")
    }
}

#[async_trait]
impl Environment<Effect> for Asking<'_> {
    async fn apply(&self, doing: &Doing<'_, Effect>) -> Result<Applied, StepFault> {
        self.simulation.apply(doing).await
    }

    async fn observe(&self, doing: &Doing<'_, Effect>) -> Result<Observed, StepFault> {
        self.simulation.observe(doing).await
    }

    async fn wait(&self, wait: &Wait<Awaited>, records: Records<'_>) -> Result<(), StepFault> {
        if wait.kind == Awaited::RangeReady {
            let ranges = keys(self.store, "/registry/servicecidrs/").await;
            if !ranges.keys().any(|key| key.to_string().contains("/netsurgeon-")) {
                return Err(StepFault::Halt("the ServiceCIDR does not exist".into()));
            }
        }
        self.simulation.wait(wait, records).await
    }

    async fn manual(&self, manual: &Manual, back: bool) -> Result<Answer, StepFault> {
        if manual.name == "flags" {
            self.asked.lock().expect("no thread panics").push(back);
            if let Some(answer) = &self.flags {
                return Ok(answer.clone());
            }
        }
        self.simulation.manual(manual, back).await
    }
}

async fn go(
    bench: &Bench,
    store: &Saboteur,
    world: &dyn Environment<Effect>,
    back: bool,
) -> Result<Report, RunFailure> {
    let (mut journal, mut silent) = (bench.journal(store).await, Silent);
    let ledger = journal.in_store(store, &[]);
    let mut executor = Executor::new(&ledger, world, &Constant, &mut silent, &mut journal);
    let work = &bench.plan.work;
    if back { executor.unwind(work).await } else { executor.run(work, bench.no_return()).await }
}

fn flags() -> StepId {
    StepId("manual/flags".into())
}

fn is_paused(outcome: &Result<Report, RunFailure>) -> bool {
    matches!(outcome, Err(RunFailure { source: OperationError::Paused { name, .. }, .. }) if name == "flags")
}

#[tokio::test]
async fn rollback_asks_for_opposite_of_requested_manual_step() {
    for (fixture, to) in crate::harness::CASES {
        let bench = Bench::of(fixture, to).await;
        let store = bench.fresh().await;
        let world = Asking::new(&bench, &store, Some(Answer::Open));
        assert!(is_paused(&go(&bench, &store, &world, false).await), "{fixture}");
        assert_eq!(bench.journal(&store).await.state(&flags()), Some(State::Started), "{fixture}");
        // The operator changes the flags, does not confirm the step, and rolls back.
        let back = go(&bench, &store, &world, true).await;
        assert!(is_paused(&back), "{fixture}: {back:?}");
        assert_eq!(world.asked(), [false, true], "{fixture}");
        assert_eq!(bench.journal(&store).await.state(&flags()), Some(State::UndoStarted), "{fixture}");
        let world = Asking::new(&bench, &store, None);
        let report = go(&bench, &store, &world, true).await.expect("a rollback");
        assert_eq!((report.stuck.len(), world.asked()), (0, vec![true]), "{fixture}");
        assert_eq!(bench.journal(&store).await.state(&flags()), Some(State::UndoDone), "{fixture}");
        bench.assert_as_at_the_start(&store, fixture).await;
    }
}

#[tokio::test]
async fn resume_at_manual_step_writes_no_second_record() {
    let bench = Bench::of("objects", "10.200.0.0/16").await;
    let store = bench.fresh().await;
    for _ in 0..3 {
        let world = Asking::new(&bench, &store, Some(Answer::Open));
        assert!(is_paused(&go(&bench, &store, &world, false).await));
    }
    let journal = bench.journal(&store).await;
    assert_eq!(journal.find(&flags()).expect("a record").history.len(), 1);
    go(&bench, &store, &Asking::new(&bench, &store, Some(Answer::Confirmed)), false).await.expect("a run");
    assert_eq!(bench.journal(&store).await.state(&flags()), Some(State::Done));
}

#[tokio::test]
async fn rollback_skips_manual_step_that_was_never_requested() {
    let bench = Bench::of("objects", "10.200.0.0/16").await;
    let store = bench.fresh().await;
    bench.run(&store, bench.plan.work.flip_stage(1)).await.expect("a run");
    let world = Asking::new(&bench, &store, Some(Answer::Open));
    go(&bench, &store, &world, true).await.expect("a rollback");
    assert_eq!(world.asked(), Vec::<bool>::new());
}

/// The range of the new addresses is deleted near the end of a rollback. A rollback that is stopped after that does not
/// wait until it is ready again.
#[tokio::test]
async fn resumed_rollback_does_not_wait_for_deleted_range() {
    for (fixture, to) in [("objects", "10.200.0.0/16"), ("dualwrite", "10.200.0.0/16")] {
        let bench = Bench::of(fixture, to).await;
        let reference = bench.fresh().await;
        bench.run(&reference, bench.no_return()).await.expect("a run");
        reference.arm(Sabotage::None);
        bench.unwind(&reference).await.expect("a rollback");
        let total = reference.commits();
        // All of the last commits: the range is deleted among them.
        let last = total.saturating_sub(40)..=total + 1;
        for at in picks(total).into_iter().chain(last) {
            let store = bench.fresh().await;
            bench.run(&store, bench.no_return()).await.expect("a run");
            store.arm(Sabotage::Stop(at));
            drop(go(&bench, &store, &Asking::new(&bench, &store, None), true).await);
            store.arm(Sabotage::None);
            let world = Asking::new(&bench, &store, None);
            let report = go(&bench, &store, &world, true).await;
            let report =
                report.unwrap_or_else(|failure| panic!("{fixture}, commit {at} of {total}: {failure}"));
            assert_eq!(report.stuck, [], "{fixture}, commit {at} of {total}");
            bench.assert_as_at_the_start(&store, fixture).await;
        }
    }
}

/// Every manual step can be confirmed by its name; no other name is accepted.
#[tokio::test]
async fn every_manual_step_can_be_confirmed_by_name() {
    let mut found = std::collections::BTreeSet::new();
    for bench in Bench::all().await {
        let work = &bench.plan.work;
        for step in work.stages().iter().flat_map(|stage| work.steps(stage)) {
            if let Action::Manual(manual) = step.action {
                assert!(MANUAL_STEPS.contains(&manual.name.as_str()), "{}", manual.name);
                found.insert(manual.name);
            }
        }
    }
    assert!(found.contains("flags"), "{found:?}");
}
