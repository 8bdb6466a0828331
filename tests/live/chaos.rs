//! Clients use the API during a renumbering: their changes are not lost, and do not prevent other Services from moving.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::proxy::ProxyMode;
use super::rig::run::says;
use super::serving_cluster::{NEW_RANGE, SERVICES, Serving, Watched};

/// Services that are deleted during the move; none of them is probed.
const DOOMED: usize = 4;

/// Services that are created during the move: about half of them in the old range.
const BIRTHS: usize = 24;

/// The changes of the clients.
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
    /// Changes one label and one port, creates a Service, and now and then deletes one.
    async fn act(&mut self, serving: &Serving) {
        self.rounds += 1;
        let round = self.rounds;
        let labelled = format!("web-{}", round % (SERVICES - DOOMED));
        let labels = json!({"metadata": {"labels": {"round": round.to_string()}}});
        serving.cluster.api.merge(&path(&labelled), &labels).await;
        self.labels.insert(labelled, round.to_string());
        // The probed Service keeps its ports.
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

    /// Creates a Service of a kind that an external IP holds, or a shadow. Returns its address.
    async fn bear(&mut self, serving: &Serving) -> String {
        let name = format!("born-{}", self.born.len());
        let kind = if self.born.len().is_multiple_of(2) { "ClusterIP" } else { "NodePort" };
        let spec = json!({"type": kind, "ports": [{"port": 80}], "selector": {"app": name}});
        let made = serving.cluster.api.create_service("default", &name, spec).await;
        self.born.insert(name);
        made["spec"]["clusterIP"].as_str().expect("it has an address").to_string()
    }

    /// Runs until the program has ended; returns the changes and the program's exit status.
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

/// Every Service that was not deleted has moved, and has the clients' changes.
async fn nothing_was_lost(serving: &Serving, clients: &Clients) {
    let services = by_name(serving).await;
    let addresses: BTreeSet<&str> =
        services.values().filter_map(|service| service["spec"]["clusterIP"].as_str()).collect();
    assert_eq!(addresses.len(), services.len(), "no address has two owners");
    for (name, label) in &clients.labels {
        assert_eq!(services[name]["metadata"]["labels"]["round"], *label.as_str(), "{name}");
    }
    for (name, port) in &clients.ports {
        assert_eq!(services[name]["spec"]["ports"][1]["port"], *port, "{name}");
    }
    for name in &clients.born {
        assert!(services.contains_key(name), "{name} was created");
    }
    for number in 0..SERVICES - DOOMED {
        let service = &services[&format!("web-{number}")];
        assert_eq!(service["spec"]["clusterIP"], format!("10.200.1.{}", number + 1), "{service}");
    }
}

/// Every Service that was created meanwhile has an address of the new range.
async fn nobody_is_left(serving: &Serving, clients: &Clients) {
    let services = by_name(serving).await;
    for name in &clients.born {
        let address = services[name]["spec"]["clusterIP"].as_str().unwrap_or_default();
        assert!(address.starts_with("10.200."), "{name} has {address}");
    }
}

#[tokio::test]
async fn client_changes_survive_a_renumbering() {
    Box::pin(go_on(Era::Objects, ProxyMode::Nftables)).await;
}

/// The bits of a bitmap beside the objects change all the time.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn client_changes_survive_a_renumbering_under_dual_write() {
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
    assert_eq!(code, 6, "the operation waits for the flag");
    assert!(clients.rounds > 20 && clients.deleted.len() == DOOMED, "clients made enough changes");
    nothing_was_lost(&serving, &clients).await;
    serving.restart_with(NEW_RANGE).await;
    // The sweep moves Services that were created in the old range.
    let operation = serving.journals().remove(0);
    let resumed = serving.netsurgeon(&format!("operation resume {operation} --confirm flags"));
    assert!([0, 3].contains(&resumed.code), "{}", resumed.err);
    says(&resumed.err, &["sweep 1"]);
    nobody_is_left(&serving, &clients).await;
    serving.assert_unbroken(&probe.stop(), &old);
    // Of the deleted Services nothing is left to move.
    let status = serving.netsurgeon("renumber status -o json").expect(0).json();
    assert!(status["next"].as_str().is_some_and(|next| next.contains("renumber retire")), "{status}");

    // A repair loop that observes a Service before its address may delete a reservation: the guard recreates it.
    serving.netsurgeon("renumber guard --once");
    // The old range is closed: the allocator gives addresses of the new range only.
    let address = clients.bear(&serving).await;
    assert!(address.starts_with("10.200."), "{address}");
    serving.netsurgeon("renumber guard --once");
    serving.retire();
    serving.assert_clean();
    assert!(serving.cluster.etcd.keys("/netsurgeon/").await.is_empty(), "nothing of netsurgeon is left");
    nobody_is_left(&serving, &clients).await;
}
