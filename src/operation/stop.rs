//! Asking an operation to stop at the next place where it can.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;

/// Asks. Dropping it is no request.
#[derive(Debug)]
pub struct StopSwitch(watch::Sender<bool>);

impl StopSwitch {
    /// Asks everybody who has the [`Stop`] of this switch to stop. It cannot be taken back.
    pub fn ask(&self) {
        self.0.send_replace(true);
    }
}

/// Knows whether it was asked for. Its clones are for whoever else waits for long: a wait of an
/// [`super::Environment`] may give up when it is asked to stop.
#[derive(Debug, Clone, Default)]
pub struct Stop(Vec<watch::Receiver<bool>>);

impl Stop {
    /// Returns a switch and what listens to it.
    pub fn new() -> (StopSwitch, Self) {
        let (ask, asked) = watch::channel(false);
        (StopSwitch(ask), Self(vec![asked]))
    }

    /// Nobody ever asks.
    pub fn never() -> Self {
        Self(Vec::new())
    }

    /// Whether it was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.iter().any(|asked| *asked.borrow())
    }

    /// Returns one that is asked for by whoever asks for this one or the other.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(&other.0).cloned().collect())
    }

    /// Waits until it is asked for; for ever, if nobody can ask any more.
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
    async fn everybody_hears_of_it_and_only_then() {
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
    async fn a_switch_that_is_gone_asks_for_nothing() {
        let (switch, stop) = Stop::new();
        drop(switch);
        let second = std::time::Duration::from_secs(1);
        for stop in [stop, Stop::never(), Stop::default()] {
            assert!(!stop.is_asked());
            assert!(tokio::time::timeout(second, stop.asked()).await.is_err());
        }
    }
}
