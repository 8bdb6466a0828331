//! External names of a cluster, the objects that contain them, and the addresses of these objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::Metadata;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::host_object::{HostObject, HostObjectKind};
use super::{list, subject, text};
use crate::inventory::service::TrimmedService;
use crate::kube_api::accessors;
use crate::nameserver::canonical;

/// An external name of an object. The names of one object share its other data, because one object can have tens of thousands of
/// names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedHost {
    /// The name. It can start with `*.`.
    pub name: String,
    /// The object that contains the name, as text.
    pub by: String,
    /// Namespace of the object. Clients that are allowed to change one namespace can create objects with any host name.
    pub namespace: String,
    /// Whether only the TLS section of an Ingress contains the name. ExternalDNS publishes such a name, unless it has the option
    /// `--ignore-ingress-tls-spec`.
    pub is_tls_only: bool,
    /// Whether the name is served over TLS.
    pub has_tls: bool,
    /// Addresses of the object, or the names of its load balancers. If the object has an annotation with targets, these targets
    /// are used instead.
    pub at: Arc<BTreeSet<String>>,
    /// The object, if it is an Ingress or a Service.
    pub source: Option<Arc<Source>>,
}

/// An object from which ExternalDNS can publish names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The object.
    pub object: HostObject,
    /// Annotations of the object.
    pub annotations: BTreeMap<String, String>,
    /// Every name that ExternalDNS can publish from the object, including hosts in its TLS section and internal names.
    pub names: BTreeSet<String>,
}

impl Source {
    fn of(
        kind: HostObjectKind,
        object: &impl Metadata<Ty = ObjectMeta>,
        hosts: &BTreeSet<String>,
        annotations: &BTreeSet<String>,
    ) -> Self {
        let internal = annotations.iter().map(|key| beside(key, "internal-hostname")).collect();
        let names =
            annotated(object, annotations).chain(annotated(object, &internal)).chain(hosts.iter().cloned());
        let names = names.collect();
        let metadata = object.metadata();
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let object = HostObject { kind, namespace: text(&metadata.namespace), name: text(&metadata.name) };
        Self { object, annotations: metadata.annotations.clone().unwrap_or_default(), names }
    }

    /// Returns the targets in the object's annotation, if it has one. ExternalDNS prefers these targets to the addresses of the
    /// object.
    fn targets(&self, annotations: &BTreeSet<String>) -> Option<BTreeSet<String>> {
        let text = annotations.iter().find_map(|key| self.annotations.get(&beside(key, "target")))?;
        let targets: BTreeSet<String> = in_list(text).collect();
        (!targets.is_empty()).then_some(targets)
    }
}

/// Returns the key of another annotation that has the same prefix as the annotation with host names.
fn beside(key: &str, name: &str) -> String {
    let prefix = key.strip_suffix("hostname").unwrap_or(key);
    format!("{prefix}{name}")
}

/// Returns the external names of the objects. `routes`: routes of the Gateway API, by kind; a route has the addresses of its
/// Gateways. `annotations`: keys of annotations that contain host names.
pub fn published_hosts(
    ingresses: &[Ingress],
    services: &[TrimmedService],
    routes: &[(&str, Vec<Value>)],
    gateways: &[Value],
    annotations: &BTreeSet<String>,
) -> Vec<PublishedHost> {
    let mut found = Vec::new();
    for ingress in ingresses {
        found.extend(of_ingress(ingress, annotations));
    }
    for service in services {
        let by = format!("Service {}", accessors::subject(service));
        let namespace = service.metadata.namespace.clone().unwrap_or_default();
        let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let at = balancer.into_iter().flat_map(|balancer| balancer.ingress.iter().flatten());
        let source = Source::of(HostObjectKind::Service, service, &BTreeSet::new(), annotations);
        let at =
            source.targets(annotations).unwrap_or_else(|| addresses(at.map(|one| (&one.ip, &one.hostname))));
        let (at, source) = (Arc::new(at), Arc::new(source));
        found.extend(annotated(service, annotations).map(|name| PublishedHost {
            name,
            by: by.clone(),
            namespace: namespace.clone(),
            is_tls_only: false,
            has_tls: false,
            at: at.clone(),
            source: Some(source.clone()),
        }));
    }
    let gateways: BTreeMap<String, &Value> = gateways.iter().map(|one| (subject(one), one)).collect();
    for (kind, routes) in routes {
        found.extend(routes.iter().flat_map(|route| of_route((kind, route), &gateways, annotations)));
    }
    found
}

