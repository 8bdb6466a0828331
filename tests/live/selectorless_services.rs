//! Services without a selector, whose old addresses shadows hold: no controller creates endpoints for these shadows, so
//! netsurgeon copies them, and the guard keeps the copies in step.

use serde_json::{Value, json};

use super::guard::{guard, told};
use super::rig::cluster::Era;
use super::rig::echo::PORT;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::report::Target;
use super::serving_cluster::{DEADLINE, Serving};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// Creates a Service whose endpoints people manage.
pub async fn create(serving: &Serving, name: &str, more: Value, endpoints: &[Value]) {
    let port = |protocol: &str, port: u16| json!({"name": protocol.to_lowercase(), "protocol": protocol, "port": port});
    let mut spec = json!({"ports": [port("TCP", 80), port("UDP", 80)]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serving.cluster.api.create_service("default", name, spec).await;
    let labels =
        json!({"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "people"});
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("{name}-by-hand"), "namespace": "default", "labels": labels},
        "ports": [port("TCP", PORT), port("UDP", PORT)], "endpoints": endpoints,
    });
    serving.cluster.api.create(&slice).await;
}

/// Replaces the endpoints of such a Service.
pub async fn change(serving: &Serving, name: &str, endpoints: &[Value]) {
    serving.cluster.api.merge(&format!("{SLICES}/{name}-by-hand"), &json!({"endpoints": endpoints})).await;
}

async fn slices(serving: &Serving, selector: &str) -> Vec<Value> {
    serving.cluster.api.list(&format!("{SLICES}?labelSelector={selector}")).await
}

/// The endpoints of a Service.
pub async fn endpoints(serving: &Serving, service: &str) -> Vec<Value> {
    let slices = slices(serving, &format!("kubernetes.io/service-name={service}")).await;
    slices.iter().flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default()).collect()
}

/// The shadow that holds a Service's old address.
async fn shadow(serving: &Serving, of: &str) -> String {
    let services = serving.cluster.api.list("/api/v1/namespaces/default/services").await;
    let is_its = |service: &&Value| service["metadata"]["annotations"]["netsurgeon.io/stands-in-for"] == of;
    let found = services.iter().find(is_its).unwrap_or_else(|| panic!("no shadow of {of}"));
    found["metadata"]["name"].as_str().unwrap().to_string()
}

/// The garbage collector deletes the copies after their Service.
pub async fn gone(serving: &Serving) {
    wait_until("the copies of endpoints are deleted", DEADLINE, async || {
        let left = slices(serving, "endpointslice.kubernetes.io/managed-by=netsurgeon").await;
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

/// kube-proxy before 1.36 in mode nftables cannot hold by an external IP, so every Service has a shadow, also
/// `default/kubernetes`.
#[tokio::test]
async fn shadows_without_a_selector_have_copied_endpoints() {
    let mut serving = Serving::start(Era::Bitmap, ProxyMode::Nftables).await;
    let web = endpoints(&serving, "web").await;
    assert_eq!(web.len(), 2, "{web:?}");
    create(&serving, "outside", json!({"clusterIP": "10.96.0.7"}), &web).await;
    create(&serving, "doors", json!({"clusterIP": "10.96.0.8", "type": "NodePort"}), &web).await;
    // No UDP to a Service that loses an endpoint: kube-proxy 1.32 deletes the flows of thousands of datagrams one by one, which
    // takes minutes, and applies nothing meanwhile (kubernetes/kubernetes#135323).
    let old = [Target::tcp("10.96.0.7", 80), Target::udp("10.96.0.8", 80), Target::tcp("10.96.0.8", 80)];
    let new = [Target::tcp("10.200.0.7", 80), Target::tcp("10.200.0.8", 80)];
    let probe = serving.probe(&old).await;
    let operation = serving.apply("").await;
    let trial = serving.probe(&new).await;
    for service in ["outside", "doors", "kubernetes"] {
        let copied = endpoints(&serving, &shadow(&serving, service).await).await;
        assert_eq!(copied, endpoints(&serving, service).await, "{service}");
    }
    serving.netsurgeon("renumber verify").expect(0);
    assert_eq!(guard(&serving, "", 0), Vec::<Value>::new());

    change(&serving, "outside", &[web[1].clone()]).await;
    assert_eq!(told(&guard(&serving, "--dry-run", 3)), ["would-repair shadow-follows default/outside"]);
    let hold = shadow(&serving, "outside").await;
    assert_eq!(endpoints(&serving, &hold).await, web, "a dry run writes nothing");
    assert_eq!(told(&guard(&serving, "", 0)), ["repaired shadow-follows default/outside"]);
    assert_eq!(endpoints(&serving, &hold).await, [web[1].clone()]);
    assert_eq!(guard(&serving, "", 0), Vec::<Value>::new());
    // The guard recreates a deleted shadow and its endpoints; meanwhile the old address does not answer.
    serving.assert_unbroken(&probe.stop(), &old);
    serving.assert_unbroken(&trial.stop(), &new);
    serving.cluster.api.delete(&format!("/api/v1/namespaces/default/services/{hold}")).await;
    let events = told(&guard(&serving, "", 0));
    assert_eq!(
        events.last().map(String::as_str),
        Some("repaired shadow-follows default/outside"),
        "{events:?}"
    );
    assert_eq!(endpoints(&serving, &hold).await, [web[1].clone()]);

    let probe = serving.probe(&old).await;
    // In the bitmap era a rollback changes the flag last.
    let back = format!("operation rollback {operation} --yes --linger 1");
    serving.netsurgeon(&back).expect(6);
    serving.restart_with("10.96.0.0/16").await;
    serving.netsurgeon(&format!("{back} --confirm flags")).expect(0);
    serving.assert_unbroken(&probe.stop(), &old);
    assert_eq!(endpoints(&serving, "outside").await, [web[1].clone()], "the clients' endpoints stay");
    gone(&serving).await;
    serving.assert_clean();
}
