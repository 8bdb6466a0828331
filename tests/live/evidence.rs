//! Evidence from the nodes before old addresses are retired: a client that used one for an instant is named. The objects of
//! `deploy/` are created in the API, real controllers create their Pods, and each Pod's container runs in the network of its
//! node, with its service account.

use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use http::Method;
use rustix::net::sockopt::set_socket_linger;
use serde_json::{Value, json};

use super::rig::api::Api;
use super::rig::cluster::{ClusterOptions, Era};
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::run::says;
use super::roles;
use super::serving_cluster::{DEADLINE, ENDING, Run, Serving, Watched, lines_of, run};

const NAMESPACE: &str = "netsurgeon-evidence";
/// How long each node listens at least, in seconds.
const LISTENED: i64 = 3;

/// Creates the objects of a file of `deploy/`, edited by `edit`.
async fn deploy(serving: &Serving, file: &str, edit: impl Fn(String) -> String) {
    let path = format!("{}/deploy/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = edit(std::fs::read_to_string(path).expect("the manifests"));
    for part in text.split("\n---\n") {
        serving.cluster.api.apply(&serde_saphyr::from_str(part).expect("an object")).await;
    }
}

/// Waits until the controllers have created a Pod for each node; returns the nodes' names with their Pods, sorted by name.
async fn pods(serving: &Serving, owner: &str) -> Vec<(String, Value)> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let count = serving.cluster.nodes.len();
    let found = wait_until("a Pod for each node", DEADLINE, async || {
        let mut pods = serving.cluster.api.list(&path).await;
        pods.retain(|pod| pod["metadata"]["ownerReferences"][0]["kind"] == owner);
        if pods.len() == count { Ok(pods) } else { Err(format!("{} Pods of a {owner}", pods.len())) }
    })
    .await;
    let at = |(index, pod): (usize, &Value)| {
        let affinity = &pod["spec"]["affinity"];
        let field = "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
        if let Some(node) = affinity.pointer(field).and_then(Value::as_str) {
            return (node.to_string(), pod.clone());
        }
        // A Pod of a Job runs on a node without another one.
        let apart = &affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
        let name = "app.kubernetes.io/name";
        assert_eq!(apart["labelSelector"]["matchLabels"][name], pod["metadata"]["labels"][name]);
        assert_eq!(apart["topologyKey"], "kubernetes.io/hostname");
        (format!("node-{}", index + 1), pod.clone())
    };
    let mut found: Vec<_> = found.iter().enumerate().map(at).collect();
    // The API lists Pods by their own names, which end in random characters.
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

/// Runs the container of a Pod on its node, with another argument.
async fn start(serving: &Serving, node: &str, pod: &Value, other: &str) -> Watched {
    let index: usize = node.trim_start_matches("node-").parse().expect("a node of the rig's");
    let container = &pod["spec"]["containers"][0];
    let mut command = Command::new("nsenter");
    let network = serving.cluster.nodes[index - 1].namespace().path();
    command.env_clear().args([&format!("--net={network}"), "--"]).arg(env!("CARGO_BIN_EXE_netsurgeon"));
    let (name, _) = other.split_once('=').expect("a value");
    let arguments = container["args"].as_array().expect("arguments").iter();
    let arguments = arguments.map(|word| word.as_str().expect("a text"));
    command.args(arguments.filter(|word| !word.starts_with(name))).arg(other);
    let from =
        container["env"].as_array().expect("an environment").iter().find(|one| one["name"] == "NODE_NAME");
    assert_eq!(from.expect("a variable")["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName");
    command.env("NODE_NAME", node);
    command.env("KUBECONFIG", serving.cluster.kubeconfig_of_pod(pod, node).await);
    Watched::start(command)
}

/// The connections that the nodes have observed, as the operator gets them.
fn gathered(serving: &Serving, words: &str) -> Run {
    let words = format!("audit --old 10.96.0.0/16 --gather {words}");
    roles::by(serving, "olga", Some("netsurgeon-operators"), &words)
}

/// Waits until both nodes have listened for a while, and the first has observed the required number of connections.
async fn until_seen(
    serving: &Serving,
    running: &[Watched],
    connections: i64,
    mut meanwhile: impl FnMut(),
) -> Value {
    wait_until("the nodes have observed it", DEADLINE, async || {
        meanwhile();
        let seen = gathered(serving, "-o json").json();
        let document = |index: usize| seen["documents"][index].clone();
        let heard = |document: &Value| {
            let [start, end] = ["began", "ended"].map(|name| moment(&document[name]));
            end - start
        };
        let count = document(0)["used"][0]["clients"][0]["begun"].as_i64().unwrap_or(0);
        if [0, 1].iter().all(|index| heard(&document(*index)) >= LISTENED) && count >= connections {
            return Ok(seen);
        }
        let said: Vec<_> = running.iter().map(|one| lines_of(&one.err)).collect();
        Err(format!("{seen} {said:?}"))
    })
    .await
}

fn moment(value: &Value) -> i64 {
    let format = &time::format_description::well_known::Rfc3339;
    let read = |text| time::OffsetDateTime::parse(text, format).expect("a time").unix_timestamp();
    value.as_str().map_or(0, read)
}

#[tokio::test]
async fn short_use_of_an_old_address_is_reported() {
    let options = ClusterOptions { controllers_as_themselves: true, ..ClusterOptions::new(Era::Objects) };
    let mut serving = Serving::start_on(options, ProxyMode::Nftables).await;
    serving.apply("").await;
    let retire = format!("renumber retire --yes {ENDING} --evidence-age 600 --quiet-for");
    let refused = serving.netsurgeon(&format!("{retire} 600")).expect(1);
    says(&refused.err, &["2 of 2 Nodes", "`node-1`"]);
    assert!(refused.err.contains("deploy/evidence.yaml"), "{}", refused.err);

    roles::install(&serving).await;
    deploy(&serving, "evidence.yaml", |text| text).await;
    let mut running = Vec::new();
    let of_nodes = pods(&serving, "DaemonSet").await;
    for (node, pod) in &of_nodes {
        running.push(start(&serving, node, pod, "--publish-every=1").await);
    }
    // A connection that is reset at once leaves nothing in the kernel's table after a few seconds.
    let client = serving.client.namespace().clone();
    let reset = move || {
        client.within(|| {
            let stream = TcpStream::connect("10.96.0.5:80").expect("the old address answers");
            set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket");
        });
    };
    let seen = until_seen(&serving, &running, 3, reset).await;
    let own = serving.client.addresses()[0].to_string();
    assert_eq!(seen["documents"][0]["node"], "node-1");
    assert_eq!(seen["documents"][0]["used"][0]["clients"][0]["address"], own, "{seen}");
    assert_eq!(seen["documents"][1]["used"], json!([]), "the other node has the servers only");
    assert!(gathered(&serving, "").expect(3).out.contains(&own));
    let refused = serving.netsurgeon(&format!("{retire} 600")).expect(1);
    says(&refused.err, &[&format!("{own} "), "`node-1`", "10.96.0.5 tcp port 80"]);
    drop(running);

    a_node_writes_its_own_evidence_only(&serving, &of_nodes[0].1).await;
    nothing_is_heard_where_nothing_is_told(&serving);
    nobody_uses_one_any_more(&serving, &retire).await;
    serving.assert_clean();
}

/// The manifest's policy rejects evidence of another node, and evidence by other clients with permission to write ConfigMaps
/// there.
async fn a_node_writes_its_own_evidence_only(serving: &Serving, pod: &Value) {
    let cluster = &serving.cluster;
    let text = |path: &str| pod.pointer(path).and_then(Value::as_str).expect("the Pod has the field");
    let file = cluster.directory().join(format!("{NAMESPACE}-{}.conf", text("/metadata/name")));
    let node = cluster.api_by(&file).await;
    let without_node = cluster.api_as_service_account(NAMESPACE, text("/spec/serviceAccountName")).await;
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": "edith", "namespace": NAMESPACE},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "edith"}],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:aggregate-to-edit"},
    });
    cluster.api.create(&binding).await;
    let editor = cluster.api_as(0, "edith", None).await;

    let maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let marked = json!({"netsurgeon.io/part": "evidence"});
    let map = |name: &str, labels: &Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}});
    let create = async |api: &Api, name: &str, labels: &Value| {
        api.request(Method::POST, &maps, "application/json", Some(&map(name, labels))).await.map(drop)
    };
    let patch = async |api: &Api, name: &str| {
        let change = json!({"metadata": {"annotations": {"changed": "yes"}}});
        let path = format!("{maps}/{name}");
        api.request(Method::PATCH, &path, "application/merge-patch+json", Some(&change)).await.map(drop)
    };
    // Roles and policies are in force a moment after they are created.
    wait_until("the binding is in force", DEADLINE, async || {
        create(&editor, "notes", &json!({})).await.map_err(|error| error.to_string())
    })
    .await;
    wait_until("the policy is in force", DEADLINE, async || {
        patch(&node, "node-2")
            .await
            .map_or_else(|_| Ok(()), |()| Err("the API server permits it".to_string()))
    })
    .await;
    let refusals = [
        (patch(&node, "node-2").await, "the token of Node node-1 does not write the evidence of Node node-2"),
        (create(&node, "node-3", &marked).await, "the token of Node node-1 does not write the evidence of"),
        (
            create(&node, "node-3", &json!({})).await,
            "the token of Node node-1 does not write the evidence of",
        ),
        (patch(&without_node, "node-1").await, "the token of no Node does not write the evidence of"),
        (create(&editor, "node-3", &marked).await, "evidence is written by the Pods of the ServiceAccount"),
        (patch(&editor, "node-2").await, "evidence is written by the Pods of the ServiceAccount"),
    ];
    for (outcome, reason) in refusals {
        let error = outcome.expect_err(reason).to_string();
        assert!(error.contains("ValidatingAdmissionPolicy") && error.contains(reason), "{error}");
    }
    patch(&node, "node-1").await.expect("a node writes its own evidence");
    patch(&editor, "notes").await.expect("other ConfigMaps are not restricted");
    patch(&cluster.api, "node-2").await.expect("the administrator can write evidence");
}

