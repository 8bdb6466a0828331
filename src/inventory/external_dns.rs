//! ExternalDNS derives the records of a zone from the objects of a cluster. This module reads the Deployments of
//! ExternalDNS.
//!
//! The flags and the environment variables are defined in `pkg/apis/externaldns/types.go` of ExternalDNS v0.23.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;

use crate::kube_api::accessors::{subject, words};
use crate::nameserver::RecordKind;

/// Prefixes of the annotations that contain a host name: the prefix until v0.21, and the prefix of later versions.
const PREFIXES: [&str; 2] = ["external-dns.alpha.kubernetes.io/", "external-dns.kubernetes.io/"];

/// Options with which ExternalDNS publishes other names or other targets than the objects contain.
const DEVIATING: [&str; 4] =
    ["fqdn-template", "fqdn-target-template", "target-net-filter", "exclude-target-net"];

/// The option with the owner that ExternalDNS writes into its records.
const OWNER: &str = "txt-owner-id";

/// Assumed cache interval, in seconds, if the interval in the Deployment cannot be parsed.
const LONGEST_CACHE: u64 = 3600;

/// An ExternalDNS that is installed in a cluster. An option is unknown (`None`) if its value is not in the Deployment: the
/// container reads a ConfigMap or a Secret (`valueFrom`, `envFrom`), or expands a variable (`$(NAME)`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Deployment of this ExternalDNS.
    pub subject: String,
    /// Namespace and name of the service account of its Pods.
    pub account: (String, String),
    /// Whether the Deployment has replicas.
    pub runs: bool,
    /// Owner that this ExternalDNS writes into its records.
    pub owner: Option<String>,
    /// Where this ExternalDNS records the owners of names. With `txt`, the ownership records are in the zone.
    pub registry: Option<String>,
    /// Update policy. `sync` deletes records without an object; `upsert-only` and `create-only` delete no record.
    pub policy: Option<String>,
    /// DNS provider, for example `rfc2136` or `aws`.
    pub provider: Option<String>,
    /// Prefix and suffix of the names of ownership records, and the replacement for an asterisk.
    pub affixes: Option<Affixes>,
    /// How long this ExternalDNS caches the owners of names, in seconds.
    pub cache: u64,
    /// Pause between two update loops of this ExternalDNS, in seconds.
    pub interval: u64,
    /// An option that makes this ExternalDNS publish other names or other targets than the objects contain; `None` if no such
    /// option is set.
    pub deviates: Option<&'static str>,
    /// Whether this ExternalDNS publishes the hosts in the TLS sections of Ingresses.
    pub reads_tls_hosts: bool,
    annotations: Option<String>,
}

/// Prefix and suffix of the names of ownership records, and the replacement for an asterisk.
pub type Affixes = (String, String, String);

impl Controller {
    /// Finds every ExternalDNS in a cluster, based on the images and the flags in the Deployments.
    pub fn all(deployments: &[Deployment]) -> Vec<Self> {
        deployments.iter().filter_map(Self::of).collect()
    }

    /// Returns the given Deployments, each as `NAMESPACE/NAME`, and the names of the Deployments that do not exist.
    pub fn named(deployments: &[Deployment], places: &[String]) -> (Vec<Self>, Vec<String>) {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for place in places {
            let is_it = |one: &&Deployment| {
                let metadata = &one.metadata;
                metadata.namespace.as_deref().zip(metadata.name.as_deref()) == place.split_once('/')
            };
            match deployments.iter().find(is_it).and_then(|one| Self::with(one, true)) {
                Some(controller) => found.push(controller),
                None => missing.push(place.clone()),
            }
        }
        (found, missing)
    }

    fn of(deployment: &Deployment) -> Option<Self> {
        Self::with(deployment, false)
    }

