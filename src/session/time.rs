//! The time of a cluster whose API is not used. Dates that are written to the cluster must not depend on the clock of this host,
//! which can be wrong: the repair loops of API servers compare these dates with their own clocks.

use tokio::time::Instant;

use super::servers::alive;
use crate::operation::{Ambient, SystemAmbient};
use crate::store::ReadStore;
use crate::survey::{Layout, Survey};

/// The time of a cluster when it was read from etcd. The monotonic clock of this host continues it.
#[derive(Debug, Clone, Copy)]
pub struct StoredTime {
    seconds: i64,
    at: Instant,
    is_of_the_cluster: bool,
}

impl StoredTime {
    /// Reads the time of the newest renewal of a Lease by the control plane. If no API server runs, the time can be later, so the
    /// clock of this host counts if it is ahead. If there is no Lease, returns the time of this host.
    pub async fn read(store: &dyn ReadStore, layout: &Layout) -> Self {
        let renewed = Survey::last_renewal(store, layout).await.ok().flatten();
        let runs = alive(store, layout).await.is_ok_and(|servers| !servers.is_empty());
        let own = SystemAmbient.now();
        let seconds = match renewed {
            Some(renewed) if runs => renewed,
            Some(renewed) => renewed.max(own),
            None => own,
        };
        Self { seconds, at: Instant::now(), is_of_the_cluster: renewed.is_some() }
    }

    /// Returns a time that is known from another source, in seconds since 1970.
    pub fn of(seconds: i64) -> Self {
        Self { seconds, at: Instant::now(), is_of_the_cluster: true }
    }

    /// Returns whether a Lease of the control plane was found. If not, the time is the time of this host.
    pub fn is_of_the_cluster(&self) -> bool {
        self.is_of_the_cluster
    }
}

impl Ambient for StoredTime {
    fn now(&self) -> i64 {
        let passed = i64::try_from(self.at.elapsed().as_secs()).unwrap_or(i64::MAX);
        self.seconds.saturating_add(passed)
    }

    fn uid(&self) -> String {
        SystemAmbient.uid()
    }

    fn fraction(&self) -> f64 {
        SystemAmbient.fraction()
    }
}
