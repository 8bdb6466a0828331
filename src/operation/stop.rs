//! The request to stop an operation at the next possible point.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;

/// Sends the stop request. Dropping the switch does not request a stop.
#[derive(Debug)]
pub struct StopSwitch(watch::Sender<bool>);

impl StopSwitch {
    /// Sends the stop request to every [`Stop`] of this switch. The request cannot be withdrawn.
    pub fn ask(&self) {
        self.0.send_replace(true);
    }
}

/// Receives the stop request. Pass clones to long waits, such as the waits of an [`super::Environment`], so that a stop request
/// can end these waits early.
#[derive(Debug, Clone, Default)]
pub struct Stop(Vec<watch::Receiver<bool>>);

impl Stop {
    /// Returns a switch and the receiver of its request.
    pub fn new() -> (StopSwitch, Self) {
        let (ask, asked) = watch::channel(false);
        (StopSwitch(ask), Self(vec![asked]))
    }

    /// Returns a receiver that never receives a request.
    pub fn never() -> Self {
        Self(Vec::new())
    }

    /// Returns whether a stop was requested.
    pub fn is_asked(&self) -> bool {
        self.0.iter().any(|asked| *asked.borrow())
    }

    /// Returns a receiver for the requests of both receivers.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(&other.0).cloned().collect())
    }

    /// Waits until a stop is requested. Waits forever if there is no switch.
    pub async fn asked(&self) {
        let each = self.0.iter().map(|asked| {
            let mut asked = asked.clone();
            async move {
                if asked.wait_for(|asked| *asked).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        });
        let mut each: FuturesUnordered<_> = each.collect();
        if each.next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn every_clone_receives_the_request() {
        let (switch, stop) = Stop::new();
        let other = stop.clone();
        let second = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(second, other.asked()).await.is_err());
        switch.ask();
        other.asked().await;
        assert!(stop.is_asked() && other.is_asked());
        drop(switch);
        stop.asked().await;
        let (_nobody, never) = Stop::new();
        never.or(&stop).asked().await;
        assert!(stop.or(&never).is_asked() && !never.or(&Stop::never()).is_asked());
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_switch_requests_nothing() {
        let (switch, stop) = Stop::new();
        drop(switch);
        let second = std::time::Duration::from_secs(1);
        for stop in [stop, Stop::never(), Stop::default()] {
            assert!(!stop.is_asked());
            assert!(tokio::time::timeout(second, stop.asked()).await.is_err());
        }
    }
}