/// A kernel that reports no events gives no evidence.
fn nothing_is_heard_where_nothing_is_told(serving: &Serving) {
    let network = serving.cluster.nodes[1].namespace().path();
    let listen = |events: &str| {
        let script = format!(
            "echo {events} > /proc/sys/net/netfilter/nf_conntrack_events && exec \"$0\" audit --old 10.96.0.0/16 --host --flows --for 1"
        );
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={network}")).args(["--", "sh", "-c", &script]);
        command.arg(env!("CARGO_BIN_EXE_netsurgeon"));
        run("audit --flows", command)
    };
    let refused = listen("0").expect(1);
    says(&refused.err, &["127.0.0.1", "`net.netfilter.nf_conntrack_events`"]);
    listen("2").expect(0);
}

/// The same again as a Job, while no client uses an old address.
async fn nobody_uses_one_any_more(serving: &Serving, retire: &str) {
    let of_two = |text: String| {
        text.replace("completions: 3", "completions: 2").replace("parallelism: 3", "parallelism: 2")
    };
    deploy(serving, "evidence-job.yaml", of_two).await;
    let mut running = Vec::new();
    for (node, pod) in pods(serving, "Job").await {
        running.push(start(serving, &node, &pod, &format!("--for={LISTENED}")).await);
    }
    for pod in &mut running {
        assert_eq!(pod.end().await, 0);
    }
    let seen = gathered(serving, "-o json").expect(0);
    let mut half = seen.json();
    half["documents"].as_array_mut().expect("documents").truncate(1);
    let half = serving.cluster.write("half.json", &half.to_string());
    let missing = serving.netsurgeon(&format!("{retire} {LISTENED} --evidence {}", half.display())).expect(1);
    says(&missing.err, &["1 of 2 Nodes", "`node-2`"]);
    what_cannot_be_read_is_no_evidence(serving, &format!("{retire} {LISTENED}")).await;
}

/// A node with unreadable evidence blocks only what waits for its evidence.
async fn what_cannot_be_read_is_no_evidence(serving: &Serving, retire: &str) {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/node-2");
    let api = &serving.cluster.api;
    api.merge(&path, &json!({"data": {"evidence.json": "ok"}})).await;
    let found = gathered(serving, "-o json").expect(3);
    assert_eq!(found.json()["missing"], json!(["node-2"]));
    says(&found.err, &["configmap node-2`"]);
    let refused = serving.netsurgeon(retire).expect(1);
    says(&refused.err, &["1 of 2 Nodes", "`node-2`"]);
    let done = serving.netsurgeon(&format!("{retire} --without-evidence-of node-2")).expect(0);
    says(&done.err, &["configmap node-2`"]);
}
