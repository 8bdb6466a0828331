//! A renumbering for which netsurgeon reissues the API servers' certificates and changes their flags, and verifies both without a
//! confirmation by a person. Meanwhile clients in a Pod verify the API servers continuously by the addresses of
//! `default/kubernetes`, old and new: during the flips, and during each API server's restart.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use netsurgeon::certs::{Name, certificates, is_trusted, is_valid_for};
use netsurgeon::kube_api::presented_certificate;
use time::OffsetDateTime;
use tokio::time::sleep;

use super::rig::cluster::{ClusterOptions, Era};
use super::rig::namespace::Worker;
use super::rig::process::{Process, wait_until};
use super::rig::proxy::ProxyMode;
use super::rig::run::says;
use super::serving_cluster::{DEADLINE, NEW_RANGE, Run, Serving};

/// A kube-proxy retries its API server at least every half minute or so.
const FOLLOWED: Duration = Duration::from_mins(2);
/// How often a client opens a connection.
const PERIOD: Duration = Duration::from_millis(10);
const OLD: &str = "10.96.0.1";
const NEW: &str = "10.200.0.1";

/// The connections of a client, and the last failure.
#[derive(Debug, Default)]
struct Tally {
    good: usize,
    failed: usize,
    last: String,
}

/// A client in a Pod that opens one connection after the other to one address, as clients of `KUBERNETES_SERVICE_HOST` do.
struct Client {
    tally: Arc<Mutex<Tally>>,
    worker: Worker,
}

impl Client {
    async fn start(serving: &Serving, address: &str) -> Self {
        let text = std::fs::read_to_string(serving.cluster.directory().join("ca.crt")).unwrap();
        let authorities: Vec<Vec<u8>> = certificates(&text).unwrap().into_iter().map(|one| one.der).collect();
        let tally = Arc::new(Mutex::new(Tally::default()));
        let (counted, address) = (tally.clone(), address.to_string());
        let worker = serving.client.namespace().work("kubernetes", move |stopped| async move {
            while !*stopped.borrow() {
                sleep(PERIOD).await;
                let outcome = connect(&address, &authorities).await;
                let mut tally = counted.lock().unwrap();
                match outcome {
                    Ok(()) => tally.good += 1,
                    Err(error) => {
                        tally.failed += 1;
                        tally.last = error;
                    }
                }
            }
        });
        let client = Self { tally, worker };
        wait_until("the client connects", DEADLINE, async || {
            let tally = client.tally.lock().unwrap();
            if tally.good > 0 { Ok(()) } else { Err(format!("{tally:?}")) }
        })
        .await;
        client
    }

    /// Returns the number of connections; fails if one of them failed.
    fn stop(mut self) -> usize {
        self.worker.stop();
        let tally = self.tally.lock().unwrap();
        assert_eq!(tally.failed, 0, "{}", tally.last);
        tally.good
    }
}

async fn connect(address: &str, authorities: &[Vec<u8>]) -> Result<(), String> {
    let chain = presented_certificate(&format!("{address}:443"), None).await?;
    is_trusted(&chain[0], &chain[1..], authorities, OffsetDateTime::now_utc())
        .map_err(|error| error.to_string())?;
    is_valid_for(&chain[0], &Name::Address(address.parse().unwrap())).map_err(|error| error.to_string())
}

/// A component of Kubernetes in a Pod, which verifies the API server with Go's `crypto/x509` by an address of
/// `default/kubernetes`, and writes a Lease once it is connected.
async fn a_component_gets_through(serving: &Serving, address: &str) {
    let cluster = &serving.cluster;
    let name = format!("by-{}", address.replace('.', "-"));
    let kubeconfig = cluster.write(&name, &cluster.kubeconfig_for(&format!("https://{address}:443")));
    let log = cluster.directory().join(format!("{name}.log"));
    let arguments = [
        "kube-controller-manager".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--leader-elect-resource-name={name}"),
        "--secure-port=0".to_owned(),
        "--controllers=ttl-after-finished-controller".to_owned(),
    ];
    let program = cluster.version().program();
    let mut process = Process::start_in(serving.client.namespace(), &name, &program, &arguments, &log);
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}");
    let lease = async || cluster.api.find(&path).await.map(drop).ok_or_else(|| "no Lease".to_string());
    let outcome = process.ready("the component has its Lease", DEADLINE, lease).await;
    outcome.unwrap_or_else(|message| panic!("{address}: {message}"));
    cluster.api.delete(&path).await;
}

