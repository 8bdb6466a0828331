//! `issuers`: whether the mirror has the issuers for the certificates, and whether these issuers can issue certificates before
//! DNS points to the mirror.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::networking::v1::Ingress;
use serde_json::Value;

use super::Mirror;
use crate::inventory::{listed, unread};
use crate::inventory::{subject, text};
use crate::kube_api::accessors::{self, annotation, namespace};
use crate::kube_api::{Cluster, Collection};
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::{all_of, counted};

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "issuers",
    why: "without a certificate, clients do not trust the mirror",
    needs: &[Source::Api, Source::Mirror],
    judge: |input| Box::pin(read(input)),
};

/// API group of cert-manager, and the default value of `issuerRef.group`.
const GROUP: &str = "cert-manager.io";
/// API version of the checked kinds.
const CERT_MANAGER: &str = "cert-manager.io/v1";

async fn read(input: &Mirror) -> Read<Judged> {
    let cluster = input.source.reader.cluster()?;
    let has_group = cluster.groups().await.map_err(unread)?.contains(GROUP);
    let is_served = Collection::new(CERT_MANAGER, "Certificate", None);
    let (certificates, of_source) = if cluster.serves(&is_served).await.map_err(unread)? {
        (Some(chosen(input, "Certificate").await?), chosen(input, "Issuer").await?)
    } else {
        (None, Vec::new())
    };
    let ingresses = input.source.selected::<Ingress>().await?;
    let of_mirror = input.target.list_if_served(CERT_MANAGER, "ClusterIssuer").await?;
    Ok(judge(certificates.as_deref(), has_group, &ingresses, &of_source, of_mirror.as_deref()))
}

/// Reads the objects of one cert-manager kind in the chosen namespaces of the source.
async fn chosen(input: &Mirror, kind: &str) -> Read<Vec<Value>> {
    let read = async |cluster: &Cluster, namespace: Option<&str>| {
        listed(cluster, &Collection::new(CERT_MANAGER, kind, namespace)).await
    };
    let cluster = input.source.reader.cluster()?;
    Ok(input.source.within(cluster, |one| text(one, "/metadata/namespace"), read).await?)
}

/// Issuers by namespace and name, each with the objects that refer to it. The namespace of a ClusterIssuer is `None`.
type Asked = BTreeMap<(Option<String>, String), BTreeSet<String>>;

/// Issuers of other API groups as text, each with the objects that refer to it.
type Others = BTreeMap<String, BTreeSet<String>>;

