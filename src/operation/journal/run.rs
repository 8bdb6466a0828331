//! The runs of an operation: when a process ran it, and how the run ended. The records of steps do not contain this. Without it, a
//! report cannot tell a process that was killed from a pause at a gate.

use serde::{Deserialize, Serialize};

use super::{Status, Summary};

/// Number of runs that a summary keeps. Older runs are dropped, because a summary must stay small.
const MOST: usize = 40;
/// Maximum length of a recorded reason, in bytes. Reasons contain texts of other systems.
const LONGEST: usize = 500;

/// One run of an operation by a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// When the run started, in seconds since 1970.
    pub started: i64,
    /// Whether the run was a rollback of the whole operation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub back: bool,
    /// When the run ended, in seconds since 1970. `None` while the process runs, and if it was killed or lost the operation lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<i64>,
    /// The status at the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The manual step that was open at the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manual_step: Option<String>,
    /// Why the run ended before its target, for example the name of a closed gate with its reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The exit status of the command, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<u8>,
}

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunEnd {
    /// The open manual step.
    pub manual_step: Option<String>,
    /// The reason, if the run did not reach its target.
    pub why: Option<String>,
    /// The exit status of the command.
    pub exit: Option<u8>,
}

impl RunEnd {
    /// A run that reached its target.
    pub const REACHED: Self = Self { manual_step: None, why: None, exit: Some(0) };

    /// A run that ended before its target.
    pub fn because(why: impl std::fmt::Display, exit: u8) -> Self {
        Self { why: Some(why.to_string()), exit: Some(exit), ..Self::default() }
    }
}

impl Summary {
    /// Records the start of a run. Does nothing if the same start is already recorded, after a lost answer.
    pub(super) fn begin_run(&mut self, back: bool, now: i64) {
        let is_recorded = |run: &Run| run.ended.is_none() && run.started == now && run.back == back;
        if self.runs.last().is_some_and(is_recorded) {
            return;
        }
        self.runs.push(Run { started: now, back, ..Run::default() });
        let surplus = self.runs.len().saturating_sub(MOST);
        self.runs.drain(..surplus);
    }

    /// Records the end of the current run. Does nothing if the end is already recorded.
    pub(super) fn end_run(&mut self, status: Option<Status>, end: &RunEnd, now: i64) {
        let Some(run) = self.runs.last_mut().filter(|run| run.ended.is_none()) else { return };
        run.ended = Some(now.max(run.started));
        run.status = status;
        run.manual_step.clone_from(&end.manual_step);
        run.why = end.why.as_deref().map(shortened);
        run.exit = end.exit;
    }

    /// Returns why the last run ended before its target; `None` if a run is under way or the reason is not known.
    pub fn why_stopped(&self) -> Option<&str> {
        self.runs.last().filter(|run| run.ended.is_some())?.why.as_deref()
    }
}

/// Cuts a text to the maximum length, at the end of a character.
fn shortened(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_string();
    }
    format!("{}…", text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_recorded_once_and_bounded() {
        let mut summary = Summary::default();
        summary.begin_run(false, 10);
        summary.begin_run(false, 10);
        assert_eq!(summary.runs.len(), 1, "the answer to the first write was lost");
        summary.end_run(Some(Status::Paused), &RunEnd::because("é".repeat(400), 6), 20);
        summary.end_run(Some(Status::Stopped), &RunEnd::because("later", 5), 30);
        let [run] = summary.runs.as_slice() else { panic!("{:?}", summary.runs) };
        assert_eq!((run.ended, run.status, run.exit), (Some(20), Some(Status::Paused), Some(6)));
        let why = summary.why_stopped().unwrap();
        assert!(why.len() <= LONGEST + 3 && why.ends_with("é…"), "{why}");
        for start in 0..100 {
            summary.begin_run(true, 100 + start);
        }
        assert_eq!((summary.runs.len(), summary.runs.last().unwrap().started), (MOST, 199));
        assert_eq!(summary.why_stopped(), None, "a run is under way");
    }

    #[test]
    fn summaries_of_older_versions_have_no_runs() {
        let summary: Summary = serde_json::from_str(
            r#"{"kind": "renumber", "digest": "d", "plan_parts": 1, "started": 5, "status": "paused", "keeps_journal": true}"#,
        )
        .unwrap();
        assert_eq!((summary.runs.len(), summary.removes_journal), (0, false));
    }
}
