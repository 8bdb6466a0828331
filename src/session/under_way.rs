//! The operation that a command means if it names none: the only operation that is under way.

use super::Failure;
use crate::operation::Listed;

/// Which operations a command can mean.
#[derive(Debug, Clone, Copy)]
pub struct Candidates {
    /// Their kind, in singular and plural, such as `("cutover", "cutovers")`.
    pub kind: (&'static str, &'static str),
    /// Whether the command is also for an operation that has ended, if the user names it.
    pub with_ended: bool,
    /// The command, for a hint that works when pasted with an id; `None` if several commands ask.
    pub command: Option<&'static str>,
}

impl Candidates {
    /// Operations of any kind.
    pub const ANY: Self = Self { kind: ("operation", "operations"), with_ended: true, command: None };

    /// Returns the only one of these operations that is under way. `listed` returns the entry of an operation in the list.
    pub fn only_under_way<T>(&self, all: Vec<T>, listed: impl Fn(&T) -> &Listed) -> Result<T, Failure> {
        let (one, many) = self.kind;
        let (mut open, ended): (Vec<T>, Vec<T>) =
            all.into_iter().partition(|found| listed(found).summary.is_under_way());
        match (open.pop(), open.as_slice()) {
            (Some(found), []) => Ok(found),
            (None, _) => {
                let ended = ended.iter().map(&listed).filter(|_| self.with_ended);
                let last = ended.max_by_key(|found| found.summary.started).map(|found| &found.operation);
                let last = last.map(|last| match self.command {
                    Some(command) => format!("for the last {one} that has ended: `{command} {last}`"),
                    None => format!("the last {one} that has ended is `{last}`: add this id to the command"),
                });
                Err(Failure::refused(format!("no {one} of this cluster is under way")).hints(last).hint(
                    format!("`netsurgeon operation list` lists the {many} that have ended: give the id of one of them"),
                ))
            }
            (Some(last), others) => {
                let ids = others.iter().chain([&last]).map(|found| format!("`{}`", listed(found).operation));
                let ids = ids.collect::<Vec<_>>().join(", ");
                Err(Failure::usage(format!("several {many} of this cluster are under way: {ids}"))
                    .hint("give the id of one of them"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Status, Summary};
    use crate::session::ExitKind;

    fn listed(operation: &str, status: Status, started: i64) -> Listed {
        let summary = Summary { started, status, ..Summary::default() };
        Listed { cluster: String::new(), operation: operation.to_string(), summary }
    }

    fn chosen(all: Vec<Listed>, with_ended: bool) -> Result<String, Failure> {
        let candidates =
            Candidates { kind: ("cutover", "cutovers"), with_ended, command: Some("netsurgeon dns status") };
        candidates.only_under_way(all, |one| one).map(|found| found.operation)
    }

    #[test]
    fn only_operation_under_way_is_chosen() {
        let all = || vec![listed("old", Status::Done, 1), listed("new", Status::Paused, 2)];
        assert_eq!(chosen(all(), false).expect("it is the only one"), "new");
        let several = all().into_iter().chain([listed("other", Status::Running, 3)]).collect();
        let failure = chosen(several, true).expect_err("there are two");
        assert_eq!(failure.kind, ExitKind::Usage);
        assert_eq!(
            failure.error.to_string(),
            "several cutovers of this cluster are under way: `new`, `other`"
        );
    }

    #[test]
    fn last_ended_operation_is_named_if_the_command_accepts_it() {
        let all = || vec![listed("last", Status::RolledBack, 2), listed("first", Status::Done, 1)];
        let failure = chosen(all(), true).expect_err("none is under way");
        assert_eq!(failure.error.to_string(), "no cutover of this cluster is under way");
        assert_eq!(failure.hints.len(), 2);
        assert!(failure.hints[0].contains("`netsurgeon dns status last`"), "{:?}", failure.hints);
        assert_eq!(chosen(all(), false).expect_err("none is under way").hints.len(), 1);
    }
}
