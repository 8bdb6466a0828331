//! Checks whether etcd answers while an operation runs. Failed requests are retried silently, so without this check an operator
//! would not notice that etcd does not answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::ui::Ui;
use crate::store::{Key, ReadStore};

/// After this time without an answer, the session warns the operator. The session repeats the warning at this interval.
const SILENCE: Duration = Duration::from_secs(20);
/// Interval between the checks.
const LOOK: Duration = Duration::from_secs(4);

/// Checks etcd regularly, and reports when it does not answer.
pub(super) async fn warn_when_silent<S: ReadStore + ?Sized>(ui: Ui, store: Arc<S>) {
    let answers = || {
        let store = store.clone();
        // This key does not exist, but any answer shows that etcd works.
        async move { store.get(&Key::from("/netsurgeon/")).await.is_ok() }
    };
    watch(&store.describe(), answers, |text: &str| ui.warn(text)).await;
}

async fn watch<A: Future<Output = bool>>(name: &str, answers: impl Fn() -> A, report: impl Fn(&str)) {
    let (mut heard, mut told) = (Instant::now(), 0);
    loop {
        sleep(LOOK).await;
        if timeout(LOOK, answers()).await.unwrap_or(false) {
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
                "etcd at {} does not answer ({} s so far); the operation waits for etcd, and the journal has every completed step",
                name.trim_start_matches("etcd at "),
                silent.as_secs()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_etcd_is_reported_until_it_answers_again() {
        let is_mute = AtomicBool::new(false);
        let answers = || async {
            while is_mute.load(Ordering::Relaxed) {
                sleep(Duration::from_secs(1)).await;
            }
            true
        };
        let said = Mutex::new(Vec::new());
        let note = |text: &str| said.lock().unwrap().push(text.to_string());
        let script = async {
            sleep(Duration::from_mins(10)).await;
            assert_eq!(said.lock().unwrap().len(), 0, "it answers");
            is_mute.store(true, Ordering::Relaxed);
            sleep(Duration::from_secs(19)).await;
            assert_eq!(said.lock().unwrap().len(), 0, "not yet");
            sleep(Duration::from_secs(46)).await;
            is_mute.store(false, Ordering::Relaxed);
            sleep(Duration::from_mins(10)).await;
        };
        tokio::select! {
            () = watch("etcd at http://127.0.0.1:2379", answers, note) => unreachable!(),
            () = script => {}
        }
        let said = said.into_inner().unwrap();
        let [first, second, .., last] = said.as_slice() else { panic!("{said:?}") };
        assert!(first.starts_with("etcd at http://127.0.0.1:2379 does not answer (2"), "{first}");
        assert!(second.contains("(4"), "{second}");
        assert!(last.starts_with("etcd answers again, after "), "{last}");
        assert!(said.len() <= 5, "{said:?}");
    }
}