    /// `is_named`: whether the user named the Deployment. Then it is ExternalDNS, whatever its image and its flags are.
    fn with(deployment: &Deployment, is_named: bool) -> Option<Self> {
        let spec = deployment.spec.as_ref()?;
        let pod = spec.template.spec.as_ref()?;
        let is_it = |container: &&Container| {
            let image =
                container.image.as_deref().and_then(|image| image.rsplit('/').next()).unwrap_or_default();
            image.starts_with("external-dns")
                || flag(container, OWNER).is_some()
                || has_variable(container, OWNER)
        };
        let first = pod.containers.first().filter(|_| is_named);
        let container = pod.containers.iter().find(is_it).or(first)?;
        let told = |name: &str, default: &str| told(container, name, default);
        let time = |name: &str, default: &str| {
            told(name, default).and_then(|text| seconds(&text)).unwrap_or(LONGEST_CACHE)
        };
        let namespace = deployment.metadata.namespace.clone().unwrap_or_default();
        let account = pod.service_account_name.clone().filter(|account| !account.is_empty());
        Some(Self {
            subject: subject(deployment),
            account: (namespace, account.unwrap_or_else(|| "default".to_string())),
            runs: spec.replicas != Some(0),
            owner: told(OWNER, "default").filter(|owner| !owner.is_empty()),
            registry: if is_set(container, "txt-encrypt-enabled") {
                // netsurgeon cannot read encrypted ownership records.
                Some("encrypted txt".to_string())
            } else {
                told("registry", "txt")
            },
            cache: time("txt-cache-interval", "0s"),
            interval: time("interval", "1m"),
            deviates: DEVIATING.into_iter().find(|name| flag(container, name).is_some()),
            policy: told("policy", "sync"),
            provider: told("provider", "unknown"),
            affixes: told("txt-prefix", "")
                .zip(told("txt-suffix", ""))
                .zip(told("txt-wildcard-replacement", "*"))
                .map(|((prefix, suffix), asterisk)| (prefix, suffix, asterisk)),
            reads_tls_hosts: !is_set(container, "ignore-ingress-tls-spec"),
            annotations: flag(container, "annotation-prefix"),
        })
    }

    /// Returns whether the ownership records of this ExternalDNS are in the zone and can be found there.
    pub fn has_readable_owners(&self) -> bool {
        self.registry.as_deref() == Some("txt") && self.affixes.is_some()
    }

    /// Returns the first of the options that netsurgeon needs to find ownership records and that the Deployment does not show.
    pub fn untold(&self) -> Option<&'static str> {
        let options = [
            ("--txt-owner-id", self.owner.is_none()),
            ("--registry", self.registry.is_none()),
            ("--txt-prefix", self.affixes.is_none()),
        ];
        options.into_iter().find(|(_, is_unknown)| *is_unknown).map(|(option, _)| option)
    }
}

/// Returns the value of an option, or its default. Returns `None` if the value is not in the Deployment. A ConfigMap or a Secret
/// that the container reads as a whole (`envFrom`) can contain every option that is not given otherwise.
fn told(container: &Container, name: &str, default: &str) -> Option<String> {
    match flag(container, name) {
        Some(value) if value.contains("$(") => None,
        Some(value) => Some(value),
        None if is_from_elsewhere(container, name) => None,
        None => Some(default.to_string()),
    }
}

/// Returns whether the value of an option can be in a ConfigMap or a Secret.
fn is_from_elsewhere(container: &Container, name: &str) -> bool {
    has_variable(container, name) || container.env_from.as_ref().is_some_and(|sources| !sources.is_empty())
}

