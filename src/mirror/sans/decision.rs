//! Decides what happens to a Certificate: a pure function of the Certificate, its issuer and the rules.

use serde_json::Value;

use super::issuer::{FoundIssuer, IssuerFacts, IssuerRef, condition, words};
use super::work::SansAction;
use crate::inventory::{list, text};
use crate::mirror::config::HostRule;
use crate::mirror::rules::CertificateNames;

/// The decision about a Certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub action: SansAction,
    /// The names to add.
    pub names: Vec<String>,
    /// Code of the reason, and the reason for people.
    pub reason: Option<(&'static str, String)>,
}

impl Decision {
    fn left_out(code: &'static str, detail: impl Into<String>) -> Self {
        Self { action: SansAction::LeftOut, names: Vec::new(), reason: Some((code, detail.into())) }
    }
}

/// API groups of the kinds whose controllers create Certificates, and write their names again (`certificate-shim` of cert-manager).
const INGRESS_GROUPS: [&str; 2] = ["networking.k8s.io", "extensions"];
const GATEWAY_GROUPS: [&str; 2] = ["gateway.networking.k8s.io", "gateway.networking.x-k8s.io"];

/// Decides what happens to a Certificate.
pub(super) fn decide(certificate: &Value, issuer: &IssuerFacts, rules: &[HostRule]) -> Decision {
    let dns_names: Vec<&str> = list(certificate, "/spec/dnsNames").iter().filter_map(Value::as_str).collect();
    let CertificateNames { missing, present, covered } = CertificateNames::of(rules, &dns_names);
    if missing.is_empty() {
        return match (present.is_empty(), covered.first()) {
            (false, _) => Decision { action: SansAction::Same, names: Vec::new(), reason: None },
            (true, Some(name)) => {
                Decision::left_out("wildcard", format!("a wildcard of the Certificate covers `{name}`"))
            }
            (true, None) => Decision::left_out("no-rule", no_rule(certificate, &dns_names)),
        };
    }
    let reason = state_of_certificate(certificate)
        .or_else(|| state_of_issuer(certificate, issuer, missing.len()))
        .or_else(|| unready(certificate));
    match reason {
        Some((code, detail)) => Decision::left_out(code, detail),
        None => Decision { action: SansAction::Add, names: missing, reason: None },
    }
}

fn no_rule(certificate: &Value, dns_names: &[&str]) -> String {
    if dns_names.is_empty() && !text(certificate, "/spec/commonName").is_empty() {
        // A client ignores the common name of a certificate that has a DNS name (RFC 6125, section 6.4.4).
        return "it has only a common name: with a DNS name, clients would ignore the common name"
            .to_string();
    }
    "no rule of `hosts` adds a name".to_string()
}

fn state_of_certificate(certificate: &Value) -> Option<(&'static str, String)> {
    if !text(certificate, "/metadata/deletionTimestamp").is_empty() {
        return Some(("deleting", "it is being deleted".to_string()));
    }
    list(certificate, "/metadata/ownerReferences").iter().find_map(|owner| {
        let group = text(owner, "/apiVersion").split('/').next().unwrap_or_default();
        let (kind, name) = (text(owner, "/kind"), text(owner, "/name"));
        if INGRESS_GROUPS.contains(&group) {
            let detail = format!("its names come from the {kind} `{name}`: add the name to `spec.tls` there");
            return Some(("ingress", detail));
        }
        if GATEWAY_GROUPS.contains(&group) {
            let detail =
                format!("its names come from the {kind} `{name}`: add a listener for the name there");
            return Some(("gateway", detail));
        }
        let is_controller = owner["controller"] == true;
        is_controller.then(|| ("owned", format!("the controller of {kind} `{name}` writes its names")))
    })
}

fn state_of_issuer(
    certificate: &Value,
    issuer: &IssuerFacts,
    added: usize,
) -> Option<(&'static str, String)> {
    let name = IssuerRef::of(certificate);
    match issuer {
        IssuerFacts::External => None,
        IssuerFacts::Missing => Some(("issuer-missing", format!("{name} does not exist"))),
        IssuerFacts::Unread(why) => Some(("issuer-unknown", format!("{name} cannot be read: {why}"))),
        IssuerFacts::Found(FoundIssuer { unready: Some(why), .. }) => {
            Some(("issuer-not-ready", format!("{name} is not ready: {why}")))
        }
        IssuerFacts::Found(found) => {
            let most = found.most_names?;
            let now = list(certificate, "/spec/dnsNames")
                .len()
                .saturating_add(list(certificate, "/spec/ipAddresses").len());
            let wanted = now.saturating_add(added);
            let detail =
                format!("it would have {wanted} names; {name} issues certificates with up to {most} names");
            (wanted > most).then_some(("too-many-names", detail))
        }
    }
}

