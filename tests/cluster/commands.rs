//! The commands on live clusters: their output for a healthy one, and what `ranges rewrite` repairs.

use std::process::Command;

use serde_json::{Value, json};

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::etcd::EtcdOptions;
use super::rig::run::says;
pub(super) use super::rig::run::{Run, run};

pub(super) const BITMAP: &str = "/registry/ranges/serviceips";

/// Runs netsurgeon against the cluster's etcd, with nothing else in its environment.
pub(super) fn netsurgeon(cluster: &Cluster, arguments: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
    command.env_clear().args(arguments);
    if arguments.first() != Some(&"rehearse") {
        command.env("ETCDCTL_ENDPOINTS", cluster.etcd.endpoint());
        if let Some(tls) = cluster.etcd.tls() {
            command.env("ETCDCTL_CACERT", &tls.authority);
            command.env("ETCDCTL_CERT", &tls.client.certificate).env("ETCDCTL_KEY", &tls.client.key);
        }
    }
    run(&arguments.join(" "), command)
}

pub(super) fn ok(cluster: &Cluster, arguments: &[&str]) -> Run {
    let run = netsurgeon(cluster, arguments);
    assert_eq!(run.code, 0, "netsurgeon {}: {}{}", arguments.join(" "), run.out, run.err);
    run
}

fn codes(cluster: &Cluster) -> Vec<String> {
    let findings = netsurgeon(cluster, &["ranges", "check", "-o", "json"]).json();
    let code = |finding: &Value| format!("{} {}", finding["code"], finding["subject"]).replace('"', "");
    findings["findings"].as_array().unwrap().iter().map(code).collect()
}

pub(super) async fn with_services(options: ClusterOptions) -> Cluster {
    let cluster = Cluster::start(options).await;
    for (name, address) in [("web", "10.96.0.5"), ("far", "10.96.200.7")] {
        let spec = json!({"clusterIP": address, "selector": {"app": name}, "ports": [{"port": 80}]});
        cluster.api.create_service("default", name, spec).await;
    }
    let node_port =
        json!({"type": "NodePort", "selector": {"app": "np"}, "ports": [{"port": 80, "nodePort": 30007}]});
    cluster.api.create_service("default", "np", node_port).await;
    cluster
}

/// Every reading command on a live cluster, and a rehearsal on a snapshot of it.
async fn reading_commands(options: ClusterOptions, era: &str) {
    let cluster = with_services(options).await;
    assert_eq!(codes(&cluster), Vec::<String>::new());
    let shown = ok(&cluster, &["ranges", "show"]);
    assert!(shown.out.contains("10.96.0.0/16") && shown.out.contains(era), "{}", shown.out);
    let service = ok(&cluster, &["inspect", "get", "service", "default/web", "-o", "json"]);
    assert!(service.out.contains("10.96.0.5"));
    assert!(ok(&cluster, &["inspect", "list", "--kind", "Service"]).out.contains("default/web"));
    let plan = ok(&cluster, &["renumber", "plan", "--to", "10.200.0.0/16", "-o", "json"]).json();
    let moves = plan["moves"].as_array().unwrap();
    let kubernetes = moves.iter().find(|m| m["name"] == "kubernetes").unwrap();
    assert_eq!(kubernetes["new"], json!(["10.200.0.1"]));
    let far = moves.iter().find(|m| m["name"] == "far").unwrap();
    assert_eq!((&far["old"], &far["new"]), (&json!(["10.96.200.7"]), &json!(["10.200.200.7"])));
    let file = cluster.directory().join("live.snapshot.db");
    cluster.etcd.snapshot(&file);
    let file = file.to_str().unwrap();
    let rehearsed = ok(&cluster, &["rehearse", file, "--to", "10.200.0.0/16", "-o", "json"]).json();
    assert_eq!(rehearsed["rollback"], "identical");
    assert_eq!(rehearsed["findings_after"], json!([]));
    assert_eq!(rehearsed["moved"], moves.len());
}

#[tokio::test]
async fn reading_commands_work_in_objects_era_over_mutual_tls() {
    let mut options = ClusterOptions::new(Era::Objects);
    options.etcd = EtcdOptions { mutual_tls: true, ..EtcdOptions::default() };
    reading_commands(options, "objects").await;
}

#[tokio::test]
async fn reading_commands_work_in_bitmap_era() {
    reading_commands(ClusterOptions::new(Era::Bitmap), "bitmap").await;
}

