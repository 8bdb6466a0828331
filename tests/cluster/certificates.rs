//! `netsurgeon certs` against running API servers: what they serve while their certificate is reissued under load.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use netsurgeon::certs::{Name, certificates, is_trusted, is_valid_for};
use netsurgeon::kube_api::presented_certificate;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::process::wait_until;

const OLD: &str = "10.96.0.1";
const NEW: &str = "10.200.0.1";
/// How often a client opens a connection.
const PERIOD: Duration = Duration::from_millis(2);
/// An API server reads its files when inotify reports a change, else once a minute.
const RELOAD: Duration = Duration::from_secs(90);

/// Runs netsurgeon; returns its stdout as JSON, and its stderr.
fn netsurgeon(cluster: &Cluster, arguments: &str, expected: i32) -> (Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
    command.env_clear().args(arguments.split_whitespace()).current_dir(cluster.directory());
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("$ netsurgeon {arguments}\n{out}{err}[{:?}]", output.status.code());
    assert_eq!(output.status.code(), Some(expected), "netsurgeon {arguments}: {out}{err}");
    assert!(!out.contains("PRIVATE KEY") && !err.contains("PRIVATE KEY"));
    (serde_json::from_str(&out).unwrap_or_default(), err.into_owned())
}

fn files(number: usize) -> String {
    format!("--cert apiserver-{number}.crt --key apiserver-{number}.key --ca-cert ca.crt --ca-key ca.key")
}

/// A client that opens one connection after the other, and checks the served certificate like clients that dial an address.
struct Client {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    task: JoinHandle<Tally>,
}

/// What the client found.
#[derive(Debug, Default)]
struct Tally {
    handshakes: usize,
    failures: Vec<String>,
    /// Whether each certificate had the new address.
    with_new: Vec<bool>,
    /// Whether each had the old one.
    with_old: Vec<bool>,
}

impl Client {
    fn start(at: SocketAddr, authority: &Path) -> Self {
        let text = std::fs::read_to_string(authority).unwrap();
        let authorities: Vec<Vec<u8>> = certificates(&text).unwrap().into_iter().map(|one| one.der).collect();
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let task = tokio::spawn(Self::run(at, authorities, stop.clone(), count.clone()));
        Self { stop, count, task }
    }

    async fn run(
        at: SocketAddr,
        authorities: Vec<Vec<u8>>,
        stop: Arc<AtomicBool>,
        count: Arc<AtomicUsize>,
    ) -> Tally {
        let mut tally = Tally::default();
        while !stop.load(Ordering::Relaxed) {
            sleep(PERIOD).await;
            tally.handshakes += 1;
            count.store(tally.handshakes, Ordering::Relaxed);
            let chain = match presented_certificate(&at.to_string(), None).await {
                Ok(chain) => chain,
                Err(error) => {
                    tally.failures.push(error);
                    continue;
                }
            };
            if let Err(error) = is_trusted(&chain[0], &chain[1..], &authorities, OffsetDateTime::now_utc()) {
                tally.failures.push(error.to_string());
            }
            let valid =
                |address: &str| is_valid_for(&chain[0], &Name::Address(address.parse().unwrap())).is_ok();
            tally.with_new.push(valid(NEW));
            tally.with_old.push(valid(OLD));
        }
        tally
    }

    /// Stops it after some handshakes.
    async fn stop(self) -> Tally {
        wait_until("more than 20 handshakes", RELOAD, async || {
            let count = self.count.load(Ordering::Relaxed);
            if count > 20 { Ok(()) } else { Err(count.to_string()) }
        })
        .await;
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("a client does not panic")
    }
}

fn address(cluster: &Cluster, number: usize) -> SocketAddr {
    cluster.api_servers[number].url().trim_start_matches("https://").parse().unwrap()
}

