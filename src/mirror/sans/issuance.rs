//! Whether a Certificate is issued with some names, and why not.

use serde_json::Value;

use super::issuer::{condition, words};
use crate::certs::certificates;
use crate::inventory::{list, text};

/// Annotation of a CertificateRequest with its number (`CertificateRequestRevisionAnnotationKey`,
/// pkg/apis/certmanager/v1/types_certificaterequest.go of cert-manager).
const REVISION: &str = "cert-manager.io/certificate-revision";

/// The state of an issuance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Issuance {
    /// The Certificate is ready, and its Secret has all names.
    Issued,
    /// cert-manager has not finished yet.
    Pending,
    /// The request has failed. cert-manager retries it after an hour or later.
    Failed(String),
    /// Another client has removed names from the Certificate.
    Reverted,
}

/// Returns the names in `spec.dnsNames`.
pub(super) fn dns_names(certificate: &Value) -> Vec<&str> {
    list(certificate, "/spec/dnsNames").iter().filter_map(Value::as_str).collect()
}

/// Returns the names of a list that another list has too. DNS names have no case.
pub(super) fn has_all(names: &[impl AsRef<str>], wanted: &[String]) -> bool {
    wanted.iter().all(|name| names.iter().any(|one| one.as_ref().eq_ignore_ascii_case(name)))
}

/// Returns the DNS names of the first certificate in a `tls.crt`, which is that of the server; empty if it cannot be read.
pub(super) fn leaf_names(pem: &[u8]) -> Vec<String> {
    let found = certificates(&String::from_utf8_lossy(pem)).unwrap_or_default();
    found.into_iter().next().map(|leaf| leaf.dns_names).unwrap_or_default()
}

/// Returns the state of the issuance. `leaf`: the names of the certificate in the Secret.
pub(super) fn issuance(certificate: &Value, leaf: &[String], added: &[String]) -> Issuance {
    if !has_all(&dns_names(certificate), added) {
        return Issuance::Reverted;
    }
    let generation = certificate.pointer("/metadata/generation").and_then(Value::as_i64);
    let is_of_now = |one: &&Value| {
        generation.is_some() && one.get("observedGeneration").and_then(Value::as_i64) == generation
    };
    if let Some(failed) = condition(certificate, "Issuing")
        && is_of_now(&failed)
        && text(failed, "/status") == "False"
    {
        return Issuance::Failed(words(failed));
    }
    let ready = condition(certificate, "Ready").filter(is_of_now);
    let is_ready = ready.is_some_and(|ready| text(ready, "/status") == "True");
    if is_ready && has_all(leaf, added) { Issuance::Issued } else { Issuance::Pending }
}

/// Returns what the conditions of a Certificate, its newest request and the order of the request say.
pub(super) fn reasons(certificate: &Value, requests: &[Value], orders: &[Value]) -> String {
    let mut found = Vec::new();
    if let Some(ready) = condition(certificate, "Ready") {
        found.push(format!("Certificate: {}", words(ready)));
    }
    let request = newest_of(requests, text(certificate, "/metadata/uid"));
    if let Some(request) = request {
        let name = text(request, "/metadata/name");
        let conditions =
            ["InvalidRequest", "Denied", "Ready"].iter().filter_map(|kind| condition(request, kind));
        let said: Vec<String> = conditions.map(words).collect();
        let said = if said.is_empty() { "its issuer has not answered".to_string() } else { said.join("; ") };
        found.push(format!("CertificateRequest {name}: {said}"));
        let uid = text(request, "/metadata/uid");
        if let Some(order) = orders.iter().find(|order| is_owned(order, uid)) {
            let (name, state) = (text(order, "/metadata/name"), text(order, "/status/state"));
            let reason = text(order, "/status/reason");
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            found.push(format!("Order {name}: {state}{reason}"));
        }
    }
    if found.is_empty() { "cert-manager has not answered".to_string() } else { found.join("; ") }
}

