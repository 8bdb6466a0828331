//! Runs checks concurrently, and reports each reason once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::timeout;

use super::shared::api;
use super::{Check, Judged, Source, Verdict};

/// Selection of the checks to run.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Names of the checks to run. If the list is empty, all checks run except the checks in `skip`.
    pub only: Vec<String>,
    /// Names of the checks to skip.
    pub skip: Vec<String>,
    /// Time limit for one check.
    pub within: Duration,
}

impl Selection {
    fn wants(&self, name: &str) -> bool {
        let is_in = |list: &[String]| list.iter().any(|one| one == name);
        if self.only.is_empty() { !is_in(&self.skip) } else { is_in(&self.only) }
    }

    /// Returns whether a check that runs needs this source.
    pub fn needs<C>(&self, checks: &[Check<C>], source: Source) -> bool {
        checks.iter().any(|check| self.wants(check.name) && check.needs.contains(&source))
    }

    /// Returns whether the user has skipped a check of a source of data.
    fn is_skipped_source(&self, name: &str) -> bool {
        SOURCES.contains(&name) && self.skip.iter().any(|one| one == name)
    }
}

/// The result of a check that was run or skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckResult {
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
    /// The failed check that this check depends on; omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<&'static str>,
    /// The missing permission that the check needs.
    #[serde(skip)]
    denied: Option<String>,
    /// True if the check could not read its data.
    #[serde(skip)]
    is_unread: bool,
}

impl CheckResult {
    /// Returns the result of a check with this name.
    pub fn of(name: &'static str, why: &'static str, judged: Judged) -> Self {
        let Judged { verdict, observed, remedy, denied } = judged;
        let link = format!("docs/preflight.md#{name}");
        Self { name, verdict, observed, why, remedy, link, depends_on: None, denied, is_unread: false }
    }

    /// Returns the result of a check that cannot read its data for the reason that the skipped check `on` would report.
    fn skipped_with(self, on: &'static str) -> Self {
        let observed = format!("not run: depends on `{on}`, which is skipped");
        Self { verdict: Verdict::Skipped, observed, remedy: String::new(), depends_on: Some(on), ..self }
    }

    /// Returns the result of a check that cannot read its data because the check `on` failed.
    fn depending(self, on: &'static str) -> Self {
        let (observed, remedy) = (format!("not run: depends on `{on}`"), format!("repair `{on}` first"));
        Self { verdict: Verdict::Unknown, observed, remedy, depends_on: Some(on), ..self }
    }
}

/// Runs the checks concurrently, each with a time limit. `input`: the input of the checks.
pub async fn run<C>(checks: &[Check<C>], input: &C, selection: &Selection) -> Vec<CheckResult> {
    let results = checks.iter().map(async |check| {
        if !selection.wants(check.name) {
            return CheckResult::of(check.name, check.why, Judged::skipped("not run"));
        }
        let judged = timeout(selection.within, (check.judge)(input)).await;
        let late = || {
            let seconds = selection.within.as_secs();
            Judged::unknown(format!("no answer within {seconds} s"), "allow more time: `--within SECONDS`")
        };
        let judged = judged.unwrap_or_else(|_| Err(late()));
        let is_unread = judged.is_err();
        let judged = judged.unwrap_or_else(|judged| judged);
        CheckResult { is_unread, ..CheckResult::of(check.name, check.why, judged) }
    });
    let results = with_skipped(join_all(results).await, checks, input, selection).await;
    once(denied_by_api(results))
}

/// Checks that report why a source of data cannot be read: the API, etcd, the two clusters of a mirror, the flags in Pods. They only
/// read. A later source needs the earlier ones: if the API does not answer, `api` reports this, also if `api-flags` is skipped.
const SOURCES: [&str; 4] = [api::NAME, "etcd-members", "two-clusters", "api-flags"];

