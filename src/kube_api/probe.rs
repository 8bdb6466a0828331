//! Sends HTTP requests to programs outside the API, such as health checks or Prometheus. The requests use the same HTTP client as
//! requests to the API, but without credentials, redirects or a proxy. For `https`, the client trusts the CA certificates of the
//! system.

use std::time::Duration;

use http::Uri;
use kube::Config;

use super::ClusterError;
use super::connection::{Call, Connection};

pub use super::resource::escaped;

/// An HTTP client for one URL.
pub struct Probe {
    connection: Connection,
    path: String,
}

/// An HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// HTTP status.
    pub code: u16,
    /// Body of the answer.
    pub body: Vec<u8>,
}

impl Probe {
    /// Creates a client without connecting. Rejects a URL that is not `http` or `https`, has no host, or contains credentials.
    pub fn new(url: &str) -> Result<Self, ClusterError> {
        let refused = |reason: &str| ClusterError::Configuration {
            // The part of a URL before an `@` can be a password.
            what: if url.contains('@') { "the URL".to_string() } else { format!("the URL `{url}`") },
            reason: reason.to_string(),
        };
        let uri: Uri =
            url.parse().map_err(|_| refused("it is not a URL; expected `http://HOST:PORT/PATH`"))?;
        let scheme = uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"));
        let Some(scheme) = scheme else { return Err(refused("expected `http://` or `https://`")) };
        let Some(authority) = uri.authority() else { return Err(refused("it has no host")) };
        if authority.as_str().contains('@') {
            return Err(ClusterError::Configuration {
                what: "a URL with a user name or a password".to_string(),
                reason: "no credentials are sent".to_string(),
            });
        }
        let base = format!("{scheme}://{authority}/").parse().map_err(|_| refused("it has no host"))?;
        let mut config = Config::new(base);
        if scheme == "http" {
            // The system's certificates are not needed, and may be missing.
            config.root_cert = Some(Vec::new());
        }
        let connection = Connection::new(config, Duration::MAX).map_err(|error| match error {
            ClusterError::Configuration { reason, .. } => refused(&reason),
            other => other,
        })?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_string();
        Ok(Self { connection, path })
    }

    /// Sends one request. Returns any answer that arrives in time, or the reason why there was no answer.
    pub async fn get(&self, limit: Duration) -> Result<Response, String> {
        let call = Call::read(&self.path).map_err(|error| error.to_string())?;
        let answer = self.connection.once(&call, limit).await;
        answer
            .map(|answer| Response { code: answer.code, body: answer.body })
            .map_err(|fault| fault.to_string())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn endless_answer_is_not_read_to_its_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let probe = Probe::new(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let flood = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n").await;
            // Writes until the client closes the connection.
            while stream.write_all(&[b'x'; 8192]).await.is_ok() {}
        };
        let (answer, ()) = tokio::join!(probe.get(Duration::from_mins(1)), flood);
        assert_eq!(answer, Err("it has more than 1 MiB".to_string()));
    }
}
