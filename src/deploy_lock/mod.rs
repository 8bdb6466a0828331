//! The deploy lock: API servers refuse the changes of deploy pipelines.
//!
//! A [`DeployLock`] describes a deploy lock: the locked kinds and namespaces, the exemptions, the holder and the reason. netsurgeon
//! creates objects from this description: a ValidatingAdmissionPolicy with its binding ([`policy`]). If the API server does not
//! serve such policies, netsurgeon creates a ResourceQuota in every namespace ([`quota`]). Quotas refuse fewer changes. [`api`]
//! creates the objects, deletes them, and verifies each change on every API server. An annotation of each object contains the
//! description, so the cluster itself shows the holder. A deploy lock with a time limit also has a timer ([`timer`]).

pub mod api;
pub mod policy;
pub mod quota;
pub mod timer;

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::kube_api::MANAGED_BY;

/// Name of every object of a deploy lock except its timer.
pub const NAME: &str = "netsurgeon-lock";
/// Name of the probe object. A dry run of its creation shows whether a deploy lock is active.
pub const PROBE: &str = "netsurgeon-lock-probe";
/// Annotation of each object, which contains the description of the deploy lock as JSON.
const ANNOTATION: &str = "netsurgeon.io/lock";
/// Label that distinguishes the objects of a deploy lock from other objects managed by netsurgeon.
const PART: (&str, &str) = ("netsurgeon.io/part", "lock");
/// Namespace that is excluded unless it is named explicitly, because it contains the components of the cluster.
const OWN_NAMESPACE: &str = "kube-system";
/// Version of the annotation's format.
pub const VERSION: u8 = 1;

/// The mechanism by which the API server refuses changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// A ValidatingAdmissionPolicy (Kubernetes 1.30 and later).
    Policy,
    /// A ResourceQuota in every namespace.
    Quota,
}

/// The locked kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// Services.
    Services,
    /// Workloads: Deployments, StatefulSets, DaemonSets, ReplicaSets, Jobs, CronJobs, and Pods created by hand.
    Deploys,
    /// Both Services and workloads.
    All,
}

impl What {
    /// Returns whether Services are locked.
    pub fn services(self) -> bool {
        self != Self::Deploys
    }

    /// Returns whether workloads are locked.
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

/// The locked namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Locked namespaces; if empty, all namespaces.
    pub only: BTreeSet<String>,
    /// Excluded namespaces.
    pub without: BTreeSet<String>,
}

impl Scope {
    /// Returns a scope with the namespaces in `only`, or with all namespaces if `only` is empty. Excludes the namespaces in
    /// `without`. Also excludes `kube-system`, unless it is in `only`.
    pub fn new(only: &[String], without: &[String]) -> Self {
        let only: BTreeSet<String> = only.iter().cloned().collect();
        let mut without: BTreeSet<String> = without.iter().cloned().collect();
        if only.is_empty() {
            without.insert(OWN_NAMESPACE.to_string());
        }
        Self { only, without }
    }

    /// Returns whether the scope contains a namespace.
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
            (true, false) => write!(f, "every namespace except {}", list(&self.without)),
            (false, true) => f.write_str(&list(&self.only)),
            (false, false) => write!(f, "{} without {}", list(&self.only), list(&self.without)),
        }
    }
}

/// Users and groups to which the deploy lock does not apply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exempt {
    /// User names. A service account has the name `system:serviceaccount:NAMESPACE:NAME`.
    pub users: BTreeSet<String>,
    /// Group names.
    pub groups: BTreeSet<String>,
}

/// Description of a deploy lock: the locked kinds and namespaces, the exemptions, the holder and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployLock {
    /// The version of this record's format, 1.
    pub version: u8,
    /// Unique id. Every change of the deploy lock gets a new id.
    pub id: String,
    /// The holder: `USER@HOST`.
    pub holder: String,
    /// User name of the holder in the cluster. This user is exempt.
    pub user: String,
    /// Reason for the deploy lock.
    pub reason: String,
    /// Id of the operation that needs the deploy lock.
    pub operation: Option<String>,
    /// Creation time of the deploy lock, in seconds since 1970.
    pub since: i64,
    /// Duration of the deploy lock, in seconds; `None` if it has no time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
    /// The mechanism of the deploy lock.
    pub method: Method,
    /// The locked kinds.
    pub what: What,
    /// The locked namespaces.
    pub scope: Scope,
    /// The exempt users and groups.
    pub exempt: Exempt,
}

impl DeployLock {
    /// Reads the deploy lock from the annotation of an object; `None` if the annotation is missing, invalid or of another
    /// version.
    pub fn of(object: &Value) -> Option<Self> {
        let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
        serde_json::from_str(text).ok().filter(|freeze: &Self| freeze.version == VERSION)
    }

