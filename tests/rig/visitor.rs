//! A client of a name: it resolves the name again for every request, connects by HTTPS to one of the addresses, chosen at random,
//! and counts the answers. It runs in its own thread.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use netsurgeon::nameserver::{RecordKind, Server};
use rand::seq::IndexedRandom as _;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::balancer::certificates;

/// Pause between two requests: about a hundred requests a second.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a request may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What a client has seen: how often each body, and every failure.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub bodies: BTreeMap<String, usize>,
    pub failures: Vec<String>,
}

impl Seen {
    fn count(&mut self, outcome: Result<String, String>) {
        match outcome {
            Ok(body) => *self.bodies.entry(body).or_default() += 1,
            Err(reason) => self.failures.push(reason),
        }
    }

    pub fn all(&self) -> usize {
        self.bodies.values().sum()
    }

    /// The share of the answers with this body.
    pub fn share(&self, body: &str) -> f64 {
        let count = |number: usize| f64::from(u32::try_from(number).unwrap());
        count(self.bodies.get(body).copied().unwrap_or_default()) / count(self.all().max(1))
    }
}

/// A running client.
pub struct Visitor {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Visitor {
    /// Starts one that visits a name. `authority`: the file of the CA that it trusts.
    pub fn start(name: &str, resolver: SocketAddr, authority: &Path) -> Self {
        let (seen, stop) = (Arc::new(Mutex::new(Seen::default())), Arc::new(AtomicBool::new(false)));
        let (shared, asked) = (seen.clone(), stop.clone());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authority) {
            roots.add(certificate).expect("a CA");
        }
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("a protocol version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (connector, name) = (TlsConnector::from(Arc::new(config)), name.to_owned());
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let resolver = Server::new(resolver, None);
                while !asked.load(Ordering::Relaxed) {
                    let outcome = timeout(LIMIT, visit(&name, &resolver, &connector)).await;
                    let outcome = outcome.unwrap_or_else(|_| Err("no answer".to_owned()));
                    shared.lock().unwrap().count(outcome);
                    tokio::time::sleep(PAUSE).await;
                }
            });
        });
        Self { seen, stop, thread: Some(thread) }
    }

    /// What it has seen since the last call.
    pub fn take(&self) -> Seen {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    /// How many answers it has seen since the last call of [`Self::take`].
    pub fn count(&self) -> usize {
        self.seen.lock().unwrap().all()
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn visit(name: &str, resolver: &Server, connector: &TlsConnector) -> Result<String, String> {
    let answer = resolver.resolve(name, RecordKind::A).await.map_err(|error| error.to_string())?;
    let addresses = answer.of(RecordKind::A);
    let address = addresses.choose(&mut rand::rng()).ok_or("the name has no address")?;
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let stream = TcpStream::connect(format!("{address}:443")).await.map_err(failed)?;
    let server = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
    let mut stream = connector.connect(server, stream).await.map_err(failed)?;
    let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.map_err(failed)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
        _ => Err(format!("{address}: {answer}")),
    }
}
