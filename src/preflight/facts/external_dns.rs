//! ExternalDNS derives the records of a zone from the objects of a cluster. This module reads the Deployments of
//! ExternalDNS.
//!
//! The flags and the environment variables are defined in `pkg/apis/externaldns/types.go` of ExternalDNS v0.23.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;

use crate::kube_api::accessors::{subject, words};
use crate::nameserver::Kind;

/// Prefixes of the annotations that contain a host name: the prefix until v0.21, and the prefix of later versions.
const PREFIXES: [&str; 2] = ["external-dns.alpha.kubernetes.io/", "external-dns.kubernetes.io/"];

/// Options with which ExternalDNS publishes other names or other targets than the objects contain.
const DEVIATING: [&str; 4] =
    ["fqdn-template", "fqdn-target-template", "target-net-filter", "exclude-target-net"];

/// Assumed cache interval, in seconds, if the interval in the Deployment cannot be parsed.
const LONGEST_CACHE: u64 = 3600;

/// An ExternalDNS that is installed in a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Deployment of this ExternalDNS.
    pub subject: String,
    /// Whether the Deployment has replicas.
    pub runs: bool,
    /// Owner that this ExternalDNS writes into its records. `None` if the Deployment does not show the value.
    pub owner: Option<String>,
    /// Where this ExternalDNS records the owners of names. With `txt`, the ownership records are in the zone.
    pub registry: String,
    /// Update policy. `sync` deletes records without an object; `upsert-only` and `create-only` delete no record.
    pub policy: String,
    /// DNS provider, for example `rfc2136` or `aws`.
    pub provider: String,
    /// Prefix and suffix of the names of ownership records, and the replacement for an asterisk.
    pub affixes: (String, String, String),
    /// How long this ExternalDNS caches the owners of names, in seconds.
    pub cache: u64,
    /// Pause between two update loops of this ExternalDNS, in seconds.
    pub interval: u64,
    /// An option that makes this ExternalDNS publish other names or other targets than the objects contain; `None` if no such
    /// option is set.
    pub deviates: Option<&'static str>,
    annotations: Option<String>,
}

impl Controller {
    /// Finds every ExternalDNS in a cluster, based on the images and the flags in the Deployments.
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
            registry: if is_set(container, "txt-encrypt-enabled") {
                // netsurgeon cannot read encrypted ownership records.
                "encrypted txt".to_string()
            } else {
                told("registry", "txt")
            },
            cache: seconds(&told("txt-cache-interval", "0s")).unwrap_or(LONGEST_CACHE),
            interval: seconds(&told("interval", "1m")).unwrap_or(LONGEST_CACHE),
            deviates: DEVIATING.into_iter().find(|name| flag(container, name).is_some()),
            policy: told("policy", "sync"),
            provider: told("provider", "unknown"),
            affixes: (told("txt-prefix", ""), told("txt-suffix", ""), told("txt-wildcard-replacement", "*")),
            annotations: flag(container, "annotation-prefix"),
        })
    }
}

/// Returns whether a flag without a value is set, by an argument or an environment variable.
fn is_set(container: &Container, name: &str) -> bool {
    let is_it = |word: &str| {
        let word = word.strip_prefix("--").and_then(|word| word.strip_prefix(name));
        word.is_some_and(|rest| rest.is_empty() || rest == "=true")
    };
    let variable = variable(name);
    let by_variable = container.env.iter().flatten().find(|one| one.name == variable);
    words(container).any(is_it) || by_variable.is_some_and(|one| one.value.as_deref() != Some("false"))
}

/// Returns the name of the environment variable of a flag.
fn variable(name: &str) -> String {
    format!("EXTERNAL_DNS_{}", name.to_uppercase().replace('-', "_"))
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
    let variable = variable(name);
    let found = container.env.iter().flatten().find(|one| one.name == variable)?;
    Some(found.value.clone().unwrap_or_default())
}

