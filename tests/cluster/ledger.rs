//! The ledger in a cluster, through its API: a small second kind of operation ([`super::configmap_kind`]) is recorded in one cluster and
//! changes another. It is killed at every write, resumed by another process, and rolled back; a process that lost the lease
//! writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use netsurgeon::dns::space::BYTES_FOR_A_STEP;
use netsurgeon::kube_api::{Cluster as Api, ClusterOptions as ApiOptions};
use netsurgeon::operation::{
    ClusterLedger, ClusterRecord, Executor, Journal, LeaseHolder, Ledger, Noted, OperationError,
    OperationKind as _, Part, Plan, ReadLedger, Report, RunFailure, Silent, State, Status, StepId, Summary,
    SystemAmbient, Waiver,
};
use netsurgeon::store::{Revision, Transaction};
use serde_json::{Value, json};

use super::configmap_kind::{Elsewhere, Maps, step_of};
use super::rig::api_gate::{ApiGate, Trouble, Troubles};
use super::rig::cluster::{Cluster, ClusterOptions, Era};

/// Two clusters: one with the records of operations, and one that they change.
struct World {
    here: Cluster,
    there: Cluster,
    troubles: Arc<Troubles>,
    /// Through gates, at which faults occur.
    gated: (Api, Api),
    /// Direct, for other processes.
    free: (Api, Api),
    operations: AtomicUsize,
}

/// Connects by the text of a kubeconfig.
pub async fn connect(cluster: &Cluster, text: &str, name: &str, timeout: Duration) -> Api {
    let kubeconfig = Some(cluster.write(name, text));
    let options = ApiOptions { kubeconfig, context: None, timeout };
    Api::connect(&options).await.expect("the API answers")
}

const TIMEOUT: Duration = Duration::from_secs(2);

impl World {
    async fn start() -> Self {
        let options = |era| ClusterOptions { controllers: false, ..ClusterOptions::new(era) };
        let here = Cluster::start(options(Era::Objects)).await;
        let there = Cluster::start(options(Era::Bitmap)).await;
        // Otherwise the first operation creates it, and has one write more than the others.
        here.api
            .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "netsurgeon"}}))
            .await;
        let troubles = Troubles::none();
        let gate = async |cluster: &Cluster| {
            let gate = ApiGate::open(cluster.api.client(), &troubles).await;
            connect(cluster, &gate.kubeconfig(), "gate.conf", TIMEOUT).await
        };
        let free = async |cluster: &Cluster| {
            let text = std::fs::read_to_string(cluster.kubeconfig()).expect("a kubeconfig");
            connect(cluster, &text, "free.conf", TIMEOUT).await
        };
        let gated = (gate(&here).await, gate(&there).await);
        let free = (free(&here).await, free(&there).await);
        Self { here, there, troubles, gated, free, operations: AtomicUsize::new(0) }
    }

    /// An operation that is not started. Another client has created the second of its ConfigMaps.
    async fn operation(&self) -> Operation<'_> {
        let number = self.operations.fetch_add(1, Ordering::SeqCst);
        let id = format!("maps-20261125T184411Z-{number:04}");
        let names = ["one", "two", "three"].map(|name| format!("{name}-{number}"));
        let theirs = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": names[1]},
            "data": {"whose": "theirs"},
        });
        self.there.api.create(&theirs).await;
        let plan = Plan::new("there", Revision(0), Maps { names: names.to_vec() });
        Operation { world: self, id, names, plan }
    }
}

struct Operation<'w> {
    world: &'w World,
    id: String,
    names: [String; 3],
    plan: Plan<Maps>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Back,
}

