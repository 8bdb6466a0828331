//! Prometheus metrics for a running operation or a running guard (`--metrics-listen`). The listener answers only `GET /metrics`
//! and `GET /healthz`.
//!
//! The listener implements the part of HTTP that it needs (RFC 9112): one request per connection, with limits for the size of the
//! request head and for the duration of the connection. This is enough, because one scraper reads the metrics every few seconds.
//! A full HTTP server would be a larger attack surface.

pub(super) mod text;
mod writes;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::failure::Failure;
pub use text::{Figures, Page};
pub use writes::{Counted, Writes};

/// Maximum size of the head of a request, in bytes.
const MOST_HEAD: usize = 8 * 1024;
/// How long a client can take to send its request and read the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of concurrent clients. At this limit, a new client replaces the oldest client. The limit is high enough that
/// the oldest client normally has its answer by then.
const MOST_CLIENTS: usize = 256;
/// Pause after a connection could not be accepted, most likely because no file descriptor was free.
const PAUSE: Duration = Duration::from_millis(200);

/// The metrics of the running operation; `None` before an operation runs.
type Shown = Arc<Mutex<Option<Arc<dyn Figures>>>>;

/// A listener for metrics. Dropping this value closes the listener.
pub struct Metrics {
    address: SocketAddr,
    shown: Shown,
    writes: Writes,
    _server: JoinSet<()>,
}

impl Metrics {
    /// Starts to listen if an address is given.
    pub async fn listen_if(address: Option<&str>) -> Result<Option<Self>, Failure> {
        match address {
            Some(address) => Self::listen(address).await.map(Some),
            None => Ok(None),
        }
    }

    /// Starts to listen at an address and a port; for port 0, the system chooses a free port.
    pub async fn listen(address: &str) -> Result<Self, Failure> {
        // A text with an `@` can contain a password, so it is not printed.
        let asked = if address.contains('@') { "ADDR:PORT" } else { address };
        let refused = |error: std::io::Error| {
            Failure::refused(format!("cannot listen for `--metrics-listen {asked}`: {error}"))
                .hint("give an address of this host and a free port, for example `127.0.0.1:9464`")
        };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let (address, shown) = (listener.local_addr().map_err(refused)?, Shown::default());
        let writes = Writes::default();
        let mut server = JoinSet::new();
        server.spawn(serve(listener, shown.clone(), writes.clone()));
        Ok(Self { address, shown, writes, _server: server })
    }

    /// Returns the URL of the metrics.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    /// Returns the counter of writes.
    pub fn writes(&self) -> Writes {
        self.writes.clone()
    }

    /// Exposes the given metrics from now on.
    pub fn show(&self, figures: Arc<dyn Figures>) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(figures);
    }
}

async fn serve(listener: TcpListener, shown: Shown, writes: Writes) {
    let mut clients: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        clients.retain(|client| !client.is_finished());
        // The oldest client has had time to send its request. It is disconnected, so that a probe does not have to wait for slow
        // clients.
        if clients.len() >= MOST_CLIENTS
            && let Some(oldest) = clients.pop_front()
        {
            oldest.abort();
        }
        let (shown, writes) = (shown.clone(), writes.clone());
        let client = tokio::spawn(async move {
            // A client that does not send or read in time is disconnected.
            let _ = timeout(PATIENCE, answer(stream, &shown, &writes)).await;
        });
        clients.push_back(client.abort_handle());
    }
}

async fn answer(mut stream: TcpStream, shown: &Shown, writes: &Writes) -> std::io::Result<()> {
    let Some(head) = read_head(&mut stream).await? else { return Ok(()) };
    let figures = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let is_well = figures.as_ref().is_none_or(|figures| figures.is_well());
    let body = || text::page(figures.as_deref(), writes.count());
    stream.write_all(response(&head, is_well, body).as_bytes()).await?;
    stream.shutdown().await
}

