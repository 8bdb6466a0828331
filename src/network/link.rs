//! The connection to the prober of one agent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::agent::{Ask, Question, Reply, Seen};

/// The longest reply, in bytes.
const LONGEST: usize = 1 << 20;

/// Why an agent gave no replies.
#[derive(Debug, Clone, Error)]
pub enum LinkError {
    /// The connection could not be opened, or it ended.
    #[error("the connection to the agent through the API server failed: {0}")]
    Broken(String),
    /// The agent did not reply in time.
    #[error("the agent did not reply within {0} s")]
    Late(u64),
}

/// The connection to an agent.
#[derive(Clone)]
pub struct AgentLink(Arc<Mutex<Streams>>);

struct Streams {
    input: Box<dyn AsyncWrite + Send + Unpin>,
    output: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    next: u32,
    /// What must live as long as the connection, for example the command in the Pod.
    _owner: Box<dyn Send>,
}

impl AgentLink {
    /// Returns a connection over two streams. `owner` is dropped with the connection.
    pub fn new(
        input: impl AsyncWrite + Send + Unpin + 'static,
        output: impl AsyncRead + Send + Unpin + 'static,
        owner: impl Send + 'static,
    ) -> Self {
        let output: Box<dyn AsyncRead + Send + Unpin> = Box::new(output);
        Self(Arc::new(Mutex::new(Streams {
            input: Box::new(input),
            output: BufReader::new(output),
            next: 0,
            _owner: Box::new(owner),
        })))
    }

    /// Asks all questions at once, and returns what the agent saw, in the order of the questions. A question without a reply has
    /// `None`; the error is the reason.
    pub async fn ask(&self, asks: &[Ask], limit: Duration) -> (Vec<Option<Seen>>, Option<LinkError>) {
        let mut streams = self.0.lock().await;
        let mut seen: Vec<Option<Seen>> = asks.iter().map(|_| None).collect();
        let error = streams.exchange(asks, &mut seen, limit).await.err();
        (seen, error)
    }
}

impl Streams {
    async fn exchange(
        &mut self,
        asks: &[Ask],
        seen: &mut [Option<Seen>],
        limit: Duration,
    ) -> Result<(), LinkError> {
        let broken = |error: std::io::Error| LinkError::Broken(error.to_string());
        let end = Instant::now().checked_add(limit).unwrap_or_else(Instant::now);
        let late = |_| LinkError::Late(limit.as_secs());
        let mut places = HashMap::new();
        let mut text = Vec::new();
        for (place, ask) in asks.iter().enumerate() {
            self.next = self.next.wrapping_add(1);
            places.insert(self.next, place);
            let question = Question { id: self.next, ask: ask.clone() };
            text.append(&mut serde_json::to_vec(&question).map_err(|error| broken(error.into()))?);
            text.push(b'\n');
        }
        let Self { input, output, .. } = self;
        // The agent replies while it still reads questions, so both happen at the same time.
        let write = async {
            input.write_all(&text).await?;
            input.flush().await
        };
        let read = async {
            while !places.is_empty() {
                let line = line_of(output).await?;
                let reply: Reply = serde_json::from_slice(&line)?;
                if let Some(place) = places.remove(&reply.id)
                    && let Some(seen) = seen.get_mut(place)
                {
                    *seen = Some(reply.seen);
                }
            }
            Ok(())
        };
        let both = async { tokio::try_join!(write, read).map(drop) };
        timeout_at(end, both).await.map_err(late)?.map_err(broken)
    }
}

async fn line_of(output: &mut BufReader<Box<dyn AsyncRead + Send + Unpin>>) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let part = output.fill_buf().await?;
        if part.is_empty() {
            return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the agent's process ended"));
        }
        let end = part.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(part.len(), |end| end.saturating_add(1));
        line.extend_from_slice(part.get(..taken).unwrap_or_default());
        output.consume(taken);
        if end.is_some() {
            return Ok(line);
        }
        if line.len() > LONGEST {
            return Err(std::io::Error::other("the agent sent a reply that is too long"));
        }
    }
}
