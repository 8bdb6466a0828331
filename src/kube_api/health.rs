//! Sends a plain HTTP request to a port of a node. kube-proxy's health check ports support only plain HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum number of bytes to read. An answer of a kube-proxy has about 200 bytes, but another program may send much more.
const LONGEST: u64 = 16 * 1024;

/// A request that got no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoAnswer {
    /// Whether the request timed out, for example because a firewall drops the packets. A barrier also sets this field if the
    /// node has no usable address, or if the user has no permission.
    pub(super) silent: bool,
    pub(super) reason: String,
}

/// Requests a path and returns the whole answer, including the headers.
pub(super) async fn ask(address: SocketAddr, path: &str, limit: Duration) -> Result<String, NoAnswer> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    match timeout(limit, exchange).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(NoAnswer { silent: false, reason: format!("{address}: {error}") }),
        Err(_) => {
            let reason = format!("{address}: no answer within {} ms", limit.as_millis());
            Err(NoAnswer { silent: true, reason })
        }
    }
}
