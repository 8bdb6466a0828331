//! A cutover that is killed at each write of its ledger in the cluster, and continued by the same command.

use netsurgeon::nameserver::Record;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{KEY, NEW, OLD, PATIENCE, World, hosts};
use crate::rig::api_gate::{ApiGate, Trouble, Troubles};
use crate::rig::bind::key_file;
use crate::rig::process::wait_until;
use crate::serving_cluster::Watched;

const NAMES: [&str; 2] = ["www", "api"];
/// The TTL before the cutover, in seconds: the shortest one that the cutover can lower.
const SHORT: u32 = 2;
/// How many of the writes are tested without `NETSURGEON_SOAK`.
const SAMPLE: usize = 4;

/// A world whose cluster is behind a gate that counts the writes of ConfigMaps.
struct Gated {
    world: World,
    troubles: std::sync::Arc<Troubles>,
    kubeconfig: std::path::PathBuf,
    plan: String,
    before: Vec<Record>,
}

impl Gated {
    async fn start() -> Self {
        let world = World::start_on(&NAMES, &[], &hosts(&NAMES, SHORT)).await;
        // Otherwise the first operation creates it, and has one write more than the others.
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "netsurgeon"}});
        world.cluster.api.create(&namespace).await;
        let troubles = Troubles::of("/configmaps");
        let gate = ApiGate::open(world.cluster.api.client(), &troubles).await;
        let kubeconfig = world.workspace.write("gate.conf", gate.kubeconfig());
        let file = world.workspace.join("plan.json").display().to_string();
        let words = format!("{} --shares 100 --ttl 1 --soak 1 --save {file}", world.planning());
        world.netsurgeon(&words).expect(0);
        let before = world.records().await;
        Self { world, troubles, kubeconfig, plan: file, before }
    }

    /// The command of the cutover. A process that takes it over does not wait until the operation lease expires.
    fn cutover(&self) -> String {
        format!("dns cutover --plan {} --all --yes --lock-ttl 2 --take-over", self.plan)
    }

    /// Runs the program through the gate. Returns its exit status, or `None` if it was killed.
    async fn meet(&self, words: &str, trouble: Trouble) -> Option<i32> {
        self.troubles.arm(trouble);
        let mut command = self.world.command(words);
        command.env("KUBECONFIG", &self.kubeconfig);
        let mut program = Watched::start(command);
        let code = tokio::select! {
            biased;
            () = self.troubles.killed() => None,
            code = program.end() => Some(code),
        };
        if code.is_none() {
            program.signal(Signal::KILL);
            program.end().await;
        }
        code
    }

    /// Checks that there is one operation, whose names are at the mirror. Returns its id, and its steps with their states.
    async fn completed(&self, context: &str) -> (String, Vec<(String, String)>) {
        for host in NAMES {
            assert_eq!(self.world.addresses(host).await, (vec![NEW.to_owned()], SHORT), "{context}");
        }
        let listed = self.world.netsurgeon("operation list -o json").expect(0).json();
        let operations = listed["operations"].as_array().expect("a list");
        assert_eq!((operations.len(), &operations[0]["status"]), (1, &"done".into()), "{context}: {listed}");
        let operation = operations[0]["operation"].as_str().expect("an id").to_owned();
        let shown = self.world.netsurgeon(&format!("operation show {operation} -o json")).expect(0).json();
        let text = |step: &Value, field: &str| step[field].as_str().expect("a text").to_owned();
        let mut steps: Vec<_> = (shown["steps"].as_array().expect("steps").iter())
            .map(|step| (text(step, "step"), text(step, "state")))
            .collect();
        steps.sort();
        (operation, steps)
    }

    /// Rolls the operation back, and checks that the zone and the cluster are as before.
    async fn undone(&self, operation: &str, trouble: Trouble, context: &str) {
        let words = format!("dns rollback {operation} --yes --lock-ttl 2 --take-over");
        let code = self.meet(&words, trouble).await;
        match code {
            None => drop(self.world.netsurgeon(&words).expect(0)),
            Some(code) => assert_eq!(code, 0, "{context}"),
        }
        assert_eq!(self.world.records().await, self.before, "{context}");
        self.world.netsurgeon(&format!("operation forget {operation}")).expect(0);
        assert_eq!(self.world.recorded().await, "", "{context}: nothing is left");
    }
}

