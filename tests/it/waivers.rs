//! A rollback that waits for a manual step that the operator will never complete, for example because an object is gone. The
//! operator gives the step up, and the rollback ends.

use async_trait::async_trait;
use netsurgeon::operation::{
    Action, Answer, Applied, Doing, Effect, Environment, Executor, Journal, LeaseHolder, Manual, NoWait,
    Observed, OperationError, OperationKind, Plan, Records, Report, RunFailure, Silent, Stage, State, Step,
    StepFault, StepId, SystemAmbient, Wait, Waiver, Work,
};
use netsurgeon::store::Revision;
use netsurgeon::store::memory::MemoryStore;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An effect that always succeeds.
#[derive(Debug, Clone, Serialize)]
struct Nothing;

impl Effect for Nothing {
    type Wait = NoWait;
}

/// One effect, and then one manual step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Asking {}

impl OperationKind for Asking {
    const NAME: &'static str = "asking";
    const VERSION: u32 = 1;
}

const MANUAL: &str = "manual/flags";

impl Work for Asking {
    type Effect = Nothing;

    fn stages(&self) -> Vec<Stage> {
        vec![Stage { index: 0, name: "all".into(), batch: None, title: String::new() }]
    }

    fn steps(&self, _stage: &Stage) -> Vec<Step<Nothing>> {
        let step = |id: &str, subject: &str, action| {
            let (id, subject) = (StepId(id.into()), subject.into());
            Step { id, subject, action, independent: false, back_of: Vec::new() }
        };
        let undo = Some("change the flags back".into());
        let manual =
            Manual { name: "flags".into(), what: "change the flags".into(), why: String::new(), undo };
        vec![step("do/a", "a", Action::Do(Nothing)), step(MANUAL, "", Action::Manual(manual))]
    }
}

/// The operator completes a manual step, but never undoes it.
struct Operator;

#[async_trait]
impl Environment<Nothing> for Operator {
    async fn apply(&self, _: &Doing<'_, Nothing>) -> Result<Applied, StepFault> {
        Ok(Applied::NOTHING)
    }

    async fn observe(&self, _: &Doing<'_, Nothing>) -> Result<Observed, StepFault> {
        Ok(Observed::NotDone)
    }

    async fn wait(&self, wait: &Wait<NoWait>, _: Records<'_>) -> Result<(), StepFault> {
        Err(StepFault::Halt(wait.until.clone()))
    }

    async fn manual(&self, _: &Manual, back: bool) -> Result<Answer, StepFault> {
        Ok(if back { Answer::Open } else { Answer::Confirmed })
    }
}

async fn go(store: &MemoryStore, back: bool) -> Result<Report, RunFailure> {
    let (mut journal, mut silent) = (Journal::open(store, "c", "op").await.expect("a journal").0, Silent);
    let ledger = journal.in_store(store, &[]);
    let mut executor = Executor::new(&ledger, &Operator, &SystemAmbient, &mut silent, &mut journal);
    if back { executor.unwind(&Asking {}).await } else { executor.run(&Asking {}, None).await }
}

#[tokio::test]
async fn rollback_ends_without_a_manual_step_that_was_given_up() {
    let store = MemoryStore::new();
    let by = LeaseHolder { operation: "op".into(), ..LeaseHolder::default() };
    let plan = Plan::new("c", Revision(1), Asking {});
    Journal::begin_plan(&store, &plan, &by, Value::Null, &[]).await.expect("a journal");
    go(&store, false).await.expect("a run");
    for _ in 0..2 {
        let paused = go(&store, true).await.expect_err("it waits for the manual step");
        assert!(matches!(paused.source, OperationError::Paused { .. }), "{paused}");
    }
    let mut journal = Journal::open(&store, "c", "op").await.expect("a journal").0;
    let ledger = journal.in_store(&store, &[]);
    journal.give_up(&ledger, &[Waiver::of(MANUAL, true, "", 7)]).await.expect("a record");
    assert_eq!(go(&store, true).await.expect("a rollback").stuck, []);
    let journal = Journal::open(&store, "c", "op").await.expect("a journal").0;
    assert_eq!(journal.state(&StepId("do/a".into())), Some(State::UndoDone));
    assert_eq!(journal.state(&StepId(MANUAL.into())), Some(State::UndoStarted), "it stays as it is");
}
