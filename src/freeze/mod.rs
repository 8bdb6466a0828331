//! Freezing what deploy pipelines change, by the API server itself.
//!
//! A [`Freeze`] says who is locked out of what, by whom and why. It compiles to objects of the cluster: a
//! ValidatingAdmissionPolicy with its binding ([`policy`]), or, where the API has no such policies, a
//! ResourceQuota in every namespace ([`quota`]), which covers less. [`live`] puts them in force on every API
//! server and takes them away again. The freeze itself is kept in an annotation of each object, so the cluster
//! alone says who holds it. A freeze that ends by itself has a timer beside its policy ([`timer`]).

pub mod live;
pub mod policy;
pub mod quota;
pub mod timer;

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::cluster::MANAGED_BY;

/// The name of every object of a freeze.
pub const NAME: &str = "netsurgeon-lock";
/// The name of what is tried, and never made, to see whether a freeze is in force.
pub const PROBE: &str = "netsurgeon-lock-probe";
/// Where each object keeps the freeze, as JSON.
const ANNOTATION: &str = "netsurgeon.io/lock";
/// Tells the objects of a freeze from others that are ours.
const PART: (&str, &str) = ("netsurgeon.io/part", "lock");
/// The namespace that is left out unless it is named: what keeps the cluster going is there.
const OWN_NAMESPACE: &str = "kube-system";
/// The shape of the annotation.
pub const VERSION: u8 = 1;

/// How the API server is made to refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// A ValidatingAdmissionPolicy (Kubernetes 1.30 and later).
    Policy,
    /// ResourceQuotas.
    Quota,
}

/// What is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// Services.
    Services,
    /// Workloads: Deployments, StatefulSets, DaemonSets, ReplicaSets, Jobs, CronJobs, and Pods made by hand.
    Deploys,
    /// Both.
    All,
}

impl What {
    /// Whether Services are among it.
    pub fn services(self) -> bool {
        self != Self::Deploys
    }

    /// Whether workloads are among it.
    pub fn deploys(self) -> bool {
        self != Self::Services
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Services => "Services",
            Self::Deploys => "workloads",
            Self::All => "Services and workloads",
        })
    }
}

/// Where it is frozen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// These namespaces; with none, all of them.
    pub only: BTreeSet<String>,
    /// But for these.
    pub without: BTreeSet<String>,
}

impl Scope {
    /// Returns the namespaces named, without the ones left out; `kube-system` is left out unless it is named.
    pub fn new(only: &[String], without: &[String]) -> Self {
        let only: BTreeSet<String> = only.iter().cloned().collect();
        let mut without: BTreeSet<String> = without.iter().cloned().collect();
        if only.is_empty() {
            without.insert(OWN_NAMESPACE.to_string());
        }
        Self { only, without }
    }

    /// Whether a namespace is in it.
    pub fn has(&self, namespace: &str) -> bool {
        (self.only.is_empty() || self.only.contains(namespace)) && !self.without.contains(namespace)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &BTreeSet<String>| {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        match (self.only.is_empty(), self.without.is_empty()) {
            (true, true) => f.write_str("every namespace"),
            (true, false) => write!(f, "every namespace but {}", list(&self.without)),
            (false, true) => f.write_str(&list(&self.only)),
            (false, false) => write!(f, "{} without {}", list(&self.only), list(&self.without)),
        }
    }
}

/// Who is not locked out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exempt {
    /// Users by their names; service accounts as `system:serviceaccount:NAMESPACE:NAME`.
    pub users: BTreeSet<String>,
    /// Groups.
    pub groups: BTreeSet<String>,
}

/// A freeze: who is locked out of what, by whom and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    /// The shape of this record, 1.
    pub version: u8,
    /// Tells this freeze from every other, and from itself before it was changed.
    pub id: String,
    /// Whose it is: `USER@HOST`.
    pub holder: String,
    /// The holder's name in the cluster, who is exempt.
    pub user: String,
    /// Why.
    pub reason: String,
    /// The operation that it is for.
    pub operation: Option<String>,
    /// Since when, in seconds since 1970.
    pub since: i64,
    /// How long it lasts, in seconds; without it, until it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
    /// How.
    pub method: Method,
    /// What.
    pub what: What,
    /// Where.
    pub scope: Scope,
    /// For whom not.
    pub exempt: Exempt,
}

impl Freeze {
    /// Reads the freeze that an object is of; `None` if its annotation is none of ours, or of a later version.
    pub fn of(object: &Value) -> Option<Self> {
        let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
        serde_json::from_str(text).ok().filter(|freeze: &Self| freeze.version == VERSION)
    }

    /// Brings what was typed into one line each: messages of policies have no more.
    #[must_use]
    pub fn in_one_line(mut self) -> Self {
        for text in [&mut self.reason, &mut self.holder, &mut self.user] {
            *text = one_line(text);
        }
        self.operation = self.operation.as_deref().map(one_line);
        self
    }

    /// Whether both are the same person's.
    pub fn is_of_the_holder_of(&self, other: &Self) -> bool {
        (&self.holder, &self.user) == (&other.holder, &other.user)
    }

