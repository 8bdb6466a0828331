//! Whether a cluster is ready for what is about to be done: named checks, each with a verdict, what was seen, why it
//! matters, and what to do about it. Pure: what is judged was read elsewhere, by what cannot write.

pub mod api;
pub mod around;
pub mod backup;
pub mod cni;
pub mod dns;
pub mod drain;
pub mod etcd;
pub mod exposed;
pub mod external_dns;
pub mod flags;
pub mod hardening;
pub mod junit;
pub mod kept;
pub mod mirror;
pub mod nodes;
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

/// A check, before it is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: &'static str,
    /// Why it matters.
    pub why: &'static str,
}

const fn named(name: &'static str, why: &'static str) -> Named {
    Named { name, why }
}

/// The check that the others of a cluster depend on.
const API: Named = named("api", "most checks ask the API server, as the user of the kubeconfig");

/// What is looked at before a renumbering, in the order in which it is shown: first what everything else stands on.
pub const RENUMBER: &[Named] = &[
    API,
    named("etcd-members", "every write needs a quorum, and who loses one member more must not lose it"),
    named("etcd-alarms", "an etcd that has raised an alarm takes no writes, or cannot be trusted with them"),
    named(
        "etcd-space",
        "a renumbering writes each Service and its records several times over, and a full etcd stops",
    ),
    named("etcd-versions", "members of different minor versions are in the middle of an upgrade"),
    named("etcd-leader", "a leader that moves by itself will move again while Services are written"),
    named("zones", "a zone that fails takes its members along, and without a quorum nothing is written"),
    named("room", "etcd stops when it is full, and a host that tracks no more connections drops new ones"),
    named("encryption", "Services are edited in etcd as they are stored there, which must be readable"),
    named("backup", "a snapshot is the last way back, where it is of this cluster, whole and recent"),
    named(
        "api-servers",
        "each must be ready: a flip waits until every one of them has seen what was written",
    ),
    named(
        "api-versions",
        "API servers of different minor versions may store and repair addresses in different ways",
    ),
    named("versions-tested", "API servers repair addresses in ways that changed between versions"),
    named("api-flags", "API servers with different Service ranges overwrite each other's allocations"),
    named(
        "api-gates",
        "API servers with different gates keep, repair and validate Services in different ways",
    ),
    named(
        "etcd-overrides",
        "what is kept in another etcd, or under another prefix, is not where netsurgeon writes",
    ),
    named(
        "clocks",
        "addresses are dated ahead of now, and an API server whose clock is ahead takes them for old",
    ),
    named(
        "allocations",
        "what is wrong now is wrong afterwards, and harder to tell apart from what a move did",
    ),
    named("plan", "a move that cannot be planned cannot be carried out"),
    named(
        "kube-proxy",
        "every batch waits until every kube-proxy has applied it, and they hold the old addresses",
    ),
    named("windows", "kube-proxy on Windows was never measured with this protocol"),
    named("overlaps", "whoever has addresses of the new range already cannot be reached any more"),
    named("advertised", "routers outside that know the old range alone lead nobody to the new one"),
    named("kubeadm-config", "`kubeadm upgrade` writes the API servers' flag from it"),
    named("pinned", "what is applied again with the old address is refused, or deletes the Service"),
    named("gitops", "what puts Services back as they were works against a move, and takes holds away"),
    named(
        "webhooks",
        "a webhook that does not answer has changes of Services refused in the middle of a move",
    ),
    named(
        "certificates",
        "clients reach the API servers at the first address of the new range, and verify it",
    ),
    named("policies", "what admission refuses now it refuses in the middle of a move"),
    named("rights", "a right that is missing is found missing in the middle of a move"),
    named("secrets-at-rest", "a renumbering takes snapshots of etcd, and they have every Secret in them"),
    named("authorization", "whoever may change Services can undo a move while it is made"),
    named("ssh", "who logs in to a control-plane host has the keys of etcd, past every role"),
    named("images", "a Pod that is started again, to take the new addresses, needs its images"),
];

