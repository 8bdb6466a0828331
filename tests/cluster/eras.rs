//! Each storage era keeps Service addresses where netsurgeon expects them, survives a restart of the API server, and works on
//! either etcd. If one of these tests fails, the rig or that expectation is wrong.

use std::process::Command;
use std::time::Duration;

use netsurgeon::store::etcd::{EtcdOptions as StoreOptions, EtcdStore};
use netsurgeon::survey::{Era as Told, Layout, Survey};
use serde_json::json;

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::etcd::{EtcdOptions, EtcdVersion};
use super::rig::process::wait_until;
use super::rig::run::{run, says};

/// The bitmap of the primary Service CIDR.
const BITMAP: &str = "/registry/ranges/serviceips";

#[tokio::test]
async fn objects_era_stores_address_objects() {
    let cluster = start_create_restart(ClusterOptions::new(Era::Objects)).await;
    assert_eq!(cluster.etcd.get(BITMAP).await, None, "the era objects has no bitmap at all");
    assert_has_address_objects(&cluster).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn dual_write_era_stores_objects_and_bitmap() {
    let cluster = start_create_restart(ClusterOptions::new(Era::DualWrite)).await;
    assert_bitmap_holds_first_and_fifth(&cluster).await;
    assert_has_address_objects(&cluster).await;
}

#[tokio::test]
async fn bitmap_era_stores_bitmap() {
    let cluster = start_create_restart(ClusterOptions::new(Era::Bitmap)).await;
    assert_bitmap_holds_first_and_fifth(&cluster).await;
    assert_eq!(cluster.etcd.keys("/registry/ipaddresses/").await, Vec::<String>::new());
    assert_eq!(cluster.etcd.keys("/registry/servicecidrs/").await, Vec::<String>::new());
}

#[tokio::test]
async fn objects_era_works_on_debian_etcd() {
    let mut options = ClusterOptions::new(Era::Objects);
    options.etcd.version = EtcdVersion::Debian;
    let cluster = start_create_restart(options).await;
    assert_has_address_objects(&cluster).await;
}

#[tokio::test]
async fn api_server_works_on_etcd_with_mutual_tls() {
    let mut options = ClusterOptions::new(Era::Objects);
    options.etcd = EtcdOptions { mutual_tls: true, ..EtcdOptions::default() };
    let cluster = start_create_restart(options).await;
    assert_has_address_objects(&cluster).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn json_storage_stores_json() {
    let mut options = ClusterOptions::new(Era::Objects);
    options.api_server_flags = vec!["--storage-media-type=application/json".to_owned()];
    let cluster = start_create_restart(options).await;
    let stored = cluster.etcd.get("/registry/services/specs/default/web").await.expect("it is stored");
    assert!(stored.starts_with(br#"{"kind":"Service","apiVersion":"v1","#));
    assert_eq!(stored.last(), Some(&b'\n'), "the API server ends a JSON value with a newline");
}

#[tokio::test]
async fn dual_stack_stores_both_families() {
    let cluster = start_dual_stack(Era::Objects).await;
    for address in ["10.96.0.5", "fd00:10:96::5"] {
        let key = format!("/registry/ipaddresses/{address}");
        assert!(cluster.etcd.get(&key).await.is_some(), "{key} exists");
    }
    let ranges = cluster.etcd.keys("/registry/ranges/").await;
    assert_eq!(ranges, ["/registry/ranges/servicenodeports"]);
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn dual_stack_bitmap_era_stores_two_bitmaps() {
    let cluster = start_dual_stack(Era::Bitmap).await;
    let ranges = cluster.etcd.keys("/registry/ranges/").await;
    let expected = ["secondaryserviceips", "serviceips", "servicenodeports"];
    assert_eq!(ranges, expected.map(|name| format!("/registry/ranges/{name}")));
}

async fn told(cluster: &Cluster) -> (Told, bool) {
    let store = EtcdStore::connect(StoreOptions::new([cluster.etcd.endpoint()])).await.expect("etcd answers");
    let era = Survey::read(&store, &Layout::default(), None).await.expect("a survey").era;
    println!("{era:?}");
    (era.era, era.bitmap_is_leftover)
}

/// A cluster that is upgraded from 1.33 keeps its bitmap. The first later allocation reveals the era. An IPAddress without a
/// Service does not: when a Service is deleted, its bit is freed first.
#[tokio::test]
async fn upgrade_leaves_bitmap_behind() {
    // With a node, so that the API server can be reached at the address that it advertises.
    let options = ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::DualWrite) };
    let mut cluster = Cluster::start(options).await;
    let ports = json!({"ports": [{"port": 80}]});
    cluster.api.create_service("default", "before", ports.clone()).await;
    let parent = json!({"group": "", "resource": "services", "namespace": "default", "name": "gone"});
    let going = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "spec": {"parentRef": parent},
        "metadata": {"name": "10.96.77.7", "labels": {
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io", "ipaddress.kubernetes.io/ip-family": "IPv4",
        }},
    });
    cluster.api.create(&going).await;
    assert_eq!(told(&cluster).await, (Told::DualWrite, false));

    cluster.stop_api_servers();
    cluster.api_servers[0].options.flags.clear();
    cluster.start_api_servers().await;
    cluster.api.create_service("default", "after", ports).await;
    assert_eq!(told(&cluster).await, (Told::Objects, true));

    // The upgrade is rolled back: until the next allocation, etcd has only the traces of the newer version.
    cluster.stop_api_servers();
    cluster.api_servers[0].options.flags = vec!["--emulated-version=1.33".to_owned()];
    cluster.start_api_servers().await;
    assert_eq!(told(&cluster).await, (Told::Objects, true));
    wait_until("the API server is in the EndpointSlice", Duration::from_mins(1), async || {
        let slice =
            cluster.api.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes").await;
        if slice["endpoints"][0].is_object() { Ok(()) } else { Err(slice.to_string()) }
    })
    .await;
    let said = apply(&cluster);
    says(&said, &["API server ", "era dual-write"]);
    cluster.api.create_service("default", "again", json!({"ports": [{"port": 80}]})).await;
    cluster.api.delete("/api/v1/namespaces/default/services/again").await;
    assert_eq!(told(&cluster).await, (Told::DualWrite, false));
    let said = apply(&cluster);
    assert!(
        said.contains("--accept-gap") && !said.contains("era dual-write"),
        "refused for another reason: {said}"
    );
}

/// An API server whose flag has another range than the bitmap allocates addresses without the bitmap. This does not mean that the
/// bitmap is a leftover: `ranges check` reports the missing bit.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn bitmap_of_another_flag_is_not_a_leftover() {
    let cluster = Cluster::start(ClusterOptions::new(Era::DualWrite)).await;
    let netsurgeon = |words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
        command
            .env_clear()
            .args(words.split_whitespace())
            .args(["--etcd-endpoints", &cluster.etcd.endpoint()]);
        run(words, command)
    };
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let range = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "more"},
        "spec": {"cidrs": ["10.200.0.0/16"]},
    });
    cluster.api.create(&range).await;
    netsurgeon(&format!("ranges rewrite --to 10.200.0.0/16 --yes --kubeconfig {kubeconfig}")).expect(0);
    let spec = json!({"clusterIP": "10.200.0.77", "ports": [{"port": 80}]});
    wait_until("the allocator has the new range", Duration::from_mins(1), async || {
        let meta = json!({"name": "bypasses", "namespace": "default"});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec});
        cluster.api.try_create(&service).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(told(&cluster).await, (Told::DualWrite, false));
    let checked = netsurgeon("ranges check").expect(3);
    says(&checked.out, &["service-without-bit", "default/bypasses"]);
}