/// A rollback that is killed before it has undone a step is continued as a rollback, also by `operation resume`.
#[tokio::test]
async fn rollback_that_is_killed_before_its_first_step_is_resumed_as_a_rollback() {
    let gated = Gated::start().await;
    let key = gated.world.workspace.write("own.key", key_file(KEY)).display().to_string();
    let stage = format!("dns cutover --plan {} --all --yes --tsig-key-file {key} -o json", gated.plan);
    let done = gated.world.netsurgeon(&stage).expect(0);
    let operation = done.json()["operation"].as_str().expect("an id").to_owned();
    let back = format!("netsurgeon dns rollback {operation}");
    assert!(done.err.contains(&format!("to go back: `{back} --tsig-key-file {key}`")), "{}", done.err);
    let show = format!("operation show {operation} -o json");
    for write in 1.. {
        let words = format!("dns rollback {operation} --yes --lock-ttl 2 --take-over");
        assert_eq!(gated.meet(&words, Trouble::KilledAfter(write)).await, None, "write {write}");
        let mut shown = Value::Null;
        wait_until("the operation lease has expired", PATIENCE, async || {
            shown = gated.world.netsurgeon(&show).expect(0).json();
            if shown["status"] == "rolling-back" { Err(shown.to_string()) } else { Ok(()) }
        })
        .await;
        if shown["status"] == "interrupted" {
            assert_eq!(shown["next"], back.as_str());
            let steps = shown["steps"].as_array().expect("steps");
            assert!(steps.iter().all(|step| step["state"] == "done"), "{shown}");
            break;
        }
    }
    let resumed = format!("operation resume {operation} --lock-ttl 2 --take-over -o json");
    assert_eq!(gated.world.netsurgeon(&resumed).expect(0).json()["status"], "rolled-back");
    assert_eq!(gated.world.records().await, gated.before);
}

/// The process sleeps after the check of its fencing token and before its update. Its update arrives after another process has
/// rolled the cutover back: it is reverted.
#[tokio::test]
async fn update_that_arrives_after_a_rollback_is_reverted() {
    let gated = Gated::start().await;
    gated.troubles.hold_after(&["share-100/www", "started"]);
    let mut command = gated.world.command(&format!("{} --parallel 1", gated.cutover()));
    command.env("KUBECONFIG", &gated.kubeconfig);
    let mut sleeper = Watched::start(command);
    tokio::time::timeout(PATIENCE, gated.troubles.holds()).await.expect("the check of the fencing token");
    gated.world.netsurgeon("dns rollback --yes --lock-ttl 2 --take-over").expect(0);
    assert_eq!(gated.world.records().await, gated.before);
    gated.troubles.release();
    assert_ne!(sleeper.end().await, 0);
    let said = sleeper.err.lock().unwrap().join("\n");
    assert!(said.contains("lost"), "{said}");
    assert_eq!(gated.world.addresses("www").await.0, [OLD], "{said}");
}

fn is_soak() -> bool {
    std::env::var_os("NETSURGEON_SOAK").is_some()
}

/// The writes at which a process is killed, of about so many. In `make soak` all of them, and each in both ways: the list has no end
/// there.
fn points(writes: usize) -> Box<dyn Iterator<Item = Trouble>> {
    if is_soak() {
        return Box::new((1..).flat_map(|at| [Trouble::KilledBefore(at), Trouble::KilledAfter(at)]));
    }
    // The first one, the last one, and some between them.
    let at = (0..SAMPLE).map(move |number| 1 + number * (writes - 1) / (SAMPLE - 1));
    Box::new(at.enumerate().map(|(number, at)| match number % 2 {
        0 => Trouble::KilledAfter(at),
        _ => Trouble::KilledBefore(at),
    }))
}

/// A kill before or after any write of the ledger leaves one operation, which the same command completes, and which can be
/// rolled back. The rollback is killed at the same write.
#[tokio::test]
async fn cutover_that_is_killed_at_a_write_of_its_ledger_is_continued() {
    let gated = Gated::start().await;
    let cutover = gated.cutover();
    assert_eq!(gated.meet(&cutover, Trouble::None).await, Some(0));
    let writes = gated.troubles.writes();
    println!("{writes} writes: {:#?}", gated.troubles.seen());
    let (operation, undisturbed) = gated.completed("undisturbed").await;
    gated.undone(&operation, Trouble::None, "undisturbed").await;
    let mut killed = 0;
    for trouble in points(writes) {
        let context = format!("{trouble:?} of {writes}");
        println!("{context}");
        let code = gated.meet(&cutover, trouble).await;
        match code {
            None => drop(gated.world.netsurgeon(&cutover).expect(0)),
            Some(code) => assert_eq!(code, 0, "{context}"),
        }
        let (operation, steps) = gated.completed(&context).await;
        assert_eq!(steps, undisturbed, "{context}");
        gated.undone(&operation, trouble, &context).await;
        if code.is_some() {
            // It has fewer writes: concurrent steps can share one.
            break;
        }
        killed += 1;
    }
    println!("killed {killed} times");
    assert!(killed >= SAMPLE - 1, "it was killed {killed} times");
}