/// Bits that were cleared and set by hand are found, shown and repaired; then the repair is undone.
#[tokio::test]
async fn drifted_bitmap_is_repaired_and_repair_undone() {
    let mut cluster = with_services(ClusterOptions::new(Era::DualWrite)).await;
    cluster.stop_api_servers();
    let healthy = cluster.etcd.get(BITMAP).await.unwrap();
    cluster.etcd.put(BITMAP, drifted(&healthy)).await;
    let broken = [
        "bit-without-service RangeAllocation serviceips 10.96.0.9",
        "service-without-bit Service default/web",
    ];
    assert_eq!(codes(&cluster), broken);
    let table = netsurgeon(&cluster, &["ranges", "check"]);
    assert_eq!(table.code, 3, "findings: {}", table.err);
    assert!(table.out.contains("service-without-bit") && table.out.contains("10.96.0.5"), "{}", table.out);
    a_broken_cluster_is_rehearsed(&cluster);

    let dry = ok(&cluster, &["ranges", "rewrite", "--dry-run", "-o", "json"]).json();
    assert_eq!(
        (&dry["status"], &dry["allocated"], &dry["freed"]),
        (&json!("planned"), &json!(["10.96.0.5"]), &json!(["10.96.0.9"]))
    );
    assert_eq!(codes(&cluster), broken, "a dry run writes nothing");
    let refused = netsurgeon(&cluster, &["ranges", "rewrite"]);
    assert_eq!(refused.code, 1, "without a terminal nothing is changed: {}", refused.err);
    assert_eq!(codes(&cluster), broken);

    let done = ok(&cluster, &["ranges", "rewrite", "--yes", "-o", "json"]).json();
    assert_eq!(codes(&cluster), Vec::<String>::new());
    assert_eq!(cluster.etcd.get(BITMAP).await.unwrap(), healthy, "every byte is as the API server wrote it");
    ok(&cluster, &["ranges", "rewrite", "--yes"]);

    let operation = done["operation"].as_str().unwrap();
    ok(&cluster, &["ranges", "rewrite", "--undo", operation, "--yes"]);
    assert_eq!(codes(&cluster), broken);
    ok(&cluster, &["ranges", "rewrite", "--yes"]);
    cluster.start_api_servers().await;
    assert_eq!(codes(&cluster), Vec::<String>::new());
}

/// Findings from before do not make a rehearsal fail, and its rollback restores them with everything else.
fn a_broken_cluster_is_rehearsed(cluster: &Cluster) {
    let file = cluster.directory().join("broken.snapshot.db");
    cluster.etcd.snapshot(&file);
    let run =
        ok(cluster, &["rehearse", file.to_str().unwrap(), "--to", "10.200.0.0/16", "-o", "json"]).json();
    assert_eq!(run["findings_before"].as_array().map(Vec::len), Some(2));
    assert_eq!((&run["findings_after"], &run["rollback"]), (&json!([]), &json!("identical")));
}

/// Clears the bit of .5 and sets that of .9: `data` is field 3, the last one before the envelope's end.
pub(super) fn drifted(value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    let lowest = value.len() - 5;
    value[lowest] &= !(1 << 4);
    value[lowest - 1] |= 1;
    value
}

/// On a 1.33 cluster every static allocation fails once the flag has changed, until the bitmap has the new range; then it works,
/// without a restart.
#[tokio::test]
async fn rewrite_restores_static_allocation_under_dual_write() {
    let mut cluster = with_services(ClusterOptions::new(Era::DualWrite)).await;
    cluster.stop_api_servers();
    cluster.set_service_cidrs("10.200.0.0/16");
    cluster.start_api_servers().await;
    cluster.start_controllers();
    let range = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": "more"}, "spec": {"cidrs": ["10.200.0.0/16"]},
    });
    cluster.api.create(&range).await;
    wait_for_allocation(&cluster, "dynamic").await;

    let asked = static_service("asked");
    let error = cluster.api.try_create(&asked).await.unwrap_err().to_string();
    assert!(error.contains("does not match the current range"), "{error}");
    let rewritten =
        ok(&cluster, &["ranges", "rewrite", "--to", "10.200.0.0/16", "--yes", "-o", "json"]).json();
    assert_eq!(rewritten["range_after"], "10.200.0.0/16");
    let made = cluster.api.create(&asked).await;
    assert_eq!(made["spec"]["clusterIP"], "10.200.0.42");
    let again = static_service("again");
    assert!(cluster.api.try_create(&again).await.is_err(), "the address is taken");
}

fn static_service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": name},
        "spec": {"clusterIP": "10.200.0.42", "ports": [{"port": 80}]},
    })
}

/// Waits until the new ServiceCIDR allocates addresses.
async fn wait_for_allocation(cluster: &Cluster, name: &str) {
    super::rig::process::wait_until(
        "an address of the new range",
        std::time::Duration::from_mins(1),
        async || {
            let path = format!("/api/v1/namespaces/default/services/{name}");
            if cluster.api.find(&path).await.is_some() {
                cluster.api.delete(&path).await;
            }
            let service = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": name},
                "spec": {"ports": [{"port": 80}]},
            });
            let made = cluster.api.try_create(&service).await.map_err(|error| error.to_string())?;
            let address = made["spec"]["clusterIP"].as_str().unwrap_or_default().to_string();
            if address.starts_with("10.200.") { Ok(()) } else { Err(format!("given `{address}`")) }
        },
    )
    .await;
}

/// A cluster of the objects era has no bitmap to rewrite, and netsurgeon reports it.
#[tokio::test]
async fn objects_era_has_nothing_to_rewrite() {
    let cluster = with_services(ClusterOptions::new(Era::Objects)).await;
    let run = netsurgeon(&cluster, &["ranges", "rewrite", "--yes"]);
    assert_eq!(run.code, 1);
    says(&run.err, &["IPAddress"]);
}