/// Runs `renumber apply` without `--yes`; returns stderr.
fn apply(cluster: &Cluster) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_netsurgeon"))
        .args(["renumber", "apply", "--to", "10.200.0.0/16", "--hold", "shadow", "--no-snapshot"])
        .args(["--etcd-endpoints", &cluster.etcd.endpoint(), "--kubeconfig"])
        .arg(cluster.kubeconfig())
        .env_clear()
        .output()
        .expect("netsurgeon runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

/// Starts a dual-stack cluster and creates a Service at .5 and ::5.
async fn start_dual_stack(era: Era) -> Cluster {
    let mut options = ClusterOptions::new(era);
    "10.96.0.0/16,fd00:10:96::/112".clone_into(&mut options.service_cidrs);
    let cluster = Cluster::start(options).await;
    let addresses = json!(["10.96.0.5", "fd00:10:96::5"]);
    let spec = json!({
        "ipFamilyPolicy": "RequireDualStack",
        "clusterIP": addresses[0],
        "clusterIPs": addresses,
        "ports": [{"port": 80}],
    });
    let service = cluster.api.create_service("default", "both", spec).await;
    assert_eq!(service["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    assert_eq!(service["spec"]["clusterIPs"], addresses);
    cluster
}

/// Starts a cluster, creates a Service at .5, and restarts the API server on the same etcd.
async fn start_create_restart(options: ClusterOptions) -> Cluster {
    let mut cluster = Cluster::start(options).await;
    let spec = json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80}]});
    let service = cluster.api.create_service("default", "web", spec).await;
    assert_eq!(service["spec"]["clusterIPs"], json!(["10.96.0.5"]));
    let chosen = cluster.api.create_service("default", "chosen", json!({"ports": [{"port": 80}]})).await;
    let address = chosen["spec"]["clusterIP"].as_str().expect("an address");
    assert!(address.starts_with("10.96."), "`{address}` is of the cluster's range");
    cluster.api.delete("/api/v1/namespaces/default/services/chosen").await;

    let before = cluster.etcd.get("/registry/services/specs/default/web").await;
    cluster.stop_api_servers();
    cluster.start_api_servers().await;
    let after = cluster.api.get("/api/v1/namespaces/default/services/web").await;
    assert_eq!(after["metadata"]["uid"], service["metadata"]["uid"]);
    assert_eq!(cluster.etcd.get("/registry/services/specs/default/web").await, before);
    cluster
}

async fn assert_has_address_objects(cluster: &Cluster) {
    let addresses = cluster.etcd.keys("/registry/ipaddresses/").await;
    assert_eq!(addresses, ["/registry/ipaddresses/10.96.0.1", "/registry/ipaddresses/10.96.0.5"]);
    let ranges = cluster.etcd.keys("/registry/servicecidrs/").await;
    assert_eq!(ranges, ["/registry/servicecidrs/kubernetes"]);
}

/// The allocator's repair loop might not have found the deletion of the other Service yet, so only the two lowest addresses are
/// checked. Bit 0 is the range's first address, .1; the last byte is the lowest.
async fn assert_bitmap_holds_first_and_fifth(cluster: &Cluster) {
    let value = cluster.etcd.get(BITMAP).await.expect("there is a bitmap");
    let without_tail = value.strip_suffix(&[0x1a, 0x00, 0x22, 0x00]).expect("the envelope ends empty");
    assert_eq!(without_tail.last().map(|byte| byte & 0b1_1111), Some(0b1_0001));
}
