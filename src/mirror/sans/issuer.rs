//! The issuer of a Certificate: whether it can issue a certificate now, and how many names it accepts.

use serde_json::Value;

use super::CERT_MANAGER;
use crate::inventory::{list, text};
use crate::kube_api::ObjectRef;

/// API group of the issuers of cert-manager itself, and the default of `issuerRef.group` (`ObjectReference`,
/// pkg/apis/meta/v1/types.go of cert-manager).
const GROUP: &str = "cert-manager.io";
/// Maximum number of names in a certificate of an ACME issuer. It is the limit of Let's Encrypt
/// (<https://letsencrypt.org/docs/rate-limits/>, "Identifiers per Certificate"; 2025). Other ACME servers can have other limits.
const MOST_NAMES: usize = 100;
/// The same for the profiles of Let's Encrypt with a lower limit (<https://letsencrypt.org/docs/profiles/>, "Max Names"; 2025).
const MOST_NAMES_OF_PROFILE: usize = 25;
const PROFILES: [&str; 2] = ["tlsserver", "shortlived"];

/// The reference of a Certificate to its issuer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IssuerRef {
    pub group: String,
    pub kind: String,
    /// The namespace; `None` for a `ClusterIssuer` and for issuers of other groups.
    pub namespace: Option<String>,
    pub name: String,
}

impl IssuerRef {
    pub fn of(certificate: &Value) -> Self {
        let or = |path: &str, default: &str| match text(certificate, path) {
            "" => default.to_string(),
            given => given.to_string(),
        };
        let (group, kind) = (or("/spec/issuerRef/group", GROUP), or("/spec/issuerRef/kind", "Issuer"));
        let is_namespaced = group == GROUP && kind == "Issuer";
        Self {
            namespace: is_namespaced.then(|| text(certificate, "/metadata/namespace").to_string()),
            group,
            kind,
            name: text(certificate, "/spec/issuerRef/name").to_string(),
        }
    }

    /// Returns whether the issuer is of cert-manager itself. Issuers of other groups are not read.
    pub fn is_own(&self) -> bool {
        self.group == GROUP
    }

    /// Returns the object; `None` if cert-manager has no such kind.
    pub fn object(&self) -> Option<ObjectRef<'_>> {
        let is_known = self.is_own() && matches!(self.kind.as_str(), "Issuer" | "ClusterIssuer");
        is_known.then(|| ObjectRef::new(CERT_MANAGER, &self.kind, self.namespace.as_deref(), &self.name))
    }
}

impl std::fmt::Display for IssuerRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            _ if !self.is_own() => write!(f, "{}.{} {}", self.kind, self.group, self.name),
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// What is known about an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IssuerFacts {
    /// It is of another group, so it is not read.
    External,
    Missing,
    /// It cannot be read, for this reason.
    Unread(String),
    Found(FoundIssuer),
}

/// An issuer of cert-manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundIssuer {
    /// Why it is not ready; `None` if it is ready.
    pub unready: Option<String>,
    pub is_acme: bool,
    /// Whether it has a solver for HTTP-01 challenges.
    pub has_http_solver: bool,
    /// Maximum number of names in a certificate.
    pub most_names: Option<usize>,
}

impl FoundIssuer {
    pub fn of(issuer: &Value) -> Self {
        let is_acme = issuer.pointer("/spec/acme").is_some();
        let is_short = PROFILES.contains(&text(issuer, "/spec/acme/profile"));
        let most = if is_short { MOST_NAMES_OF_PROFILE } else { MOST_NAMES };
        let solvers = list(issuer, "/spec/acme/solvers");
        Self {
            unready: condition(issuer, "Ready")
                .is_none_or(|ready| text(ready, "/status") != "True")
                .then(|| why(issuer)),
            is_acme,
            has_http_solver: solvers.iter().any(|solver| solver.get("http01").is_some()),
            most_names: is_acme.then_some(most),
        }
    }
}

/// Returns a condition of an object.
pub(super) fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    list(object, "/status/conditions").iter().find(|condition| text(condition, "/type") == kind)
}

/// Returns the reason and the message of a condition.
pub(super) fn words(condition: &Value) -> String {
    match (text(condition, "/reason"), text(condition, "/message")) {
        ("", "") => "it gives no reason".to_string(),
        ("", message) => message.to_string(),
        (reason, "") => reason.to_string(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

fn why(issuer: &Value) -> String {
    condition(issuer, "Ready").map_or_else(|| "cert-manager has not checked it".to_string(), words)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn issuer_reference_has_defaults() {
        let of = |reference: Value| {
            IssuerRef::of(&json!({"metadata": {"namespace": "shop"}, "spec": {"issuerRef": reference}}))
        };
        for (reference, expected, is_read) in [
            (json!({"name": "ca"}), "Issuer shop/ca", true),
            (
                json!({"name": "ca", "kind": "ClusterIssuer", "group": "cert-manager.io"}),
                "ClusterIssuer ca",
                true,
            ),
            (
                json!({"name": "ca", "kind": "PcaIssuer", "group": "aws.example"}),
                "PcaIssuer.aws.example ca",
                false,
            ),
            (json!({"name": "ca", "kind": "Other"}), "Other ca", false),
        ] {
            let found = of(reference);
            assert_eq!(found.to_string(), expected);
            assert_eq!(found.object().is_some(), is_read, "{expected}");
        }
    }

    #[test]
    fn acme_issuer_has_a_limit() {
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let acme = |more: Value| FoundIssuer::of(&json!({"spec": {"acme": more}, "status": ready.clone()}));
        let classic = acme(json!({"solvers": [{"dns01": {}}]}));
        assert_eq!((classic.most_names, classic.has_http_solver, classic.unready), (Some(100), false, None));
        let short = acme(json!({"profile": "shortlived", "solvers": [{"dns01": {}}, {"http01": {}}]}));
        assert_eq!((short.most_names, short.has_http_solver), (Some(25), true));
        let ca = FoundIssuer::of(&json!({"spec": {"ca": {}}, "status": {"conditions": [
            {"type": "Ready", "status": "False", "reason": "ErrGetKeyPair", "message": "no Secret"}]}}));
        assert_eq!((ca.most_names, ca.is_acme), (None, false));
        assert_eq!(ca.unready.as_deref(), Some("ErrGetKeyPair: no Secret"));
        let unknown = FoundIssuer::of(&json!({"spec": {"ca": {}}}));
        assert_eq!(unknown.unready.as_deref(), Some("cert-manager has not checked it"));
    }
}
