//! Evidence from the nodes before old addresses are given up: who used one for an instant is named.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use netsurgeon::audit::evidence::documents;
use rustix::net::sockopt::set_socket_linger;
use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::serving::{DEADLINE, ENDING, Serving};

/// How long each node listens, in seconds.
const LISTENED: u64 = 4;

/// What the manifest has each node do, for a shorter time.
fn arguments() -> Vec<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/evidence.yaml");
    let manifest: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(file).expect("a file")).expect("a manifest");
    let arguments = manifest.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
    let words = arguments.expect("arguments").iter().map(|word| word.as_str().expect("a text").to_string());
    words.map(|word| word.replace("--for=600", &format!("--for={LISTENED}"))).collect()
}

/// Begins to listen on each node, with logs such as a kubelet keeps.
fn listen(serving: &Serving) -> Vec<(Child, PathBuf)> {
    let begin = |(index, node): (usize, &super::rig::network::Node)| {
        let path = serving.cluster.directory().join(format!("evidence-{index}.log"));
        let file = std::fs::File::create(&path).expect("a file");
        let mut command = Command::new("nsenter");
        command.env_clear().args([&format!("--net={}", node.namespace().path()), "--"]);
        command.arg(env!("CARGO_BIN_EXE_netsurgeon"));
        command.args(arguments()).env("NODE_NAME", format!("node-{}", index + 1));
        command.stderr(file.try_clone().expect("a handle")).stdout(file);
        (command.spawn().expect("netsurgeon starts"), path)
    };
    serving.cluster.nodes.iter().enumerate().map(begin).collect()
}

/// Waits until all have listened, and does something meanwhile again and again; returns exit statuses and files.
async fn listened(nodes: Vec<(Child, PathBuf)>, mut meanwhile: impl FnMut()) -> Vec<(i32, PathBuf)> {
    let mut ended = Vec::new();
    for (mut child, path) in nodes {
        let code = wait_until("a node has listened", DEADLINE, async || {
            meanwhile();
            let status = child.try_wait().expect("a child");
            status.and_then(|status| status.code()).ok_or_else(|| "it listens".to_string())
        })
        .await;
        ended.push((code, path));
    }
    ended
}

#[tokio::test]
async fn who_used_an_old_address_for_an_instant_is_named() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    serving.apply("").await;
    let client = serving.client.namespace().clone();
    // A connection that is reset as soon as it is there leaves nothing in the kernel's table after a few seconds.
    let reset = move || {
        client.within(|| {
            let stream = TcpStream::connect("10.96.0.5:80").expect("the old address answers");
            set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket");
        });
    };
    let heard = listened(listen(&serving), reset).await;
    let document = |(_, path): &(i32, PathBuf)| {
        let found = documents(&std::fs::read_to_string(path).expect("a file")).expect("a document");
        serde_json::to_value(&found[0]).expect("JSON")
    };
    let documents: Vec<Value> = heard.iter().map(document).collect();
    let own = serving.client.address().to_string();
    let users = |document: &Value| document.pointer("/used/0/clients/0/address").cloned();
    let [here, elsewhere] = [0, 1].map(|index| (heard[index].0, users(&documents[index])));
    assert_eq!(here, (3, Some(json!(own))), "{}", documents[0]);
    assert_eq!(elsewhere, (0, None), "the other node has the servers only: {}", documents[1]);
    assert!(documents[0]["used"][0]["clients"][0]["begun"].as_u64() > Some(1), "{}", documents[0]);

    let retire = |quiet: u64, files: &[(i32, PathBuf)]| {
        let files: Vec<String> =
            files.iter().map(|(_, path)| format!("--evidence {}", path.display())).collect();
        format!("renumber retire --yes {ENDING} --quiet-for {quiet} --evidence-age 600 {}", files.join(" "))
    };
    let refused = serving.netsurgeon(&retire(600, &heard)).expect(1);
    let named = format!("on `node-1` {own} used the old address 10.96.0.5 tcp port 80");
    assert!(refused.err.contains(&named), "{}", refused.err);

    let quiet = listened(listen(&serving), || {}).await;
    assert_eq!(quiet.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [0, 0]);
    let missing = serving.netsurgeon(&retire(LISTENED - 1, &quiet[..1])).expect(1);
    assert!(missing.err.contains("no evidence of 1 of 2 Nodes; the first is `node-2`"), "{}", missing.err);
    serving.netsurgeon(&retire(LISTENED - 1, &quiet)).expect(0);
    serving.assert_clean();
}
