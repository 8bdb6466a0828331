//! The record of a step: how it stands, how it came there, and what its way back needs to know.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Begun; the outcome is not known.
    Started,
    /// Carried out.
    Done,
    /// Not carried out.
    Failed,
    /// Undoing begun; the outcome is not known.
    UndoStarted,
    /// Undone.
    UndoDone,
    /// Could not be undone.
    UndoFailed,
    /// Undone with its batch, which is to be begun anew: as if it had never been begun.
    Reset,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Started => "started",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::UndoStarted => "undo-started",
            Self::UndoDone => "undo-done",
            Self::UndoFailed => "undo-failed",
            Self::Reset => "reset",
        })
    }
}

impl State {
    /// Whether what the step did is there: it was done, and not undone to the end.
    pub fn is_in_force(self) -> bool {
        matches!(self, Self::Done | Self::UndoStarted | Self::UndoFailed)
    }

    /// Whether undoing has begun.
    pub fn is_of_the_way_back(self) -> bool {
        matches!(self, Self::UndoStarted | Self::UndoDone | Self::UndoFailed)
    }

    /// Whether a step in state `from` (`None`: never begun) may go to state `to`.
    pub fn may_follow(from: Option<Self>, to: Self) -> bool {
        use State::{Done, Failed, Reset, Started, UndoDone, UndoFailed, UndoStarted};
        let from = from.filter(|from| *from != Reset);
        // What matters on the way back only was never begun before it is undone.
        matches!(
            (from, to),
            (None | Some(Started), Started | Done | Failed)
                | (Some(Failed | UndoDone), Started | Done)
                // A wait that is owed again.
                | (Some(Done), Done)
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
    /// How it stands.
    pub state: State,
    /// Every state that it was in, with the time in seconds since 1970.
    pub history: Vec<(State, i64)>,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What was found before an effect was begun, for its way back. Boxed: most steps have none, and a journal has many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<Value>>,
    /// What an effect has made: a uid, the id of a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Box<Value>>,
}

/// What is recorded with a step's new state; what is `None` stays as it was recorded.
#[derive(Debug, Clone, Default)]
pub struct Noted {
    /// Why it failed.
    pub error: Option<String>,
    /// See [`Record::before`].
    pub before: Option<Value>,
    /// See [`Record::made`].
    pub made: Option<Value>,
}

impl Noted {
    /// Why it failed.
    pub fn error(reason: String) -> Self {
        Self { error: Some(reason), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_states() {
        use State::{Done, Failed, Reset, Started, UndoDone, UndoFailed, UndoStarted};
        let all = [Started, Done, Failed, UndoStarted, UndoDone, UndoFailed, Reset];
        let table: [(Option<State>, &[State]); 8] = [
            (None, &[Started, Done, Failed, UndoStarted, UndoDone, UndoFailed]),
            (Some(Started), &[Started, Done, Failed, UndoStarted, UndoDone, UndoFailed]),
            (Some(Done), &[Done, UndoStarted, UndoDone, UndoFailed, Reset]),
            (Some(Failed), &[Started, Done, Failed, UndoStarted, UndoDone, UndoFailed, Reset]),
            (Some(UndoStarted), &[UndoStarted, UndoDone, UndoFailed, Reset]),
            (Some(UndoDone), &[Started, Done, Reset]),
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
