//! The cutover as `deploy/dns-cutover.yaml` runs it: the program as the service account of the Job, with the permissions of its Role
//! alone, its user and its files. Its Pod is killed, and the next one continues.

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{KEY, NEW, PATIENCE, TTL, World};
use crate::in_cluster::as_pod;
use crate::rig::bind::key_file;
use crate::rig::process::wait_until;
use crate::serving_cluster::Watched;

const NAMESPACE: &str = "netsurgeon-dns";
const NAME: &str = "netsurgeon-dns-cutover";

fn objects(file: &str) -> Vec<Value> {
    let text =
        std::fs::read_to_string(format!("{}/deploy/{file}", env!("CARGO_MANIFEST_DIR"))).expect("a manifest");
    text.split("\n---\n").map(|part| serde_saphyr::from_str(part).expect("an object")).collect()
}

/// Creates the manifests, and returns the spec of the Job's Pods as the API server has it.
async fn install(world: &World) -> Value {
    let api = &world.cluster.api;
    api.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})).await;
    // The namespace of the records, the Lease, and the two Roles.
    let is_its = |object: &&Value| match object["kind"].as_str() {
        Some("Namespace" | "Lease") => true,
        Some("Role") => object["metadata"]["name"] == NAME,
        _ => false,
    };
    let objects_of_roles = objects("rbac.yaml");
    let needed: Vec<&Value> = objects_of_roles.iter().filter(is_its).collect();
    assert_eq!(needed.len(), 4, "{needed:?}");
    for object in needed {
        api.apply(object).await;
    }
    for object in objects("dns-cutover.yaml") {
        api.apply(&object).await;
    }
    let path = format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{NAME}");
    api.get(&path).await["spec"]["template"]["spec"].clone()
}

/// A Pod of the Job.
async fn pod(world: &World, spec: &Value, name: &str, plan: &str) -> Command {
    let plan = std::fs::read_to_string(plan).expect("a plan");
    let digest = serde_json::from_str::<Value>(&plan).expect("JSON")["digest"].clone();
    let approve = format!("--approve={}", digest.as_str().expect("a digest"));
    let files = [("plan.json", plan), ("tsig.key", key_file(KEY))];
    let mut command = as_pod(&world.cluster, (name, spec), (NAMESPACE, NAME), &files).await;
    let arguments = spec["containers"][0]["args"].as_array().expect("arguments").iter();
    let arguments: Vec<&str> = arguments.map(|argument| argument.as_str().expect("a text")).collect();
    // The operator fills in the digest of the plan.
    let at = arguments.iter().position(|argument| argument.starts_with("--approve=")).expect("--approve");
    command.args(&arguments[..at]).arg(approve).args(&arguments[at + 1..]);
    command.arg("--lock-ttl=2");
    let url = world.cluster.api_servers[0].url();
    let (host, port) = url.trim_start_matches("https://").rsplit_once(':').expect("a port");
    command.env("KUBERNETES_SERVICE_HOST", host).env("KUBERNETES_SERVICE_PORT", port);
    command
}

#[tokio::test]
async fn job_continues_after_its_pod_is_killed() {
    let world = World::start(&["www", "api"], &[]).await;
    let spec = install(&world).await;
    let plan = world.plan_with("--soak 8");
    let mut first = Watched::start(pod(&world, &spec, "first", &plan).await);
    wait_until("the first stage lasts", PATIENCE, async || {
        let shown = world.netsurgeon("operation list -o json").expect(0).json();
        let id = shown["operations"][0]["operation"].as_str().ok_or("no operation")?.to_owned();
        let shown = world.netsurgeon(&format!("operation show {id} -o json")).expect(0).json();
        let steps = shown["steps"].as_array().expect("steps");
        let soak = steps.iter().find(|step| step["step"] == "soak/50").map(|step| step["state"].clone());
        if soak == Some("started".into()) { Ok(()) } else { Err(format!("{steps:?}")) }
    })
    .await;
    first.signal(Signal::KILL);
    wait_until("the first Pod ends", PATIENCE, async || first.ended().map(drop).ok_or("it runs".to_owned()))
        .await;
    let mut second = Watched::start(pod(&world, &spec, "second", &plan).await);
    wait_until("the second Pod ends", PATIENCE, async || {
        second.ended().map(drop).ok_or("it runs".to_owned())
    })
    .await;
    let said = second.err.lock().unwrap().join("\n");
    assert_eq!(second.ended(), Some(0), "{said}");
    assert!(!said.contains(KEY.1), "a key is never logged");
    assert_eq!(world.addresses("www").await, (vec![NEW.to_owned()], TTL));
    // The soak of the first Pod counts: it is anchored to the journal.
    let listed = world.netsurgeon("operation list -o json").expect(0).json();
    let id = listed["operations"][0]["operation"].as_str().expect("an id").to_owned();
    assert_eq!(listed["operations"][0]["status"], "done");
    let shown = world.netsurgeon(&format!("operation show {id} -o json")).expect(0).json();
    let soak = shown["steps"].as_array().expect("steps").iter().find(|step| step["step"] == "soak/50");
    let states: Vec<&Value> =
        soak.expect("the soak")["history"].as_array().expect("a history").iter().map(|one| &one[0]).collect();
    assert_eq!(states, ["started", "done"], "it was not started again");
    let mut again = Watched::start(pod(&world, &spec, "third", &plan).await);
    wait_until("the third Pod ends", PATIENCE, async || again.ended().map(drop).ok_or("it runs".to_owned()))
        .await;
    assert_eq!(again.ended(), Some(0), "a Pod after the end has nothing to do");
}
