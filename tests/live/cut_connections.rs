//! A renumbering whose connections are cut at random: those of kube-proxy to the API, and those of netsurgeon to etcd, where an
//! answer to a write is lost now and then.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;
use tokio::time::sleep;

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::network::gateway;
use super::rig::process::wait_until;
use super::rig::proxy::{ProxyMode, ProxyOptions};
use super::rig::relay::Relay;
use super::rig::report::Target;
use super::rig::run::says;
use super::serving_cluster::{DEADLINE, LOOK, NEW_RANGE, SERVICES, Serving, Watched, lines_of};

/// How many connections of kube-proxies are cut at least: each after a random number of bytes, and now and then all of them.
const CUTS: usize = 10;
/// How many answers to writes are lost, at most and at least: the operation continues between two checks on a busy machine.
const LOST: [usize; 2] = [8, 4];
/// After how many more records of steps connections are cut.
const PROGRESS: usize = 8;
/// After how many more records the next answer is lost.
const LOSES_AFTER: usize = 2;
/// The number of API requests during which nothing must move.
const LOOKS: usize = 20;

/// The old and the new address of a Service.
fn both(number: usize) -> [Target; 2] {
    ["10.96.1", "10.200.1"].map(|range| Target::tcp(&format!("{range}.{}", number + 1), 80))
}

/// While no kube-proxy gets an update, the operation waits at its barrier, and nothing flips.
async fn waits_at_a_barrier(serving: &Serving, apply: &mut Watched, relay: &Relay) {
    relay.be_silent(true);
    let path = "/api/v1/services?labelSelector=app.kubernetes.io/managed-by=netsurgeon";
    wait_until("there is a sentinel", DEADLINE, async || {
        let sentinels = serving.cluster.api.list(path).await;
        if sentinels.is_empty() { Err(format!("{:?}", lines_of(&apply.err).last())) } else { Ok(()) }
    })
    .await;
    for _ in 0..LOOKS {
        assert_eq!(serving.cluster.api.list(path).await.len(), 1, "it waits at the same barrier");
        assert_eq!(records(serving, "flip").await, 0, "no Service has moved");
        assert_eq!(apply.ended(), None);
    }
    relay.be_silent(false);
    relay.cut();
}

async fn records(serving: &Serving, kind: &str) -> usize {
    let keys = serving.cluster.etcd.keys("/netsurgeon/").await;
    keys.iter().filter(|key| key.contains(&format!("/steps/{kind}"))).count()
}

/// Cuts all connections after each further progress, until everything has moved and the operation waits for the flags. Returns
/// how often.
async fn cut_to_the_end(serving: &Serving, relay: &Relay, apply: &mut Watched) -> usize {
    let (mut cuts, mut seen) = (0, 0);
    let end = wait_until("netsurgeon ends", DEADLINE, async || {
        let written = records(serving, "").await;
        if written >= seen + PROGRESS {
            relay.cut();
            (cuts, seen) = (cuts + 1, written);
        }
        apply.ended().ok_or_else(|| format!("{:?}", lines_of(&apply.err).last()))
    });
    assert_eq!(end.await, 6);
    cuts
}

#[tokio::test]
async fn kube_proxies_miss_nothing_of_an_apply_when_cut_off() {
    let cluster = Cluster::start(ClusterOptions { nodes: 2, ..ClusterOptions::new(Era::Objects) }).await;
    let relay = Relay::start_at(gateway().into(), &cluster.api_servers[0].url().replace("https://", ""));
    let options = ProxyOptions {
        server: Some(format!("https://{}", relay.address())),
        ..ProxyOptions::new(ProxyMode::Nftables)
    };
    let proxies = cluster.start_proxies_as(&options).await;
    let serving = Serving::furnish(cluster, proxies).await;
    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    let mut apply = serving.start_netsurgeon(&serving.apply_words());
    serving.wait_for_records(&mut apply, "reserve", 1).await;
    waits_at_a_barrier(&serving, &mut apply, &relay).await;
    relay.cut_after(Some(3000..30000));
    let cuts = cut_to_the_end(&serving, &relay, &mut apply).await;
    println!("all connections cut {cuts} times, {} more by chance", relay.cuts());
    assert!(cuts > 0 && cuts + relay.cuts() >= CUTS, "{cuts}, {}", relay.cuts());
    relay.cut_after(None);
    serving.assert_unbroken(&probe.stop(), &old);
    // Verified rules are in force, so each address answers at once, on both nodes.
    for number in 0..SERVICES {
        for target in both(number) {
            serving.client.ask(target).unwrap_or_else(|error| panic!("{target}: {error}"));
        }
    }
    serving.netsurgeon("renumber verify").expect(0);
}

/// Runs the program with these arguments, with its etcd behind a relay.
pub fn behind(relay: &Relay, serving: &Serving, words: &str) -> Watched {
    println!("$ netsurgeon {words} & (behind a relay)");
    let mut command: Command = serving.command(words);
    command.env("ETCDCTL_ENDPOINTS", relay.address());
    Watched::start(command)
}

