//! Who issues the certificates of cert-manager on the mirror, before DNS leads there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::{Judged, first_few, subject, text};

/// cert-manager's API group, and the default of `issuerRef.group`.
const GROUP: &str = "cert-manager.io";

/// An issuer by its namespace (`None`: a ClusterIssuer) and its name, and who asks it.
type Asked = BTreeMap<(Option<String>, String), BTreeSet<String>>;

/// Certificates, and the Ingresses that cert-manager makes some for. The source has cert-manager if it is `Some`.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    /// Certificates of the chosen namespaces; `None` where the source has no such kind.
    pub certificates: Option<&'a [Value]>,
    /// Ingresses of the chosen namespaces.
    pub ingresses: &'a [Value],
}

/// Issuers that are there.
#[derive(Debug, Clone, Copy)]
pub struct Issuers<'a> {
    /// Issuers of the chosen namespaces in the source: they are copied with them.
    pub of_source: &'a [Value],
    /// ClusterIssuers of the mirror; `None` where it has no such kind.
    pub of_mirror: Option<&'a [Value]>,
}

/// Judges who is asked. An issuer that another API group brings along is not looked at.
pub fn judge(asking: &Asking<'_>, issuers: &Issuers<'_>) -> Judged {
    let Some(certificates) = asking.certificates else {
        return Judged::pass("the source has no cert-manager");
    };
    let asked = asked(certificates, asking.ingresses);
    let Some(of_mirror) = issuers.of_mirror else {
        if asked.is_empty() {
            return Judged::pass("no certificate is asked for");
        }
        return Judged::fail(
            format!("{} issuers are asked for certificates, and the mirror has no cert-manager", asked.len()),
            "install cert-manager on the mirror, of the source's version, and make its ClusterIssuers",
        );
    };
    let (mut wrong, mut by_http) = (Vec::new(), Vec::new());
    for ((namespace, name), who) in &asked {
        let words = match namespace {
            Some(namespace) => format!("Issuer `{namespace}/{name}`"),
            None => format!("ClusterIssuer `{name}`"),
        };
        let users = first_few(&who.iter().cloned().collect::<Vec<_>>());
        let is_it = |one: &&Value| {
            text(one, "/metadata/name") == name
                && namespace.as_ref().is_none_or(|namespace| text(one, "/metadata/namespace") == namespace)
        };
        let list = if namespace.is_some() { issuers.of_source } else { of_mirror };
        match list.iter().find(is_it) {
            None if namespace.is_some() => wrong.push(format!("{words} is not in the source ({users})")),
            None => wrong.push(format!("{words} is not on the mirror ({users})")),
            Some(found) if namespace.is_none() && !is_ready(found) => {
                wrong.push(format!("{words} is not ready on the mirror ({users})"));
            }
            Some(found) if is_http_only(found) => by_http.push(format!("{words} ({users})")),
            Some(_) => {}
        }
    }
    told(asked.len(), &wrong, &by_http)
}

fn told(count: usize, wrong: &[String], by_http: &[String]) -> Judged {
    if !wrong.is_empty() {
        return Judged::fail(
            first_few(wrong),
            "make each ClusterIssuer on the mirror, its Secret with it (in cert-manager's own namespace), and wait until it is Ready; \
             one that is nowhere is asked for nothing",
        );
    }
    if !by_http.is_empty() {
        return Judged::warn(
            format!("only HTTP-01 is solved by {}", first_few(by_http)),
            "give it a DNS-01 solver: a challenge over HTTP comes to the source as long as DNS leads there, and the mirror gets no \
             certificate before the cut-over",
        );
    }
    Judged::pass(format!("all {count} that are asked can issue on the mirror"))
}

/// Who is asked: by Certificates, and by annotations of Ingresses
/// (`IngressIssuerNameAnnotationKey`, `pkg/apis/certmanager/v1/types.go`, cert-manager 1.18).
fn asked(certificates: &[Value], ingresses: &[Value]) -> Asked {
    let mut asked = Asked::new();
    for certificate in certificates {
        let (group, kind) =
            (text(certificate, "/spec/issuerRef/group"), text(certificate, "/spec/issuerRef/kind"));
        let namespace = match (group, kind) {
            ("" | GROUP, "" | "Issuer") => Some(text(certificate, "/metadata/namespace").to_string()),
            ("" | GROUP, "ClusterIssuer") => None,
            _ => continue,
        };
        let name = text(certificate, "/spec/issuerRef/name").to_string();
        asked.entry((namespace, name)).or_default().insert(format!("Certificate {}", subject(certificate)));
    }
    for ingress in ingresses {
        let of = |name: &str| text(ingress, &format!("/metadata/annotations/{GROUP}~1{name}"));
        if !matches!(of("issuer-group"), "" | GROUP)
            || !matches!(of("issuer-kind"), "" | "Issuer" | "ClusterIssuer")
        {
            continue;
        }
        let who = format!("Ingress {}", subject(ingress));
        let namespace = text(ingress, "/metadata/namespace").to_string();
        for (namespace, name) in [(Some(namespace), of("issuer")), (None, of("cluster-issuer"))] {
            if !name.is_empty() {
                asked.entry((namespace, name.to_string())).or_default().insert(who.clone());
            }
        }
    }
    asked
}

