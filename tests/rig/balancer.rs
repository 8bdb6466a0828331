//! The HTTPS load balancer of a cluster: it serves every host, or misbehaves for single ones. It runs in its own thread, because
//! tests wait for the program without running their runtime.

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::pki::Pair;

/// What the load balancer does for a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    Serves,
    /// It answers with this HTTP status.
    Answers(u16),
    /// It accepts the connection and the request, and never answers.
    Hangs,
    /// It presents a certificate for another name.
    ShowsAnotherCertificate,
}

type Behaviours = Arc<Mutex<HashMap<String, Behaviour>>>;

/// A running load balancer. Stopped on drop.
pub struct Balancer {
    behaviours: Behaviours,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Balancer {
    /// Starts one that listens at an address. `right` is its certificate, `other` that for another name. The body of its answers
    /// is `body`.
    pub fn start(at: SocketAddr, body: &str, right: &Pair, other: &Pair) -> Self {
        let behaviours = Behaviours::default();
        let (stop, stopped) = watch::channel(false);
        let presents =
            Presents { behaviours: behaviours.clone(), right: certified(right), other: certified(other) };
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("a protocol version")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(presents));
        let (acceptor, body, shared) =
            (TlsAcceptor::from(Arc::new(config)), body.to_owned(), behaviours.clone());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::bind(at).await.unwrap_or_else(|error| panic!("{at}: {error}"));
                ready.send(()).expect("the test waits");
                serve(listener, acceptor, (body, shared), stopped).await;
            });
        });
        is_ready.recv().expect("the load balancer listens");
        Self { behaviours, stop, thread: Some(thread) }
    }

    /// Sets what it does for a host from now on.
    pub fn behaves(&self, host: &str, behaviour: Behaviour) {
        self.behaviours.lock().unwrap().insert(host.to_owned(), behaviour);
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    (body, behaviours): (String, Behaviours),
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let stream = tokio::select! {
            _ = stopped.changed() => return,
            accepted = listener.accept() => accepted.map(|(stream, _)| stream),
        };
        let (acceptor, body, behaviours) = (acceptor.clone(), body.clone(), behaviours.clone());
        if let Ok(stream) = stream {
            tokio::spawn(async move { answer(stream, &acceptor, &body, &behaviours).await.ok() });
        }
    }
}

async fn answer(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    body: &str,
    behaviours: &Behaviours,
) -> std::io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let host = stream.get_ref().1.server_name().unwrap_or_default().to_owned();
    let (mut request, mut part) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut part).await?;
        if read == 0 {
            return Ok(());
        }
        request.extend_from_slice(&part[..read]);
    }
    let status = match behaviour(behaviours, &host) {
        Behaviour::Hangs => std::future::pending().await,
        Behaviour::Answers(status) => status,
        Behaviour::Serves | Behaviour::ShowsAnotherCertificate => 200,
    };
    let length = body.len();
    let answer =
        format!("HTTP/1.1 {status} Status\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

fn behaviour(behaviours: &Behaviours, host: &str) -> Behaviour {
    behaviours.lock().unwrap().get(host).copied().unwrap_or(Behaviour::Serves)
}

/// Chooses the certificate by the host that the client asks for.
#[derive(Debug)]
struct Presents {
    behaviours: Behaviours,
    right: Arc<CertifiedKey>,
    other: Arc<CertifiedKey>,
}

impl ResolvesServerCert for Presents {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let host = hello.server_name().unwrap_or_default();
        let is_other = behaviour(&self.behaviours, host) == Behaviour::ShowsAnotherCertificate;
        Some(if is_other { self.other.clone() } else { self.right.clone() })
    }
}

fn certified(pair: &Pair) -> Arc<CertifiedKey> {
    let chain = certificates(&pair.certificate);
    let key = PrivateKeyDer::from_pem_file(&pair.key).expect("a key");
    let key = aws_lc_rs::sign::any_supported_type(&key).expect("a usable key");
    Arc::new(CertifiedKey::new(chain, key))
}

/// The certificates of a PEM file.
pub fn certificates(file: &Path) -> Vec<CertificateDer<'static>> {
    let found = CertificateDer::pem_file_iter(file).expect("a file");
    found.collect::<Result<_, _>>().expect("certificates")
}