/// Returns the number of changes.
fn changes(seen: &[bool]) -> usize {
    seen.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn certificates_of_two_api_servers_are_reissued_under_load() {
    let mut options = ClusterOptions::new(Era::Objects);
    options.api_servers = 2;
    options.certified_cidrs.clear();
    let cluster = Cluster::start(options).await;
    let authority = cluster.directory().join("ca.crt");
    let clients: Vec<Client> =
        (0..2).map(|number| Client::start(address(&cluster, number), &authority)).collect();
    let servers =
        (0..2).map(|number| format!("--server {}", address(&cluster, number))).collect::<Vec<_>>().join(" ");
    let verify = format!("certs verify -o json {servers} --ca-cert ca.crt --cidr 10.96.0.0/16");

    let (shown, _) = netsurgeon(&cluster, &format!("certs show -o json {servers} --cidr 10.200.0.0/16"), 3);
    assert_eq!(shown["certificates"][0]["file"], address(&cluster, 0).to_string());
    assert_eq!(shown["findings"][1]["code"], "certificate-lacks-address");
    let (found, _) = netsurgeon(&cluster, &format!("{verify} --cidr 10.200.0.0/16"), 3);
    assert_eq!(found["findings"].as_array().map(Vec::len), Some(2), "{found}");
    for number in 0..2 {
        let flag = if number == 0 { "" } else { "--new-key" };
        netsurgeon(
            &cluster,
            &format!("certs reissue {} --for-cidr 10.200.0.0/16 --yes {flag}", files(number)),
            0,
        );
    }
    netsurgeon(&cluster, &format!("{verify} --cidr 10.200.0.0/16 --wait {}", RELOAD.as_secs()), 0);
    for number in 0..2 {
        netsurgeon(&cluster, &format!("certs reissue {} --drop-old 10.96.0.0/16 --yes", files(number)), 0);
    }
    let gone = format!(
        "certs verify {servers} --ca-cert ca.crt --cidr 10.200.0.0/16 --without-cidr 10.96.0.0/16 --name localhost \
         --wait {}",
        RELOAD.as_secs()
    );
    netsurgeon(&cluster, &gone, 0);
    for client in clients {
        let tally = client.stop().await;
        println!("{} handshakes, {} failed", tally.handshakes, tally.failures.len());
        // A restarted server would have refused connections.
        assert!(tally.failures.is_empty(), "{:?}", tally.failures);
        assert_eq!((changes(&tally.with_new), changes(&tally.with_old)), (1, 1), "each address changes once");
        let together = tally.with_new.iter().zip(&tally.with_old).filter(|(new, old)| **new && **old).count();
        assert!(together > 0, "for a while the certificate has both addresses");
    }
}

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    let output = command.args(arguments.split_whitespace()).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The API server reads certificates and keys as Go does (`tls.X509KeyPair`): a running server accepts each kind in each format,
/// and so does a starting one.
#[tokio::test]
async fn api_server_accepts_every_kind_of_key() {
    let mut cluster = Cluster::start(ClusterOptions::new(Era::Objects)).await;
    let folder: PathBuf = cluster.directory().to_path_buf();
    std::fs::write(folder.join("names"), format!("subjectAltName=DNS:kubernetes,IP:{OLD},IP:127.0.0.1\n"))
        .unwrap();
    for (kind, make) in [
        ("RSA 2048", "genrsa -traditional -out made.key 2048"),
        ("RSA 3072", "genrsa -out made.key 3072"),
        ("ECDSA P-256", "ecparam -name prime256v1 -genkey -noout -out made.key"),
        ("ECDSA P-384", "ecparam -name secp384r1 -genkey -out made.key"),
        ("ECDSA P-521", "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-521 -out made.key"),
        ("Ed25519", "genpkey -algorithm ED25519 -out made.key"),
    ] {
        openssl(&folder, make);
        openssl(&folder, "req -new -key made.key -subj /CN=kube-apiserver -out made.csr");
        openssl(
            &folder,
            "x509 -req -in made.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile names -out made.crt",
        );
        netsurgeon(
            &cluster,
            &format!("certs reissue {} --cert-in made.crt --key-in made.key --yes", files(0)),
            0,
        );
        // netsurgeon creates this one, not OpenSSL: both a new key and a new certificate of that kind.
        netsurgeon(
            &cluster,
            &format!("certs reissue {} --new-key --for-cidr 10.200.0.0/16 --yes", files(0)),
            0,
        );
        let serial = {
            let text = std::fs::read_to_string(folder.join("apiserver-0.crt")).unwrap();
            certificates(&text).unwrap().remove(0).serial
        };
        let at = address(&cluster, 0).to_string();
        wait_until(&format!("{kind} is served"), RELOAD, async || {
            let chain = presented_certificate(&at, None).await?;
            let found =
                certificates(&netsurgeon::certs::to_pem(&chain[0])).map_err(|error| error.to_string())?;
            let now = format!("{} {}", found[0].key, found[0].serial);
            if now == format!("{kind} {serial}") { Ok(()) } else { Err(now) }
        })
        .await;
    }
    // The last one: the server starts with it, too.
    cluster.stop_api_servers();
    cluster.start_api_servers().await;
    let shown = netsurgeon(
        &cluster,
        &format!(
            "certs verify -o json --server {} --ca-cert ca.crt --cidr 10.200.0.0/16",
            address(&cluster, 0)
        ),
        0,
    );
    assert_eq!(shown.0["servers"][0]["certificate"]["key"], "Ed25519");
}