/// What is looked at before the network of Pods is changed: every node is drained once, and every Pod made anew.
pub const CNI: &[Named] = &[
    API,
    named(
        "etcd-members",
        "a control-plane host that is drained and restarted takes its member of etcd along",
    ),
    named("api-servers", "while one is restarted with its host, the others must answer"),
    named("nodes", "what is drained from one node must go to others"),
    named("csrs", "a node that joins waits until its certificate is approved"),
    named("network", "a network that is not whole cannot be told from one that the change has broken"),
    named("pod-ranges", "during the change both networks are there, and each address must be in one of them"),
    named("mtu", "packets that are too large for what is beneath are lost, and only large answers hang"),
    named(
        "agent-ports",
        "an agent that does not get its port does not start, and two tunnels on one mix their packets",
    ),
    named("host-ports", "a port of a node leads to a Pod only where the CNI maps it"),
    named("network-policies", "a policy that the new network does not know protects nobody"),
    named("budgets", "a drain waits for ever for a Pod that may not go"),
    named("drain-room", "a Pod that finds no room elsewhere is away until its node is back"),
    named("bare-pods", "a Pod that nobody makes anew is gone with its node"),
    named("local-storage", "what is kept on a node is lost, or out of reach, when it is drained"),
    named("single-pods", "what runs once is away while its Pod moves"),
    named(
        "pod-webhooks",
        "while there is no network, a webhook that must answer over it has every Pod refused",
    ),
    named("autoscalers", "what adds and removes nodes by itself works against whoever does so in order"),
    named("gitops", "what applies manifests by itself brings the old network back"),
    named("images", "every Pod is started again, and needs its images"),
    named("drain-rights", "a right that is missing is found missing in the middle of the change"),
];

/// What is looked at before the resources of some namespaces are copied from one cluster, the source, into another, the mirror.
pub const MIRROR: &[Named] = &[
    named("api-servers", "what is copied is read from them while they serve"),
    named(
        "two-clusters",
        "a copy onto itself overwrites what serves, and an older version does not know every field",
    ),
    named("namespaces", "what is not there is not copied, and what is there already would be overwritten"),
    named("mirror-nodes", "what is copied runs on them"),
    named("kinds", "an object of a kind that the mirror does not serve cannot be made there"),
    named("stateless", "what has data is not copied, and neither is its data"),
    named(
        "classes",
        "classes belong to the cluster: what names one that is not there waits for ever, or is refused",
    ),
    named("issuers", "without a certificate the mirror answers, and no client trusts it"),
    named("pull-secrets", "on the mirror every image is pulled anew, with the credentials that are copied"),
    named("placement", "a Pod that no node takes stays Pending"),
    named("capacity", "what has no room stays Pending"),
    named("fixed-addresses", "two clusters cannot have the same address or the same port"),
    named("gitops", "what applies manifests by itself changes the source while it is copied"),
    named("mirror-webhooks", "a webhook that does not answer has what is copied refused"),
    named("source-rights", "what may not be read is not copied"),
    named("mirror-rights", "a right that is missing is found missing in the middle of the copying"),
];

/// What is looked at before names are led from a cluster to its mirror.
pub const DNS: &[Named] = &[
    named("zone-servers", "whoever asks a server that is behind, or gone, does not see the change"),
    named(
        "zone-updates",
        "a zone that cannot be changed is found so in the middle of the change, or of its way back",
    ),
    named("zone-transfer", "what else is in a zone is seen by who reads all of it"),
    named("twin-zones", "of two zones of one name, each for other clients, one alone would be changed"),
    named("names", "what nobody reaches now cannot be seen to go on working"),
    named("ttls", "who has asked keeps the old answer for so long, after the change and after its way back"),
    named("zone-share", "a change of much of a zone is more often a mistake than meant"),
    named("external-dns", "what keeps names as a cluster says changes them back, or deletes them"),
    named("owners", "a name that another cluster keeps is not this one's to change"),
    named("targets", "a name leads nowhere until the mirror has an address for it"),
    named("served-certificates", "clients that come to a certificate for another name turn away"),
    named("gitops", "what applies manifests by itself brings the old hosts and annotations back"),
    named("dns-rights", "a right that is missing is found missing in the middle of the change"),
];

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Pass,
    /// It works, and something should be done about it.
    Warn,
    /// It must be mended first.
    Fail,
    /// It could not be seen.
    Unknown,
    /// Nobody looked, because somebody asked not to.
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

/// What was seen, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// How it came out.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
    /// What to do; empty if there is nothing to do.
    pub todo: String,
    /// The permission without which it could not be seen, as in `list Node`.
    pub denied: Option<String>,
}

