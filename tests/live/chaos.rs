//! While a renumbering goes on, clients go on using the API: nothing that they do is lost, and nothing that they do
//! keeps the others from moving.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::proxy::ProxyMode;
use super::serving::{NEW_RANGE, SERVICES, Serving, Watched};

/// Services that are deleted in the middle; none of them is probed.
const DOOMED: usize = 4;

/// Services that are made in the middle: about half of them in the old range.
const BIRTHS: usize = 24;

/// What clients did.
#[derive(Default)]
struct Clients {
    rounds: usize,
    /// The last label of each Service.
    labels: BTreeMap<String, String>,
    /// The last additional port of each Service.
    ports: BTreeMap<String, usize>,
    deleted: BTreeSet<String>,
    born: BTreeSet<String>,
}

impl Clients {
    /// One label, one port, a birth; now and then a deletion.
    async fn act(&mut self, serving: &Serving) {
        self.rounds += 1;
        let round = self.rounds;
        let labelled = format!("web-{}", round % (SERVICES - DOOMED));
        let labels = json!({"metadata": {"labels": {"round": round.to_string()}}});
        serving.cluster.api.merge(&path(&labelled), &labels).await;
        self.labels.insert(labelled, round.to_string());
        // The one that is probed keeps its ports.
        let ported = format!("web-{}", (round * 7) % (SERVICES - DOOMED));
        if ported != "web-6" {
            let ports = json!([{"name": "echo", "port": 80}, {"name": "more", "port": 1000 + round}]);
            serving.cluster.api.merge(&path(&ported), &json!({"spec": {"ports": ports}})).await;
            self.ports.insert(ported, 1000 + round);
        }
        if self.born.len() < BIRTHS {
            self.bear(serving).await;
        }
        let doomed = (SERVICES - DOOMED..SERVICES).nth(self.deleted.len());
        if let Some(doomed) = doomed.filter(|_| round.is_multiple_of(3)) {
            let name = format!("web-{doomed}");
            serving.cluster.api.delete(&path(&name)).await;
            self.deleted.insert(name);
        }
    }

    /// Makes a Service; of a kind that is held by an external IP, or by a shadow. Returns its address.
    async fn bear(&mut self, serving: &Serving) -> String {
        let name = format!("born-{}", self.born.len());
        let kind = if self.born.len().is_multiple_of(2) { "ClusterIP" } else { "NodePort" };
        let spec = json!({"type": kind, "ports": [{"port": 80}], "selector": {"app": name}});
        let made = serving.cluster.api.create_service("default", &name, spec).await;
        self.born.insert(name);
        made["spec"]["clusterIP"].as_str().expect("it has an address").to_string()
    }

    /// Goes on until the program has ended, and returns its exit status with what was done.
    async fn act_while(serving: &Serving, running: &mut Watched) -> (Self, i32) {
        let mut clients = Self::default();
        loop {
            clients.act(serving).await;
            if let Some(code) = running.ended() {
                return (clients, code);
            }
        }
    }
}

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/default/services/{name}")
}

async fn by_name(serving: &Serving) -> BTreeMap<String, Value> {
    let services = serving.cluster.api.list("/api/v1/services").await;
    let name = |service: &Value| service["metadata"]["name"].as_str().unwrap_or_default().to_string();
    services.into_iter().map(|service| (name(&service), service)).collect()
}

/// Every Service that was not deleted has moved, and has what clients gave it.
async fn nothing_was_lost(serving: &Serving, clients: &Clients) {
    let services = by_name(serving).await;
    let addresses: BTreeSet<&str> =
        services.values().filter_map(|service| service["spec"]["clusterIP"].as_str()).collect();
    assert_eq!(addresses.len(), services.len(), "no address is somebody else's, too");
    for (name, label) in &clients.labels {
        assert_eq!(services[name]["metadata"]["labels"]["round"], *label.as_str(), "{name}");
    }
    for (name, port) in &clients.ports {
        assert_eq!(services[name]["spec"]["ports"][1]["port"], *port, "{name}");
    }
    for name in &clients.born {
        assert!(services.contains_key(name), "{name} was made");
    }
    for number in 0..SERVICES - DOOMED {
        let service = &services[&format!("web-{number}")];
        assert_eq!(service["spec"]["clusterIP"], format!("10.200.1.{}", number + 1), "{service}");
    }
}

/// Every Service that was born meanwhile has an address of the new range.
async fn nobody_is_left(serving: &Serving, clients: &Clients) {
    let services = by_name(serving).await;
    for name in &clients.born {
        let address = services[name]["spec"]["clusterIP"].as_str().unwrap_or_default();
        assert!(address.starts_with("10.200."), "{name} has {address}");
    }
}

#[tokio::test]
async fn clients_go_on() {
    Box::pin(go_on(Era::Objects, ProxyMode::Nftables)).await;
}

/// Where there is a bitmap beside the objects, its bits change all the time.
#[tokio::test]
async fn clients_go_on_under_dual_write() {
    Box::pin(go_on(Era::DualWrite, ProxyMode::Iptables)).await;
}

async fn go_on(era: Era, mode: ProxyMode) {
    let mut serving = Serving::start(era, mode).await;
    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    let words = serving.apply_words().replace("--batch-size 10", "--batch-size 2");
    let mut apply = serving.start_netsurgeon(&format!("{words} --max-failures {DOOMED}"));
    serving.wait_for_records(&mut apply, "reserve", 1).await;
    let (mut clients, code) = Clients::act_while(&serving, &mut apply).await;
    println!("{} rounds, deleted {:?}", clients.rounds, clients.deleted);
    assert_eq!(code, 6, "the flag is to be changed");
    assert!(clients.rounds > 20 && clients.deleted.len() == DOOMED, "clients had their time");
    nothing_was_lost(&serving, &clients).await;
    serving.restart_with(NEW_RANGE).await;
    // What was born in the old range is swept.
    let operation = serving.journals().remove(0);
    let resumed = serving.netsurgeon(&format!("operation resume {operation} --confirm flags"));
    assert!([0, 3].contains(&resumed.code), "{}", resumed.err);
    assert!(resumed.err.contains("sweep 1: "), "{}", resumed.err);
    nobody_is_left(&serving, &clients).await;
    serving.assert_unbroken(&probe.stop(), &old);
    // Of those that were deleted nothing is left to be moved.
    let status = serving.netsurgeon("renumber status -o json").expect(0).json();
    assert!(status["next"].as_str().is_some_and(|next| next.contains("renumber retire")), "{status}");

    // A repair loop that sees a Service before its address may delete a reservation: the guard makes it anew.
    serving.netsurgeon("renumber guard --once");
    // The old range is closed, and no other address is given.
    let address = clients.bear(&serving).await;
    assert!(address.starts_with("10.200."), "{address}");
    serving.netsurgeon("renumber guard --once");
    serving.retire();
    serving.assert_clean();
    assert!(serving.cluster.etcd.keys("/netsurgeon/").await.is_empty(), "nothing of ours is left");
    nobody_is_left(&serving, &clients).await;
}
