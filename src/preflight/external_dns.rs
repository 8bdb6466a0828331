//! ExternalDNS, which manages the records of a zone by the objects of a cluster: its Deployments, and the owners of names.
//!
//! Flags, environment variables and the names of ownership records: ExternalDNS v0.22, `pkg/apis/externaldns/types.go` and
//! `registry/txt`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;

use super::objects::{subject, words};
use super::{Judged, first_few};
use crate::nameserver::Kind;

/// Prefixes of the annotations that contain a host name: until v0.21, and later.
const PREFIXES: [&str; 2] = ["external-dns.alpha.kubernetes.io/", "external-dns.kubernetes.io/"];

/// An ExternalDNS that is installed in a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Deployment of this ExternalDNS.
    pub subject: String,
    /// Whether the Deployment has replicas.
    pub runs: bool,
    /// Owner that this ExternalDNS writes into its records. `None` if the Deployment does not show the value.
    pub owner: Option<String>,
    /// Where this ExternalDNS records the owners of names. With `txt` the ownership records are in the zone.
    pub registry: String,
    /// Update policy. `sync` deletes records without an object; `upsert-only` and `create-only` delete no record.
    pub policy: String,
    /// DNS provider, as in `rfc2136` or `aws`.
    pub provider: String,
    /// Prefix and suffix of the names of ownership records, and the replacement for an asterisk.
    affixes: (String, String, String),
    annotations: Option<String>,
}

impl Controller {
    /// Finds every ExternalDNS of a cluster, by image or flags of the Deployments.
    pub fn all(deployments: &[Deployment]) -> Vec<Self> {
        deployments.iter().filter_map(Self::of).collect()
    }

    fn of(deployment: &Deployment) -> Option<Self> {
        let spec = deployment.spec.as_ref()?;
        let is_it = |container: &&Container| {
            let image =
                container.image.as_deref().and_then(|image| image.rsplit('/').next()).unwrap_or_default();
            image.starts_with("external-dns") || flag(container, "txt-owner-id").is_some()
        };
        let container = spec.template.spec.as_ref()?.containers.iter().find(is_it)?;
        let told = |name: &str, default: &str| flag(container, name).unwrap_or_else(|| default.to_string());
        let is_plain = |owner: &String| !owner.is_empty() && !owner.contains("$(");
        Some(Self {
            subject: subject(deployment),
            runs: spec.replicas != Some(0),
            owner: Some(told("txt-owner-id", "default")).filter(is_plain),
            registry: told("registry", "txt"),
            policy: told("policy", "sync"),
            provider: told("provider", "unknown"),
            affixes: (told("txt-prefix", ""), told("txt-suffix", ""), told("txt-wildcard-replacement", "*")),
            annotations: flag(container, "annotation-prefix"),
        })
    }
}

/// Returns the value of a flag, from the arguments or from the environment variables.
fn flag(container: &Container, name: &str) -> Option<String> {
    let mut rest = words(container);
    while let Some(word) = rest.next() {
        let Some(word) = word.strip_prefix("--").and_then(|word| word.strip_prefix(name)) else { continue };
        match word.strip_prefix('=') {
            Some(value) => return Some(value.to_string()),
            None if word.is_empty() => return rest.next().map(ToString::to_string),
            None => {}
        }
    }
    let variable = format!("EXTERNAL_DNS_{}", name.to_uppercase().replace('-', "_"));
    let found = container.env.iter().flatten().find(|one| one.name == variable)?;
    Some(found.value.clone().unwrap_or_default())
}

/// Returns the annotations from which ExternalDNS reads host names: those of these controllers, and the default ones.
pub fn annotations(controllers: &[Controller]) -> BTreeSet<String> {
    let own = controllers.iter().filter_map(|one| one.annotations.as_deref());
    PREFIXES.into_iter().chain(own).map(|prefix| format!("{prefix}hostname")).collect()
}

/// Returns the names of the TXT records in which ExternalDNS can record the owner of a name and record type. Includes names with
/// the affixes of these controllers and without, and with the type before the name and without (before v0.18).
pub fn ownership_names(name: &str, kind: Kind, controllers: &[Controller]) -> BTreeSet<String> {
    let plain = (String::new(), String::new(), "*".to_string());
    let affixes: BTreeSet<_> = controllers.iter().map(|one| &one.affixes).chain([&plain]).collect();
    let kind = kind.to_string().to_lowercase();
    let (label, rest) = name.split_once('.').unwrap_or((name, ""));
    let mut found = BTreeSet::new();
    for (prefix, suffix, asterisk) in affixes {
        let label = if label == "*" { asterisk } else { label };
        let filled = |affix: &str| affix.replace("%{record_type}", &kind);
        let has_kind = format!("{prefix}{suffix}").contains("%{record_type}");
        let labels = if has_kind {
            vec![label.to_string()]
        } else {
            vec![format!("{kind}-{label}"), label.to_string()]
        };
        found
            .extend(labels.iter().map(|label| format!("{}{label}{}.{rest}", filled(prefix), filled(suffix))));
    }
    found
}

