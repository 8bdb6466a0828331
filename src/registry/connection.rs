//! One request, over a connection of its own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore, crypto};

use super::image_name::is_loopback;
use crate::words::with_causes;

/// Time limit of a connection, with its TLS handshake.
const CONNECTION: Duration = Duration::from_secs(5);
/// Time limit of an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Maximum size of an answer: that of a manifest (`opencontainers/distribution-spec`, `spec.md`, "Pushing Manifests").
const MOST: usize = 4 << 20;

/// An answer.
pub(super) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Opens connections. Trusts the CA certificates of the system, or those of the files that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
pub(super) struct Connector {
    tls: TlsConnector,
}

impl Connector {
    /// Reads the CA certificates.
    pub fn new() -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls: TlsConnector::from(Arc::new(config)) })
    }

    /// Sends a request without a body. The error is the reason why there is no answer, with the host.
    pub async fn send(
        &self,
        method: &Method,
        url: &Uri,
        accept: &'static str,
        authorization: Option<&HeaderValue>,
    ) -> Result<Reply, String> {
        let host = url.authority().map_or("", |authority| authority.as_str());
        let told = |reason: String| format!("{host}: {reason}");
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, host)
            .header(USER_AGENT, concat!("netsurgeon/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, accept)
            .body(Empty::<Bytes>::new())
            .map_err(|error| told(error.to_string()))?;
        if let Some(authorization) = authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let reply = self.exchange(url, request).await.map_err(told)?;
        tracing::debug!(%method, host, path = url.path(), status = reply.status.as_u16(), "a registry answered");
        Ok(reply)
    }

    async fn exchange(&self, url: &Uri, request: Request<Empty<Bytes>>) -> Result<Reply, String> {
        let late = |limit: Duration| format!("no answer within {} s", limit.as_secs());
        let name = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let is_plain = url.scheme_str() == Some("http");
        if is_plain && !is_loopback(name) {
            return Err("it does not use HTTPS".to_string());
        }
        let port = url.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
        let open = async {
            let stream = TcpStream::connect((name, port)).await.map_err(|error| error.to_string())?;
            if is_plain {
                return Ok((Some(stream), None));
            }
            let server = ServerName::try_from(name.to_string()).map_err(|error| error.to_string())?;
            let stream = self.tls.connect(server, stream).await.map_err(|error| reason(&error))?;
            Ok::<_, String>((None, Some(stream)))
        };
        let opened = timeout(CONNECTION, open).await.map_err(|_| late(CONNECTION))??;
        let answered = async {
            match opened {
                (Some(stream), _) => ask(stream, request).await,
                (_, Some(stream)) => ask(stream, request).await,
                (None, None) => Err("no connection".to_string()),
            }
        };
        timeout(ANSWER, answered).await.map_err(|_| late(ANSWER))?
    }
}

async fn ask<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Reply, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| with_causes(&error))?;
    // The connection ends once its sender and its answer are dropped.
    let answered = async move {
        let answer = sender.send_request(request).await.map_err(|error| with_causes(&error))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MOST).collect().await.map_err(|error| error.to_string())?;
        Ok(Reply { status: head.status, headers: head.headers, body: body.to_bytes() })
    };
    let (answered, _) = tokio::join!(answered, connection);
    answered
}

/// Returns why a TLS handshake failed.
fn reason(error: &io::Error) -> String {
    match error.get_ref().and_then(|source| source.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "this machine does not trust the issuer of its certificate (`SSL_CERT_FILE` names a file of trusted CA certificates)".to_string()
        }
        _ => error.to_string(),
    }
}
