//! Requests that a process had sent to an API server when it was killed: the API server may stand still, and carry them out
//! when it continues. What is undone or retired meanwhile would not find what they create.

use std::time::Duration;

use tokio::time::sleep;

use super::{Ongoing, RenumberSession};
use crate::operation::{Ambient as _, Record, State, SystemAmbient};

/// How long a request may be under way from its record on, in seconds, and some more: it is sent again for 30, and an API
/// server cancels one that changes something after 34 (`requestTimeoutUpperBound`,
/// `apiserver/pkg/endpoints/handlers/rest.go`, v1.36.3).
const LONGEST: i64 = 70;

impl RenumberSession {
    /// Waits until every request has ended by which a process that was killed would have created a shadow Service.
    pub(super) async fn outlast_requests(&self, ongoing: &Ongoing) {
        let records = ongoing.journal.records().into_iter();
        let of_shadows = records.filter(|(step, _)| step.0.starts_with("make-shadow/"));
        let Some(sent) = of_shadows.filter_map(|(_, record)| cut_off_at(record)).max() else { return };
        // Not longer where the clock of the host on which it was begun is ahead.
        let left = sent.saturating_add(LONGEST).saturating_sub(SystemAmbient.now()).min(LONGEST);
        if let Ok(seconds) = u64::try_from(left)
            && seconds > 0
        {
            self.voice.note(&format!(
                "waiting {seconds} s for requests that an interrupted process has sent: an API server may carry them out until then"
            ));
            sleep(Duration::from_secs(seconds)).await;
        }
    }
}

/// When a step was begun of whose outcome nobody has heard, in seconds since 1970.
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
    fn a_request_is_cut_off_unless_its_outcome_is_known() {
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
