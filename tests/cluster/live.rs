//! netsurgeon reads the same from a live etcd and from a snapshot of it, and reports what is broken by hand.

use netsurgeon::renumber::plan;
use netsurgeon::store::ReadStore;
use netsurgeon::store::snapshot::SnapshotStore;
use netsurgeon::survey::audit::audit;
use netsurgeon::survey::{Era as Detected, Layout, Survey};
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::{Field, FieldEdit, Value};
use serde_json::json;

use super::edits::{options, store_of};
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::etcd::EtcdOptions;

const WEB: &str = "/registry/services/specs/default/web";
const BITMAP: &str = "/registry/ranges/serviceips";

#[tokio::test]
async fn live_etcd_equals_snapshot_in_objects_era() {
    let mut options = ClusterOptions::new(Era::Objects);
    options.etcd = EtcdOptions { mutual_tls: true, ..EtcdOptions::default() };
    let cluster = seen(options, Detected::Objects).await;
    broken_addresses_are_named(&cluster, Era::Objects).await;
    let object = "/registry/ipaddresses/10.96.0.5";
    let value = cluster.etcd.get(object).await.expect("it exists");
    cluster.etcd.delete(object).await;
    assert_eq!(codes(&cluster).await, ["ip-address-missing Service default/web"]);
    cluster.etcd.put(object, value).await;
    assert_eq!(codes(&cluster).await, Vec::<String>::new());
}

#[tokio::test]
async fn live_etcd_equals_snapshot_in_bitmap_era() {
    let cluster = seen(ClusterOptions::new(Era::Bitmap), Detected::Bitmap).await;
    broken_addresses_are_named(&cluster, Era::Bitmap).await;
    let value = cluster.etcd.get(BITMAP).await.expect("it exists");
    let capacity = (1 << 16) - 2;
    // Bit 4 is the fifth address, .5, of web.
    let clear = FieldChange::Bits { capacity, set: Vec::new(), clear: vec![4] };
    cluster.etcd.put(BITMAP, edited(&value, Field::data(), clear)).await;
    assert_eq!(codes(&cluster).await, ["service-without-bit Service default/web"]);
    cluster.etcd.put(BITMAP, value).await;
    assert_eq!(codes(&cluster).await, Vec::<String>::new());
}

/// Starts a cluster, compares live etcd and snapshot, and stops the API server, which would repair what is broken next.
async fn seen(options_of_cluster: ClusterOptions, era: Detected) -> Cluster {
    let mut cluster = Cluster::start(options_of_cluster).await;
    for (name, address) in [("web", "10.96.0.5"), ("db", "10.96.0.6")] {
        let spec = json!({"clusterIP": address, "selector": {"app": name}, "ports": [{"port": 80}]});
        cluster.api.create_service("default", name, spec).await;
    }
    let spec = json!({"type": "NodePort", "selector": {"app": "edge"}, "ports": [{"port": 80}]});
    cluster.api.create_service("default", "edge", spec).await;
    cluster.stop_controllers();
    cluster.stop_api_servers();
    let live = store_of(&cluster.etcd).await;
    let file = cluster.directory().join("live.db");
    cluster.etcd.snapshot(&file);
    let snapshot = SnapshotStore::open(&file, &Layout::default().surveyed()).expect("a snapshot");
    let mut plans = Vec::new();
    for store in [&live as &dyn ReadStore, &snapshot] {
        let survey = Survey::read(store, &Layout::default(), None).await.expect("a survey");
        assert_eq!(survey.era.era, era, "{}", store.describe());
        assert_eq!(audit(&survey), [], "{}", store.describe());
        plans.push(plan(&survey, &options()).expect("a plan"));
    }
    assert_eq!(plans[0].work, plans[1].work, "live and snapshot");
    assert_eq!(plans[0].header.cluster, plans[1].header.cluster);
    assert_eq!(plans[0].work.moves.len(), 4);
    cluster
}

fn edited(value: &[u8], field: Field, change: FieldChange) -> Vec<u8> {
    edit::apply(value, &[FieldEdit { field, change }]).expect("an edit")
}

fn set(value: &[u8], field: Field, new: Value) -> Vec<u8> {
    edited(value, field, FieldChange::Set(new))
}

/// Two Services with one address, and one that contradicts itself.
async fn broken_addresses_are_named(cluster: &Cluster, era: Era) {
    let value = cluster.etcd.get(WEB).await.expect("it exists");
    let differs = set(&value, Field::cluster_ip(), Value::Text("10.96.0.7".into()));
    cluster.etcd.put(WEB, differs).await;
    assert_eq!(codes(cluster).await, ["cluster-ip-mismatch Service default/web"], "{era:?}");
    let taken = set(&value, Field::cluster_ip(), Value::Text("10.96.0.6".into()));
    let taken = set(&taken, Field::cluster_ips(), Value::Texts(vec!["10.96.0.6".into()]));
    cluster.etcd.put(WEB, taken).await;
    let found = codes(cluster).await;
    let is_duplicate = |code: &String| code.starts_with("duplicate-address Service default/");
    assert_eq!(found.iter().filter(|code| is_duplicate(code)).count(), 1, "{era:?}: {found:?}");
    // Its own address, now without a Service, is reported too, and nothing else.
    let explained =
        ["duplicate-address", "ip-address-wrong-reference", "ip-address-orphan", "bit-without-service"];
    assert!(found.iter().all(|code| explained.iter().any(|e| code.starts_with(e))), "{era:?}: {found:?}");
    cluster.etcd.put(WEB, value).await;
}

async fn codes(cluster: &Cluster) -> Vec<String> {
    let store = store_of(&cluster.etcd).await;
    let survey = Survey::read(&store, &Layout::default(), None).await.expect("a survey");
    audit(&survey).into_iter().map(|finding| format!("{} {}", finding.code, finding.subject)).collect()
}
