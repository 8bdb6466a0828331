//! A task that keeps the operation lease alive. The task ends when the lease is lost.

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A task that keeps the operation lease alive. Dropping this value ends the task.
pub(super) struct LeaseRenewal {
    lost: watch::Receiver<Option<String>>,
    task: JoinHandle<()>,
}

impl LeaseRenewal {
    /// Starts the task. When the lease is lost, the task ends and returns the reason for the loss.
    pub(super) fn begin(keep: impl Future<Output = String> + Send + 'static) -> Self {
        let (tell, lost) = watch::channel(None);
        let task = tokio::spawn(async move {
            tell.send_replace(Some(keep.await));
        });
        Self { lost, task }
    }

    /// Returns why the lease is lost, or must be considered lost; `None` while the lease is held.
    pub(super) fn lost(&self) -> Option<String> {
        self.lost.borrow().clone()
    }

    /// Waits until the lease is lost, and returns why.
    pub(super) async fn until_lost(&self) -> String {
        let mut lost = self.lost.clone();
        let told = lost.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        told.unwrap_or_else(|| "the task that renews it has ended".to_string())
    }

    /// Stops the task.
    pub(super) fn end(&self) {
        self.task.abort();
    }
}

impl Drop for LeaseRenewal {
    fn drop(&mut self) {
        self.end();
    }
}