/// The hosts of a control plane with two API servers, each with its certificate and its manifest.
pub struct Hosts {
    pub manifests: Vec<PathBuf>,
}

impl Hosts {
    /// Reissues the certificate of each API server, and waits until it is served.
    pub fn reissue(&self, serving: &Serving, changes: &str, then: &str) {
        let folder = serving.cluster.directory().display().to_string();
        for number in 0..self.manifests.len() {
            let own = format!("--cert {folder}/apiserver-{number}.crt --key {folder}/apiserver-{number}.key");
            let authority = format!("--ca-cert {folder}/ca.crt --ca-key {folder}/ca.key");
            serving.netsurgeon(&format!("certs reissue --yes {own} {authority} {changes}")).expect(0);
        }
        serving.netsurgeon(&format!("certs verify {then} --wait 90")).expect(0);
    }

    /// Changes the flag of one API server after the other.
    pub async fn set_range(&self, serving: &mut Serving, to: &str) {
        for (number, folder) in self.manifests.iter().enumerate() {
            let words = format!("controlplane set-range --to {to} --yes --manifests {}", folder.display());
            serving.netsurgeon(&words).expect(0);
            serving.cluster.obey_manifests(number).await;
            serving.netsurgeon("controlplane wait --timeout 120").expect(0);
            every_node_leads_to_both(serving).await;
            let others = if number + 1 < self.manifests.len() { 3 } else { 0 };
            serving.netsurgeon("controlplane show --no-host").expect(others);
        }
        serving.netsurgeon(&format!("controlplane wait --range {to}")).expect(0);
    }
}

/// The kube-proxies of the rig connect to the first API server only, and retry it at longer and longer intervals while it is
/// down.
async fn every_node_leads_to_both(serving: &Serving) {
    wait_until("every node routes to both API servers", FOLLOWED, async || {
        for node in &serving.cluster.nodes {
            let rules = ["iptables-save", "nft list ruleset"].map(|command| {
                let words: Vec<&str> = command.split(' ').collect();
                node.namespace().run(words[0], &words[1..])
            });
            for server in &serving.cluster.api_servers {
                // As the target of a translation: empty chains of deleted endpoints stay for a while.
                let (port, address) =
                    (server.url().rsplit(':').next().unwrap().to_string(), server.advertised());
                let targets = [format!(" {address}:{port}"), format!("{address} . {port}")];
                if !targets.iter().any(|target| rules.iter().any(|rules| rules.contains(target))) {
                    let seen = rules.concat();
                    let seen: Vec<&str> = seen.lines().filter(|line| line.contains(&address)).collect();
                    return Err(format!("{} does not route to {address}: {seen:?}", node.name));
                }
            }
        }
        Ok(())
    })
    .await;
}

/// Two API servers that continue to serve for a moment after SIGTERM, until no node routes to them.
pub async fn start(era: Era, mode: ProxyMode) -> (Serving, Hosts) {
    let mut options = ClusterOptions::new(era);
    options.api_servers = 2;
    options.certified_cidrs.clear();
    options.api_server_flags.push("--shutdown-delay-duration=5s".to_string());
    let mut serving = Serving::start_on(options, mode).await;
    let manifests = serving.cluster.write_manifests().await;
    (serving, Hosts { manifests })
}

/// Asserts that a run paused at a manual step that is not complete, because of this address or range.
fn paused_at(run: &Run, name: &str, present: &str) {
    assert_eq!(run.code, 6, "{}", run.err);
    says(&run.err, &["paused: ", &format!("`{name}`"), &format!("--confirm {name}")]);
    says(&run.err, &[&format!("{name}: "), present]);
}

