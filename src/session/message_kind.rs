//! The kinds of lines that a session reports.

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// Why the command failed.
    Error,
    /// Where the command paused; this is not an error.
    Paused,
    /// The cause of an error or of a pause.
    Cause,
    /// What to do next.
    Hint,
    /// Information that the user needs before continuing.
    Warning,
    /// Additional information for the user.
    Note,
    /// Which action is running, or has finished.
    Progress,
}
