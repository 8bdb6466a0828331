//! The kinds of operation. Each kind has its own code that resumes, rolls back and reports an operation. Only this file
//! distinguishes the kinds, so a new kind needs one more entry here.

use super::activation::Activations;
use super::cutover::Cutovers;
use super::kind::OfKind;
use super::mirror::Mirrors;
use super::renumber::Renumberings;
use super::rewrite::RangeRewrites;
use super::sans::SansOperations;
use crate::dns;
use crate::mirror::{self, activation, sans};
use crate::operation::Listed;
use crate::renumber::{plan, rewrite};
use crate::session::Failure;
use crate::session::refuse_ended;

/// Returns the implementation of the commands for one kind of operation.
fn of_kind(kind: &str) -> Option<&'static dyn OfKind> {
    match kind {
        plan::KIND => Some(&Renumberings),
        rewrite::KIND => Some(&RangeRewrites),
        dns::KIND => Some(&Cutovers),
        mirror::KIND => Some(&Mirrors),
        activation::KIND => Some(&Activations),
        sans::KIND => Some(&SansOperations),
        _ => None,
    }
}

/// Returns the implementation that resumes an operation. Fails if the operation has ended.
pub(super) fn to_resume(listed: &Listed) -> Result<&'static dyn OfKind, Failure> {
    refuse_ended(&listed.operation, &listed.summary)?;
    of(listed)
}

/// Returns the implementation for an operation.
pub(super) fn of(listed: &Listed) -> Result<&'static dyn OfKind, Failure> {
    let (id, kind) = (&listed.operation, &listed.summary.kind);
    of_kind(kind).ok_or_else(|| {
        Failure::refused(format!("operation `{id}` is of kind `{kind}`, which this version does not support"))
            .hint("use the version of netsurgeon that started the operation")
    })
}
