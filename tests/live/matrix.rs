//! A whole renumbering under traffic, in every storage era, with every mode of kube-proxy and every hold: no connection fails, to
//! old and new addresses, and the server observes the client's own address.
//!
//! `make test` runs half of the cells: each era with each mode, each era with each hold, each mode with each hold.

use netsurgeon::preflight::renumber::room::Moves;
use netsurgeon::renumber::Hold;
use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::proxy::ProxyMode;
use super::rig::report::Target;
use super::rig::run::says;
use super::selectorless_services::gone;
use super::serving_cluster::{DEADLINE, NEW_RANGE, SERVICES, Serving};

/// How many Services are created to find the range of new addresses.
const NEW_SERVICES: usize = 12;

/// In [`Serving::apply_words`].
const BATCH: usize = 10;
/// Bytes that controllers and Leases write meanwhile.
const OTHERS: u64 = 256 * 1024;

macro_rules! cells {
    ($($name:ident: $era:ident $mode:ident $hold:ident $(#[$attribute:meta])?;)*) => {
        $(
            #[tokio::test]
            $(#[$attribute])?
            async fn $name() {
                cell(Era::$era, ProxyMode::$mode, Hold::$hold).await;
            }
        )*
    };
}

cells! {
    objects_nftables_external_ip: Objects Nftables ExternalIp;
    objects_iptables_shadow: Objects Iptables Shadow;
    dual_write_iptables_external_ip: DualWrite Iptables ExternalIp;
    dual_write_nftables_shadow: DualWrite Nftables Shadow;
    bitmap_iptables_shadow: Bitmap Iptables Shadow;
    bitmap_nftables_external_ip: Bitmap Nftables ExternalIp;
    objects_iptables_external_ip: Objects Iptables ExternalIp #[ignore = "a minute each, in `make soak`: needs `make rig` and root"];
    objects_nftables_shadow: Objects Nftables Shadow #[ignore = "a minute each, in `make soak`: needs `make rig` and root"];
    dual_write_nftables_external_ip: DualWrite Nftables ExternalIp #[ignore = "a minute each, in `make soak`: needs `make rig` and root"];
    dual_write_iptables_shadow: DualWrite Iptables Shadow #[ignore = "a minute each, in `make soak`: needs `make rig` and root"];
    bitmap_nftables_shadow: Bitmap Nftables Shadow #[ignore = "a minute each, in `make soak`: needs `make rig` and root"];
    bitmap_iptables_external_ip: Bitmap Iptables ExternalIp #[ignore = "a minute each, in `make soak`: needs `make rig` and root"];
}

async fn cell(era: Era, mode: ProxyMode, hold: Hold) {
    let mut serving = Serving::start(era, mode).await;
    let old = Serving::targets();
    let new = [Target::tcp("10.200.0.5", 80), Target::udp("10.200.0.5", 80), Target::tcp("10.200.1.7", 80)];
    let tested = serving.netsurgeon(&format!("preflight renumber --to {NEW_RANGE} --only versions-tested"));
    says(&tested.expect(0).out, &["versions-tested", "pass", serving.cluster.version().text()]);
    let before = identities(&serving).await;
    let addresses: Vec<Value> =
        services(&serving).await.iter().map(|service| service["spec"]["clusterIP"].clone()).collect();
    let probe = serving.probe(&old).await;
    serving.cluster.etcd.compact_and_defragment().await;
    let empty = serving.cluster.etcd.size().await;
    // kube-proxy 1.32 in mode nftables drops traffic from nodes without endpoints to an external IP; the probe's traffic comes
    // from a Pod.
    let by_itself = hold == Hold::ExternalIp;
    let gap =
        if by_itself && (era, mode) == (Era::Bitmap, ProxyMode::Nftables) { "--accept-gap" } else { "" };
    serving.apply(&format!("--hold {hold} {gap}")).await;
    let mut written = serving.cluster.etcd.size().await - empty;
    let trial = serving.client.probe(&new);
    for target in new {
        trial.wait_for_success(target, DEADLINE).await;
    }
    drop(trial);
    for target in new {
        probe.add(target);
        probe.wait_for_attempts(target, 200, DEADLINE).await;
    }
    assert_eq!(serving.cluster_ip("web").await, "10.200.0.5");
    assert_eq!(serving.cluster_ip("kubernetes").await, "10.200.0.1");
    let verified = serving.netsurgeon("renumber verify -o json").expect(0).json();
    assert_eq!(verified["held"].as_u64(), Some(SERVICES as u64 + 2), "{verified}");
    no_held_address_can_be_taken(&serving, &addresses).await;
    every_service_accepts_an_update(&serving).await;
    // In the objects era both ranges are open until the old one is retired.
    if era != Era::Objects {
        a_new_service_gets_a_new_address(&serving, "meanwhile").await;
    }
    serving.assert_unbroken(&probe.stop(), &old);

    let probe = serving.probe(&new).await;
    let soaked = serving.cluster.etcd.size().await;
    serving.retire();
    written += serving.cluster.etcd.size().await - soaked;
    serving.assert_unbroken(&probe.stop(), &new);
    assert_eq!(identities(&serving).await, before, "the same Services, none recreated");
    let counted = room(era, hold);
    assert!(written < counted, "{written} bytes are more than the {counted} that `preflight` counts");
    nothing_is_left(&serving, era).await;
    every_service_accepts_an_update(&serving).await;
    a_new_service_gets_a_new_address(&serving, "after").await;
}

/// The bytes that `preflight` counts for a cell.
fn room(era: Era, hold: Hold) -> u64 {
    let services = SERVICES + 2;
    let (external_ips, shadows) = if hold == Hold::Shadow { (0, services) } else { (services, 0) };
    // A bit for each address of a /16.
    let bitmap = (era == Era::Bitmap).then_some(8192);
    Moves { external_ips, shadows, batches: services.div_ceil(BATCH), bitmap }.bytes() + OTHERS
}

/// Creates Services, enough that one of them would get an address of the old range if that were open, and deletes them.
async fn a_new_service_gets_a_new_address(serving: &Serving, name: &str) {
    for number in 0..NEW_SERVICES {
        let (name, ports) = (format!("{name}-{number}"), json!({"ports": [{"port": 80}]}));
        let created = serving.cluster.api.create_service("default", &name, ports).await;
        let address = created["spec"]["clusterIP"].as_str().unwrap_or_default();
        assert!(address.starts_with("10.200."), "{created}");
        serving.cluster.api.delete(&format!("/api/v1/namespaces/default/services/{name}")).await;
    }
}

async fn services(serving: &Serving) -> Vec<Value> {
    serving.cluster.api.list("/api/v1/services").await
}

/// Names and uids.
async fn identities(serving: &Serving) -> Vec<(Value, Value)> {
    let metadata =
        |service: &Value| (service["metadata"]["name"].clone(), service["metadata"]["uid"].clone());
    services(serving).await.iter().map(metadata).collect()
}

async fn no_held_address_can_be_taken(serving: &Serving, addresses: &[Value]) {
    for address in addresses {
        let taken = json!({"clusterIP": address, "ports": [{"port": 80}]});
        let name = json!({"name": "thief", "namespace": "default"});
        let thief = json!({"apiVersion": "v1", "kind": "Service", "metadata": name, "spec": taken});
        let error =
            serving.cluster.api.try_create(&thief).await.expect_err("a held address is free").to_string();
        // A bitmap has only the new range now.
        let words = ["already allocated", "not in the valid range", "does not match the current range"];
        assert!(words.iter().any(|words| error.contains(words)), "{address}: {error}");
    }
}

/// Updates a part of each Service, and replaces each Service.
async fn every_service_accepts_an_update(serving: &Serving) {
    for service in services(serving).await {
        let of = |field: &str| service["metadata"][field].as_str().unwrap_or_default().to_owned();
        let path = format!("/api/v1/namespaces/{}/services/{}", of("namespace"), of("name"));
        let change = json!({"metadata": {"labels": {"updated": "yes"}}});
        let mut updated = serving.cluster.api.merge(&path, &change).await;
        updated["metadata"]["labels"]["replaced"] = json!("yes");
        let replaced = serving.cluster.api.replace(&updated).await;
        assert_eq!(replaced["spec"], service["spec"], "{path}: the Service keeps its fields");
        assert_eq!(replaced["metadata"]["labels"]["replaced"], "yes", "{path}");
    }
}

async fn nothing_is_left(serving: &Serving, era: Era) {
    serving.assert_clean();
    gone(serving).await;
    assert!(serving.cluster.etcd.keys("/netsurgeon/").await.is_empty(), "nothing of netsurgeon is left");
    for service in services(serving).await {
        assert_eq!(service["spec"]["externalIPs"], Value::Null, "{service}");
        assert_eq!(service["spec"]["externalTrafficPolicy"], Value::Null, "{service}");
    }
    if era != Era::Bitmap {
        let ranges = serving.cluster.api.list("/apis/networking.k8s.io/v1/servicecidrs").await;
        let ranges: Vec<_> = ranges.iter().map(|range| range["spec"]["cidrs"].clone()).collect();
        assert_eq!(ranges, [json!([NEW_RANGE])]);
    }
}
