//! A renumbering is recorded in etcd, and a cutover in the cluster. They exclude each other also while they only soak and no
//! process runs.

use serde_json::{Value, json};

use super::{PRIMARY, RESOLVER, SECONDARY, Sides, TTL, World, hosts, name_servers};
use crate::rig::run::says;
use crate::serving_cluster::NEW_RANGE;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/netsurgeon";

async fn marks(world: &World) -> Vec<String> {
    let lease = world.cluster.api.get(LEASE).await;
    let annotations = lease["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations
        .keys()
        .filter_map(|key| Some(key.strip_prefix("operations.netsurgeon.io/")?.to_owned()))
        .collect()
}

fn id(shown: &Value) -> String {
    shown["operation"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn renumbering_and_cutover_exclude_each_other_while_they_soak() {
    let sides = Sides::start_with(&[PRIMARY, SECONDARY, RESOLVER], true).await;
    let names = ["www"];
    let mut world = World::of(sides, &names, &[], name_servers(&hosts(&names, TTL)).await).await;
    let plan = world.plan("");
    let snapshot = world.workspace.join("before.db").display().to_string();
    let apply = format!(
        "renumber apply --to {NEW_RANGE} --snapshot-to {snapshot} --yes --accept-gap --barrier 1 --confirm certificates"
    );

    let cutover =
        id(&world.netsurgeon(&format!("dns cutover --plan {plan} --stage 1 --yes -o json")).expect(0).json());
    assert_eq!(marks(&world).await, std::slice::from_ref(&cutover));
    let refused = world.netsurgeon(&apply).expect(1);
    says(&refused.err, &["error: ", &cutover, "(dns-cutover)", "has not ended", "the cluster"]);
    assert!(world.cluster.etcd.keys("/netsurgeon/").await.iter().all(|key| key.ends_with("/lock")));
    world.netsurgeon("dns rollback --yes").expect(0);
    assert_eq!(marks(&world).await, Vec::<String>::new());

    // A mark whose operation has no record is stale.
    let stale = json!({"kind": "dns-cutover", "ledger": "cluster"}).to_string();
    let stale = json!({"metadata": {"annotations": {"operations.netsurgeon.io/dns-cutover-gone": stale}}});
    world.cluster.api.merge(LEASE, &stale).await;
    let paused = world.netsurgeon(&apply).expect(6);
    says(&paused.err, &["--confirm flags"]);
    let status = world.netsurgeon("renumber status -o json").expect(0).json();
    let renumbering = id(&status);
    world.cluster.set_service_cidrs(NEW_RANGE);
    world.cluster.restart_api_server(0).await;
    world.netsurgeon(&format!("operation resume {renumbering} --confirm flags --barrier 1")).expect(0);
    assert_eq!(world.netsurgeon("renumber status -o json").expect(0).json()["status"], "soaking");
    assert_eq!(marks(&world).await, std::slice::from_ref(&renumbering));

    world.netsurgeon(&format!("operation forget {cutover} --yes")).expect(0);
    let before = world.records().await;
    let refused = world.netsurgeon(&format!("dns cutover --plan {plan} --all --yes"));
    says(&refused.expect(1).err, &["error: ", &renumbering, "(renumber)", "has not ended", "etcd"]);
    assert_eq!(world.records().await, before);
    let paused = world.netsurgeon("renumber rollback --yes --linger 0 --barrier 1").expect(6);
    says(&paused.err, &["--confirm flags"]);
    world.cluster.set_service_cidrs("10.96.0.0/16");
    world.cluster.restart_api_server(0).await;
    world.netsurgeon("renumber rollback --yes --linger 0 --barrier 1 --confirm flags").expect(0);
    assert_eq!(marks(&world).await, Vec::<String>::new());
    world.netsurgeon(&format!("dns cutover --plan {plan} --all --yes")).expect(0);
}
