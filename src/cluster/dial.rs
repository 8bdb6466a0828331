//! Opening a connection, and nothing more: whether somebody listens at an address, seen from here.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// Opens a TCP connection and closes it again. Returns how long it took to be opened; else why it was not.
pub async fn dial(address: SocketAddr, limit: Duration) -> Result<Duration, String> {
    let begun = Instant::now();
    match timeout(limit, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Ok(begun.elapsed()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}
