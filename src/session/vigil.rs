//! Checks whether etcd answers while an operation waits. Requests are retried silently, so an operator would not notice that etcd
//! does not answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::voice::Voice;
use crate::store::{Key, ReadStore};

/// Time without an answer after which the operator is warned. The warning is repeated at this interval.
const SILENCE: Duration = Duration::from_secs(20);
/// Interval of the checks.
const LOOK: Duration = Duration::from_secs(4);

/// Checks etcd regularly, and reports when it does not answer.
pub(super) async fn keep<S: ReadStore + ?Sized>(voice: Voice, store: Arc<S>) {
    watch(store.as_ref(), &|text: &str| voice.warn(text)).await;
}

async fn watch(store: &(impl ReadStore + ?Sized), report: &(dyn Fn(&str) + Sync)) {
    // This key does not exist, but any answer shows that etcd works.
    let key = Key::from("/netsurgeon/");
    let (mut heard, mut told) = (Instant::now(), 0);
    loop {
        sleep(LOOK).await;
        if matches!(timeout(LOOK, store.get(&key)).await, Ok(Ok(_))) {
            if told > 0 {
                report(&format!("etcd answers again, after {} s", heard.elapsed().as_secs()));
            }
            (heard, told) = (Instant::now(), 0);
            continue;
        }
        let silent = heard.elapsed();
        let periods = silent.as_secs().checked_div(SILENCE.as_secs()).unwrap_or_default();
        if periods > told {
            told = periods;
            report(&format!(
                "etcd at {} has not answered for {} s; the operation waits for it, and the journal has all completed \
                 steps",
                store.describe().trim_start_matches("etcd at "),
                silent.as_secs()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use async_trait::async_trait;

    use super::*;
    use crate::store::memory::MemoryStore;
    use crate::store::{Entry, KeyRange, Revision, StoreError, Visitor};

    /// A store that can be set to give no answer.
    struct Mute {
        store: MemoryStore,
        is_mute: AtomicBool,
    }

    #[async_trait]
    impl ReadStore for Mute {
        fn describe(&self) -> String {
            "etcd at http://127.0.0.1:2379".to_string()
        }

        async fn revision(&self) -> Result<Revision, StoreError> {
            self.store.revision().await
        }

        async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
            while self.is_mute.load(Ordering::Relaxed) {
                sleep(Duration::from_secs(1)).await;
            }
            self.store.get(key).await
        }

        async fn scan(
            &self,
            ranges: &[KeyRange],
            at: Option<Revision>,
            visitor: &mut Visitor<'_>,
        ) -> Result<Revision, StoreError> {
            self.store.scan(ranges, at, visitor).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_etcd_is_reported_until_it_answers_again() {
        let store = Mute { store: MemoryStore::new(), is_mute: AtomicBool::new(false) };
        let said = Mutex::new(Vec::new());
        let note = |text: &str| said.lock().unwrap().push(text.to_string());
        let script = async {
            sleep(Duration::from_mins(10)).await;
            assert_eq!(said.lock().unwrap().len(), 0, "it answers");
            store.is_mute.store(true, Ordering::Relaxed);
            sleep(Duration::from_secs(19)).await;
            assert_eq!(said.lock().unwrap().len(), 0, "not yet");
            sleep(Duration::from_secs(46)).await;
            store.is_mute.store(false, Ordering::Relaxed);
            sleep(Duration::from_mins(10)).await;
        };
        tokio::select! {
            () = watch(&store, &note) => unreachable!(),
            () = script => {}
        }
        let said = said.into_inner().unwrap();
        let [first, second, .., last] = said.as_slice() else { panic!("{said:?}") };
        assert!(first.starts_with("etcd at http://127.0.0.1:2379 has not answered for 2"), "{first}");
        assert!(second.contains("for 4"), "{second}");
        assert!(last.starts_with("etcd answers again, after "), "{last}");
        assert!(said.len() <= 5, "{said:?}");
    }
}