/// Checks the issuers that Certificates and Ingresses in the chosen namespaces refer to. Issuers of other API groups are reported
/// as not checked.
///
/// `certificates`: `None` if the source does not serve Certificates in `v1`. `has_group`: whether the source serves the API group
/// in any version. `of_source`: Issuers in the chosen namespaces; they are copied. `of_mirror`: ClusterIssuers of the mirror;
/// `None` if the mirror does not serve this kind.
fn judge(
    certificates: Option<&[Value]>,
    has_group: bool,
    ingresses: &[Ingress],
    of_source: &[Value],
    of_mirror: Option<&[Value]>,
) -> Judged {
    let Some(certificates) = certificates else {
        if !has_group {
            return Judged::pass("the source has no cert-manager");
        }
        return Judged::unknown(
            format!("the source serves `{GROUP}`, but not the kind Certificate in version v1"),
            "upgrade cert-manager in the source to 1.0 or later, or check `kubectl api-resources --api-group cert-manager.io` there",
        );
    };
    let (asked, others) = asked(certificates, ingresses);
    let Some(of_mirror) = of_mirror else {
        if asked.is_empty() && others.is_empty() {
            return Judged::pass("no certificate is requested");
        }
        let count = asked.len().saturating_add(others.len());
        return Judged::fail(
            format!(
                "{} needed, but the mirror has no cert-manager",
                counted(count, "issuer is", "issuers are")
            ),
            "install the source's version of cert-manager on the mirror, and create its ClusterIssuers",
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
        let list = if namespace.is_some() { of_source } else { of_mirror };
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
    told(asked.len(), &wrong, &by_http, &others)
}

fn told(count: usize, wrong: &[String], by_http: &[String], others: &Others) -> Judged {
    if !wrong.is_empty() {
        return Judged::fail(
            first_few(wrong),
            "create each ClusterIssuer on the mirror, with its Secret (in cert-manager's own namespace), and wait until it is Ready; an Issuer that is missing in the source issues no certificates in the source either",
        );
    }
    let (mut seen, mut remedy) = (Vec::new(), Vec::new());
    if !by_http.is_empty() {
        seen.push(format!("issuers with only HTTP-01 solvers: {}", first_few(by_http)));
        remedy.push(
            "add a DNS-01 solver: HTTP challenges reach the source while DNS points there, so the mirror gets no certificate before \
             the cutover",
        );
    }
    if !others.is_empty() {
        let words = others.iter().map(|(issuer, who)| {
            format!("{issuer} ({})", first_few(&who.iter().cloned().collect::<Vec<_>>()))
        });
        let words: Vec<String> = words.collect();
        seen.push(format!(
            "{} not checked: {}",
            counted(others.len(), "issuer of another API group is", "issuers of other API groups are"),
            first_few(&words)
        ));
        remedy.push("make sure that the mirror has these issuers, and that they are ready");
    }
    if seen.is_empty() && count == 0 {
        return Judged::pass("no certificate is requested");
    }
    if seen.is_empty() {
        return Judged::pass(all_of(
            count,
            "required issuer is ready on the mirror, or is copied to it",
            "required issuers are ready on the mirror, or are copied to it",
        ));
    }
    Judged::warn(seen.join("; "), remedy.join("; "))
}

/// Returns the issuers that Certificates and annotations of Ingresses refer to (`IngressIssuerNameAnnotationKey`,
/// `pkg/apis/certmanager/v1/types.go`, cert-manager 1.18).
fn asked(certificates: &[Value], ingresses: &[Ingress]) -> (Asked, Others) {
    let (mut asked, mut others) = (Asked::new(), Others::new());
    let mut ask = |place: &str, (group, kind, name): (&str, &str, &str), who: String| {
        let namespace = match (group, kind) {
            ("" | GROUP, "" | "Issuer") => Some(place.to_string()),
            ("" | GROUP, "ClusterIssuer") => None,
            _ => {
                others.entry(format!("{kind} `{name}` of `{group}`")).or_default().insert(who);
                return;
            }
        };
        asked.entry((namespace, name.to_string())).or_default().insert(who);
    };
    for certificate in certificates {
        let of = |name: &str| text(certificate, &format!("/spec/issuerRef/{name}"));
        let who = format!("Certificate {}", subject(certificate));
        ask(text(certificate, "/metadata/namespace"), (of("group"), of("kind"), of("name")), who);
    }
    for ingress in ingresses {
        let of = |name: &str| annotation(ingress, &format!("{GROUP}/{name}"));
        let issuer = (of("issuer-group"), of("issuer-kind"), of("issuer"));
        let of_cluster = ("", "ClusterIssuer", of("cluster-issuer"));
        for issuer in [issuer, of_cluster].into_iter().filter(|(_, _, name)| !name.is_empty()) {
            ask(namespace(ingress), issuer, format!("Ingress {}", accessors::subject(ingress)));
        }
    }
    (asked, others)
}

fn is_ready(issuer: &Value) -> bool {
    let list = issuer.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    list.into_iter().any(|one| text(one, "/type") == "Ready" && text(one, "/status") == "True")
}

/// Returns whether the issuer has solvers and all of them use HTTP challenges.
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

    fn ingress(annotations: &Value) -> Ingress {
        let metadata = json!({"namespace": "shop", "name": "web", "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn of(certificate: Value, of_source: &[Value], of_mirror: Option<&[Value]>) -> Judged {
        judge(Some(&[certificate]), true, &[], of_source, of_mirror)
    }

    #[test]
    fn cluster_issuer_must_be_ready_on_the_mirror() {
        let (dns, http) = (json!([{"http01": {}}, {"dns01": {}}]), json!([{"http01": {}}]));
        let by_cluster = || certificate("ClusterIssuer", "");
        let there = |ready: &str, solvers: &Value| of(by_cluster(), &[], Some(&[issuer("", ready, solvers)]));
        assert_eq!(there("True", &dns).verdict, Verdict::Pass);
        assert_eq!(
            there("False", &dns).observed,
            "ClusterIssuer `acme` is not ready on the mirror (Certificate `shop/tls`)"
        );
        assert_eq!(there("True", &http).verdict, Verdict::Warn);
        assert_eq!(there("True", &json!([])).verdict, Verdict::Pass, "it needs no solver");
        assert_eq!(
            of(by_cluster(), &[], Some(&[])).observed,
            "ClusterIssuer `acme` is not on the mirror (Certificate `shop/tls`)"
        );
        assert_eq!(of(by_cluster(), &[], None).verdict, Verdict::Fail);
    }

    #[test]
    fn issuers_of_other_groups_are_reported_as_not_checked() {
        let other = || certificate("Signer", "pki.example.com");
        let judged = of(other(), &[], Some(&[]));
        assert_eq!(
            (judged.verdict, judged.observed.as_str()),
            (
                Verdict::Warn,
                "1 issuer of another API group is not checked: Signer `acme` of `pki.example.com` (Certificate `shop/tls`)"
            )
        );
        assert_eq!(of(other(), &[], None).verdict, Verdict::Fail, "the mirror has no cert-manager");
        let annotations =
            json!({"cert-manager.io/issuer": "acme", "cert-manager.io/issuer-group": "pki.example.com"});
        let ingresses = [ingress(&annotations)];
        assert_eq!(judge(Some(&[]), true, &ingresses, &[], Some(&[])).verdict, Verdict::Warn);
        let older = judge(None, true, &ingresses, &[], Some(&[]));
        assert_eq!(
            (older.verdict, older.observed.as_str()),
            (
                Verdict::Unknown,
                "the source serves `cert-manager.io`, but not the kind Certificate in version v1"
            )
        );
    }

    #[test]
    fn issuer_must_be_in_the_source() {
        let dns = json!([{"dns01": {}}]);
        let own = [issuer("shop", "False", &dns)];
        assert_eq!(
            of(certificate("", ""), &own, Some(&[])).verdict,
            Verdict::Pass,
            "it becomes ready on the mirror"
        );
        let other = [issuer("till", "True", &dns)];
        assert_eq!(
            of(certificate("Issuer", GROUP), &other, Some(&[])).observed,
            "Issuer `shop/acme` is not in the source (Certificate `shop/tls`)"
        );
    }

    #[test]
    fn ingress_annotation_names_an_issuer() {
        let annotations = json!({"cert-manager.io/cluster-issuer": "acme"});
        let ingress = ingress(&annotations);
        let with = |certificates: Option<&'static [Value]>| {
            judge(certificates, certificates.is_some(), std::slice::from_ref(&ingress), &[], Some(&[]))
        };
        assert_eq!(
            with(Some(&[])).observed,
            "ClusterIssuer `acme` is not on the mirror (Ingress `shop/web`)"
        );
        assert_eq!(with(None).verdict, Verdict::Pass, "no cert-manager reads it");
    }
}
