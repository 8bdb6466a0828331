//! The record of a step: its state, its history, and the data that its rollback needs.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::words::brief;

/// The state of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Started; the outcome is unknown.
    Started,
    /// Executed.
    Done,
    /// Failed; not executed.
    Failed,
    /// Undo started; the outcome is unknown.
    UndoStarted,
    /// Undone.
    UndoDone,
    /// Could not be undone.
    UndoFailed,
    /// Undone, because its batch was rolled back or its plan changed. The step counts as never started, and can run again.
    Reset,
}

/// Formats the name of the state. The journal uses the same name.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl State {
    /// Returns whether the effect of the step still applies: the step is done, and its undo is not complete.
    pub fn is_in_force(self) -> bool {
        matches!(self, Self::Done | Self::UndoStarted | Self::UndoFailed)
    }

    /// Returns whether the undo of the step has started.
    pub fn is_of_the_way_back(self) -> bool {
        matches!(self, Self::UndoStarted | Self::UndoDone | Self::UndoFailed)
    }

    /// Returns whether a step can change from state `from` (`None`: never started) to state `to`.
    pub fn may_follow(from: Option<Self>, to: Self) -> bool {
        use State::{Done, Failed, Reset, Started, UndoDone, UndoFailed, UndoStarted};
        let from = from.filter(|from| *from != Reset);
        // A step that runs only in a rollback changes to an undo state although it never started.
        matches!(
            (from, to),
            (None | Some(Started), Started | Done | Failed)
                | (Some(Failed | UndoDone), Started | Done)
                // A repeated wait, forward and back.
                | (Some(Done), Done)
                | (Some(UndoDone), UndoFailed)
                | (Some(Failed), Failed)
                | (Some(Done | Failed | UndoStarted | UndoDone | UndoFailed), Reset)
                | (
                    None | Some(Started | Done | Failed | UndoStarted | UndoFailed),
                    UndoStarted | UndoDone | UndoFailed
                )
        )
    }
}

/// The record of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Current state of the step.
    pub state: State,
    /// Every state of the step so far, each with its time in seconds since 1970.
    pub history: Vec<(State, i64)>,
    /// Why the step failed, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The state before the effect started, for the rollback of the effect. Boxed, because a journal has many steps, and most of
    /// them do not store this value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<Value>>,
    /// The result of the effect, such as a uid or the id of a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Box<Value>>,
}

/// The data to record with a new state of a step. If `before` or `made` is `None`, the recorded value is kept.
#[derive(Debug, Clone, Default)]
pub struct Noted {
    /// Why the step failed.
    pub error: Option<String>,
    /// See [`Record::before`].
    pub before: Option<Value>,
    /// See [`Record::made`].
    pub made: Option<Value>,
}

impl Noted {
    /// Returns the data to record for a failure. A long reason is shortened.
    pub fn error(reason: &str) -> Self {
        Self { error: Some(brief(reason).into_owned()), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn may_follow_matches_table_for_every_pair() {
        use State::{Done, Failed, Reset, Started, UndoDone, UndoFailed, UndoStarted};
        let all = [Started, Done, Failed, UndoStarted, UndoDone, UndoFailed, Reset];
        let table: [(Option<State>, &[State]); 8] = [
            (None, &[Started, Done, Failed, UndoStarted, UndoDone, UndoFailed]),
            (Some(Started), &[Started, Done, Failed, UndoStarted, UndoDone, UndoFailed]),
            (Some(Done), &[Done, UndoStarted, UndoDone, UndoFailed, Reset]),
            (Some(Failed), &[Started, Done, Failed, UndoStarted, UndoDone, UndoFailed, Reset]),
            (Some(UndoStarted), &[UndoStarted, UndoDone, UndoFailed, Reset]),
            (Some(UndoDone), &[Started, Done, UndoFailed, Reset]),
            (Some(Reset), &[Started, Done, Failed, UndoStarted, UndoDone, UndoFailed]),
            (Some(UndoFailed), &[UndoStarted, UndoDone, UndoFailed, Reset]),
        ];
        for (from, may) in table {
            for to in all {
                assert_eq!(State::may_follow(from, to), may.contains(&to), "{from:?} to {to}");
            }
        }
    }
}
