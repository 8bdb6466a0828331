//! Probes the mirror at its own address, with TCP, HTTP or HTTPS. The probe sends the name as `Host` and SNI, as a client of the
//! name does. The probe does not resolve the name, because DNS still points to the old cluster.
//!
//! `preflight dns`, `dns plan` and `dns cutover` all use [`Prober::check`], so a name that passes the preflight check is not
//! skipped later for a reason that the preflight check could find.

mod reason;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use self::reason::reason;
use super::target::refusal;
use crate::certs::Certificate;
use crate::nameserver::Server;

/// Timeout of one attempt.
const LIMIT: Duration = Duration::from_secs(5);
/// Number of attempts. A load balancer can drop one connection while it is reconfigured.
const ATTEMPTS: u32 = 3;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of bytes to read from a body.
const MOST: usize = 1 << 20;
/// Minimum time for which a certificate must still be valid.
const LEAST_LEFT: time::Duration = time::Duration::days(1);

/// How to probe a name on the mirror.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probing {
    /// The protocol.
    pub scheme: Scheme,
    /// The port.
    pub port: u16,
    /// The requested path; not used with TCP.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The only accepted status; `None` accepts 200 to 399. Not used with TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// A text that the body must contain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The addresses or names of the mirror's load balancers.
    pub at: Vec<String>,
}

/// The protocol of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// A TCP connection.
    Tcp,
    /// An HTTP request.
    Http,
    /// An HTTPS request. The certificate must cover the name, be valid, and have a trusted issuer.
    Https,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

impl Scheme {
    /// Returns the well-known port.
    pub fn port(self) -> u16 {
        if self == Self::Https { 443 } else { 80 }
    }
}

/// Formats the probe without addresses, for example as `https:443/healthz`.
impl fmt::Display for Probing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}{}", self.scheme, self.port, self.path)
    }
}

/// Parses `tcp:PORT`, `http[:PORT][/PATH]` or `https[:PORT][/PATH]`. The result has no addresses.
impl FromStr for Probing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || "give `tcp:PORT`, `http[:PORT][/PATH]` or `https[:PORT][/PATH]`".to_string();
        let (start, path) = text.find('/').map_or((text, ""), |at| text.split_at(at));
        let (scheme, port) =
            start.split_once(':').map_or((start, None), |(scheme, port)| (scheme, Some(port)));
        let scheme = match scheme {
            "tcp" if port.is_some() && path.is_empty() => Scheme::Tcp,
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(bad()),
        };
        let port = port.map_or(Ok(scheme.port()), |port| port.parse().map_err(|_| bad()))?;
        let path = if path.is_empty() && scheme != Scheme::Tcp { "/" } else { path };
        if path.parse::<http::uri::PathAndQuery>().is_err() && scheme != Scheme::Tcp {
            return Err(bad());
        }
        Ok(Self { scheme, port, path: path.to_string(), status: None, body: None, at: Vec::new() })
    }
}

impl Probing {
    /// Returns the probe of a name that has no probe of its own: `https` if an object declares TLS for the name, otherwise
    /// `http`. The result has no addresses.
    pub fn default_of(has_tls: bool) -> Self {
        let scheme = if has_tls { Scheme::Https } else { Scheme::Http };
        let (port, path, at) = (scheme.port(), "/".to_string(), Vec::new());
        Self { scheme, port, path, status: None, body: None, at }
    }

    /// Returns the probe with the addresses or names of the mirror's load balancers.
    #[must_use]
    pub fn at<'a>(self, at: impl IntoIterator<Item = &'a String>) -> Self {
        Self { at: at.into_iter().cloned().collect(), ..self }
    }
}

/// The result of a successful probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// The shortest time for which the presented certificates are still valid; `None` without TLS.
    pub left: Option<time::Duration>,
}

/// Probes names. Trusts the CA certificates of the system, and additional CA certificates that the user gives.
pub struct Prober {
    connector: TlsConnector,
}