/// Returns the owner in an ownership record, as in `heritage=external-dns,external-dns/owner=blue,…`; `None` for other texts.
pub fn owner(text: &str) -> Option<&str> {
    let mut parts = text.trim_matches('"').split(',');
    if parts.next() != Some("heritage=external-dns") {
        return None;
    }
    parts.find_map(|part| part.strip_prefix("external-dns/owner="))
}

/// Checks the running ExternalDNS instances of the cluster and of its mirror. Each reverts changes of the records that it
/// manages.
pub fn running(own: &[Controller], mirror: &[Controller]) -> Judged {
    let runs = |list: &[Controller]| list.iter().filter(|one| one.runs).cloned().collect::<Vec<_>>();
    let (own, mirror) = (runs(own), runs(mirror));
    let told = |one: &Controller| {
        let owner = one.owner.as_deref().unwrap_or("unknown");
        format!("{} (owner `{owner}`, policy `{}`, provider `{}`)", one.subject, one.policy, one.provider)
    };
    for one in own.iter().filter(|one| one.owner.is_some()) {
        if let Some(other) = mirror.iter().find(|other| other.owner == one.owner) {
            return Judged::fail(
                format!(
                    "{} here and {} on the mirror have the same owner: each reverts the other's records",
                    told(one),
                    told(other)
                ),
                "give the one on the mirror another `--txt-owner-id`, or scale it to 0 until the cutover",
            );
        }
    }
    // Only the policy `create-only` leaves existing records of its owner unchanged (`plan/policy.go`).
    let keeping: Vec<String> = own.iter().filter(|one| one.policy != "create-only").map(told).collect();
    if !keeping.is_empty() {
        return Judged::warn(
            format!("manages records by the objects of this cluster: {}", first_few(&keeping)),
            "scale it to 0 before the names change (`kubectl scale deployment NAME --replicas 0`): otherwise it reverts them, and with the \
             policy `sync` deletes records that no object of this cluster names",
        );
    }
    match own.as_slice() {
        [] => Judged::pass("no ExternalDNS runs in this cluster"),
        some => Judged::pass(some.iter().map(told).collect::<Vec<_>>().join(", ")),
    }
}