impl Judged {
    fn of(verdict: Verdict, seen: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { verdict, seen: seen.into(), todo: todo.into(), denied: None }
    }

    /// Everything is as it should be.
    pub fn pass(seen: impl Into<String>) -> Self {
        Self::of(Verdict::Pass, seen, "")
    }

    /// It works, and something should be done about it.
    pub fn warn(seen: impl Into<String>, todo: impl Into<String>) -> Self {
        Self::of(Verdict::Warn, seen, todo)
    }

    /// It must be mended first.
    pub fn fail(seen: impl Into<String>, todo: impl Into<String>) -> Self {
        Self::of(Verdict::Fail, seen, todo)
    }

    /// There is nothing to look at.
    pub fn skipped(seen: impl Into<String>) -> Self {
        Self::of(Verdict::Skipped, seen, "")
    }

    /// It could not be seen.
    pub fn unknown(seen: impl Into<String>, todo: impl Into<String>) -> Self {
        Self::of(Verdict::Unknown, seen, todo)
    }

    /// It could not be seen, because the user lacks a permission.
    pub fn denied(seen: impl Into<String>, permission: impl Into<String>) -> Self {
        Self { denied: Some(permission.into()), ..Self::unknown(seen, "") }
    }
}

/// A check that was carried out, or skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// How it came out.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
    /// Why it matters.
    pub why: &'static str,
    /// What to do; left out if there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub todo: String,
    /// Where it is described.
    pub link: String,
    /// The check whose failure is the reason why this one was not run; left out if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<&'static str>,
}

impl Check {
    /// Returns the check as it came out.
    pub fn of(named: &Named, judged: Judged) -> Self {
        let Judged { verdict, seen, todo, .. } = judged;
        let link = format!("docs/preflight.md#{}", named.name);
        Self { name: named.name, verdict, seen, why: named.why, todo, link, depends_on: None }
    }

    /// Returns the check as one that was not run, because another one failed.
    fn depending(self, on: &'static str) -> Self {
        let (seen, todo) = (format!("not run: depends on `{on}`"), format!("repair `{on}` first"));
        Self { verdict: Verdict::Unknown, seen, todo, depends_on: Some(on), ..self }
    }

    /// Returns the check as one that nobody carried out.
    pub fn skipped(named: &Named) -> Self {
        Self::of(named, Judged::skipped("not looked at"))
    }
}

/// Judges the versions of what must be of one minor version, as in `3.6.16` or `v1.36.3`.
fn one_minor<'v>(who: &str, versions: impl Iterator<Item = &'v str>, todo: &str) -> Judged {
    let versions: BTreeSet<&str> = versions.collect();
    let minors: BTreeSet<Vec<&str>> =
        versions.iter().map(|version| version.split('.').take(2).collect()).collect();
    let seen = versions.into_iter().collect::<Vec<_>>().join(", ");
    match minors.len() {
        0 => Judged::unknown(format!("no {who} says its version"), ""),
        1 => Judged::pass(seen),
        _ => Judged::fail(seen, todo),
    }
}

/// Returns a text within an object, as at `/metadata/name`; empty where there is none.
pub fn text<'v>(object: &'v Value, path: &str) -> &'v str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the members of a list within an object, as at `/spec/rules`; none where there is no list.
pub fn list<'v>(object: &'v Value, path: &str) -> &'v [Value] {
    object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns namespace and name of an object, in words.
