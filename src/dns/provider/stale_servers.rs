//! The records that every name server must return, and the servers that do not return them yet.

use crate::dns::Name;
use crate::nameserver::{RecordKind, RecordSet};

/// A name, with the record sets that every server must return.
pub(in crate::dns) struct Expected<'n> {
    pub name: &'n Name,
    pub kinds: Vec<RecordKind>,
    pub sets: Vec<RecordSet>,
}

impl<'n> Expected<'n> {
    pub fn new(name: &'n Name, sets: Vec<RecordSet>) -> Self {
        Self { name, kinds: name.kinds(), sets }
    }
}

/// A server that does not return the expected records yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dns) struct Behind {
    /// What the server returns for the first of the names, or why it does not answer.
    pub why: String,
    /// The indices of the names.
    pub names: Vec<usize>,
    /// Whether a rollback must not end before this server returns the records, because the records have not changed otherwise.
    pub is_decisive: bool,
}

/// Returns what a server returns instead of the expected records. `answers`: for each name, what it returns; `None` if it returns
/// the expected records.
pub(in crate::dns) fn stale_servers(answers: Vec<Option<String>>) -> Option<Behind> {
    let late = answers.into_iter().enumerate().filter_map(|(index, answer)| Some((index, answer?)));
    let (names, whys): (Vec<usize>, Vec<String>) = late.unzip();
    let why = whys.into_iter().next()?;
    Some(Behind { why, names, is_decisive: false })
}
