//! A cutover that is killed at random instants, and continued by the same command, as a Job does. A second process is fenced out.

use std::time::Duration;

use rand::Rng as _;
use rustix::process::Signal;

use super::{NEW, OLD, PATIENCE, TTL, World, ZONE};
use crate::rig::balancer::Behaviour;
use crate::rig::process::wait_until;
use crate::rig::run::says;
use crate::serving_cluster::{Watched, command};

/// How often it is killed: in `make soak`, as often as the acceptance demands.
pub fn kills() -> usize {
    if std::env::var_os("NETSURGEON_SOAK").is_some() { 50 } else { 6 }
}

/// Kills a cutover at a random instant. Returns `false` if it has ended before.
pub async fn is_killed(program: &mut Watched) -> bool {
    let instant = Duration::from_millis(rand::rng().random_range(50..12_000));
    let ended = tokio::time::timeout(instant, async {
        while program.ended().is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    if ended.await.is_ok() {
        return false;
    }
    program.signal(Signal::KILL);
    wait_until("it has ended", PATIENCE, async || program.ended().map(drop).ok_or("it runs".to_owned()))
        .await;
    println!("killed after {instant:?}");
    true
}

#[tokio::test]
async fn killed_cutover_is_continued_by_the_same_command() {
    let world = World::start(&["www", "api"], &[]).await;
    let before = world.records().await;
    let visitor = world.visitor("www");
    let mut left = kills();
    while left > 0 {
        let plan = world.plan_with(&format!("--soak {}", 3 + left % 2));
        let words = format!("dns cutover --plan {plan} --all --yes --lock-ttl 2 --take-over");
        loop {
            let mut program = Watched::start(command(&world.cluster, &words));
            if !is_killed(&mut program).await {
                assert_eq!(program.ended(), Some(0), "{:?}", program.err.lock().unwrap());
                break;
            }
            left = left.saturating_sub(1);
        }
        assert_eq!(world.addresses("www").await, (vec![NEW.to_owned()], TTL));
        let listed = world.netsurgeon("operation list -o json").expect(0).json();
        let operation = listed["operations"][0]["operation"].as_str().expect("an id").to_owned();
        assert_eq!(listed["operations"].as_array().map(Vec::len), Some(1), "it was continued: {listed}");
        world.netsurgeon(&format!("dns rollback {operation} --yes")).expect(0);
        assert_eq!(world.records().await, before);
        world.netsurgeon(&format!("operation forget {operation}")).expect(0);
    }
    let seen = visitor.take();
    assert!(seen.failures.is_empty(), "{:?} of {}", seen.failures, seen.all());
}

#[tokio::test]
async fn second_process_is_fenced_out() {
    let world = World::start(&["www"], &[]).await;
    let plan = world.plan_with("--soak 60");
    let words = format!("dns cutover --plan {plan} --all --yes --lock-ttl 2");
    let mut first = Watched::start(command(&world.cluster, &words));
    wait_until("the first process runs the cutover", PATIENCE, async || {
        let listed = world.netsurgeon("operation list -o json").expect(0).json();
        let status = listed["operations"][0]["status"].clone();
        if status == "running" { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    let second = world.netsurgeon(&words).expect(1);
    says(&second.err, &["error: ", "(pid "]);
    says(&second.err, &["`--take-over`"]);
    first.freeze();
    let third = world.netsurgeon("dns cutover --stage 1 --yes --take-over --lock-ttl 2").expect(0);
    says(&third.err, &["50 %"]);
    first.thaw();
    wait_until("the first process ends", PATIENCE, async || {
        first.ended().map(drop).ok_or("it runs".to_owned())
    })
    .await;
    let said = first.err.lock().unwrap().join("\n");
    assert!(said.contains("lost"), "{said}");
}

/// A process that sleeps during a probe must not change a name after another process has rolled the cutover back. The rollback
/// restores exactly the records that the update of the first process expects.
#[tokio::test]
async fn process_that_slept_during_a_probe_changes_nothing() {
    let world = World::start(&["www"], &[]).await;
    let before = world.records().await;
    let host = format!("www.{ZONE}");
    world.new.behaves(&host, Behaviour::Hangs);
    let words = format!("dns cutover --plan {} --all --yes --lock-ttl 2", world.plan("--force probes"));
    let mut first = Watched::start(world.command(&words));
    wait_until("the first process probes the mirror", PATIENCE, async || {
        let shown = world.netsurgeon("operation show -o json");
        let text = format!("{}{}", shown.out, shown.err);
        let is_it = |step: &serde_json::Value| step["step"] == *format!("share-50/{host}");
        let started = shown.code == 0 && shown.json()["steps"].as_array().expect("steps").iter().any(is_it);
        if started { Ok(()) } else { Err(text) }
    })
    .await;
    first.freeze();
    world.new.behaves(&host, Behaviour::Serves);
    world.netsurgeon("dns rollback --yes --take-over --lock-ttl 2").expect(0);
    assert_eq!(world.records().await, before);
    first.thaw();
    assert_ne!(first.end().await, 0);
    let said = first.err.lock().unwrap().join("\n");
    assert!(said.contains("lost"), "{said}");
    assert_eq!(world.addresses("www").await, (vec![OLD.to_owned()], TTL), "{said}");
}
