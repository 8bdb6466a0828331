//! Kinds of lines that a session reports.

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// Why the command failed.
    Error,
    /// Where the command paused; not an error.
    Paused,
    /// The cause of that.
    Cause,
    /// What to do about it.
    Hint,
    /// What the user should know before continuing.
    Warning,
    /// What the user may want to know.
    Note,
    /// What is running, or has run.
    Progress,
}