/// Checks the owners of names. `found`: names, each with the owners in its ownership records. `own`: ExternalDNS instances of
/// this cluster.
pub fn owners(found: &BTreeMap<String, BTreeSet<String>>, own: &[Controller]) -> Judged {
    if let Some(one) = own.iter().find(|one| one.registry != "txt") {
        return Judged::unknown(
            format!(
                "{} does not record the owners of names in the zone (`--registry={}`)",
                one.subject, one.registry
            ),
            "check the owners of the names in that registry",
        );
    }
    let ours: BTreeSet<&str> = own.iter().filter_map(|one| one.owner.as_deref()).collect();
    let (mut foreign, mut owned) = (Vec::new(), 0_usize);
    for (name, owners) in found {
        let others = owners.iter().filter(|owner| !ours.contains(owner.as_str()));
        let others: Vec<String> = others.map(|owner| format!("`{owner}`")).collect();
        if !others.is_empty() {
            foreign.push(format!("`{name}` (owner {})", others.join(" and ")));
        } else if !owners.is_empty() {
            owned = owned.saturating_add(1);
        }
    }
    if let (Some(one), false) = (own.iter().find(|one| one.owner.is_none()), foreign.is_empty()) {
        return Judged::unknown(
            format!(
                "{}, which may be {}: its Deployment does not show its owner",
                first_few(&foreign),
                one.subject
            ),
            "check `--txt-owner-id` in the ConfigMap or Secret that sets its environment",
        );
    }
    if !foreign.is_empty() {
        return Judged::fail(
            format!("another cluster's ExternalDNS owns {}", first_few(&foreign)),
            "find it, and make it release these names first: otherwise it reverts the change, or deletes the records",
        );
    }
    let free = found.len().saturating_sub(owned);
    Judged::pass(match (owned, free) {
        (0, free) => format!("no ExternalDNS owns any of the names ({free} checked)"),
        (owned, 0) => format!("this cluster's ExternalDNS owns all {owned}"),
        (owned, free) => format!("owned by this cluster's ExternalDNS: {owned}, without an owner: {free}"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::preflight::Verdict;

    fn deployment(replicas: u8, container: &Value) -> Deployment {
        let deployment = json!({
            "metadata": {"namespace": "dns", "name": "external-dns"},
            "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
        });
        serde_json::from_value(deployment).unwrap()
    }

    fn controller(owner: &str, more: &[&str]) -> Controller {
        let mut args = vec![format!("--txt-owner-id={owner}")];
        args.extend(more.iter().map(ToString::to_string));
        let image = "registry.k8s.io/external-dns/external-dns:v0.22.0";
        Controller::of(&deployment(1, &json!({"name": "c", "image": image, "args": args}))).unwrap()
    }

    #[test]
    fn controller_is_recognized_by_its_flags() {
        let found = controller("blue", &["--policy", "upsert-only", "--provider=rfc2136"]);
        assert_eq!((found.owner.as_deref(), found.policy.as_str()), (Some("blue"), "upsert-only"));
        assert_eq!((found.provider.as_str(), found.subject.as_str()), ("rfc2136", "`dns/external-dns`"));
        let env = json!([{"name": "EXTERNAL_DNS_TXT_OWNER_ID", "value": "green"}]);
        let by_env = Controller::of(&deployment(0, &json!({"image": "x/y:1", "env": env}))).unwrap();
        assert_eq!(
            (by_env.owner.as_deref(), by_env.runs, by_env.policy.as_str()),
            (Some("green"), false, "sync")
        );
        assert_eq!(controller("$(CLUSTER)", &[]).owner, None, "set elsewhere");
        assert_eq!(Controller::of(&deployment(1, &json!({"image": "nginx"}))), None);
        let prefixed = controller("blue", &["--annotation-prefix=dns.example.com/"]);
        assert!(annotations(&[prefixed]).contains("dns.example.com/hostname"));
    }

    #[test]
    fn ownership_names_include_affixes_and_record_types() {
        let plain = ownership_names("www.example.com", Kind::A, &[]);
        assert_eq!(plain, BTreeSet::from(["a-www.example.com".to_string(), "www.example.com".to_string()]));
        let affixed = [controller("blue", &["--txt-prefix=%{record_type}-own.", "--txt-suffix=-x"])];
        let names = ownership_names("www.example.com", Kind::Cname, &affixed);
        assert!(names.contains("cname-own.www-x.example.com"), "{names:?}");
        assert_eq!(
            owner("heritage=external-dns,external-dns/owner=blue,external-dns/resource=x"),
            Some("blue")
        );
        assert_eq!(owner("v=spf1 -all"), None);
        let replaced = [controller("blue", &["--txt-wildcard-replacement=any"])];
        assert!(ownership_names("*.example.com", Kind::A, &replaced).contains("a-any.example.com"));
        assert!(ownership_names("*.example.com", Kind::A, &[]).contains("a-*.example.com"));
    }

    #[test]
    fn same_owner_on_both_clusters_fails() {
        let (blue, green) = (controller("blue", &["--policy=create-only"]), controller("green", &[]));
        let (blue, green) = ([blue], [green]);
        assert_eq!(running(&blue, &green).verdict, Verdict::Pass);
        assert_eq!(running(&green, &[]).verdict, Verdict::Warn);
        let upsert = [controller("blue", &["--policy=upsert-only"])];
        assert_eq!(running(&upsert, &[]).verdict, Verdict::Warn, "it reverts its own records");
        let untold = [controller("$(CLUSTER)", &["--policy=create-only"])];
        assert_eq!(running(&untold, &untold).verdict, Verdict::Pass, "their owners may differ");
        assert_eq!(running(&blue, &blue).verdict, Verdict::Fail);
        assert_eq!(running(&[], &blue).verdict, Verdict::Pass);
    }

    #[test]
    fn owner_of_another_cluster_fails() {
        let own = [controller("blue", &[])];
        let of = |owners: &[&str]| {
            let owners = owners.iter().map(ToString::to_string).collect();
            BTreeMap::from([("www.example.com".to_string(), owners)])
        };
        assert_eq!(owners(&of(&["blue"]), &own).observed, "this cluster's ExternalDNS owns all 1");
        assert_eq!(owners(&of(&[]), &own).verdict, Verdict::Pass);
        let elsewhere = [controller("blue", &["--registry=dynamodb"])];
        assert_eq!(owners(&of(&[]), &elsewhere).verdict, Verdict::Unknown);
        assert_eq!(owners(&of(&["red"]), &[controller("$(X)", &[])]).verdict, Verdict::Unknown);
        let both = owners(&of(&["blue", "green"]), &own);
        assert_eq!(both.verdict, Verdict::Fail);
        assert!(both.observed.ends_with("`www.example.com` (owner `green`)"), "{both:?}");
    }
}
