//! Connections that stay open during a test. Each sends a byte ten times a second, and the agent returns it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep, timeout};

use super::fault::repeated;
use super::tcp::{Greeted, greet};
use super::{Fault, Identity, Seen};

/// The pause between two bytes.
const PAUSE: Duration = Duration::from_millis(100);
/// The time for a byte to return. The kernel sends a lost segment again several times within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of attempts to open a connection.
const TRIES: u8 = 3;

/// The standing connections of an agent, by key.
#[derive(Clone, Default)]
pub(super) struct Connections(Arc<Mutex<HashMap<u64, State>>>);

#[derive(Clone)]
struct State {
    last: Instant,
    longest_gap: Duration,
    fault: Option<Fault>,
}

impl Connections {
    /// Returns how a connection is that stays open; opens it first if it does not exist.
    pub(super) async fn of(&self, identity: &Identity, to: SocketAddr, key: u64) -> Seen {
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&key) {
            return self.state(key);
        }
        let greeted = match repeated(TRIES, || greet(identity, to, "stand")).await {
            Ok((greeted, _)) => greeted,
            Err(fault) => return Seen::Failed(fault),
        };
        let state = State { last: Instant::now(), longest_gap: Duration::ZERO, fault: None };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, state);
        let connections = self.clone();
        tokio::spawn(async move { connections.beat(greeted, key).await });
        self.state(key)
    }

    fn state(&self, key: u64) -> Seen {
        let states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = states.get(&key) else {
            return Seen::Failed(Fault::Impossible { reason: "the connection was never open".to_string() });
        };
        let waiting = if state.fault.is_none() { state.last.elapsed() } else { Duration::ZERO };
        Seen::Standing {
            is_open: state.fault.is_none(),
            longest_gap: u64::try_from(state.longest_gap.max(waiting).as_millis()).unwrap_or(u64::MAX),
            fault: state.fault.clone(),
        }
    }

    async fn beat(&self, mut greeted: Greeted, key: u64) {
        loop {
            let beat = async {
                greeted.stream.write_u8(1).await?;
                greeted.stream.flush().await?;
                greeted.stream.read_u8().await
            };
            let outcome = timeout(PATIENCE, beat).await;
            let fault = match outcome {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(Fault::of(&error)),
                Err(_) => Some(Fault::silence(PATIENCE)),
            };
            let has_ended = fault.is_some();
            if let Some(state) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&key) {
                state.longest_gap = state.longest_gap.max(state.last.elapsed());
                state.last = Instant::now();
                state.fault = fault;
            }
            if has_ended {
                return;
            }
            sleep(PAUSE).await;
        }
    }
}