impl Operation<'_> {
    fn claim(&self, pid: u32) -> LeaseHolder {
        let (holder, operation) = (format!("ops@host-{pid}"), self.id.clone());
        LeaseHolder { holder, pid, operation, purpose: "create ConfigMaps".into(), since: 1_800_000_000 }
    }

    /// Starts it, or takes it over.
    async fn ledger(&self, api: &Api, pid: u32) -> Result<(ClusterLedger, Journal), OperationError> {
        let claim = self.claim(pid);
        let is_begun = ClusterRecord::list(api).await?.iter().any(|listed| listed.operation == self.id);
        if is_begun {
            let ledger = ClusterLedger::take(api, &claim).await?;
            let (journal, summary, plan) = Journal::open_in(&ledger).await?;
            assert_eq!(summary.digest, self.plan.digest);
            assert_eq!(serde_json::from_slice::<Value>(&plan).unwrap(), json!(self.plan));
            return Ok((ledger, journal));
        }
        let ledger = ClusterLedger::begin(api, "there", &claim, 4).await?;
        let summary = Summary::begun(Maps::NAME, &self.plan.digest, &claim);
        let journal = Journal::begin_in(&ledger, &serde_json::to_vec(&self.plan).unwrap(), summary).await?;
        Ok((ledger, journal))
    }

    async fn go(&self, (here, there): &(Api, Api), pid: u32, way: Direction) -> Result<Report, RunFailure> {
        let failed = |source| RunFailure { step: StepId("(first)".into()), source };
        let (ledger, mut journal) = self.ledger(here, pid).await.map_err(failed)?;
        self.carry(&ledger, &mut journal, there, way).await
    }

    async fn carry(
        &self,
        ledger: &ClusterLedger,
        journal: &mut Journal,
        there: &Api,
        way: Direction,
    ) -> Result<Report, RunFailure> {
        let elsewhere = Elsewhere { api: there, operation: &self.id };
        let mut silent = Silent;
        let executor = Executor::new(ledger, &elsewhere, &SystemAmbient, &mut silent, journal);
        let mut executor = Executor { max_failures: 1, parallel: 2, ..executor };
        match way {
            Direction::Forward => executor.run(&self.plan.work, None).await,
            Direction::Back => executor.unwind(&self.plan.work).await,
        }
    }

    /// Resumes as another process, without a fault.
    async fn finish(&self, way: Direction) -> Report {
        self.world.troubles.arm(Trouble::None);
        self.go(&self.world.free, 2, way)
            .await
            .unwrap_or_else(|failure| panic!("{}, {way:?}: {failure}", self.id))
    }

    /// Runs with a fault; returns `None` if the process is killed.
    async fn meet(&self, trouble: Trouble, way: Direction) -> Option<Result<Report, RunFailure>> {
        self.world.troubles.arm(trouble);
        tokio::select! {
            biased;
            () = self.world.troubles.killed() => None,
            outcome = self.go(&self.world.gated, 1, way) => Some(outcome),
        }
    }

    async fn states(&self) -> BTreeMap<String, State> {
        let record = ClusterRecord::find(&self.world.free.0, &self.id).await.unwrap().expect("a record");
        let (journal, ..) = Journal::open_in(&record).await.unwrap();
        journal.records().into_iter().map(|(step, record)| (step.to_string(), record.state)).collect()
    }

    /// Which of its ConfigMaps exist, and whether another client created them.
    async fn there(&self) -> Vec<(&str, bool)> {
        let mut found = Vec::new();
        for name in &self.names {
            let path = format!("/api/v1/namespaces/default/configmaps/{name}");
            if let Some(object) = self.world.there.api.find(&path).await {
                found.push((name.as_str(), object["data"]["whose"] == "theirs"));
            }
        }
        found
    }

    async fn assert_made(&self, context: &str) {
        let [one, two, three] = self.names.each_ref().map(String::as_str);
        assert_eq!(self.there().await, [(one, false), (two, true), (three, false)], "{context}");
        let states = self.states().await;
        let made = [State::Done, State::Failed, State::Done];
        for (name, state) in self.names.iter().zip(made) {
            assert_eq!(states[&step_of(name).to_string()], state, "{context}: {states:?}");
        }
        assert_eq!(states["wait/there"], State::Done, "{context}: {states:?}");
    }

    async fn assert_undone(&self, context: &str) {
        assert_eq!(self.there().await, [(self.names[1].as_str(), true)], "{context}");
        let states = self.states().await;
        let left: Vec<_> = states.iter().filter(|(_, state)| state.is_in_force()).collect();
        assert!(left.is_empty(), "{context}: {left:?}");
    }

    async fn remove(&self) {
        ClusterLedger::remove(&self.world.free.0, &self.id).await.expect("it is removed");
    }
}

async fn objects_of_operations(world: &World) -> Vec<String> {
    let path = "/api/v1/namespaces/netsurgeon/configmaps?labelSelector=netsurgeon.io/part";
    let items = world.here.api.list(path).await;
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_string()).collect()
}