/// Returns the prefixes of the annotations that a controller can read: its own prefix, or the default prefixes of all versions.
pub fn prefixes(controller: &Controller) -> Vec<&str> {
    controller.annotations.as_deref().map_or_else(|| PREFIXES.to_vec(), |own| vec![own])
}

/// Returns the annotations from which ExternalDNS reads host names: the default annotations, and the annotations that these
/// controllers use.
pub fn annotations(controllers: &[Controller]) -> BTreeSet<String> {
    let own = controllers.iter().filter_map(|one| one.annotations.as_deref());
    PREFIXES.into_iter().chain(own).map(|prefix| format!("{prefix}hostname")).collect()
}

/// Returns the names of the TXT records in which an ExternalDNS records the owner of a name and record type. The first name has
/// the current format (since v0.18), with the record type. If there is a second name, it has the older format without the type.
pub fn ownership_names(name: &str, kind: Kind, affixes: &(String, String, String)) -> Vec<String> {
    let (prefix, suffix, asterisk) = affixes;
    let kind = kind.to_string().to_lowercase();
    let (label, rest) = name.split_once('.').unwrap_or((name, ""));
    let label = if label == "*" { asterisk } else { label };
    let filled = |affix: &str| affix.replace("%{record_type}", &kind);
    let has_kind = format!("{prefix}{suffix}").contains("%{record_type}");
    let labels =
        if has_kind { vec![label.to_string()] } else { vec![format!("{kind}-{label}"), label.to_string()] };
    labels.iter().map(|label| format!("{}{label}{}.{rest}", filled(prefix), filled(suffix))).collect()
}

/// Parses a duration in the format of Go's `time.ParseDuration`, for example `1h30m`. Returns `None` for other texts. Rounds up
/// to whole seconds.
fn seconds(text: &str) -> Option<u64> {
    let (mut rest, mut total) = (text, 0.0);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at_checked(end)?;
        let number: f64 = number.parse().ok()?;
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(end)?;
        total += number
            * match unit {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 0.001,
                "us" | "µs" => 0.000_001,
                "ns" => 0.000_000_001,
                _ => return None,
            };
        rest = after;
    }
    Duration::try_from_secs_f64(total.ceil()).ok().map(|total| total.as_secs())
}

#[cfg(test)]
pub mod testing {
    //! An ExternalDNS for tests.

    use serde_json::{Value, json};

    use super::*;

    pub fn deployment(replicas: u8, container: &Value) -> Deployment {
        let deployment = json!({
            "metadata": {"namespace": "dns", "name": "external-dns"},
            "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
        });
        serde_json::from_value(deployment).unwrap()
    }

    pub fn controller(owner: &str, more: &[&str]) -> Controller {
        let mut args = vec![format!("--txt-owner-id={owner}")];
        args.extend(more.iter().map(ToString::to_string));
        let image = "registry.k8s.io/external-dns/external-dns:v0.23.0";
        Controller::of(&deployment(1, &json!({"name": "c", "image": image, "args": args}))).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::testing::{controller, deployment};
    use super::*;

    #[test]
    fn duration_of_go_is_parsed() {
        assert_eq!(seconds("1h30m"), Some(5400));
        assert_eq!(
            (seconds("0s"), seconds("90s"), seconds("1.5s"), seconds("10ms")),
            (Some(0), Some(90), Some(2), Some(1))
        );
        assert_eq!((seconds("x"), seconds("5"), seconds("$(X)")), (None, None, None));
        assert_eq!(controller("blue", &["--txt-cache-interval=1h"]).cache, 3600);
        assert_eq!(controller("blue", &[]).cache, 0);
        for encrypted in ["--txt-encrypt-enabled", "--txt-encrypt-enabled=true"] {
            assert_eq!(controller("blue", &[encrypted, "--policy=sync"]).registry, "encrypted txt");
        }
        assert_eq!(controller("blue", &["--no-txt-encrypt-enabled"]).registry, "txt");
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
}
