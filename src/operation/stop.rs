//! Asking an operation to stop at the next place where it can.

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
pub struct Stop(Option<watch::Receiver<bool>>);

impl Stop {
    /// Returns a switch and what listens to it.
    pub fn new() -> (StopSwitch, Self) {
        let (ask, asked) = watch::channel(false);
        (StopSwitch(ask), Self(Some(asked)))
    }

    /// Nobody ever asks.
    pub fn never() -> Self {
        Self(None)
    }

    /// Whether it was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.as_ref().is_some_and(|asked| *asked.borrow())
    }

    /// Waits until it is asked for; for ever, if nobody can ask any more.
    pub async fn asked(&self) {
        if let Some(asked) = &self.0
            && asked.clone().wait_for(|asked| *asked).await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
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