fn of_ingress(ingress: &Ingress, annotations: &BTreeSet<String>) -> Vec<PublishedHost> {
    let spec = || ingress.spec.iter();
    let with_tls = spec().flat_map(|spec| spec.tls.iter().flatten());
    let with_tls: BTreeSet<String> =
        with_tls.flat_map(|tls| tls.hosts.iter().flatten()).map(|host| canonical(host)).collect();
    let hosts = spec().flat_map(|spec| spec.rules.iter().flatten());
    let hosts = hosts.filter_map(|rule| rule.host.as_deref()).map(canonical);
    let plain: BTreeSet<String> =
        hosts.filter(|host| !host.is_empty()).chain(annotated(ingress, annotations)).collect();
    let names: BTreeSet<String> = plain.union(&with_tls).filter(|host| !host.is_empty()).cloned().collect();
    let balancer = ingress.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let at = balancer.into_iter().flat_map(|balancer| balancer.ingress.iter().flatten());
    let source = Source::of(HostObjectKind::Ingress, ingress, &names, annotations);
    let at = source.targets(annotations).unwrap_or_else(|| addresses(at.map(|one| (&one.ip, &one.hostname))));
    let by = format!("Ingress {}", accessors::subject(ingress));
    let (at, source) = (Arc::new(at), Arc::new(source));
    let namespace = ingress.metadata.namespace.clone().unwrap_or_default();
    let exposed = |name: String| PublishedHost {
        has_tls: is_covered(&with_tls, &name),
        is_tls_only: !plain.contains(&name),
        by: by.clone(),
        namespace: namespace.clone(),
        at: at.clone(),
        source: Some(source.clone()),
        name,
    };
    names.into_iter().map(exposed).collect()
}

fn of_route(
    (kind, route): (&str, &Value),
    gateways: &BTreeMap<String, &Value>,
    annotations: &BTreeSet<String>,
) -> Vec<PublishedHost> {
    let own = text(route, "/metadata/namespace");
    let (mut at, mut has_tls, mut listened) = (BTreeSet::new(), false, BTreeSet::new());
    for parent in list(route, "/spec/parentRefs") {
        let namespace = parent.get("namespace").and_then(Value::as_str).unwrap_or(own);
        let Some(gateway) = gateways.get(&format!("`{namespace}/{}`", text(parent, "/name"))) else {
            continue;
        };
        at.extend(list(gateway, "/status/addresses").iter().map(|one| canonical(text(one, "/value"))));
        let section = text(parent, "/sectionName");
        let is_meant = |one: &&Value| section.is_empty() || text(one, "/name") == section;
        for listener in list(gateway, "/spec/listeners").iter().filter(is_meant) {
            has_tls |= matches!(text(listener, "/protocol"), "HTTPS" | "TLS");
            listened.insert(canonical(text(listener, "/hostname")));
        }
    }
    let by = format!("{kind} {}", subject(route));
    let mut names: BTreeSet<String> =
        list(route, "/spec/hostnames").iter().filter_map(Value::as_str).map(canonical).collect();
    // A route without hosts uses the hosts of its listeners (Gateway API, `HTTPRouteSpec.hostnames`).
    if names.is_empty() {
        names = listened;
    }
    let keys = route.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten();
    let keys = keys.filter(|(key, _)| annotations.contains(*key));
    names.extend(keys.filter_map(|(_, value)| value.as_str()).flat_map(in_list));
    let at = Arc::new(at);
    let exposed = |name: String| PublishedHost {
        name,
        by: by.clone(),
        namespace: own.to_string(),
        is_tls_only: false,
        has_tls,
        at: at.clone(),
        source: None,
    };
    names.into_iter().filter(|name| !name.is_empty()).map(exposed).collect()
}

fn annotated(
    object: &impl Metadata<Ty = ObjectMeta>,
    annotations: &BTreeSet<String>,
) -> impl Iterator<Item = String> {
    let found = object.metadata().annotations.iter().flatten();
    found.filter(|(key, _)| annotations.contains(*key)).flat_map(|(_, value)| in_list(value))
}

/// Returns the names in a list that is separated by commas.
fn in_list(list: &str) -> impl Iterator<Item = String> {
    list.split(',').map(|name| canonical(name.trim())).filter(|name| !name.is_empty())
}