fn unready(certificate: &Value) -> Option<(&'static str, String)> {
    match condition(certificate, "Ready") {
        Some(ready) if text(ready, "/status") == "True" => None,
        Some(ready) => Some(("not-ready", format!("it is not ready now: {}", words(ready)))),
        None => Some(("not-ready", "cert-manager has not issued it".to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules() -> Vec<HostRule> {
        let (add, replace) = (Some("green.example.com".to_string()), None);
        vec![HostRule { suffix: "example.com".to_string(), add, replace }]
    }

    fn certificate(spec: &Value, metadata: &Value) -> Value {
        let mut object = json!({"metadata": {"namespace": "shop", "name": "web"},
            "spec": {"dnsNames": ["www.example.com"], "issuerRef": {"name": "ca"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        for (place, more) in [("spec", spec), ("metadata", metadata)] {
            for (key, value) in more.as_object().expect("fields") {
                object[place][key] = value.clone();
            }
        }
        object
    }

    fn issuer(most_names: Option<usize>, unready: Option<&str>) -> IssuerFacts {
        let unready = unready.map(str::to_string);
        IssuerFacts::Found(FoundIssuer {
            unready,
            is_acme: most_names.is_some(),
            has_http_solver: false,
            most_names,
        })
    }

    /// Returns the action, and the code of the reason or the names.
    fn outcome(certificate: &Value, issuer: &IssuerFacts) -> (SansAction, String) {
        let Decision { action, names, reason } = decide(certificate, issuer, &rules());
        (action, reason.map_or_else(|| names.join(" "), |(code, _)| code.to_string()))
    }

    #[test]
    fn names_decide() {
        let none = json!({});
        for (spec, action, what) in [
            (json!({}), SansAction::Add, "www.green.example.com"),
            (json!({"dnsNames": ["www.example.com", "www.green.example.com"]}), SansAction::Same, ""),
            (
                json!({"dnsNames": ["www.example.com", "*.green.example.com"]}),
                SansAction::LeftOut,
                "wildcard",
            ),
            (
                json!({"dnsNames": ["a.b.example.com", "*.green.example.com"]}),
                SansAction::Add,
                "a.b.green.example.com",
            ),
            (json!({"dnsNames": ["www.example.org"]}), SansAction::LeftOut, "no-rule"),
            (json!({"dnsNames": [], "commonName": "www.example.com"}), SansAction::LeftOut, "no-rule"),
        ] {
            let found = outcome(&certificate(&spec, &none), &issuer(None, None));
            assert_eq!(found, (action, what.to_string()), "{spec}");
        }
        let only_common = certificate(&json!({"dnsNames": [], "commonName": "www.example.com"}), &none);
        let reason = decide(&only_common, &issuer(None, None), &rules()).reason.expect("a reason").1;
        assert!(reason.contains("common name"), "{reason}");
    }

    #[test]
    fn owner_decides() {
        let owned = |api: &str, kind: &str, controller: bool| {
            let owner = json!({"apiVersion": api, "kind": kind, "name": "web", "controller": controller});
            outcome(&certificate(&json!({}), &json!({"ownerReferences": [owner]})), &issuer(None, None)).1
        };
        assert_eq!(owned("networking.k8s.io/v1", "Ingress", true), "ingress");
        assert_eq!(owned("networking.k8s.io/v1", "Ingress", false), "ingress");
        assert_eq!(owned("gateway.networking.k8s.io/v1", "Gateway", true), "gateway");
        assert_eq!(owned("gateway.networking.x-k8s.io/v1alpha1", "XListenerSet", true), "gateway");
        assert_eq!(owned("example.com/v1", "App", true), "owned");
        assert_eq!(owned("example.com/v1", "App", false), "www.green.example.com");
        let deleted = certificate(&json!({}), &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
        assert_eq!(outcome(&deleted, &issuer(None, None)).1, "deleting");
    }

    #[test]
    fn issuer_decides() {
        let plain = certificate(&json!({}), &json!({}));
        for (facts, expected) in [
            (IssuerFacts::External, "www.green.example.com"),
            (IssuerFacts::Missing, "issuer-missing"),
            (IssuerFacts::Unread("no permission".to_string()), "issuer-unknown"),
            (issuer(None, Some("no Secret")), "issuer-not-ready"),
            (issuer(Some(2), None), "www.green.example.com"),
            (issuer(Some(1), None), "too-many-names"),
        ] {
            assert_eq!(outcome(&plain, &facts).1, expected, "{facts:?}");
        }
        let with_address = certificate(&json!({"ipAddresses": ["192.0.2.1"]}), &json!({}));
        assert_eq!(outcome(&with_address, &issuer(Some(2), None)).1, "too-many-names");
    }

    #[test]
    fn certificate_that_fails_now_gets_no_name() {
        let mut failing = certificate(&json!({}), &json!({}));
        failing["status"] = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "Expired", "message": "it expired"}]});
        let decision = decide(&failing, &issuer(None, None), &rules());
        assert_eq!(
            decision.reason,
            Some(("not-ready", "it is not ready now: Expired: it expired".to_string()))
        );
        failing["status"] = json!({});
        assert_eq!(outcome(&failing, &issuer(None, None)).1, "not-ready");
    }
}