/// Reads the head of a request, which ends with an empty line. Returns `None` if the head is incomplete or too long.
async fn read_head(stream: &mut TcpStream) -> std::io::Result<Option<String>> {
    let (mut head, mut block) = (Vec::new(), [0; 1024]);
    loop {
        let count = stream.read(&mut block).await?;
        head.extend_from_slice(block.get(..count).unwrap_or_default());
        if head.windows(4).any(|window| window == b"\r\n\r\n") {
            return Ok(Some(String::from_utf8_lossy(&head).into_owned()));
        }
        if count == 0 || head.len() > MOST_HEAD {
            return Ok(None);
        }
    }
}

fn response(head: &str, is_well: bool, body: impl FnOnce() -> String) -> String {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let (status, kind, body) = match (path, method) {
        ("/metrics", "GET" | "HEAD") => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", body()),
        ("/healthz", "GET" | "HEAD") if is_well => ("200 OK", "text/plain", "ok\n".to_string()),
        ("/healthz", "GET" | "HEAD") => {
            ("503 Service Unavailable", "text/plain", "no progress\n".to_string())
        }
        ("/metrics" | "/healthz", _) => ("405 Method Not Allowed", "text/plain", "use GET\n".to_string()),
        _ => ("404 Not Found", "text/plain", "the metrics are at /metrics\n".to_string()),
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let body = if method == "HEAD" { "" } else { body.as_str() };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(url: &str, request: &str) -> String {
        let address = url.trim_start_matches("http://").trim_end_matches("/metrics");
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn listener_answers_only_its_two_paths() {
        let metrics = Metrics::listen("127.0.0.1:0").await.unwrap();
        let url = metrics.url();
        let found = ask(&url, "GET /metrics?name=x HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(
            found.starts_with("HTTP/1.1 200 OK\r\n") && found.contains("netsurgeon_build_info{"),
            "{found}"
        );
        let (head, body) = found.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        let head = ask(&url, "HEAD /metrics HTTP/1.1\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(ask(&url, "GET / HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 404"));
        assert!(ask(&url, "GET /healthz HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 200"));
        assert!(ask(&url, "POST /healthz HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 405"));
        assert!(ask(&url, "POST /metrics HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 405"));
    }

    /// Any number of clients that connect and send nothing must not block another client.
    #[tokio::test]
    async fn slow_clients_do_not_block_others() {
        let metrics = Metrics::listen("127.0.0.1:0").await.unwrap();
        let mut silent = Vec::new();
        for _ in 0..MOST_CLIENTS.saturating_mul(4) {
            silent.push(TcpStream::connect(metrics.address).await.unwrap());
        }
        assert!(ask(&metrics.url(), "GET /healthz HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 200"));
        // The first clients were disconnected without an answer, long before their timeout.
        let mut first = silent.remove(0);
        assert_eq!(first.read(&mut [0; 8]).await.unwrap_or_default(), 0);
    }

    struct Hung;

    impl Figures for Hung {
        fn write(&self, page: &mut Page) {
            page.gauge("netsurgeon_test", "A test.", 7);
        }

        fn is_well(&self) -> bool {
            false
        }
    }

    #[tokio::test]
    async fn hung_operation_is_unhealthy_and_still_shows_metrics() {
        let metrics = Metrics::listen("127.0.0.1:0").await.unwrap();
        metrics.show(Arc::new(Hung));
        let url = metrics.url();
        assert!(ask(&url, "GET /healthz HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 503"));
        assert!(ask(&url, "GET /metrics HTTP/1.1\r\n\r\n").await.contains("\nnetsurgeon_test 7\n"));
    }

    #[tokio::test]
    async fn endless_request_is_disconnected() {
        let metrics = Metrics::listen("127.0.0.1:0").await.unwrap();
        let address = metrics.address;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let endless = vec![b'x'; MOST_HEAD * 2];
        // The listener can close the connection while the client still writes.
        let _ = stream.write_all(&endless).await;
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer).await;
        assert!(ended.is_err() || answer.is_empty(), "{answer:?}");
    }

    #[tokio::test]
    async fn unavailable_address_is_refused() {
        let metrics = Metrics::listen("127.0.0.1:0").await.unwrap();
        let failure = Metrics::listen(&metrics.address.to_string()).await.err().unwrap();
        assert!(failure.error.to_string().contains("--metrics-listen"), "{}", failure.error);
    }
}