impl Prober {
    /// Creates a prober. `more` contains additional trusted CA certificates, as DER.
    pub fn new(more: Vec<Vec<u8>>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        let system = rustls_native_certs::load_native_certs().certs;
        let (_, _) = roots.add_parsable_certificates(system);
        for der in more {
            roots.add(der.into()).map_err(|error| format!("cannot use the CA certificate: {error}"))?;
        }
        let provider = Arc::new(crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)) })
    }

    /// Checks that every address of the mirror serves a name. `resolver` resolves the names of load balancers. The error is the
    /// reason why an address does not serve the name.
    pub async fn check(&self, name: &str, probing: &Probing, resolver: &Server) -> Result<Served, String> {
        if probing.at.is_empty() {
            return Err("the mirror has no address for this name".to_string());
        }
        let mut left = None;
        for at in &probing.at {
            let outcome = self.retried(name, probing, (at, resolver)).await;
            let of_one = outcome.map_err(|reason| format!("{at} ({probing}): {reason}"))?;
            left = left.into_iter().chain(of_one).min();
        }
        Ok(Served { left })
    }

    /// Returns how long the presented certificate is still valid; `None` without TLS.
    async fn retried(
        &self,
        name: &str,
        probing: &Probing,
        at: (&str, &Server),
    ) -> Result<Option<time::Duration>, String> {
        let mut attempt = 1_u32;
        loop {
            let outcome = timeout(LIMIT, self.once(name, probing, at)).await;
            let late = |_| Err(format!("no answer within {} s", LIMIT.as_secs()));
            match outcome.unwrap_or_else(late) {
                Ok(left) => return Ok(left),
                Err(reason) if attempt >= ATTEMPTS => return Err(format!("{reason} ({attempt} attempts)")),
                Err(_) => attempt = attempt.saturating_add(1),
            }
            sleep(PAUSE).await;
        }
    }

    async fn once(
        &self,
        name: &str,
        probing: &Probing,
        (at, resolver): (&str, &Server),
    ) -> Result<Option<time::Duration>, String> {
        // For a wildcard name, clients send a host name that the wildcard covers, and not the asterisk.
        let host = name.strip_prefix('*').map(|rest| format!("netsurgeon-probe{rest}"));
        let host = host.as_deref().unwrap_or(name);
        let at = addresses(at, resolver).await?.into_iter();
        let at: Vec<SocketAddr> = at.map(|address| SocketAddr::new(address, probing.port)).collect();
        let stream = TcpStream::connect(at.as_slice()).await.map_err(|error| error.to_string())?;
        match probing.scheme {
            Scheme::Tcp => Ok(None),
            Scheme::Http => ask(stream, host, probing).await.map(|()| None),
            Scheme::Https => {
                let server = ServerName::try_from(host.to_string()).map_err(|error| error.to_string())?;
                let stream = self.connector.connect(server, stream).await.map_err(|error| reason(&error))?;
                let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
                let first = certificates.first().ok_or("the server presents no certificate")?;
                let left = Certificate::from_der(first.to_vec())?.left(OffsetDateTime::now_utc());
                if left < LEAST_LEFT {
                    return Err(format!("the certificate expires in {} h", left.whole_hours()));
                }
                ask(stream, host, probing).await.map(|()| Some(left))
            }
        }
    }
}

/// Returns the addresses of a load balancer. `at` is the address or the name of the load balancer. `resolver` resolves the name.
/// Fails if one of them is not a possible target, for example a loopback address.
pub async fn addresses(at: &str, resolver: &Server) -> Result<Vec<IpAddr>, String> {
    let found = match at.parse() {
        Ok(address) => vec![address],
        Err(_) => resolver
            .addresses(at)
            .await
            .map_err(|error| format!("the resolver (`--resolver`) does not resolve `{at}`: {error}"))?,
    };
    if found.is_empty() {
        return Err(format!("the resolver (`--resolver`) finds no address for `{at}`"));
    }
    match found.iter().find_map(|at| Some((at, refusal(*at)?))) {
        Some((address, what)) => Err(format!("{address} is {what}, so it cannot be a target")),
        None => Ok(found),
    }
}

/// Sends one request, and checks the answer.
async fn ask<S>(stream: S, host: &str, probing: &Probing) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let request = Request::get(&probing.path)
        .header(http::header::HOST, host)
        .header(http::header::USER_AGENT, concat!("netsurgeon/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    // The connection ends once its sender and its answer are dropped.
    let answered = async move {
        let answer = sender.send_request(request).await.map_err(|error| reason_of(&error))?;
        judge(answer, probing).await
    };
    let (outcome, _) = tokio::join!(answered, connection);
    outcome
}

/// Returns the message of an error with its cause, because the message alone is often only `connection error`.
fn reason_of(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

async fn judge(answer: Response<Incoming>, probing: &Probing) -> Result<(), String> {
    let status = answer.status();
    let is_accepted = match probing.status {
        Some(wanted) => status.as_u16() == wanted,
        None => (StatusCode::OK..StatusCode::BAD_REQUEST).contains(&status),
    };
    if !is_accepted {
        return Err(format!("HTTP status {}", status.as_u16()));
    }
    let Some(wanted) = &probing.body else { return Ok(()) };
    let body = Limited::new(answer.into_body(), MOST).collect().await.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    if text.contains(wanted.as_str()) { Ok(()) } else { Err(format!("the body does not contain `{wanted}`")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_is_parsed() {
        let parsed = |text: &str| text.parse::<Probing>().map(|probing| probing.to_string());
        assert_eq!(parsed("https").unwrap(), "https:443/");
        assert_eq!(parsed("http/healthz?full=1").unwrap(), "http:80/healthz?full=1");
        assert_eq!(parsed("https:8443/x").unwrap(), "https:8443/x");
        assert_eq!(parsed("tcp:5432").unwrap(), "tcp:5432");
        for bad in ["tcp", "tcp:1/x", "ftp", "https:x", "https:70000", "", "http/a b"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