    /// Joins the lines of each text, because the message of a policy must be a single line.
    #[must_use]
    pub fn in_one_line(mut self) -> Self {
        for text in [&mut self.reason, &mut self.holder, &mut self.user] {
            *text = one_line(text);
        }
        self.operation = self.operation.as_deref().map(one_line);
        self
    }

    /// Returns whether both deploy locks have the same holder.
    pub fn is_of_the_holder_of(&self, other: &Self) -> bool {
        (&self.holder, &self.user) == (&other.holder, &other.user)
    }

    /// Returns whether two deploy locks differ only in their id and creation time.
    pub fn does_the_same_as(&self, other: &Self) -> bool {
        let timeless = |freeze: &Self| Self { id: String::new(), since: 0, ..freeze.clone() };
        timeless(self) == timeless(other)
    }

    /// Describes the holder, the reason and the time of the deploy lock.
    pub fn says(&self) -> String {
        let operation = match &self.operation {
            Some(operation) => format!(" (operation {operation})"),
            None => String::new(),
        };
        let Self { reason, holder, user, .. } = self;
        let until = self.until_text().map(|until| format!(" until {until}")).unwrap_or_default();
        format!("{reason}{operation}; locked by {holder} as {user} since {}{until}", self.since_text())
    }

    /// Returns the creation time as text (RFC 3339).
    pub fn since_text(&self) -> String {
        time_text(self.since)
    }

    /// Returns the end of the deploy lock as text (RFC 3339); `None` if it has no time limit.
    pub fn until_text(&self) -> Option<String> {
        self.seconds.map(|seconds| time_text(self.since.saturating_add(seconds.into())))
    }

    /// Returns the metadata for an object of this deploy lock.
    fn metadata(&self, name: &str, namespace: Option<&str>) -> Value {
        // Data with text keys can always be serialized.
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

    /// Returns the probe, an object that API servers refuse while the deploy lock is active. The probe is sent only as a dry run,
    /// so it is never created.
    pub fn probe(&self, namespace: &str) -> Value {
        let metadata = json!({"name": PROBE, "namespace": namespace});
        if self.what.services() {
            // The Service is headless, so that no address is allocated.
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

/// Returns the text without line breaks or other control characters.
fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_control() || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn freeze() -> DeployLock {
        let users = BTreeSet::from(["kubernetes-admin".to_string()]);
        DeployLock {
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
    fn lock_round_trips_through_its_objects() {
        for object in [policy::policy(&freeze()), policy::binding(&freeze()), quota::quota(&freeze(), "shop")]
        {
            assert_eq!(DeployLock::of(&object), Some(freeze()), "{object}");
            assert_eq!(object["metadata"]["labels"][MANAGED_BY.0], MANAGED_BY.1);
        }
        let later = DeployLock { version: 2, ..freeze() };
        assert_eq!(DeployLock::of(&policy::policy(&later)), None);
        assert_eq!(DeployLock::of(&json!({"metadata": {}})), None);
    }

    #[test]
    fn scope_excludes_kube_system_unless_named() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let all = Scope::new(&[], &names(&["ci"]));
        assert!(all.has("shop") && !all.has("kube-system") && !all.has("ci"));
        assert_eq!(all.to_string(), "every namespace except `ci`, `kube-system`");
        let one = Scope::new(&names(&["kube-system", "shop"]), &names(&["shop"]));
        assert!(one.has("kube-system") && !one.has("shop") && !one.has("other"));
    }

    #[test]
    fn description_is_one_line() {
        let freeze = DeployLock { reason: "a\n\tb \u{7}c".into(), ..freeze() }.in_one_line();
        assert_eq!(
            freeze.says(),
            "a b c (operation 20260101T000000Z-abcd); locked by ops@host-1 as kubernetes-admin since \
             2026-01-01T00:00:00Z"
        );
    }

    #[test]
    fn lock_with_an_end_shows_it() {
        let freeze = DeployLock { seconds: Some(5400), ..freeze() };
        assert!(
            freeze.says().ends_with("since 2026-01-01T00:00:00Z until 2026-01-01T01:30:00Z"),
            "{}",
            freeze.says()
        );
        assert_eq!(DeployLock::of(&timer::timer(&freeze).unwrap()), Some(freeze));
    }

    #[test]
    fn lock_with_another_time_is_equal() {
        let later = DeployLock { id: "f2".into(), since: 1_800_000_000, ..freeze() };
        assert!(freeze().does_the_same_as(&later));
        assert!(!freeze().does_the_same_as(&DeployLock { what: What::All, ..freeze() }));
        assert!(!freeze().is_of_the_holder_of(&DeployLock { holder: "ops@host-2".into(), ..freeze() }));
    }
}