    /// Whether both lock the same people out of the same things for the same reason.
    pub fn does_the_same_as(&self, other: &Self) -> bool {
        let timeless = |freeze: &Self| Self { id: String::new(), since: 0, ..freeze.clone() };
        timeless(self) == timeless(other)
    }

    /// Says whose it is, why, and since when.
    pub fn says(&self) -> String {
        let operation = match &self.operation {
            Some(operation) => format!(" (operation {operation})"),
            None => String::new(),
        };
        let Self { reason, holder, user, .. } = self;
        let until = self.until_text().map(|until| format!(" until {until}")).unwrap_or_default();
        format!("{reason}{operation}; locked by {holder} as {user} since {}{until}", self.since_text())
    }

    /// Returns the time as text (RFC 3339).
    pub fn since_text(&self) -> String {
        time_text(self.since)
    }

    /// Returns when it ends by itself, as text; `None` if it does not.
    pub fn until_text(&self) -> Option<String> {
        self.seconds.map(|seconds| time_text(self.since.saturating_add(seconds.into())))
    }

    /// Returns what identifies an object of this freeze.
    fn metadata(&self, name: &str, namespace: Option<&str>) -> Value {
        // Plain data with text keys always serialises.
        let record = serde_json::to_string(self).unwrap_or_default();
        let mut metadata = json!({
            "name": name,
            "labels": {MANAGED_BY.0: MANAGED_BY.1, PART.0: PART.1},
            "annotations": {ANNOTATION: record},
        });
        if let (Some(namespace), Some(members)) = (namespace, metadata.as_object_mut()) {
            members.insert("namespace".to_string(), namespace.into());
        }
        metadata
    }

    /// Returns what would be made if nothing were locked: never made, only tried.
    pub fn probe(&self, namespace: &str) -> Value {
        let metadata = json!({"name": PROBE, "namespace": namespace});
        if self.what.services() {
            // Headless, so that no allocator is asked.
            return json!({
                "apiVersion": "v1", "kind": "Service", "metadata": metadata,
                "spec": {"clusterIP": "None", "ports": [{"port": 1}]},
            });
        }
        let labels = json!({"app": PROBE});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": 0, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "none", "image": "none"}]},
                },
            },
        })
    }
}

fn time_text(seconds: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(seconds).ok();
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_else(|| seconds.to_string())
}

/// A text without line breaks and other control characters.
fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_control() || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn freeze() -> Freeze {
        let users = BTreeSet::from(["kubernetes-admin".to_string()]);
        Freeze {
            version: VERSION,
            id: "f1".into(),
            holder: "ops@host-1".into(),
            user: "kubernetes-admin".into(),
            reason: "Services are being renumbered".into(),
            operation: Some("20260101T000000Z-abcd".into()),
            since: 1_767_225_600,
            seconds: None,
            method: Method::Policy,
            what: What::Services,
            scope: Scope::new(&[], &[]),
            exempt: Exempt { users, groups: BTreeSet::new() },
        }
    }

    #[test]
    fn a_freeze_is_read_back_from_its_objects() {
        for object in [policy::policy(&freeze()), policy::binding(&freeze()), quota::quota(&freeze(), "shop")]
        {
            assert_eq!(Freeze::of(&object), Some(freeze()), "{object}");
            assert_eq!(object["metadata"]["labels"][MANAGED_BY.0], MANAGED_BY.1);
        }
        let later = Freeze { version: 2, ..freeze() };
        assert_eq!(Freeze::of(&policy::policy(&later)), None);
        assert_eq!(Freeze::of(&json!({"metadata": {}})), None);
    }

    #[test]
    fn a_scope_leaves_kube_system_out_unless_it_is_named() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let all = Scope::new(&[], &names(&["ci"]));
        assert!(all.has("shop") && !all.has("kube-system") && !all.has("ci"));
        assert_eq!(all.to_string(), "every namespace but `ci`, `kube-system`");
        let one = Scope::new(&names(&["kube-system", "shop"]), &names(&["shop"]));
        assert!(one.has("kube-system") && !one.has("shop") && !one.has("other"));
    }

    #[test]
    fn what_it_says_is_one_line_whatever_was_typed() {
        let freeze = Freeze { reason: "a\n\tb \u{7}c".into(), ..freeze() }.in_one_line();
        assert_eq!(
            freeze.says(),
            "a b c (operation 20260101T000000Z-abcd); locked by ops@host-1 as kubernetes-admin since \
             2026-01-01T00:00:00Z"
        );
    }

    #[test]
    fn a_freeze_that_ends_by_itself_says_when() {
        let freeze = Freeze { seconds: Some(5400), ..freeze() };
        assert!(
            freeze.says().ends_with("since 2026-01-01T00:00:00Z until 2026-01-01T01:30:00Z"),
            "{}",
            freeze.says()
        );
        assert_eq!(Freeze::of(&timer::timer(&freeze).unwrap()), Some(freeze));
    }

    #[test]
    fn the_same_freeze_of_another_time_is_the_same() {
        let later = Freeze { id: "f2".into(), since: 1_800_000_000, ..freeze() };
        assert!(freeze().does_the_same_as(&later));
        assert!(!freeze().does_the_same_as(&Freeze { what: What::All, ..freeze() }));
        assert!(!freeze().is_of_the_holder_of(&Freeze { holder: "ops@host-2".into(), ..freeze() }));
    }
}
