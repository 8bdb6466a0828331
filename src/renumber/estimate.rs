//! Estimates how long a renumbering takes, so that the operator can choose a maintenance window. The estimate is computed from
//! the plan. Manual steps, gates and the soak are not included.

use std::num::NonZeroU32;
use std::time::Duration;

use super::intention::Renumbering;

/// Number of waits for all nodes in each batch: one before the Services move, and one after they have moved.
const WAITS_OF_A_BATCH: u32 = 2;
/// Number of transactions per Service: reserve, prewarm, hand over, flip, settle.
const TRANSACTIONS: u32 = 5;
/// Shortest and longest wait for all nodes. In measurements, the wait took 0.2 to 0.9 s with idle kube-proxies. A kube-proxy with
/// thousands of Services needs several seconds.
const WAIT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Shortest and longest time of a transaction while several transactions run concurrently. The shortest time, 0.2 ms, was
/// measured (docs/development.md). The longest time is for an etcd on a slow disk: each sync takes 10 ms, and etcd commits
/// several transactions with one sync.
const TRANSACTION: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(4));
/// Shortest and longest time to create the two shadows of a Service through the API.
const SHADOWS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));

/// Estimated time of a renumbering until every Service has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Shortest time.
    pub least: Duration,
    /// Longest time, if nothing blocks the renumbering.
    pub most: Duration,
}

/// Estimates the duration. `rate` is the highest number of writes per second; `None` means no limit.
pub fn estimate(work: &Renumbering, rate: Option<NonZeroU32>) -> Estimate {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let batches = count(work.batches().len());
    let transactions = count(work.moves.len()).saturating_mul(TRANSACTIONS);
    let shadows = count(work.moves.iter().filter(|candidate| candidate.shadow.is_some()).count());
    let paced = rate.map_or(Duration::ZERO, |rate| Duration::from_secs((transactions / rate).into()));
    let total = |wait: Duration, transaction: Duration, shadow: Duration| {
        let waits = wait.saturating_mul(batches.saturating_mul(WAITS_OF_A_BATCH));
        let writes = transaction.saturating_mul(transactions).max(paced);
        waits.saturating_add(writes).saturating_add(shadow.saturating_mul(shadows))
    };
    Estimate { least: total(WAIT.0, TRANSACTION.0, SHADOWS.0), most: total(WAIT.1, TRANSACTION.1, SHADOWS.1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::renumber::{PlanOptions, plan};
    use crate::store::KeyRange;
    use crate::store::snapshot::SnapshotStore;
    use crate::survey::{Layout, Survey};

    async fn work(batch_size: usize) -> Renumbering {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/objects.snapshot.db");
        let store = SnapshotStore::open(file.as_ref(), &[KeyRange::everything()]).unwrap();
        let survey = Survey::read(&store, &Layout::default(), None).await.unwrap();
        let options = PlanOptions { batch_size, ..PlanOptions::new("10.200.0.0/16".parse().unwrap()) };
        plan(&survey, &options).unwrap().work
    }

    #[tokio::test]
    async fn more_batches_and_a_lower_rate_take_longer() {
        let (few, many) = (work(50).await, work(2).await);
        let [one, other] = [&few, &many].map(|work| estimate(work, None));
        assert!(
            one.least < other.least && one.most < other.most && one.least < one.most,
            "{one:?} {other:?}"
        );
        let slow = estimate(&few, NonZeroU32::new(1));
        let writes = few.moves.len() as u64 * u64::from(TRANSACTIONS);
        assert!(slow.least >= Duration::from_secs(writes), "{slow:?}");
    }
}
