//! Checks whether a cluster is ready for a planned change. Each check has a name, a verdict, what was observed, why it matters,
//! and what to do. This module does no I/O: the module `gather` reads the data, and cannot write.

pub mod api;
pub mod backup;
mod checks;
pub mod cni;
pub mod dns;
pub mod drain;
pub mod environment;
pub mod etcd;
pub mod exposed;
pub mod external_dns;
pub mod flags;
pub mod hardening;
pub mod junit;
pub mod kept;
pub mod mirror;
pub mod nodes;
pub mod objects;
pub mod pinned;
pub mod placing;
pub mod quantity;
pub mod rights;
pub mod room;
pub mod selectors;
pub mod stored;
pub mod webhooks;
pub mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::words::and_more;

pub use checks::{
    CNI, CniCheck, DNS, DnsCheck, MIRROR, MirrorCheck, Named, RENUMBER, RenumberCheck, SharedCheck,
};

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
        f.write_str(match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Unknown => "unknown",
            Self::Skipped => "skipped",
        })
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
    /// The missing permission that the check needs, as in `list Node`.
    pub denied: Option<String>,
}

impl Judged {
    fn of(verdict: Verdict, observed: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict, observed: observed.into(), remedy: remedy.into(), denied: None }
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

/// A check that was run or skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Name of the check.
    pub name: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// What the check observed.
    pub observed: String,
    /// Why the check matters.
    pub why: &'static str,
    /// What to do; omitted if there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// Link to the documentation of the check.
    pub link: String,
    /// Check whose failure prevents this check; omitted if this check was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<&'static str>,
}

impl Check {
    /// Returns a check with its result.
    pub fn of<I>(named: &Named<I>, judged: Judged) -> Self {
        let Judged { verdict, observed, remedy, .. } = judged;
        let link = format!("docs/preflight.md#{}", named.name);
        Self { name: named.name, verdict, observed, why: named.why, remedy, link, depends_on: None }
    }

    /// Returns the check as not run, because the check `on` failed.
    fn depending(self, on: &'static str) -> Self {
        let (observed, remedy) = (format!("not run: depends on `{on}`"), format!("repair `{on}` first"));
        Self { verdict: Verdict::Unknown, observed, remedy, depends_on: Some(on), ..self }
    }

    /// Returns the check as skipped.
    pub fn skipped<I>(named: &Named<I>) -> Self {
        Self::of(named, Judged::skipped("not run"))
    }
}

/// Checks whether all versions, as in `3.6.16` or `v1.36.3`, have the same minor version.
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

/// Returns the string at a path of an object, as in `/metadata/name`; empty if there is none.
pub fn text<'v>(object: &'v Value, path: &str) -> &'v str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the list at a path of an object, as in `/spec/rules`; empty if there is none.
pub fn list<'v>(object: &'v Value, path: &str) -> &'v [Value] {
    object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns namespace and name of an object, as text.