fn is_ready(issuer: &Value) -> bool {
    let list = issuer.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    list.into_iter().any(|one| text(one, "/type") == "Ready" && text(one, "/status") == "True")
}

/// Whether it solves challenges, and all of them over HTTP.
fn is_http_only(issuer: &Value) -> bool {
    let solvers = issuer.pointer("/spec/acme/solvers").and_then(Value::as_array);
    solvers
        .is_some_and(|solvers| !solvers.is_empty() && solvers.iter().all(|one| one.get("http01").is_some()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;

    fn certificate(kind: &str, group: &str) -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": "tls"},
            "spec": {"issuerRef": {"name": "acme", "kind": kind, "group": group}},
        })
    }

    fn issuer(namespace: &str, ready: &str, solvers: &Value) -> Value {
        json!({
            "metadata": {"name": "acme", "namespace": namespace}, "spec": {"acme": {"solvers": solvers}},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        })
    }

    fn of(certificate: Value, of_source: &[Value], of_mirror: Option<&[Value]>) -> Judged {
        let asking = Asking { certificates: Some(&[certificate]), ingresses: &[] };
        judge(&asking, &Issuers { of_source, of_mirror })
    }

    #[test]
    fn a_cluster_issuer_is_ready_on_the_mirror() {
        let (dns, http) = (json!([{"http01": {}}, {"dns01": {}}]), json!([{"http01": {}}]));
        let by_cluster = || certificate("ClusterIssuer", "");
        let there = |ready: &str, solvers: &Value| of(by_cluster(), &[], Some(&[issuer("", ready, solvers)]));
        assert_eq!(there("True", &dns).verdict, Verdict::Pass);
        assert_eq!(
            there("False", &dns).seen,
            "ClusterIssuer `acme` is not ready on the mirror (Certificate `shop/tls`)"
        );
        assert_eq!(there("True", &http).verdict, Verdict::Warn);
        assert_eq!(there("True", &json!([])).verdict, Verdict::Pass, "it signs by itself");
        assert_eq!(
            of(by_cluster(), &[], Some(&[])).seen,
            "ClusterIssuer `acme` is not on the mirror (Certificate `shop/tls`)"
        );
        assert_eq!(of(by_cluster(), &[], None).verdict, Verdict::Fail);
        assert_eq!(
            of(certificate("Signer", "pki.example.com"), &[], Some(&[])).seen,
            "all 0 that are asked can issue on the mirror"
        );
    }

    #[test]
    fn an_issuer_is_copied() {
        let dns = json!([{"dns01": {}}]);
        let own = [issuer("shop", "False", &dns)];
        assert_eq!(
            of(certificate("", ""), &own, Some(&[])).verdict,
            Verdict::Pass,
            "it becomes ready on the mirror"
        );
        let other = [issuer("till", "True", &dns)];
        assert_eq!(
            of(certificate("Issuer", GROUP), &other, Some(&[])).seen,
            "Issuer `shop/acme` is not in the source (Certificate `shop/tls`)"
        );
    }

    #[test]
    fn an_ingress_asks_too() {
        let annotations = json!({"cert-manager.io/cluster-issuer": "acme"});
        let ingress = json!({"metadata": {"namespace": "shop", "name": "web", "annotations": annotations}});
        let with = |certificates: Option<&'static [Value]>| {
            let asking = Asking { certificates, ingresses: std::slice::from_ref(&ingress) };
            judge(&asking, &Issuers { of_source: &[], of_mirror: Some(&[]) })
        };
        assert_eq!(with(Some(&[])).seen, "ClusterIssuer `acme` is not on the mirror (Ingress `shop/web`)");
        assert_eq!(with(None).verdict, Verdict::Pass, "nobody reads it");
    }
}