/// How often each Service and IPAddress was written since it was created, and its present value.
async fn written(serving: &Serving) -> BTreeMap<String, (i64, Value)> {
    let mut written = BTreeMap::new();
    let kinds = [
        ("/api/v1/services", "/registry/services/specs"),
        ("/apis/networking.k8s.io/v1/ipaddresses", "/registry/ipaddresses"),
    ];
    let mut etcd = serving.cluster.etcd.client().await;
    for (path, prefix) in kinds {
        for mut object in serving.cluster.api.list(path).await {
            let metadata = object["metadata"].as_object_mut().expect("metadata");
            let namespace = metadata.get("namespace").and_then(Value::as_str).map(|name| format!("/{name}"));
            let name = metadata["name"].as_str().expect("a name");
            let key = format!("{prefix}{}/{name}", namespace.unwrap_or_default());
            for field in ["resourceVersion", "managedFields", "creationTimestamp", "uid"] {
                metadata.remove(field);
            }
            let answer = etcd.get(key.as_str(), None).await.expect("etcd answers");
            let version = answer.kvs().first().expect("the key exists").version();
            written.insert(key, (version, object));
        }
    }
    written
}

/// Loses the answer to the next write of a step's record. Returns whether there was one before the end.
async fn lose_an_answer(serving: &Serving, relay: &Relay, apply: &mut Watched) -> bool {
    relay.be_silent_from("\"state\":\"");
    wait_until("a step is written, or it has ended", DEADLINE, async || {
        if relay.is_silent() || apply.ended().is_some() { Ok(()) } else { Err("neither".to_owned()) }
    })
    .await;
    let lost = relay.is_silent();
    // The write is stored, and no client receives the answer.
    for _ in 0..LOOKS {
        records(serving, "").await;
    }
    relay.be_silent(false);
    relay.cut();
    lost
}

/// Loses an answer after each further progress, until the program ends. Returns the exit status.
async fn disturb(serving: &Serving, relay: &Relay, apply: &mut Watched, lost: &mut usize) -> i32 {
    let mut seen = 0;
    loop {
        if let Some(code) = apply.ended() {
            return code;
        }
        if *lost < LOST[0] && records(serving, "").await >= seen + LOSES_AFTER {
            *lost += usize::from(lose_an_answer(serving, relay, apply).await);
            seen = records(serving, "").await;
        }
        sleep(LOOK).await;
    }
}

/// Applies behind the relay to the end. Returns how many answers were lost.
async fn to_the_end(serving: &Serving, relay: &Relay, words: &str) -> usize {
    let mut apply = behind(relay, serving, words);
    serving.wait_for_records(&mut apply, "reserve", 1).await;
    let other = serving.netsurgeon("renumber apply --to 10.201.0.0/16 --no-snapshot --yes").expect(1);
    says(&other.err, &[&format!("`{}`", serving.journals()[0]), "(running)", "(pid "]);
    relay.cut_after(Some(500..50000));
    let mut lost = 0;
    for _ in 0..LOOKS {
        let code = disturb(serving, relay, &mut apply, &mut lost).await;
        if code == 6 && lines_of(&apply.err).iter().any(|line| line.contains("--confirm flags")) {
            println!("{lost} answers lost, {} connections cut besides", relay.cuts());
            return lost;
        }
        let said = lines_of(&apply.err);
        assert!([5, 6].contains(&code), "{code}: {said:?}");
        assert!(said.iter().any(|line| line.contains("netsurgeon operation resume")), "{said:?}");
        let operation = serving.journals().remove(0);
        let words = format!("operation resume {operation} --confirm certificates");
        apply = behind(relay, serving, &words);
    }
    panic!("the apply does not end");
}

/// A second apply meanwhile is refused, and the refusal names the running operation.
#[tokio::test]
async fn commit_is_not_repeated_when_its_answer_is_lost() {
    let serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let old = Serving::targets();
    let start = written(&serving).await;
    serving.netsurgeon(&serving.apply_words()).expect(6);
    let undisturbed = written(&serving).await;
    serving.netsurgeon("renumber rollback --yes --linger 0 --confirm flags").expect(0);
    serving.netsurgeon(&format!("operation forget {}", serving.journals().remove(0))).expect(0);
    serving.wait_for_one_range().await;

    let before = written(&serving).await;
    let relay = Relay::start(&serving.cluster.etcd.endpoint().replace("http://", ""));
    let probe = serving.probe(&old).await;
    let words = serving.apply_words().replace("before.db", "again.db");
    let lost = to_the_end(&serving, &relay, &words).await;
    serving.assert_unbroken(&probe.stop(), &old);
    assert!(lost >= LOST[1], "{lost} answers lost");
    let after = written(&serving).await;
    assert_eq!(after.keys().collect::<Vec<_>>(), undisturbed.keys().collect::<Vec<_>>());
    let zero = (0, Value::Null);
    for (key, (version, object)) in &after {
        let since = |before: &BTreeMap<String, (i64, Value)>| before.get(key).unwrap_or(&zero).0;
        let (writes, object_undisturbed) = &undisturbed[key];
        assert_eq!(object, object_undisturbed, "{key}");
        assert_eq!(version - since(&before), writes - since(&start), "{key} was written more often");
    }
    assert!(serving.cluster_ip("web").await.starts_with(NEW_RANGE.trim_end_matches("0.0/16")));
    serving.netsurgeon("renumber verify").expect(0);
}