/// The number of writes without a fault.
async fn writes(world: &World, way: Direction) -> usize {
    let operation = world.operation().await;
    if way == Direction::Back {
        operation.finish(Direction::Forward).await;
    }
    operation.meet(Trouble::None, way).await.expect("it is not killed").expect("nothing fails");
    let writes = world.troubles.writes();
    println!("{way:?}: {writes} writes: {:#?}", world.troubles.seen());
    operation.remove().await;
    writes
}

#[tokio::test]
async fn kill_at_every_write_is_resumed_by_another_process() {
    let world = World::start().await;
    let mut points = 0;
    for way in [Direction::Forward, Direction::Back] {
        let total = writes(&world, way).await;
        for at in 1..=total {
            for trouble in [Trouble::KilledBefore(at), Trouble::KilledAfter(at)] {
                let context = format!("{way:?}, {trouble:?} of {total}");
                let operation = world.operation().await;
                if way == Direction::Back {
                    operation.finish(Direction::Forward).await;
                }
                assert!(operation.meet(trouble, way).await.is_none(), "{context}: it is killed");
                operation.finish(way).await;
                match way {
                    Direction::Forward => operation.assert_made(&context).await,
                    Direction::Back => operation.assert_undone(&context).await,
                }
                // After a kill of the forward run it can be rolled back as well.
                if way == Direction::Forward {
                    operation.finish(Direction::Back).await;
                    operation.assert_undone(&context).await;
                }
                operation.remove().await;
                points += 1;
            }
        }
    }
    assert_eq!(objects_of_operations(&world).await, Vec::<String>::new(), "nothing is left");
    println!("{points} points passed");
}

#[tokio::test]
async fn kill_at_each_write_can_be_rolled_back() {
    let world = World::start().await;
    let total = writes(&world, Direction::Forward).await;
    for at in 1..=total {
        let operation = world.operation().await;
        operation.meet(Trouble::KilledBefore(at), Direction::Forward).await;
        world.troubles.arm(Trouble::None);
        let is_begun =
            ClusterRecord::list(&world.free.0).await.unwrap().iter().any(|one| one.operation == operation.id);
        if is_begun {
            operation.finish(Direction::Back).await;
            operation.assert_undone(&format!("killed at {at} of {total}")).await;
        } else {
            assert_eq!(operation.there().await.len(), 1, "nothing is done before there is a record");
        }
    }
}

#[tokio::test]
async fn lost_answer_or_concurrent_write_changes_nothing() {
    let world = World::start().await;
    for way in [Direction::Forward, Direction::Back] {
        let total = writes(&world, way).await;
        for at in 1..=total {
            for trouble in [Trouble::LostBefore(at), Trouble::LostAfter(at), Trouble::Touched(at)] {
                let context = format!("{way:?}, {trouble:?} of {total}");
                let operation = world.operation().await;
                if way == Direction::Back {
                    operation.finish(Direction::Forward).await;
                }
                let outcome = operation.meet(trouble, way).await.expect("it is not killed");
                outcome.unwrap_or_else(|failure| panic!("{context}: {failure}"));
                match way {
                    Direction::Forward => operation.assert_made(&context).await,
                    Direction::Back => operation.assert_undone(&context).await,
                }
                operation.remove().await;
            }
        }
    }
}

/// The request of a killed process reaches the API server after another process has taken the operation over.
#[tokio::test]
async fn late_write_is_rejected() {
    let world = World::start().await;
    let total = writes(&world, Direction::Forward).await;
    let mut refused = 0;
    for at in 1..=total {
        let operation = world.operation().await;
        operation.meet(Trouble::KilledAndLate(at), Direction::Forward).await;
        let late = world.troubles.seen().last().cloned().expect("a write");
        operation.finish(Direction::Forward).await;
        let before = operation.states().await;
        let codes = world.troubles.deliver().await;
        let context = format!("`{late}`, write {at} of {total}");
        assert_eq!(codes, [409], "{context}: it already exists, or has changed");
        assert_eq!(operation.states().await, before, "{context}");
        operation.assert_made(&context).await;
        operation.remove().await;
        refused += 1;
    }
    assert!(refused > 5);
}

/// These parts share the clusters; the first needs them without records.
#[tokio::test]
async fn ledger_keeps_its_promises_without_trouble() {
    let world = World::start().await;
    plan_of_several_parts_is_read_back(&world).await;
    second_run_and_rollback_change_nothing(&world).await;
    subject_that_was_given_up_is_not_retried(&world).await;
    process_that_lost_the_operation_writes_nothing(&world).await;
}

