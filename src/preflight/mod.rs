//! Checks whether a cluster is ready for a planned change. The result of each check has a name, a verdict, what was observed,
//! why the check matters, and what to do. Checks only read data, or send changes as dry runs.
//!
//! # How to add a check
//!
//! 1. Create `COMMAND/CHECK_NAME.rs` with a constant `CHECK`: the name, why the check matters, the sources that it needs, and a
//!    function that reads what the check needs and returns a [`Judged`]. Data that several checks need comes from [`ClusterReader`](crate::inventory::ClusterReader), or from
//!    the input type of the command, such as [`cni::Cni`]. Both read each part once. Put the judgement into a function without I/O, and put its
//!    unit tests below it.
//! 2. Add the constant to `CHECKS` in `COMMAND/mod.rs`. The checks are displayed in the order of this list.
//! 3. Add a section with the name of the check to `docs/preflight.md`, in the same order. Add the permissions that the check
//!    needs to `deploy/rbac.yaml`.
//!
//! A check that several commands use is in `shared/`, as a function `check(why)`. What is read, and facts about objects that several
//! checks need, are in the room `inventory`. Its types for Pods and Services have only the fields that are read
//! (`inventory/pod.rs`, `inventory/service.rs`). If a check needs another field, add the field there.
//!
//! A check does not list the checks that it depends on. If data cannot be read, each check that needs the data returns the same
//! reason, and [`run`] reports this reason once.

pub mod cni;
pub mod dns;
mod etcd_status;
pub mod junit;
pub mod mirror;
pub mod renumber;
mod rights;
mod run;
mod secrets_role;
pub mod shared;

use std::collections::BTreeSet;
use std::fmt;

use futures_util::future::LocalBoxFuture;
use serde::Serialize;

use crate::inventory::ReadError;
use crate::words::{brief, first_few};

pub use run::{CheckResult, Selection, any, run};

/// A check. `C`: the type of the input that all checks of a command get.
pub struct Check<C: 'static> {
    /// Name of the check, for people and programs.
    pub name: &'static str,
    /// Why the check matters.
    pub why: &'static str,
    /// The sources that the check needs. netsurgeon connects only to sources that a selected check needs.
    needs: &'static [Source],
    /// Reads the data that the check needs, and judges it. This function does I/O; the function `judge` in the file of the check
    /// does no I/O.
    judge: for<'a> fn(&'a C) -> LocalBoxFuture<'a, Read<Judged>>,
}

/// A source of data that needs a connection. A zone needs none: it is read on first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The etcd of the cluster.
    Etcd,
    /// The API of the cluster.
    Api,
    /// The API of the mirror.
    Mirror,
}

/// Data that was read, or the result of a check that cannot read its data.
pub type Read<T> = Result<T, Judged>;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The state is as expected.
    Pass,
    /// The state is usable, but needs attention.
    Warn,
    /// The state must be repaired before the change.
    Fail,
    /// The state cannot be checked from here.
    Unknown,
    /// The check is excluded, or does not apply.
    Skipped,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The verdict of a check, what was observed, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// What the check observed.
    pub observed: String,
    /// What to do; empty if there is nothing to do.
    pub remedy: String,
    /// The missing permission that the check needs, for example `list Node`.
    pub denied: Option<String>,
}

impl Judged {
    fn of(verdict: Verdict, observed: impl Into<String>, remedy: impl Into<String>) -> Self {
        // An observation can contain text of any size from a server or an object.
        let observed = brief(&observed.into()).into_owned();
        Self { verdict, observed, remedy: remedy.into(), denied: None }
    }

    /// Returns a pass: the state is as expected.
    pub fn pass(observed: impl Into<String>) -> Self {
        Self::of(Verdict::Pass, observed, "")
    }

    /// Returns a warning: the state is usable, but needs attention.
    pub fn warn(observed: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::of(Verdict::Warn, observed, remedy)
    }

    /// Returns a failure: the state must be repaired before the change.
    pub fn fail(observed: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::of(Verdict::Fail, observed, remedy)
    }

    /// Returns a skipped check: there is nothing to check.
    pub fn skipped(observed: impl Into<String>) -> Self {
        Self::of(Verdict::Skipped, observed, "")
    }

    /// Returns an unknown result: the state cannot be checked from here.
    pub fn unknown(observed: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::of(Verdict::Unknown, observed, remedy)
    }

    /// Returns an unknown result: the check needs a permission that the user lacks.
    pub fn denied(observed: impl Into<String>, permission: impl Into<String>) -> Self {
        Self { denied: Some(permission.into()), ..Self::unknown(observed, "") }
    }
}

/// A check that cannot read its data fails if the cluster, the zone or an option is at fault. Otherwise its result is unknown.
impl From<ReadError> for Judged {
    fn from(error: ReadError) -> Self {
        let verdict = if error.is_fault { Verdict::Fail } else { Verdict::Unknown };
        Self { denied: error.denied, ..Self::of(verdict, error.observed, error.remedy) }
    }
}

/// Checks whether all versions, for example `3.6.16` or `v1.36.3`, have the same minor version.
fn one_minor<'v>(who: &str, versions: impl Iterator<Item = &'v str>, remedy: &str) -> Judged {
    let versions: BTreeSet<&str> = versions.collect();
    let minors: BTreeSet<Vec<&str>> =
        versions.iter().map(|version| version.split('.').take(2).collect()).collect();
    let observed = versions.into_iter().collect::<Vec<_>>().join(", ");
    match minors.len() {
        0 => Judged::unknown(format!("no {who} reports its version"), ""),
        1 => Judged::pass(observed),
        _ => Judged::fail(observed, remedy),
    }
}
