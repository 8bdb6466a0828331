//! ExternalDNS derives the records of a zone from the objects of a cluster. This module reads the Deployments of ExternalDNS and
//! the owners of names.
//!
//! Flags and environment variables: ExternalDNS v0.22, `pkg/apis/externaldns/types.go`.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;

use crate::kube_api::accessors::{subject, words};

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
    pub affixes: (String, String, String),
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

/// Returns the annotations from which ExternalDNS reads host names: the default annotations, and the annotations that these
/// controllers use.
pub fn annotations(controllers: &[Controller]) -> BTreeSet<String> {
    let own = controllers.iter().filter_map(|one| one.annotations.as_deref());
    PREFIXES.into_iter().chain(own).map(|prefix| format!("{prefix}hostname")).collect()
}

/// Returns the owner in an ownership record, as in `heritage=external-dns,external-dns/owner=blue,…`; `None` for other texts.
pub fn owner(text: &str) -> Option<&str> {
    let mut parts = text.trim_matches('"').split(',');
    if parts.next() != Some("heritage=external-dns") {
        return None;
    }
    parts.find_map(|part| part.strip_prefix("external-dns/owner="))
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
        let image = "registry.k8s.io/external-dns/external-dns:v0.22.0";
        Controller::of(&deployment(1, &json!({"name": "c", "image": image, "args": args}))).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::testing::{controller, deployment};
    use super::*;

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