pub fn subject(object: &Value) -> String {
    format!("`{}/{}`", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// Number of list items that are shown.
const FEW: usize = 3;

/// Returns the first members of a list as text, and the number of the others.
fn first_few(list: &[String]) -> String {
    let told = list.iter().take(FEW).cloned().collect::<Vec<_>>().join(", ");
    told + &and_more(list.len().saturating_sub(FEW))
}

/// Reports each reason only once. If several checks fail for the same reason, such as an unreachable etcd, only the first check
/// shows it.
pub fn once(checks: Vec<Check>) -> Vec<Check> {
    let mut reported: BTreeMap<String, &'static str> = BTreeMap::new();
    let is_open = |check: &Check| matches!(check.verdict, Verdict::Fail | Verdict::Unknown);
    let each = checks.into_iter().map(|check| {
        if !is_open(&check) || check.depends_on.is_some() {
            return check;
        }
        if let Some(first) = reported.get(&check.observed) {
            return check.depending(first);
        }
        reported.insert(check.observed.clone(), check.name);
        check
    });
    each.collect()
}

/// Returns the checks with their results. If the user lacks permissions, the check `api` lists them, and the checks that need
/// them depend on `api`. If `api` is not selected, each check keeps its own reason.
pub fn concluded<I>(judged: Vec<(&Named<I>, Option<Judged>)>) -> Vec<Check> {
    let denied: BTreeSet<String> =
        judged.iter().filter_map(|(_, judged)| judged.as_ref()?.denied.clone()).collect();
    let has_api = judged.iter().any(|(named, judged)| named.name == checks::API && judged.is_some());
    let conclude = |(named, judged): (&Named<I>, Option<Judged>)| {
        let Some(judged) = judged else { return Check::skipped(named) };
        if has_api && judged.denied.is_some() {
            return Check::of(named, judged).depending(checks::API);
        }
        if named.name == checks::API && judged.verdict == Verdict::Pass && !denied.is_empty() {
            let missing = denied.iter().cloned().collect::<Vec<_>>().join(", ");
            return Check::of(
                named,
                Judged::fail(
                    format!("{}; missing permissions: {missing}", judged.observed),
                    "give the kubeconfig of a user with these permissions, such as `/etc/kubernetes/admin.conf` on a control-plane host",
                ),
            );
        }
        Check::of(named, judged)
    };
    once(judged.into_iter().map(conclude).collect())
}

/// Returns whether one of the checks has this verdict.
pub fn any(checks: &[Check], verdict: Verdict) -> bool {
    checks.iter().any(|check| check.verdict == verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_reason_is_reported_once() {
        let check = |number: usize, judged: Judged| Check::of(&RENUMBER[number], judged);
        let gone = || Judged::fail("etcd cannot be used", "start it");
        let checks =
            once(vec![check(0, gone()), check(1, Judged::pass("fine")), check(2, gone()), check(3, gone())]);
        let verdicts: Vec<Verdict> = checks.iter().map(|check| check.verdict).collect();
        assert_eq!(verdicts, [Verdict::Fail, Verdict::Pass, Verdict::Unknown, Verdict::Unknown]);
        assert_eq!(checks[0].observed, "etcd cannot be used");
        assert_eq!(checks[3].observed, format!("not run: depends on `{}`", RENUMBER[0].name));
        assert_eq!(checks[3].depends_on, Some(RENUMBER[0].name));
        let twice = once(vec![check(0, Judged::pass("v1")), check(1, Judged::pass("v1"))]);
        assert!(!any(&twice, Verdict::Unknown), "passing checks may observe the same");
    }

    #[test]
    fn missing_permissions_are_listed_by_the_check_api() {
        let denied = |permission: &str| Judged::denied(format!("no permission to {permission}"), permission);
        let judged = |api: Option<Judged>| {
            let rest = [denied("list Node"), denied("list Pod"), denied("list Node"), Judged::pass("fine")];
            let all = [api].into_iter().chain(rest.into_iter().map(Some));
            concluded(RENUMBER.iter().zip(all).collect())
        };
        let checks = judged(Some(Judged::pass("https://api answers")));
        assert_eq!(checks[0].verdict, Verdict::Fail);
        assert_eq!(checks[0].observed, "https://api answers; missing permissions: list Node, list Pod");
        for check in &checks[1..4] {
            assert_eq!((check.verdict, check.depends_on), (Verdict::Unknown, Some("api")), "{check:?}");
        }
        assert_eq!(checks[4].verdict, Verdict::Pass);
        assert!(judged(None)[1].observed.starts_with("no permission to"), "each check keeps its reason");
        let broken = judged(Some(Judged::fail("the API cannot be used", "x")));
        assert_eq!(broken[0].observed, "the API cannot be used");
    }

    #[test]
    fn long_lists_are_truncated_after_three() {
        let list: Vec<String> = (1..=5).map(|number| number.to_string()).collect();
        assert_eq!(first_few(&list), "1, 2, 3, and 2 more");
        assert_eq!(first_few(&list[..3]), "1, 2, 3");
    }
}
