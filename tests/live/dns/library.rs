//! A program that uses netsurgeon as a library plans a cutover, without the command line and without `preflight`.

use netsurgeon::dns::reader::{CutoverReader, Names, Probes};
use netsurgeon::dns::{PlanOptions, plan};
use netsurgeon::inventory::read_key;
use netsurgeon::inventory::zone::Provider;
use netsurgeon::kube_api::{Cluster as Api, ClusterOptions as ApiOptions};
use serde_json::{Value, json};

use super::{PRIMARY, RESOLVER, World, ZONE};
use crate::rig::cluster::Cluster;

async fn connect(cluster: &Cluster) -> Api {
    let kubeconfig = Some(cluster.kubeconfig().to_path_buf());
    Api::connect(&ApiOptions { kubeconfig, ..ApiOptions::default() }).await.expect("a connection")
}

#[tokio::test]
async fn library_plans_the_same_cutover_as_the_program() {
    let world = World::start(&["www", "api"], &[]).await;
    let file = world.plan_with("--soak 3");
    let text = std::fs::read_to_string(file).expect("a plan");
    let of_program: Value = serde_json::from_str(&text).expect("JSON");

    let key = world.key_file();
    let key = Some((read_key(key.as_ref()).expect("a key"), key.into()));
    let names = Names {
        zone: ZONE.to_owned(),
        name: Vec::new(),
        take: Vec::new(),
        external_dns: [Vec::new(), Vec::new()],
        probes: Probes::default(),
        provider: Provider::Rfc2136 { server: Some(PRIMARY.to_owned()), key },
        resolver: Some(RESOLVER.to_owned()),
    };
    let (cluster, mirror) = (connect(&world.cluster).await, connect(&world.mirror).await);
    let reader = CutoverReader::new(Some(Ok(cluster)), Some(Ok(mirror)), names).await;
    let facts = reader.facts().await.expect("facts");
    let options = PlanOptions {
        shares: vec![10, 50, 100],
        ttl: 2,
        soak: 3,
        probe: None,
        trusted: Vec::new(),
        probes: std::collections::BTreeMap::new(),
        seen: None,
        short_soak: false,
    };
    let planned = plan(&facts, &options).expect("a plan");
    let of_library = serde_json::to_value(&planned.plan.work).expect("JSON");
    for part in ["zone", "service", "resolver", "shares", "names"] {
        assert_eq!(of_library[part], of_program[part], "{part}");
    }
    assert_eq!(of_library["names"].as_array().map(Vec::len), Some(2));
    assert_eq!(of_library["zone"], json!(ZONE));
}
