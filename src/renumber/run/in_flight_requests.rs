//! Waits for requests that a killed process has sent to an API server. A frozen API server may execute such a request when it
//! continues. A rollback or a retirement that ran meanwhile would miss the created object.

use std::time::Duration;

use tokio::time::sleep;

use super::{Ongoing, RenumberSession};
use crate::operation::{Record, State};

/// Maximum time from the record of a request to the end of the request, in seconds, with a margin. netsurgeon retries a request
/// for 30 s. An API server cancels a request that changes objects after 34 s (`requestTimeoutUpperBound`,
/// `apiserver/pkg/endpoints/handlers/rest.go`, v1.36.3).
const LONGEST: i64 = 70;

impl RenumberSession {
    /// Waits until requests of a killed process can no longer create a shadow Service.
    pub(super) async fn outlast_requests(&self, ongoing: &Ongoing) {
        let records = ongoing.journal.records().into_iter();
        let of_shadows = records.filter(|(step, _)| step.0.starts_with("make-shadow/"));
        let Some(sent) = of_shadows.filter_map(|(_, record)| cut_off_at(record)).max() else { return };
        // The wait is never longer than `LONGEST`, even if the clock of the host that sent the request is ahead.
        let left = sent.saturating_add(LONGEST).saturating_sub(self.ambient().now()).min(LONGEST);
        if let Ok(seconds) = u64::try_from(left)
            && seconds > 0
        {
            self.ui.note(&format!(
                "waiting {seconds} s, because an API server can still execute requests that an interrupted process sent"
            ));
            sleep(Duration::from_secs(seconds)).await;
        }
    }
}

/// Returns when a step was last started, in seconds since 1970. Returns `None` if its outcome is recorded, or if it never
/// started.
fn cut_off_at(record: &Record) -> Option<i64> {
    let last = record.history.iter().rposition(|(state, _)| *state == State::Started)?;
    let is_answer = |(state, _): &(State, i64)| matches!(state, State::Done | State::Failed);
    let is_known = record.history.get(last.saturating_add(1)).is_some_and(is_answer);
    record.history.get(last).filter(|_| !is_known).map(|(_, time)| *time)
}

#[cfg(test)]
mod tests {
    use super::State::{Done, Failed, Started, UndoDone};
    use super::*;

    #[test]
    fn request_counts_as_cut_off_unless_outcome_is_recorded() {
        let record = |history: &[(State, i64)]| Record {
            state: history.last().expect("a state").0,
            history: history.to_vec(),
            error: None,
            before: None,
            made: None,
        };
        assert_eq!(cut_off_at(&record(&[(Started, 7), (Done, 8)])), None);
        assert_eq!(cut_off_at(&record(&[(Started, 7)])), Some(7));
        assert_eq!(cut_off_at(&record(&[(Started, 7), (UndoDone, 9)])), Some(7));
        assert_eq!(cut_off_at(&record(&[(Started, 7), (Failed, 9)])), None);
        assert_eq!(cut_off_at(&record(&[(Started, 7), (Started, 9), (Done, 10)])), None);
    }
}