async fn by_netsurgeon_alone(era: Era, mode: ProxyMode) {
    let (mut serving, hosts) = start(era, mode).await;
    let words = serving.apply_words().replace("--confirm certificates", "");
    paused_at(&serving.netsurgeon(&words), "certificates", "`10.200.0.1`");
    let operation = serving.journals().remove(0);
    let resume = format!("operation resume {operation}");
    let denied = serving.netsurgeon(&format!("{resume} --confirm certificates"));
    says(&denied.err, &["`certificates`", "192.0.2.1", "`10.200.0.1`"]);
    paused_at(&denied, "certificates", "`10.200.0.1`");

    let old = Client::start(&serving, OLD).await;
    hosts.reissue(
        &serving,
        &format!("--for-cidr {NEW_RANGE} --new-key"),
        &format!("--cidr 10.96.0.0/16 --cidr {NEW_RANGE}"),
    );
    let paused = serving.netsurgeon(&resume);
    says(&paused.err, &["certificates: ", "verified"]);
    paused_at(&paused, "flags", "`10.96.0.0/16`");
    // In the bitmap era the flag comes first, and nothing has moved yet.
    let mut new = None;
    if era != Era::Bitmap {
        new = Some(Client::start(&serving, NEW).await);
    }
    hosts.set_range(&mut serving, NEW_RANGE).await;
    let applied = serving.netsurgeon(&resume).expect(0);
    says(&applied.err, &["flags: ", "verified"]);
    let new = match new {
        Some(new) => new,
        None => Client::start(&serving, NEW).await,
    };
    for address in [OLD, NEW] {
        a_component_gets_through(&serving, address).await;
    }

    println!("connections to {OLD}: {}", old.stop());
    let retire = "renumber retire --without-evidence --yes --confirm soak";
    paused_at(&serving.netsurgeon(retire), "certificates-after", "`10.96.0.1`");
    hosts.reissue(&serving, "--drop-old 10.96.0.0/16", "--without-cidr 10.96.0.0/16");
    let done = serving.netsurgeon(retire).expect(0);
    says(&done.err, &["certificates-after: ", "verified"]);
    println!("connections to {NEW}: {}", new.stop());
    serving.assert_clean();
    nothing_is_left_to_be_done(&serving);
}

/// The last check of the runbook is the same as the first one.
fn nothing_is_left_to_be_done(serving: &Serving) {
    let looked = serving.netsurgeon(&format!("preflight renumber --to {NEW_RANGE} -o json")).json();
    for check in looked["checks"].as_array().expect("checks") {
        assert_ne!(check["verdict"], "fail", "{check}");
        if ["plan", "policies", "pinned"].iter().any(|name| check["name"] == *name) {
            assert_eq!(check["verdict"], "pass", "{check}");
            says(&check["observed"].to_string(), &["no Service", NEW_RANGE]);
        }
    }
}

#[tokio::test]
async fn renumber_verifies_certificates_and_flags() {
    by_netsurgeon_alone(Era::Objects, ProxyMode::Nftables).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn renumber_verifies_certificates_and_flags_in_the_bitmap_era() {
    by_netsurgeon_alone(Era::Bitmap, ProxyMode::Iptables).await;
}

/// A rollback from the end changes the flags too, and verifies them.
#[tokio::test]
async fn rollback_verifies_the_flags() {
    let (mut serving, hosts) = start(Era::Objects, ProxyMode::Nftables).await;
    hosts.reissue(&serving, &format!("--for-cidr {NEW_RANGE}"), &format!("--cidr {NEW_RANGE}"));
    paused_at(&serving.netsurgeon(&serving.apply_words()), "flags", "`10.96.0.0/16`");
    let operation = serving.journals().remove(0);
    hosts.set_range(&mut serving, NEW_RANGE).await;
    serving.netsurgeon(&format!("operation resume {operation}")).expect(0);

    let old = Client::start(&serving, OLD).await;
    let rollback = format!("operation rollback {operation} --yes --linger 1");
    paused_at(&serving.netsurgeon(&rollback), "flags", "`10.200.0.0/16`");
    hosts.set_range(&mut serving, "10.96.0.0/16").await;
    let back = serving.netsurgeon(&rollback).expect(0);
    says(&back.err, &["flags: ", "verified"]);
    assert!(back.err.contains("`netsurgeon certs reissue --drop-ip 10.200.0.1`"), "{}", back.err);
    println!("connections to {OLD}: {}", old.stop());
    serving.wait_for_one_range().await;
    serving.assert_clean();
    let mut manifests: Vec<PathBuf> =
        hosts.manifests.iter().map(|folder| folder.join("kube-apiserver.yaml")).collect();
    manifests.push(hosts.manifests[0].join("kube-controller-manager.yaml"));
    for manifest in manifests {
        let text = std::fs::read_to_string(manifest).unwrap();
        assert!(
            text.contains("--service-cluster-ip-range=10.96.0.0/16\n") && text.contains("# changed by hand")
        );
    }
}