fn newest_of<'v>(requests: &'v [Value], uid: &str) -> Option<&'v Value> {
    let number = |request: &&Value| {
        let annotations = request.pointer("/metadata/annotations");
        let revision = annotations.and_then(|all| all.get(REVISION)).and_then(Value::as_str);
        let revision: u64 = revision.and_then(|revision| revision.parse().ok()).unwrap_or_default();
        (revision, text(request, "/metadata/creationTimestamp").to_string())
    };
    requests.iter().filter(|request| is_owned(request, uid)).max_by_key(number)
}

fn is_owned(object: &Value, uid: &str) -> bool {
    list(object, "/metadata/ownerReferences").iter().any(|owner| text(owner, "/uid") == uid)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn certificate(conditions: &Value) -> Value {
        json!({"metadata": {"generation": 2, "uid": "c"}, "spec": {"dnsNames": ["a.org", "b.org"]},
               "status": {"conditions": conditions}})
    }

    #[test]
    fn issued_needs_condition_and_names() {
        let ready =
            |status: &str, of: i64| json!([{"type": "Ready", "status": status, "observedGeneration": of}]);
        let added = ["b.org".to_string()];
        let both = ["a.org".to_string(), "B.org".to_string()];
        let old = ["a.org".to_string()];
        for (conditions, leaf, expected) in [
            (ready("True", 2), &both[..], Issuance::Issued),
            (ready("True", 1), &both[..], Issuance::Pending),
            (ready("False", 2), &both[..], Issuance::Pending),
            (ready("True", 2), &old[..], Issuance::Pending),
            (ready("True", 2), &[], Issuance::Pending),
            (json!([]), &both[..], Issuance::Pending),
        ] {
            assert_eq!(issuance(&certificate(&conditions), leaf, &added), expected, "{conditions} {leaf:?}");
        }
        let other = ["c.org".to_string()];
        assert_eq!(issuance(&certificate(&ready("True", 2)), &both, &other), Issuance::Reverted);
    }

    #[test]
    fn failure_counts_only_for_the_changed_names() {
        let failed = |of: i64| {
            let issuing = json!({"type": "Issuing", "status": "False", "observedGeneration": of,
                "reason": "Failed", "message": "the order is invalid"});
            issuance(&certificate(&json!([issuing])), &[], &["b.org".to_string()])
        };
        assert_eq!(failed(2), Issuance::Failed("Failed: the order is invalid".to_string()));
        assert_eq!(failed(1), Issuance::Pending);
    }

    #[test]
    fn reasons_are_of_the_newest_request_and_its_order() {
        let request = |name: &str, revision: &str, owner: &str| {
            json!({"metadata": {"name": name, "uid": name, "annotations": {(REVISION): revision},
                                "ownerReferences": [{"uid": owner}]},
                   "status": {"conditions": [{"type": "Ready", "reason": "Pending", "message": name}]}})
        };
        let requests =
            [request("web-9", "9", "c"), request("web-10", "10", "c"), request("other-11", "11", "d")];
        let order = |name: &str, owner: &str| {
            json!({"metadata": {"name": name, "ownerReferences": [{"uid": owner}]},
                   "status": {"state": "invalid", "reason": "rate limited"}})
        };
        let orders = [order("old", "web-9"), order("new", "web-10")];
        let ready = json!([{"type": "Ready", "reason": "RequestChanged", "message": "not up to date"}]);
        assert_eq!(
            reasons(&certificate(&ready), &requests, &orders),
            "Certificate: RequestChanged: not up to date; CertificateRequest web-10: Pending: web-10; Order new: invalid: rate limited"
        );
        assert_eq!(reasons(&certificate(&json!([])), &[], &[]), "cert-manager has not answered");
    }

    #[test]
    fn unreadable_certificate_has_no_names() {
        assert_eq!(leaf_names(b"\xff\x00"), Vec::<String>::new());
        assert_eq!(leaf_names(b""), Vec::<String>::new());
    }
}