/// Returns whether a container has the environment variable of an option.
fn has_variable(container: &Container, name: &str) -> bool {
    let variable = variable(name);
    container.env.iter().flatten().any(|one| one.name == variable)
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

/// Returns the value of a flag, from the arguments or from the environment variables; `None` if the Deployment does not contain
/// the value.
fn flag(container: &Container, name: &str) -> Option<String> {
    if let Some(value) = argument(container, name) {
        return Some(value);
    }
    let variable = variable(name);
    let found = container.env.iter().flatten().find(|one| one.name == variable)?;
    // Without a value of its own, the variable has an empty value, or its value comes from a ConfigMap or a Secret.
    if found.value_from.is_some() { None } else { Some(found.value.clone().unwrap_or_default()) }
}

/// Returns the value of a flag in the command and the arguments of a container.
pub(super) fn argument(container: &Container, name: &str) -> Option<String> {
    let mut rest = words(container);
    while let Some(word) = rest.next() {
        let Some(word) = word.strip_prefix("--").and_then(|word| word.strip_prefix(name)) else { continue };
        match word.strip_prefix('=') {
            Some(value) => return Some(value.to_string()),
            None if word.is_empty() => return rest.next().map(ToString::to_string),
            None => {}
        }
    }
    None
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
pub fn ownership_names(name: &str, kind: RecordKind, affixes: &Affixes) -> Vec<String> {
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
pub(crate) mod testing {
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
            let found = controller("blue", &[encrypted, "--policy=sync"]);
            assert_eq!(found.registry.as_deref(), Some("encrypted txt"));
        }
        assert_eq!(controller("blue", &["--no-txt-encrypt-enabled"]).registry.as_deref(), Some("txt"));
    }

    #[test]
    fn controller_is_recognized_by_its_flags() {
        let found = controller("blue", &["--policy", "upsert-only", "--provider=rfc2136"]);
        assert_eq!((found.owner.as_deref(), found.policy.as_deref()), (Some("blue"), Some("upsert-only")));
        assert_eq!(
            (found.provider.as_deref(), found.subject.as_str()),
            (Some("rfc2136"), "`dns/external-dns`")
        );
        let env = json!([{"name": "EXTERNAL_DNS_TXT_OWNER_ID", "value": "green"}]);
        let by_env = Controller::of(&deployment(0, &json!({"image": "x/y:1", "env": env}))).unwrap();
        assert_eq!(
            (by_env.owner.as_deref(), by_env.runs, by_env.policy.as_deref()),
            (Some("green"), false, Some("sync"))
        );
        assert_eq!(controller("$(CLUSTER)", &[]).owner, None, "set elsewhere");
        assert_eq!(Controller::of(&deployment(1, &json!({"image": "nginx"}))), None);
        let prefixed = controller("blue", &["--annotation-prefix=dns.example.com/"]);
        assert!(annotations(&[prefixed]).contains("dns.example.com/hostname"));
    }

    #[test]
    fn option_that_a_config_map_can_contain_is_unknown() {
        let of = |more: serde_json::Value| {
            let mut container = json!({
                "image": "registry.k8s.io/external-dns/external-dns:v0.23.0",
                "args": ["--registry=txt", "--provider=rfc2136", "--source=ingress"],
            });
            container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Controller::of(&deployment(1, &container)).unwrap()
        };
        let whole = json!({"envFrom": [{"configMapRef": {"name": "edns"}}]});
        let found = of(whole.clone());
        assert_eq!((found.owner.as_deref(), found.policy.as_deref()), (None, None));
        assert_eq!((found.affixes.as_ref(), found.registry.as_deref()), (None, Some("txt")));
        assert_eq!((found.cache, found.interval), (LONGEST_CACHE, LONGEST_CACHE), "the longest wait");
        assert_eq!((found.untold(), found.has_readable_owners()), (Some("--txt-owner-id"), false));
        let given = json!([{"name": "EXTERNAL_DNS_TXT_OWNER_ID", "value": "blue"}]);
        let found = of(json!({"envFrom": whole["envFrom"], "env": given}));
        assert_eq!(found.owner.as_deref(), Some("blue"), "`env` overrides `envFrom`");
        let from = json!([{"name": "EXTERNAL_DNS_POLICY", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}]);
        let found = of(json!({"env": from}));
        assert_eq!((found.policy, found.owner.as_deref()), (None, Some("default")));
    }
}