async fn second_run_and_rollback_change_nothing(world: &World) {
    let operation = world.operation().await;
    for way in [Direction::Forward, Direction::Back] {
        operation.finish(way).await;
        let states = operation.states().await;
        world.troubles.arm(Trouble::None);
        operation.go(&world.gated, 3, way).await.expect("a second run");
        // It writes the head and the records; a skipped subject is retried forward.
        let maps = world.troubles.seen().iter().filter(|write| write.contains("/default/")).count();
        let again = usize::from(way == Direction::Forward);
        assert_eq!(maps, again, "{:#?}", world.troubles.seen());
        assert_eq!(operation.states().await, states);
    }
    let refused =
        operation.go(&world.free, 2, Direction::Forward).await.expect_err("it is being rolled back");
    assert!(matches!(refused.source, OperationError::BeingUndone), "{refused}");
}

/// The waiver is in the record, so any other process knows it.
async fn subject_that_was_given_up_is_not_retried(world: &World) {
    let operation = world.operation().await;
    assert_eq!(operation.finish(Direction::Forward).await.stuck.len(), 1);
    let (ledger, mut journal) = operation.ledger(&world.free.0, 3).await.expect("it is taken over");
    let waiver = Waiver::of(&operation.names[1], false, "theirs", 7);
    journal.give_up(&ledger, std::slice::from_ref(&waiver)).await.expect("it is recorded");
    let record = ClusterRecord::find(&world.free.0, &operation.id).await.unwrap().expect("a record");
    let (read, summary, _) = Journal::open_in(&record).await.unwrap();
    assert_eq!((read.waiver(&operation.names[1]), summary.given_up), (Some(&waiver), vec![waiver.clone()]));
    for way in [Direction::Forward, Direction::Back] {
        world.troubles.arm(Trouble::None);
        let report = operation.go(&world.gated, 4, way).await.expect("a run");
        assert_eq!(report.stuck, []);
        let maps = world.troubles.seen().iter().filter(|write| write.contains("/default/")).count();
        assert_eq!(maps, if way == Direction::Forward { 0 } else { 2 }, "{:#?}", world.troubles.seen());
    }
    operation.assert_undone("without a subject that was given up").await;
    operation.remove().await;
}

/// Two processes with one operation: the first holder finds out at its next write, whichever that is.
async fn process_that_lost_the_operation_writes_nothing(world: &World) {
    let operation = world.operation().await;
    let (first, mut journal) = operation.ledger(&world.free.0, 1).await.expect("it starts");
    first.still_ours().await.expect("this process holds the lease");
    let (second, _) = operation.ledger(&world.free.0, 2).await.expect("it is taken over");

    let lost = first.still_ours().await.unwrap_err();
    assert!(lost.to_string().contains("`ops@host-2` (pid 2)"), "{lost}");
    let status = journal.set_status(&first, Status::Done, 7).await;
    assert!(matches!(status, Err(OperationError::LockLost { .. })), "{status:?}");
    let step = step_of(&operation.names[0]);
    let (change, _) = journal.record(&step, State::Started, 7, Noted::default()).unwrap();
    let written = first.write(vec![change], Transaction::default()).await;
    assert!(matches!(written, Err(OperationError::LockLost { .. })), "{written:?}");
    let carried = operation.carry(&first, &mut journal, &world.free.1, Direction::Forward).await.unwrap_err();
    assert!(matches!(carried.source, OperationError::LockLost { .. }), "{carried}");
    assert_eq!(operation.there().await.len(), 1, "only that of the other client");
    assert_eq!(operation.states().await, BTreeMap::new());
    assert!(second.read(&Part::Summary).await.unwrap().is_some());
    second.still_ours().await.expect("this process holds the lease");
}

/// What the records of an operation cost.
struct Cost {
    writes: usize,
    reads: usize,
    bytes: usize,
}

