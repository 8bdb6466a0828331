//! A renumbering for which netsurgeon reissues the API server's certificate, and sees by itself that it is served: no
//! `--confirm` of it. Clients in a pod verify the API server by the addresses of `default/kubernetes`, old and new.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use netsurgeon::certs::{Name, certificates, is_trusted, is_valid_for};
use netsurgeon::cluster::served;
use time::OffsetDateTime;
use tokio::time::sleep;

use super::rig::cluster::Era;
use super::rig::namespace::Worker;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::serving::{DEADLINE, NEW_RANGE, Serving};

/// How often a client opens a connection.
const PERIOD: Duration = Duration::from_millis(10);

/// What a client has met with: connections, and what went wrong last.
#[derive(Debug, Default)]
struct Tally {
    good: usize,
    failed: usize,
    last: String,
}

/// A client in a pod that opens a connection after the other to one address, as clients of `KUBERNETES_SERVICE_HOST` do.
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
                    // An API server that was started again is an endpoint a moment later.
                    Err(error) => {
                        tally.failed += usize::from(tally.good > 0);
                        tally.last = error;
                    }
                }
            }
        });
        let client = Self { tally, worker };
        wait_until("the client gets through", DEADLINE, async || {
            let tally = client.tally.lock().unwrap();
            if tally.good > 0 { Ok(()) } else { Err(format!("{tally:?}")) }
        })
        .await;
        client
    }

    /// Returns how many connections there were; fails if one was not good.
    fn stop(mut self) -> usize {
        self.worker.stop();
        let tally = self.tally.lock().unwrap();
        assert_eq!(tally.failed, 0, "{}", tally.last);
        tally.good
    }
}

async fn connect(address: &str, authorities: &[Vec<u8>]) -> Result<(), String> {
    let chain = served(&format!("{address}:443"), None, Duration::from_secs(5)).await?;
    is_trusted(&chain[0], &chain[1..], authorities, OffsetDateTime::now_utc())
        .map_err(|error| error.to_string())?;
    is_valid_for(&chain[0], &Name::Address(address.parse().unwrap())).map_err(|error| error.to_string())
}

#[tokio::test]
async fn reissued_and_seen_by_netsurgeon_alone() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let folder = serving.cluster.directory().display().to_string();
    let reissue = format!(
        "certs reissue --yes --cert {folder}/apiserver-0.crt --key {folder}/apiserver-0.key --ca-cert {folder}/ca.crt \
         --ca-key {folder}/ca.key"
    );
    let words = serving.apply_words().replace("--confirm certificates", "");
    let paused = serving.netsurgeon(&words).expect(6);
    assert!(paused.err.contains("does not carry `10.200.0.1`"), "it says what is missing: {}", paused.err);

    let old = Client::start(&serving, "10.96.0.1").await;
    serving.netsurgeon(&format!("{reissue} --for-cidr {NEW_RANGE} --new-key")).expect(0);
    serving.netsurgeon(&format!("certs verify --cidr 10.96.0.0/16 --cidr {NEW_RANGE} --wait 90")).expect(0);
    let operation = serving.journals().remove(0);
    let paused = serving.netsurgeon(&format!("operation resume {operation}")).expect(6);
    assert!(paused.err.contains("certificates: seen to be done"), "{}", paused.err);
    assert!(paused.err.contains("--confirm flags"), "{}", paused.err);
    let new = Client::start(&serving, "10.200.0.1").await;
    println!("connections to 10.96.0.1: {}, to 10.200.0.1: {}", old.stop(), new.stop());

    // What the rig would make for the new range alone is not what is to be served.
    let pair = ["apiserver-0.crt", "apiserver-0.key"].map(|file| serving.cluster.directory().join(file));
    let ours = pair.clone().map(|file| std::fs::read(file).unwrap());
    serving.cluster.set_service_cidrs(NEW_RANGE);
    for (file, content) in pair.iter().zip(ours) {
        std::fs::write(file, content).unwrap();
    }
    serving.cluster.restart_api_server(0).await;
    serving.netsurgeon(&format!("operation resume {operation} --confirm flags")).expect(0);
    let (old, new) =
        (Client::start(&serving, "10.96.0.1").await, Client::start(&serving, "10.200.0.1").await);
    println!("and afterwards: {}, {}", old.stop(), new.stop());
    let retire = "renumber retire --yes --confirm soak --confirm kubeadm-config";
    let open = serving.netsurgeon(retire).expect(6);
    assert!(open.err.contains("still carries `10.96.0.1`"), "{}", open.err);
    serving.netsurgeon(&format!("{reissue} --drop-old 10.96.0.0/16")).expect(0);
    serving.netsurgeon("certs verify --without-cidr 10.96.0.0/16 --wait 90").expect(0);
    let done = serving.netsurgeon(retire).expect(0);
    assert!(done.err.contains("certificates-after: seen to be done"), "{}", done.err);
    println!("after the old address has gone: {}", Client::start(&serving, "10.200.0.1").await.stop());
    serving.assert_clean();
}
