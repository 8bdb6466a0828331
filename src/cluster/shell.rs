//! Whether a node lets somebody log in.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Node;

const PORT: u16 = 22;
/// A server speaks first, at once.
const QUESTION: Duration = Duration::from_secs(2);
/// The line has 255 bytes at most, and others may come before it (RFC 4253, section 4.2).
const LONGEST: u64 = 4096;

impl Node {
    /// Returns at which address of this node a server of SSH answers, by the line that it says of itself (RFC 4253, section 4.2).
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
    fn a_server_says_what_it_is_in_one_of_its_first_lines() {
        assert!(is_ssh(b"SSH-2.0-OpenSSH_9.2"));
        assert!(is_ssh(b"who enters is recorded\r\nSSH-2.0-x\r\n"));
        assert!(!is_ssh(b"220 mail.example.test ESMTP\r\n"));
        assert!(!is_ssh(b""));
    }
}
