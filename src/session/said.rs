//! Kinds of lines that a session reports.

/// What kind of line it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// Why the command failed.
    Error,
    /// Where the command paused, which is no error.
    Paused,
    /// What caused that.
    Cause,
    /// What to do about it.
    Hint,
    /// What the user should know before continuing.
    Warning,
    /// What the user may want to know.
    Note,
    /// What is being done, or was.
    Progress,
}