pub fn subject(object: &Value) -> String {
    format!("`{}/{}`", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// Whether a Pod has not come to its end.
fn is_alive(pod: &Value) -> bool {
    !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// How many of a list are told.
const FEW: usize = 3;

/// Returns the first of a list, and how many more there are.
fn first_few(list: &[String]) -> String {
    let told = list.iter().take(FEW).cloned().collect::<Vec<_>>().join(", ");
    match list.len().checked_sub(FEW) {
        None | Some(0) => told,
        Some(more) => format!("{told}, and {more} more"),
    }
}

/// Reports a reason once where several checks failed for the same one, as without an etcd: the first of them has it.
pub fn once(checks: Vec<Check>) -> Vec<Check> {
    let mut reported: BTreeMap<String, &'static str> = BTreeMap::new();
    let is_open = |check: &Check| matches!(check.verdict, Verdict::Fail | Verdict::Unknown);
    let each = checks.into_iter().map(|check| {
        if !is_open(&check) || check.depends_on.is_some() {
            return check;
        }
        if let Some(first) = reported.get(&check.seen) {
            return check.depending(first);
        }
        reported.insert(check.seen.clone(), check.name);
        check
    });
    each.collect()
}

/// Makes checks of what was judged. Where the user lacks permissions, the check `api` lists them, and the checks that need
/// them depend on it; if it was not asked for, each keeps its own reason.
pub fn concluded(judged: Vec<(&Named, Option<Judged>)>) -> Vec<Check> {
    let denied: BTreeSet<String> =
        judged.iter().filter_map(|(_, judged)| judged.as_ref()?.denied.clone()).collect();
    let has_api = judged.iter().any(|(named, judged)| named.name == API.name && judged.is_some());
    let conclude = |(named, judged): (&Named, Option<Judged>)| {
        let Some(judged) = judged else { return Check::skipped(named) };
        if has_api && judged.denied.is_some() {
            return Check::of(named, judged).depending(API.name);
        }
        if named.name == API.name && judged.verdict == Verdict::Pass && !denied.is_empty() {
            let missing = denied.iter().cloned().collect::<Vec<_>>().join(", ");
            return Check::of(
                named,
                Judged::fail(
                    format!("{}; missing permissions: {missing}", judged.seen),
                    "give the kubeconfig of a user who has them, as `/etc/kubernetes/admin.conf` on a control-plane host",
                ),
            );
        }
        Check::of(named, judged)
    };
    once(judged.into_iter().map(conclude).collect())
}

/// Whether one of them came out so.
pub fn any(checks: &[Check], verdict: Verdict) -> bool {
    checks.iter().any(|check| check.verdict == verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once() {
        let check = |number: usize, judged: Judged| Check::of(&RENUMBER[number], judged);
        let gone = || Judged::fail("etcd cannot be used", "start it");
        let checks =
            once(vec![check(0, gone()), check(1, Judged::pass("fine")), check(2, gone()), check(3, gone())]);
        let verdicts: Vec<Verdict> = checks.iter().map(|check| check.verdict).collect();
        assert_eq!(verdicts, [Verdict::Fail, Verdict::Pass, Verdict::Unknown, Verdict::Unknown]);
        assert_eq!(checks[0].seen, "etcd cannot be used");
        assert_eq!(checks[3].seen, format!("not run: depends on `{}`", RENUMBER[0].name));
        assert_eq!(checks[3].depends_on, Some(RENUMBER[0].name));
        let twice = once(vec![check(0, Judged::pass("v1")), check(1, Judged::pass("v1"))]);
        assert!(!any(&twice, Verdict::Unknown), "what passes may look alike");
    }

    #[test]
    fn missing_permissions_are_listed_by_the_check_api() {
        let denied = |permission: &str| Judged::denied(format!("the user may not {permission}"), permission);
        let judged = |api: Option<Judged>| {
            let rest = [denied("list Node"), denied("list Pod"), denied("list Node"), Judged::pass("fine")];
            let all = [api].into_iter().chain(rest.into_iter().map(Some));
            concluded(RENUMBER.iter().zip(all).collect())
        };
        let checks = judged(Some(Judged::pass("https://api answers")));
        assert_eq!(checks[0].verdict, Verdict::Fail);
        assert_eq!(checks[0].seen, "https://api answers; missing permissions: list Node, list Pod");
        for check in &checks[1..4] {
            assert_eq!((check.verdict, check.depends_on), (Verdict::Unknown, Some("api")), "{check:?}");
        }
        assert_eq!(checks[4].verdict, Verdict::Pass);
        assert!(judged(None)[1].seen.starts_with("the user may not"), "nothing else has the reason");
        let broken = judged(Some(Judged::fail("the API cannot be used", "x")));
        assert_eq!(broken[0].seen, "the API cannot be used");
    }

    #[test]
    fn of_a_long_list_the_beginning_is_told() {
        let list: Vec<String> = (1..=5).map(|number| number.to_string()).collect();
        assert_eq!(first_few(&list), "1, 2, 3, and 2 more");
        assert_eq!(first_few(&list[..3]), "1, 2, 3");
    }
}
