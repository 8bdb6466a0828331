//! Gates between batches: when the executor asks a gate, when it does not, and what a closed gate stops.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use netsurgeon::operation::{
    Checkpoint, Closed, Event, Observer, OperationError, Stage, Stop, StopSwitch, Work as _,
};

use crate::harness::{Bench, CASES, Settings, keys};
use crate::saboteur::Sabotage;

/// Records the batches before which it was asked; it is closed before some.
#[derive(Default)]
struct Gate {
    asked: Mutex<Vec<Option<usize>>>,
    closed_before: Mutex<Vec<Option<usize>>>,
    /// If set, the gate requests a stop and never answers.
    stops: Mutex<Option<StopSwitch>>,
}

impl Gate {
    fn closed_before(batches: &[Option<usize>]) -> Arc<Self> {
        Arc::new(Self { closed_before: Mutex::new(batches.to_vec()), ..Self::default() })
    }

    fn open(&self) {
        self.closed_before.lock().unwrap().clear();
    }

    fn take(&self) -> Vec<Option<usize>> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

#[async_trait]
impl Checkpoint for Gate {
    async fn pass(&self, stage: &Stage) -> Result<(), Closed> {
        self.asked.lock().unwrap().push(stage.batch);
        let switch = self.stops.lock().unwrap().take();
        if let Some(switch) = switch {
            switch.ask();
            return std::future::pending().await;
        }
        if self.closed_before.lock().unwrap().contains(&stage.batch) {
            return Err(Closed { gate: "test".into(), reason: "as requested".into() });
        }
        Ok(())
    }
}

fn behind(bench: &Bench, gate: &Arc<Gate>, stop: Stop) -> Bench {
    let checkpoint: Arc<dyn Checkpoint> = gate.clone();
    bench.with(Settings { checkpoint: Some(checkpoint), parallel: 4, stop, ..Settings::default() })
}

/// Where the gate is asked in a whole run: before each batch but the first, and after the last one.
fn boundaries(bench: &Bench) -> Vec<Option<usize>> {
    let mut batches: Vec<_> = bench.plan.work.stages().into_iter().map(|stage| stage.batch).collect();
    batches.dedup();
    let boundaries: Vec<_> = batches.into_iter().skip_while(Option::is_none).skip(1).collect();
    assert!(boundaries.starts_with(&[Some(1), Some(2)]) && boundaries.ends_with(&[None]), "{}", bench.name);
    boundaries
}

/// All cases, and some in which Services are swept after all planned ones.
async fn all() -> Vec<Bench> {
    let mut all = Vec::new();
    for (fixture, to) in CASES {
        all.push(Bench::in_small_batches(fixture, to).await);
    }
    for (fixture, to) in &CASES[..3] {
        all.push(Bench::swept(fixture, to).await);
    }
    all
}

fn is_closed(error: &OperationError) -> bool {
    error.is_pause()
        && matches!(error, OperationError::GateClosed { gate, reason, .. } if gate == "test" && reason == "as requested")
}

#[tokio::test]
async fn gate_is_asked_once_between_batches() {
    for bench in all().await {
        let gate = Gate::closed_before(&[]);
        let bench = behind(&bench, &gate, Stop::never());
        let store = bench.fresh().await;
        bench.run(&store, None).await.expect("a run through open gates");
        assert_eq!(gate.take(), boundaries(&bench), "{}", bench.name);
        bench.run(&store, None).await.expect("nothing to do");
        assert_eq!(gate.take(), [], "{}", bench.name);
        // No gate is asked beyond the stage at which the run ends.
        let store = bench.fresh().await;
        bench.run(&store, bench.plan.work.flip_stage(1)).await.expect("a run");
        assert_eq!(gate.take(), [Some(1)], "{}", bench.name);
        bench.unwind(&store).await.expect("a rollback");
        assert_eq!(gate.take(), [], "{}: a rollback asks no gate", bench.name);
        bench.assert_as_at_the_start(&store, "undone").await;
    }
}

/// The stages that were started.
#[derive(Default)]
struct StartedStages(Vec<(Option<usize>, String)>);

impl Observer for StartedStages {
    fn event(&mut self, event: Event<'_>) {
        if let Event::StageStarted { stage, .. } = event {
            self.0.push((stage.batch, stage.name.clone()));
        }
    }
}

#[tokio::test]
async fn closed_gate_stops_next_batch_and_is_asked_again() {
    for bench in all().await {
        let gate = Gate::closed_before(&[Some(1)]);
        let bench = behind(&bench, &gate, Stop::never());
        let store = bench.fresh().await;
        let (mut started, mut journal) = (StartedStages::default(), bench.journal(&store).await);
        let failure = bench
            .run_watched(&store, None, &mut journal, &mut started)
            .await
            .expect_err("the gate is closed");
        assert!(is_closed(&failure.source), "{}: {failure}", bench.name);
        assert!(started.0.iter().all(|(batch, _)| *batch != Some(1)), "{}: {:?}", bench.name, started.0);
        assert_eq!(started.0.last().unwrap().0, Some(0), "{}: batch 1 is finished", bench.name);
        let at_the_gate = keys(&store, "/").await;

        bench.run(&store, None).await.expect_err("the gate is still closed");
        assert_eq!(gate.take(), [Some(1), Some(1)], "{}", bench.name);
        assert_eq!(
            keys(&store, "/").await,
            at_the_gate,
            "{}: nothing is written at a closed gate",
            bench.name
        );

        gate.open();
        bench.run(&store, None).await.expect("a run through open gates");
        assert_eq!(gate.take(), boundaries(&bench), "{}", bench.name);
    }
}

#[tokio::test]
async fn started_batch_completes_despite_closed_gate() {
    for bench in all().await {
        let gate = Gate::closed_before(&[]);
        let bench = behind(&bench, &gate, Stop::never());
        let store = bench.fresh().await;
        // The process is killed after the first commit of the second batch.
        let first_of_second = bench.plan.work.stages().iter().position(|s| s.batch == Some(1)).unwrap();
        bench.run(&store, Some(first_of_second)).await.expect("the first batch");
        store.arm(Sabotage::Stop(2));
        bench.run(&store, None).await.expect_err("it was killed");
        store.arm(Sabotage::None);
        assert_eq!(gate.take(), [Some(1)], "{}", bench.name);
        gate.closed_before.lock().unwrap().extend(boundaries(&bench));
        let failure = bench.run(&store, None).await.expect_err("the gate after it is closed");
        assert!(is_closed(&failure.source), "{}: {failure}", bench.name);
        assert_eq!(gate.take(), [boundaries(&bench)[1]], "{}", bench.name);
        bench.unwind(&store).await.expect("a rollback");
        bench.assert_as_at_the_start(&store, "rolled back at a gate").await;
    }
}

/// The first batch has no gate before it, unless the batch was rolled back. A gate before such a batch does not report that the
/// batch before it is just complete.
#[tokio::test]
async fn gate_is_asked_before_rolled_back_batch_runs_again() {
    for bench in all().await {
        let gate = Gate::closed_before(&[Some(1)]);
        let bench = behind(&bench, &gate, Stop::never());
        let store = bench.fresh().await;
        let failure = bench.run(&store, None).await.expect_err("the gate is closed");
        assert!(matches!(failure.source, OperationError::GateClosed { after: Some(0), .. }), "{failure}");
        bench.unwind_batch(&store, 0).await.expect("a rollback");
        gate.take();
        *gate.closed_before.lock().unwrap() = vec![Some(0)];
        let failure = bench.run(&store, None).await.expect_err("the gate is closed");
        assert!(matches!(failure.source, OperationError::GateClosed { after: None, .. }), "{failure}");
        assert_eq!(gate.take(), [Some(0)], "{}", bench.name);
        gate.open();
        bench.run(&store, None).await.expect("a run through open gates");
        let all: Vec<_> = std::iter::once(Some(0)).chain(boundaries(&bench)).collect();
        assert_eq!(gate.take(), all, "{}", bench.name);
    }
}

#[tokio::test]
async fn stop_request_ends_wait_for_gate() {
    let (switch, stop) = Stop::new();
    let gate = Arc::new(Gate { stops: Mutex::new(Some(switch)), ..Gate::default() });
    let bench = behind(&Bench::of("objects", "10.200.0.0/16").await, &gate, stop);
    let store = bench.fresh().await;
    let failure = bench.run(&store, None).await.expect_err("a stop was requested");
    assert!(failure.is_stopped(), "{failure}");
    assert_eq!(gate.take(), [Some(1)]);
}
