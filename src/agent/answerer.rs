//! Answers one TCP connection of a test.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Identity;
use super::series_counts::SeriesCounts;

/// The time for a request, and for each part of a transfer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time after which a standing connection without a byte is closed.
const STANDING: Duration = Duration::from_hours(1);
/// The longest request line, in bytes.
const LONGEST_LINE: u64 = 128;
/// The most bytes of a transfer.
const MOST: u32 = 16 << 20;
/// The size of one write of a transfer, in bytes.
const PART: usize = 32 << 10;

/// What the connections of a server share.
pub(super) struct Answerer {
    pub(super) identity: Identity,
    pub(super) received: Arc<Mutex<SeriesCounts>>,
}

impl Answerer {
    /// Answers one connection. A client without the token gets no answer.
    pub(super) async fn answer(&self, stream: TcpStream, source: IpAddr) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        let mut limited = (&mut stream).take(LONGEST_LINE);
        timeout(PATIENCE, limited.read_line(&mut line)).await??;
        let mut words = line.split_whitespace();
        let is_ours = words.next() == Some("NSG1") && words.next() == Some(&*self.identity.token_text());
        if !is_ours {
            return Ok(());
        }
        let verb = words.next().unwrap_or_default();
        let number: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or_default();
        let bytes = u32::try_from(number).unwrap_or(MOST).min(MOST);
        let head = format!("NSG1 {source} {}", self.identity.name);
        match verb {
            "who" => say(&mut stream, &head).await,
            "send" => {
                say(&mut stream, &head).await?;
                send(&mut stream, bytes).await
            }
            "take" => {
                take(&mut stream, bytes).await?;
                say(&mut stream, &head).await
            }
            "stand" => {
                say(&mut stream, &head).await?;
                stand(&mut stream).await
            }
            "received" => {
                let (datagrams, again) =
                    self.received.lock().unwrap_or_else(PoisonError::into_inner).of(number);
                say(&mut stream, &format!("{head} {datagrams} {again}")).await
            }
            _ => Ok(()),
        }
    }
}

async fn say(stream: &mut BufReader<TcpStream>, line: &str) -> io::Result<()> {
    timeout(PATIENCE, stream.write_all(format!("{line}\n").as_bytes())).await?
}

/// Sends so many bytes.
pub(super) async fn send(
    stream: &mut (impl tokio::io::AsyncWrite + Unpin),
    mut bytes: u32,
) -> io::Result<()> {
    let part = vec![0x5a_u8; PART];
    while bytes > 0 {
        let size = usize::try_from(bytes).unwrap_or(PART).min(PART);
        timeout(PATIENCE, stream.write_all(part.get(..size).unwrap_or_default())).await??;
        bytes = bytes.saturating_sub(u32::try_from(size).unwrap_or(u32::MAX));
    }
    stream.flush().await
}

/// Receives so many bytes.
pub(super) async fn take(stream: &mut (impl tokio::io::AsyncRead + Unpin), mut bytes: u32) -> io::Result<()> {
    let mut part = vec![0; PART];
    while bytes > 0 {
        let size = usize::try_from(bytes).unwrap_or(PART).min(PART);
        let read = timeout(PATIENCE, stream.read(part.get_mut(..size).unwrap_or_default())).await??;
        if read == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{bytes} bytes did not arrive"),
            ));
        }
        bytes = bytes.saturating_sub(u32::try_from(read).unwrap_or(u32::MAX));
    }
    Ok(())
}

async fn stand(stream: &mut BufReader<TcpStream>) -> io::Result<()> {
    loop {
        let byte = timeout(STANDING, stream.read_u8()).await??;
        stream.write_u8(byte).await?;
        stream.flush().await?;
    }
}
