//! Checks whether a node accepts logins over SSH.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Node;

const PORT: u16 = 22;
/// Timeout for the identification line. An SSH server sends it as soon as the client connects.
const QUESTION: Duration = Duration::from_secs(2);
/// Maximum number of bytes to read. The identification line has at most 255 bytes, but other lines may come before it (RFC 4253,
/// section 4.2).
const LONGEST: u64 = 4096;

impl Node {
    /// Returns the first address of this node at which an SSH server answers with an identification line (RFC 4253, section 4.2).
    pub async fn speaks_ssh(&self) -> Option<IpAddr> {
        for address in &self.internal_ips {
            if timeout(QUESTION, greets(SocketAddr::new(*address, PORT))).await == Ok(true) {
                return Some(*address);
            }
        }
        None
    }
}

async fn greets(address: SocketAddr) -> bool {
    let Ok(stream) = TcpStream::connect(address).await else { return false };
    let (mut said, mut stream) = (Vec::new(), stream.take(LONGEST));
    while !is_ssh(&said) {
        match stream.read_buf(&mut said).await {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
    }
    true
}

fn is_ssh(said: &[u8]) -> bool {
    said.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"SSH-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_server_is_identified_in_its_first_lines() {
        assert!(is_ssh(b"SSH-2.0-OpenSSH_9.2"));
        assert!(is_ssh(b"who enters is recorded\r\nSSH-2.0-x\r\n"));
        assert!(!is_ssh(b"220 mail.example.test ESMTP\r\n"));
        assert!(!is_ssh(b""));
    }
}