/// Skips the checks that depend on a skipped check. Which checks these are is known only by the reason: if a check cannot read its
/// data, a skipped check of a source runs here without being reported, and both reasons are compared.
async fn with_skipped<C>(
    mut results: Vec<CheckResult>,
    checks: &[Check<C>],
    input: &C,
    selection: &Selection,
) -> Vec<CheckResult> {
    let is_open = |result: &CheckResult| result.is_unread && is_open(result);
    for check in checks.iter().filter(|check| selection.is_skipped_source(check.name)) {
        if !results.iter().any(is_open) {
            return results;
        }
        let judged = timeout(selection.within, (check.judge)(input)).await;
        let reason = judged.ok().and_then(Result::err).map(|judged| judged.observed);
        let earlier = SOURCES.iter().take_while(|source| **source != check.name);
        let is_reported = earlier.into_iter().any(|source| {
            let reports = |result: &CheckResult| {
                result.name == *source && is_open(result) && reason.as_ref() == Some(&result.observed)
            };
            results.iter().any(reports)
        });
        if is_reported {
            continue;
        }
        let depends = |result: &CheckResult| {
            is_open(result)
                && (reason.as_ref() == Some(&result.observed)
                    || (check.name == api::NAME && result.denied.is_some()))
        };
        let each = results.into_iter();
        results = each.map(|one| if depends(&one) { one.skipped_with(check.name) } else { one }).collect();
    }
    results
}

fn is_open(result: &CheckResult) -> bool {
    matches!(result.verdict, Verdict::Fail | Verdict::Unknown) && result.depends_on.is_none()
}

/// If the user lacks permissions, the check `api` lists them. The checks that need these permissions depend on `api`. If `api` is
/// not selected, each check keeps its own reason.
fn denied_by_api(mut results: Vec<CheckResult>) -> Vec<CheckResult> {
    let denied: BTreeSet<String> = results.iter().filter_map(|result| result.denied.clone()).collect();
    let is_selected =
        |result: &&mut CheckResult| result.name == api::NAME && result.verdict != Verdict::Skipped;
    let Some(of_api) = results.iter_mut().find(is_selected).filter(|_| !denied.is_empty()) else {
        return results;
    };
    if of_api.verdict == Verdict::Pass {
        let missing = denied.into_iter().collect::<Vec<_>>().join(", ");
        let remedy = "give the kubeconfig of a user with these permissions, such as `/etc/kubernetes/admin.conf` on a control-plane host";
        let judged = Judged::fail(format!("{}; missing permissions: {missing}", of_api.observed), remedy);
        *of_api = CheckResult::of(of_api.name, of_api.why, judged);
    }
    let depending = |result: CheckResult| match result.denied {
        Some(_) => result.depending(api::NAME),
        None => result,
    };
    results.into_iter().map(depending).collect()
}

/// Reports each reason only once. If several checks cannot read their data for the same reason, such as an unreachable etcd, only
/// the first check shows the reason. A check that read its data keeps its observation and its remedy.
fn once(results: Vec<CheckResult>) -> Vec<CheckResult> {
    let mut reported: BTreeMap<String, &'static str> = BTreeMap::new();
    let each = results.into_iter().map(|result| {
        if !is_open(&result) || !result.is_unread {
            return result;
        }
        if let Some(first) = reported.get(&result.observed) {
            return result.depending(first);
        }
        reported.insert(result.observed.clone(), result.name);
        result
    });
    each.collect()
}

/// Returns whether one of the results has this verdict.
pub fn any(results: &[CheckResult], verdict: Verdict) -> bool {
    results.iter().any(|result| result.verdict == verdict)
}

#[cfg(test)]
mod tests {
    use futures_util::future::LocalBoxFuture;

    use super::*;
    use crate::preflight::Read;

    const NAMES: [&str; 5] = ["api", "nodes", "pods", "room", "webhooks"];

    fn results(judged: impl IntoIterator<Item = Judged>) -> Vec<CheckResult> {
        NAMES
            .into_iter()
            .zip(judged)
            .map(|(name, judged)| CheckResult::of(name, "it matters", judged))
            .collect()
    }

