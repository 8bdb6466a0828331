//! The cluster's Lease, by which operations of every kind exclude each other: a renumbering that loses it stops.

use http::Method;
use serde_json::json;

use super::rig::cluster::Era;
use super::rig::proxy::ProxyMode;
use super::rig::run::says;
use super::serving_cluster::{Serving, lines_of};

#[tokio::test]
async fn renumber_stops_when_another_operation_takes_the_lease() {
    let serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let words = serving.apply_words().replace("--batch-size 10", "--batch-size 2 --lock-ttl 3");
    let mut running = serving.start_netsurgeon(&words);
    serving.wait_for_records(&mut running, "flip", 3).await;
    // Another process takes the Lease, as if it had not been renewed for its duration.
    let taken = json!({"spec": {"holderIdentity": "ops@other/7/dns-1/1800000000", "leaseTransitions": 9}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/netsurgeon";
    let patched =
        serving.cluster.api.request(Method::PATCH, path, "application/merge-patch+json", Some(&taken));
    patched.await.expect("the Lease exists");
    assert_eq!(running.end().await, 6, "the operation is paused");
    let said = lines_of(&running.err).join("\n");
    says(&said, &["`kube-system/netsurgeon`", "`ops@other` (pid 7)", "`dns-1`"]);
    let sentinels = serving.cluster.api.list("/api/v1/namespaces/kube-system/services").await;
    assert!(sentinels.is_empty(), "an abandoned barrier leaves nothing: {sentinels:?}");
    // No process renews the Lease: the process that resumes takes it then.
    let operation = serving.journals().remove(0);
    let resumed = serving.netsurgeon(&format!("operation resume {operation}")).expect(6);
    says(&resumed.err, &["`ops@other` (pid 7)"]);
}
