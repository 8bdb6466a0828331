//! Subjects that the operator has given up. The operation leaves a waived subject as it is, and continues and ends without it.
//! Without waivers, one object that another client changed or deleted would keep an operation open forever.
//!
//! A waiver that was given in a rollback ends all work on the subject. A waiver that was given in the forward direction ends only
//! the forward steps: a later rollback still tries to undo the steps of the subject, and leaves it as it is if that fails.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::summary::change_summary;
use super::{Journal, Summary};
use crate::operation::lease_holder::instant;
use crate::operation::{Effect, LeaseHolder, Ledger, OperationError, Step};

/// Maximum length of [`Waiver::observed`], in bytes. The summary contains all waivers of an operation, and a ConfigMap has at most
/// 1 MiB.
const MOST_OBSERVED: usize = 300;

/// A subject that the operation leaves as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiver {
    /// The subject ([`Step::subject`]), or the id of a step.
    pub subject: String,
    /// User and host of the process that recorded the waiver, for example `alice@cp-1`.
    pub by: String,
    /// Time of the waiver, in seconds since 1970.
    pub at: i64,
    /// Whether the waiver was given in a rollback.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub back: bool,
    /// The state of the subject at that time, as text. Empty if the kind of operation does not read it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub observed: String,
}

impl Waiver {
    /// Returns the waiver of a subject, given now by this process. A long text of its state is cut.
    pub fn of(subject: &str, back: bool, observed: &str, now: i64) -> Self {
        let by = LeaseHolder::of_this_process("", "", now).holder;
        let end = observed.floor_char_boundary(MOST_OBSERVED);
        let cut = if end < observed.len() { "..." } else { "" };
        let observed = format!("{}{cut}", observed.get(..end).unwrap_or_default());
        Self { subject: subject.to_string(), by, at: now, back, observed }
    }
}

/// Formats the waiver for people, for example as `given up by alice@cp-1 at 2027-01-15T08:00:00Z, then A 192.0.2.9 (TTL 60 s)`.
impl fmt::Display for Waiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, at, observed, .. } = self;
        write!(f, "given up by {by} at {}", instant(*at))?;
        if observed.is_empty() { Ok(()) } else { write!(f, ", then {observed}") }
    }
}

/// Adds waivers to a list. A waiver of a rollback replaces a waiver of the forward direction.
fn add(list: &mut Vec<Waiver>, waivers: &[Waiver]) {
    for waiver in waivers {
        match list.iter_mut().find(|known| known.subject == waiver.subject) {
            Some(known) if waiver.back && !known.back => known.clone_from(waiver),
            Some(_) => {}
            None => list.push(waiver.clone()),
        }
    }
}

impl Summary {
    /// Adds waivers.
    pub fn give_up(&mut self, waivers: &[Waiver]) {
        add(&mut self.given_up, waivers);
    }
}

impl Journal {
    /// Records waivers. A subject that is already waived keeps its waiver.
    pub async fn give_up(&mut self, ledger: &dyn Ledger, waivers: &[Waiver]) -> Result<(), OperationError> {
        change_summary(ledger, |summary| summary.give_up(waivers)).await?;
        add(&mut self.given_up, waivers);
        Ok(())
    }

    /// Returns the waiver of a subject, or of the step with this id.
    pub fn waiver(&self, subject: &str) -> Option<&Waiver> {
        self.given_up.iter().find(|waiver| waiver.subject == subject)
    }

    /// Returns the waiver for a step.
    pub(in crate::operation) fn waiver_of<E: Effect>(&self, step: &Step<E>) -> Option<&Waiver> {
        let is_its = |waiver: &&Waiver| waiver.subject == step.id.0 || waiver.subject == step.subject;
        self.given_up.iter().find(is_its)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiver_of_a_rollback_replaces_forward_waiver_only() {
        let waiver = |subject: &str, back, at| Waiver { at, ..Waiver::of(subject, back, "", at) };
        let mut list = Vec::new();
        add(&mut list, &[waiver("a", false, 1), waiver("b", true, 1)]);
        add(&mut list, &[waiver("a", true, 2), waiver("b", false, 2), waiver("b", true, 3)]);
        let found: Vec<_> = list.iter().map(|one| (one.subject.as_str(), one.back, one.at)).collect();
        assert_eq!(found, [("a", true, 2), ("b", true, 1)]);
    }

    #[test]
    fn long_state_is_cut_at_a_character() {
        let waiver = Waiver::of("a", false, &"ä".repeat(1000), 1);
        assert!(waiver.observed.len() <= MOST_OBSERVED + 3 && waiver.observed.ends_with("ä..."));
    }
}
