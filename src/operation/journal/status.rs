//! The recorded status of an operation, and the status that commands show.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Summary;

/// The status of an operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// A process runs the operation forward.
    #[default]
    Running,
    /// A process rolls back the operation, or one of its batches.
    RollingBack,
    /// The process that ran the operation ended without recording a reason. The journal never contains this status
    /// ([`Summary::status_now`] returns it).
    Interrupted,
    /// The operation waits for the manual step in [`Summary::manual_step`].
    WaitingForManualStep,
    /// The operation was stopped on request, or a gate was closed.
    Paused,
    /// Every change is done. The previous state stays available until the operator completes the operation. Journals of version
    /// 0.1 call this status `held`.
    #[serde(alias = "held")]
    Soaking,
    /// A step failed. Journals of range rewrites of version 0.1 call this status `failed`.
    #[serde(alias = "failed")]
    Stopped,
    /// A step could not be undone, or was skipped after the point of no return.
    Stuck,
    /// The operation has ended.
    Done,
    /// The operation was rolled back.
    RolledBack,
    /// The operation has ended, and its journal is being removed.
    Removing,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 11] = [
        Self::Running,
        Self::RollingBack,
        Self::Interrupted,
        Self::WaitingForManualStep,
        Self::Paused,
        Self::Soaking,
        Self::Stopped,
        Self::Stuck,
        Self::Done,
        Self::RolledBack,
        Self::Removing,
    ];

    /// Returns whether the operation has ended and cannot be resumed.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::RolledBack | Self::Removing)
    }

    /// Returns whether a process runs the operation, or ran it when this status was recorded.
    pub fn is_at_work(self) -> bool {
        matches!(self, Self::Running | Self::RollingBack)
    }

    /// Returns the name of the status for programs. The journal uses the same name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::RollingBack => "rolling-back",
            Self::Interrupted => "interrupted",
            Self::WaitingForManualStep => "waiting-for-manual-step",
            Self::Paused => "paused",
            Self::Soaking => "soaking",
            Self::Stopped => "stopped",
            Self::Stuck => "stuck",
            Self::Done => "done",
            Self::RolledBack => "rolled-back",
            Self::Removing => "removing",
        }
    }
}

/// Formats the status for people, such as `rolling back`.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().replace('-', " "))
    }
}

impl Summary {
    /// Returns the current status of the operation, as every command shows it. `is_being_undone` is true if a step was undone in
    /// a rollback of the whole operation; a rollback of a batch does not count. `is_leased` is true if a process holds the
    /// operation lease for this operation.
    pub fn status_now(&self, is_being_undone: bool, is_leased: bool) -> Status {
        let is_back = is_being_undone || self.returning.is_some() || self.back;
        match self.status {
            ended if ended.has_ended() => ended,
            _ if is_leased && is_back => Status::RollingBack,
            _ if is_leased => Status::Running,
            recorded if recorded.is_at_work() => Status::Interrupted,
            recorded => recorded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(status: Status) -> Summary {
        Summary { status, ..Summary::default() }
    }

    #[test]
    fn status_round_trips_by_name() {
        for status in Status::ALL {
            let text = serde_json::to_string(&status).unwrap();
            assert_eq!(text, format!("\"{}\"", status.name()));
            assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
        }
        assert_eq!(Status::WaitingForManualStep.to_string(), "waiting for manual step");
    }

    #[test]
    fn statuses_of_older_journals_are_read() {
        let named = |name: &str| serde_json::from_str::<Status>(&format!("\"{name}\"")).unwrap();
        assert_eq!(named("held"), Status::Soaking);
        assert_eq!(named("failed"), Status::Stopped);
    }

    #[test]
    fn operation_with_held_lease_is_running_unless_it_has_ended() {
        for status in Status::ALL {
            let expected = |at_work| if status.has_ended() { status } else { at_work };
            assert_eq!(summary(status).status_now(false, true), expected(Status::Running), "{status}");
            let back = Summary { back: true, ..summary(status) };
            assert_eq!(back.status_now(false, true), expected(Status::RollingBack), "{status}");
            assert_eq!(summary(status).status_now(true, true), expected(Status::RollingBack), "{status}");
        }
    }

    #[test]
    fn operation_without_lease_is_interrupted() {
        for status in Status::ALL {
            let expected = if status.is_at_work() { Status::Interrupted } else { status };
            for undone in [false, true] {
                assert_eq!(summary(status).status_now(undone, false), expected, "{status}");
            }
        }
    }
}