    #[test]
    fn shared_reason_is_reported_once() {
        let down = || Judged::fail("etcd cannot be used", "start it");
        let unread = |result| CheckResult { is_unread: true, ..result };
        let all = results([down(), Judged::pass("fine"), down(), down()]);
        let found = once(all.into_iter().map(unread).collect());
        let verdicts: Vec<Verdict> = found.iter().map(|result| result.verdict).collect();
        assert_eq!(verdicts, [Verdict::Fail, Verdict::Pass, Verdict::Unknown, Verdict::Unknown]);
        assert_eq!(found[0].observed, "etcd cannot be used");
        assert_eq!(found[3].observed, "not run: depends on `api`");
        assert_eq!(found[3].depends_on, Some("api"));
        let passed = results([Judged::pass("v1"), Judged::pass("v1")]).into_iter().map(unread).collect();
        assert!(!any(&once(passed), Verdict::Unknown), "passing checks may observe the same");
        let judged = once(results([down(), down()]));
        assert!(judged.iter().all(|one| one.remedy == "start it"), "both checks judged what they read");
    }

    #[tokio::test]
    async fn checks_that_depend_on_a_skipped_check_are_skipped() {
        type Input = Result<(), Judged>;
        fn reads(input: &Input) -> LocalBoxFuture<'_, Read<Judged>> {
            Box::pin(async { input.clone().map(|()| Judged::pass("fine")) })
        }
        fn fails(_: &Input) -> LocalBoxFuture<'_, Read<Judged>> {
            Box::pin(async { Ok(Judged::fail("another reason", "repair it")) })
        }
        let check = |name, judge| Check::<Input> { name, why: "it matters", needs: &[], judge };
        let checks = [
            check("etcd-members", reads),
            check("etcd-alarms", reads),
            check("etcd-space", reads),
            check("ssh", fails),
        ];
        let verdicts = async |skip: &[&str], only: &[&str], down: bool| -> Vec<Verdict> {
            let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
            let selection =
                Selection { only: names(only), skip: names(skip), within: Duration::from_secs(5) };
            let input = if down { Err(Judged::fail("etcd cannot be used", "start it")) } else { Ok(()) };
            run(&checks, &input, &selection).await.iter().map(|result| result.verdict).collect()
        };
        let (pass, fail, unknown, skipped) =
            (Verdict::Pass, Verdict::Fail, Verdict::Unknown, Verdict::Skipped);
        assert_eq!(verdicts(&["etcd-members"], &[], true).await, [skipped, skipped, skipped, fail]);
        assert_eq!(verdicts(&["etcd-members"], &[], false).await, [skipped, pass, pass, fail]);
        assert_eq!(verdicts(&[], &[], true).await, [fail, unknown, unknown, fail]);
        assert_eq!(verdicts(&["etcd-alarms"], &[], true).await, [fail, skipped, unknown, fail], "no source");
        let flags = [check("etcd-members", reads), check("api-flags", reads), check("ssh", reads)];
        let selection = Selection {
            only: Vec::new(),
            skip: vec!["api-flags".to_string()],
            within: Duration::from_secs(5),
        };
        let down = Err(Judged::fail("etcd cannot be used", "start it"));
        let found: Vec<Verdict> =
            run(&flags, &down, &selection).await.iter().map(|result| result.verdict).collect();
        assert_eq!(found, [fail, skipped, unknown], "an earlier source reports the reason");
        assert_eq!(
            verdicts(&[], &["etcd-space"], true).await,
            [skipped, skipped, fail, skipped],
            "it was asked for"
        );
    }

    #[test]
    fn missing_permissions_are_listed_by_the_check_api() {
        let denied = |permission: &str| Judged::denied(format!("no permission to {permission}"), permission);
        let judged = |api: Judged| {
            let rest = [denied("list Node"), denied("list Pod"), denied("list Node"), Judged::pass("fine")];
            once(denied_by_api(results([api].into_iter().chain(rest))))
        };
        let found = judged(Judged::pass("https://api answers"));
        assert_eq!(found[0].verdict, Verdict::Fail);
        assert_eq!(found[0].observed, "https://api answers; missing permissions: list Node, list Pod");
        for result in &found[1..4] {
            assert_eq!((result.verdict, result.depends_on), (Verdict::Unknown, Some("api")), "{result:?}");
        }
        assert_eq!(found[4].verdict, Verdict::Pass);
        let without = judged(Judged::skipped("not run"));
        assert!(without[1].observed.starts_with("no permission to"), "each check keeps its reason");
        let broken = judged(Judged::fail("the API cannot be used", "x"));
        assert_eq!(broken[0].observed, "the API cannot be used");
    }
}