/// Returns the addresses or names of load balancers.
fn addresses<'o>(found: impl Iterator<Item = (&'o Option<String>, &'o Option<String>)>) -> BTreeSet<String> {
    let given = found.filter_map(|(ip, hostname)| {
        [ip, hostname].into_iter().flatten().find(|text| !text.is_empty()).map(|text| canonical(text))
    });
    given.filter(|at| !at.is_empty()).collect()
}

/// Returns whether a name covers another name. The prefix `*.` covers exactly one label (RFC 6125, section 6.4.3).
pub fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(rest) => name == pattern || name.split_once('.').is_some_and(|(_, parent)| parent == rest),
        None => pattern == name,
    }
}

/// Returns whether one of these names covers a name.
fn is_covered(patterns: &BTreeSet<String>, name: &str) -> bool {
    let parent = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
    patterns.contains(name) || parent.is_some_and(|parent| patterns.contains(&parent))
}

/// Returns whether a name is in a zone.
pub fn is_in(zone: &str, name: &str) -> bool {
    name == zone || name.strip_suffix(zone).is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inventory::external_dns::annotations;

    #[test]
    fn names_come_from_rules_annotations_and_routes() {
        let metadata = |name: &str| json!({"namespace": "shop", "name": name});
        let ingress = json!({
            "metadata": metadata("web"),
            "spec": {"rules": [{"host": "WWW.example.com"}, {}], "tls": [{"hosts": ["*.example.com"]}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}, {"hostname": "lb.example.net."}]}},
        });
        let mut service = json!({"metadata": metadata("mail")});
        service["metadata"]["annotations"] = json!({
            "external-dns.alpha.kubernetes.io/hostname": "mail.example.com, smtp.example.com",
            "external-dns.alpha.kubernetes.io/internal-hostname": "mail.internal.example.com",
            "external-dns.alpha.kubernetes.io/target": "192.0.2.9",
        });
        let route = json!({
            "metadata": metadata("api"),
            "spec": {"hostnames": ["api.example.com"], "parentRefs": [{"name": "edge", "namespace": "infra"}]},
        });
        let gateway = json!({
            "metadata": {"namespace": "infra", "name": "edge"}, "spec": {"listeners": [{"protocol": "HTTPS", "hostname": "by-listener.example.com"}]},
            "status": {"addresses": [{"value": "192.0.2.8"}]},
        });
        let mut without = route.clone();
        without["spec"]["hostnames"] = json!(null);
        let gateways = [gateway];
        let routes = |route| [("HTTPRoute", vec![route])];
        let listened = published_hosts(&[], &[], &routes(without), &gateways, &BTreeSet::new());
        assert_eq!(listened[0].name, "by-listener.example.com");
        let (ingress, service) =
            (serde_json::from_value(ingress).unwrap(), serde_json::from_value(service).unwrap());
        let found = published_hosts(&[ingress], &[service], &routes(route), &gateways, &annotations(&[]));
        let told: Vec<_> = found.iter().map(|one| (one.name.as_str(), one.has_tls, one.at.len())).collect();
        let expected = [
            ("*.example.com", true, 2),
            ("www.example.com", true, 2),
            ("mail.example.com", false, 1),
            ("smtp.example.com", false, 1),
            ("api.example.com", true, 1),
        ];
        assert_eq!(told, expected);
        assert_eq!(found[4].by, "HTTPRoute `shop/api`");
        let names = &found[0].source.as_ref().unwrap().names;
        assert_eq!(found[2].source.as_ref().unwrap().names.len(), 3, "an internal name is one, too");
        let only: Vec<bool> = found.iter().map(|one| one.is_tls_only).collect();
        assert_eq!(only, [true, false, false, false, false], "a host of the TLS section is marked");
        assert!(found.iter().all(|one| one.namespace == "shop"));
        assert!(names.contains("*.example.com"), "ExternalDNS also publishes hosts of the TLS section");
    }

    #[test]
    fn wildcard_covers_one_label() {
        assert!(covers("*.example.com", "www.example.com") && !covers("*.example.com", "a.b.example.com"));
        assert!(covers("www.example.com", "www.example.com") && !covers("*.example.com", "example.com"));
        assert!(is_in("example.com", "a.example.com") && !is_in("example.com", "an-example.com"));
    }
}