/// Runs so many effects concurrently, and returns the cost of their records. etcd stores every write of a ConfigMap as a whole
/// new value, so the bytes of the requests are the bytes of its revisions.
async fn cost_of_records(world: &World, number: usize, parallel: usize) -> Cost {
    let operation = world.operation().await;
    let names: Vec<String> = (0..number).map(|number| format!("many-{number}")).collect();
    let operation = Operation { plan: Plan::new("there", Revision(0), Maps { names }), ..operation };
    let claim = operation.claim(1);
    let ledger = ClusterLedger::begin(&world.gated.0, "there", &claim, number + 1).await.expect("it starts");
    let summary = Summary::begun(Maps::NAME, &operation.plan.digest, &claim);
    let plan = serde_json::to_vec(&operation.plan).expect("a plan");
    let mut journal = Journal::begin_in(&ledger, &plan, summary).await.expect("it is stored");
    world.troubles.arm(Trouble::None);
    let elsewhere = Elsewhere { api: &world.free.1, operation: &operation.id };
    let mut silent = Silent;
    let executor = Executor::new(&ledger, &elsewhere, &SystemAmbient, &mut silent, &mut journal);
    let mut executor = Executor { parallel, ..executor };
    let report = executor.run(&operation.plan.work, None).await.expect("a run");
    assert_eq!(report.done, number + 1);
    let (writes, reads, bytes) = (world.troubles.writes(), world.troubles.reads(), world.troubles.bytes());
    println!("{number} steps: {writes} writes, {reads} reads, {} bytes for each step", bytes / number);
    assert_eq!(operation.states().await.len(), number + 1);
    let revisions: Vec<_> = journal.records().iter().map(|(step, _)| journal.changed_at(step)).collect();
    assert!(revisions.iter().all(Option::is_some));
    // The process that takes over finds every record where it is.
    let (taken, _) = operation.ledger(&world.free.0, 2).await.expect("it is taken over");
    for step in ["make/many-0".to_string(), format!("make/many-{}", number - 1), "wait/there".into()] {
        let part = Part::Step(StepId(step.clone()));
        assert!(taken.read(&part).await.expect("a read").is_some(), "{step}");
    }
    Cost { writes, reads, bytes }
}

/// A cutover runs eight names at a time. The limit for its names follows from this figure.
#[tokio::test]
async fn record_of_a_cutover_needs_no_more_space_than_announced() {
    let Cost { bytes, .. } = cost_of_records(&World::start().await, 1_000, 8).await;
    let announced = usize::try_from(BYTES_FOR_A_STEP).unwrap();
    assert!(bytes / 1_000 <= announced, "{bytes} bytes");
}

/// The more other work the machine has, the fewer records wait for the same write. Without a common write: 4,000 writes. With 32
/// records in each write: 126.
#[tokio::test]
async fn records_of_concurrent_steps_share_writes() {
    let Cost { writes, reads, bytes } = cost_of_records(&World::start().await, 2_000, 32).await;
    assert!(writes <= 400, "{writes} writes");
    assert!(bytes <= 3_000_000, "{bytes} bytes");
    // One before the wait.
    assert!(reads <= 1, "{reads} reads");
}

#[tokio::test]
#[ignore = "minutes, in `make soak`: needs `make rig` and root"]
async fn records_of_20_000_effects_fit_into_etcd() {
    let Cost { writes, bytes, .. } = cost_of_records(&World::start().await, 20_000, 32).await;
    assert!(writes <= 4_000, "{writes} writes");
    assert!(bytes <= 300_000_000, "{bytes} bytes");
}

async fn plan_of_several_parts_is_read_back(world: &World) {
    let operation = world.operation().await;
    let claim = operation.claim(1);
    let ledger = ClusterLedger::begin(&world.free.0, "there", &claim, 300).await.expect("it starts");
    let plan: Vec<u8> = (0..1_500_000_u32).map(|byte| byte.to_le_bytes()[0]).collect();
    let summary = Summary::begun(Maps::NAME, "digest", &claim);
    Journal::begin_in(&ledger, &plan, summary).await.expect("it is stored");
    let record = ClusterRecord::find(&world.free.0, &operation.id).await.unwrap().expect("a record");
    let (_, summary, read) = Journal::open_in(&record).await.expect("it is read");
    assert!(read == plan && summary.plan_parts == 3, "{}", summary.plan_parts);
    // Head, five for records, three for the plan; all are deleted with the head.
    let names = objects_of_operations(world).await;
    assert_eq!(names.len(), 9, "{names:?}");
    let path = format!("/api/v1/namespaces/netsurgeon/configmaps/{}", names[1]);
    let owner = &world.here.api.get(&path).await["metadata"]["ownerReferences"][0];
    assert_eq!(owner["name"], format!("netsurgeon-{}", operation.id.to_lowercase()));
    assert_eq!(ClusterLedger::remove(&world.free.0, &operation.id).await.expect("it is removed"), 9);
}
