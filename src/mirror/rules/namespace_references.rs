//! Where objects refer to a namespace: a table, and the function that follows a rename.

use serde_json::Value;

use super::kind_names::Kind;
use super::places::{Row, change_text, each, row};
use super::pod_specs::with_pod_spec;
use super::uses::Uses;
use crate::mirror::config::Config;
use crate::mirror::strip::WEBHOOKS;

/// How a place refers to a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The name of the namespace.
    Name,
    /// The DNS name of a Service, for example `db.shop.svc.cluster.local`.
    ServiceHost,
    /// The end of a DNS name, for example `shop.svc.cluster.local`.
    Domain,
    /// The name of a user or a group of ServiceAccounts, for example `system:serviceaccounts:shop`.
    Account,
    /// A namespace and a name, for example `shop/certificate`.
    Subject,
    /// A selector of namespaces by their label with the name.
    Selector,
}

const BINDINGS: &[&str] =
    &["rbac.authorization.k8s.io/rolebindings", "rbac.authorization.k8s.io/clusterrolebindings"];
const POLICIES: &[&str] = &["networking.k8s.io/networkpolicies"];
const ADMISSION_BINDINGS: &[&str] = &[
    "admissionregistration.k8s.io/validatingadmissionpolicybindings",
    "admissionregistration.k8s.io/mutatingadmissionpolicybindings",
];
const ADMISSION_POLICIES: &[&str] = &[
    "admissionregistration.k8s.io/validatingadmissionpolicies",
    "admissionregistration.k8s.io/mutatingadmissionpolicies",
];
const ROUTES: &[&str] = &[
    "gateway.networking.k8s.io/httproutes",
    "gateway.networking.k8s.io/grpcroutes",
    "gateway.networking.k8s.io/tlsroutes",
    "gateway.networking.k8s.io/tcproutes",
    "gateway.networking.k8s.io/udproutes",
];
const GATEWAYS: &[&str] = &["gateway.networking.k8s.io/gateways"];
const MONITORS: &[&str] = &["monitoring.coreos.com/servicemonitors", "monitoring.coreos.com/podmonitors"];

const RBAC: &str = "k8s.io/api rbac/v1 Subject; apiserver pkg/authentication/serviceaccount/util.go";
const NETWORK: &str = "k8s.io/api networking/v1 NetworkPolicyPeer";
const ADMISSION: &str = "k8s.io/api admissionregistration/v1 types.go";
const GATEWAY: &str = "gateway-api apis/v1 shared_types.go, httproute_types.go, gateway_types.go";
const INGRESS: &str = "ingress-nginx docs/user-guide/nginx-configuration/annotations.md";

/// Places outside of Pod specifications.
const ROWS: &[Row<Form>] = &[
    row(BINDINGS, "/subjects/*/namespace", Form::Name, RBAC),
    row(BINDINGS, "/subjects/*/name", Form::Account, RBAC),
    row(POLICIES, "/spec/ingress/*/from/*/namespaceSelector", Form::Selector, NETWORK),
    row(POLICIES, "/spec/egress/*/to/*/namespaceSelector", Form::Selector, NETWORK),
    row(&["/services"], "/spec/externalName", Form::ServiceHost, "k8s.io/api core/v1 ServiceSpec"),
    row(ROUTES, "/spec/parentRefs/*/namespace", Form::Name, GATEWAY),
    row(ROUTES, "/spec/rules/*/backendRefs/*/namespace", Form::Name, GATEWAY),
    row(ROUTES, "/spec/rules/*/filters/*/requestMirror/backendRef/namespace", Form::Name, GATEWAY),
    row(
        ROUTES,
        "/spec/rules/*/backendRefs/*/filters/*/requestMirror/backendRef/namespace",
        Form::Name,
        GATEWAY,
    ),
    row(GATEWAYS, "/spec/listeners/*/tls/certificateRefs/*/namespace", Form::Name, GATEWAY),
    row(GATEWAYS, "/spec/listeners/*/allowedRoutes/namespaces/selector", Form::Selector, GATEWAY),
    row(&["gateway.networking.k8s.io/referencegrants"], "/spec/from/*/namespace", Form::Name, GATEWAY),
    row(
        MONITORS,
        "/spec/namespaceSelector/matchNames/*",
        Form::Name,
        "prometheus-operator pkg/apis monitoring/v1",
    ),
    row(&[], "/metadata/annotations/nginx.ingress.kubernetes.io~1auth-secret", Form::Subject, INGRESS),
    row(&[], "/metadata/annotations/nginx.ingress.kubernetes.io~1auth-tls-secret", Form::Subject, INGRESS),
    row(&[], "/metadata/annotations/nginx.ingress.kubernetes.io~1proxy-ssl-secret", Form::Subject, INGRESS),
    row(&WEBHOOKS, "/webhooks/*/clientConfig/service/namespace", Form::Name, ADMISSION),
    row(&WEBHOOKS, "/webhooks/*/namespaceSelector", Form::Selector, ADMISSION),
    row(ADMISSION_BINDINGS, "/spec/paramRef/namespace", Form::Name, ADMISSION),
    row(ADMISSION_BINDINGS, "/spec/matchResources/namespaceSelector", Form::Selector, ADMISSION),
    row(ADMISSION_POLICIES, "/spec/matchConstraints/namespaceSelector", Form::Selector, ADMISSION),
    row(
        &["apiextensions.k8s.io/customresourcedefinitions"],
        "/spec/conversion/webhook/clientConfig/service/namespace",
        Form::Name,
        "k8s.io/apiextensions-apiserver pkg/apis/apiextensions/v1 ServiceReference",
    ),
    row(
        &["apiregistration.k8s.io/apiservices"],
        "/spec/service/namespace",
        Form::Name,
        "k8s.io/kube-aggregator pkg/apis/apiregistration/v1 ServiceReference",
    ),
];

const AFFINITY: &str = "k8s.io/api core/v1 PodAffinityTerm";

/// Places in a Pod specification.
const POD_ROWS: &[Row<Form>] = &[
    row(
        &[],
        "/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/*/namespaces/*",
        Form::Name,
        AFFINITY,
    ),
    row(
        &[],
        "/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/*/namespaceSelector",
        Form::Selector,
        AFFINITY,
    ),
    row(
        &[],
        "/affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution/*/podAffinityTerm/namespaces/*",
        Form::Name,
        AFFINITY,
    ),
    row(
        &[],
        "/affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution/*/podAffinityTerm/namespaceSelector",
        Form::Selector,
        AFFINITY,
    ),
    row(
        &[],
        "/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/*/namespaces/*",
        Form::Name,
        AFFINITY,
    ),
    row(
        &[],
        "/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/*/namespaceSelector",
        Form::Selector,
        AFFINITY,
    ),
    row(
        &[],
        "/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/*/podAffinityTerm/namespaces/*",
        Form::Name,
        AFFINITY,
    ),
    row(
        &[],
        "/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/*/podAffinityTerm/namespaceSelector",
        Form::Selector,
        AFFINITY,
    ),
    row(
        &[],
        "/volumes/*/ephemeral/volumeClaimTemplate/spec/dataSourceRef/namespace",
        Form::Name,
        "k8s.io/api core/v1 TypedObjectReference",
    ),
    row(&[], "/dnsConfig/searches/*", Form::Domain, "k8s.io/api core/v1 PodDNSConfig"),
];

/// The label with the name of a namespace, which the API server sets.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Follows the rename of namespaces in an object.
pub(super) fn rename_namespaces(config: &Config, kind: &Kind<'_>, object: &mut Value) {
    if config.rename.is_empty() {
        return;
    }
    let place = if kind.resource == "/namespaces" { "/metadata/name" } else { "/metadata/namespace" };
    follow(config, Form::Name, object, place);
    for row in ROWS.iter().filter(|row| row.kinds.is_empty() || row.kinds.contains(&kind.resource)) {
        follow(config, row.form, object, row.place);
    }
    with_pod_spec(kind.resource, object, &mut |spec| {
        for row in POD_ROWS {
            follow(config, row.form, spec, row.place);
        }
    });
}

fn follow(config: &Config, form: Form, object: &mut Value, place: &str) {
    match form {
        Form::Selector => each(object, place, &mut |selector| rename_selector(config, selector)),
        form => change_text(object, place, &mut |text| renamed(config, form, text)),
    }
}

/// Returns the text that refers to the new name; `None` if it does not refer to a renamed namespace.
fn renamed(config: &Config, form: Form, text: &str) -> Option<String> {
    let new = |name: &str| config.rename.get(name);
    match form {
        Form::Name => new(text).cloned(),
        Form::Subject => {
            let (namespace, name) = text.split_once('/')?;
            Some(format!("{}/{name}", new(namespace)?))
        }
        Form::Domain => {
            let (namespace, rest) = text.split_once('.')?;
            is_service_domain(rest).then_some(())?;
            Some(format!("{}.{rest}", new(namespace)?))
        }
        Form::ServiceHost => {
            let (head, tail) = text.split_once(".svc").filter(|(_, tail)| is_end(tail))?;
            let (service, namespace) = head.rsplit_once('.')?;
            Some(format!("{service}.{}.svc{tail}", new(namespace)?))
        }
        Form::Account => {
            if let Some(namespace) = text.strip_prefix("system:serviceaccounts:") {
                return Some(format!("system:serviceaccounts:{}", new(namespace)?));
            }
            let (namespace, name) = text.strip_prefix("system:serviceaccount:")?.split_once(':')?;
            Some(format!("system:serviceaccount:{}:{name}", new(namespace)?))
        }
        Form::Selector => None,
    }
}

fn is_service_domain(rest: &str) -> bool {
    rest.strip_prefix("svc").is_some_and(is_end)
}

fn is_end(tail: &str) -> bool {
    tail.is_empty() || tail.starts_with('.')
}

fn rename_selector(config: &Config, selector: &mut Value) {
    let place = format!("/matchLabels/{}", NAME_LABEL.replace('/', "~1"));
    change_text(selector, &place, &mut |text| renamed(config, Form::Name, text));
    each(selector, "/matchExpressions/*", &mut |requirement| {
        if requirement["key"] == NAME_LABEL {
            change_text(requirement, "/values/*", &mut |text| renamed(config, Form::Name, text));
        }
    });
}

/// Notes texts that probably refer to a renamed namespace and that no rule changes: variables, commands and arguments of containers,
/// and ConfigMaps.
pub(super) fn note_mentions(config: &Config, kind: &Kind<'_>, object: &mut Value, uses: &Uses) {
    let subject = format!(
        "{} {}/{}",
        kind.kind,
        crate::inventory::text(object, "/metadata/namespace"),
        crate::inventory::text(object, "/metadata/name")
    );
    for namespace in config.rename.keys() {
        let mentions = count_mentions(kind, object, namespace);
        if mentions > 0 {
            let finding = format!(
                "texts mention the renamed namespace `{namespace}`, and only a rule of `text` changes them"
            );
            uses.note(finding, format!("{subject} ({mentions})"));
        }
    }
}

fn count_mentions(kind: &Kind<'_>, object: &mut Value, namespace: &str) -> usize {
    let mut count = 0_usize;
    let mut check = |text: &str| {
        if mentions_namespace(text, namespace) {
            count = count.saturating_add(1);
        }
        None
    };
    if kind.resource == "/configmaps" {
        change_text(object, "/data/*", &mut check);
    }
    with_pod_spec(kind.resource, object, &mut |spec| {
        for list in ["containers", "initContainers"] {
            for place in ["env/*/value", "args/*", "command/*"] {
                change_text(spec, &format!("/{list}/*/{place}"), &mut check);
            }
        }
    });
    count
}

/// Returns whether a text contains the name of a namespace in a DNS name (`db.shop`, `db.shop.svc`), or is the name.
fn mentions_namespace(text: &str, namespace: &str) -> bool {
    if text.trim() == namespace {
        return true;
    }
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    text.match_indices(namespace).any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.strip_suffix('.'));
        let after = text.get(at.saturating_add(namespace.len())..).unwrap_or_default();
        let is_after_name = before.is_some_and(|before| before.ends_with(is_part));
        let is_whole = !after.starts_with(is_part) && !after.starts_with('.');
        is_after_name && (is_whole || after.strip_prefix('.').is_some_and(is_service_domain_start))
    })
}

fn is_service_domain_start(rest: &str) -> bool {
    rest.strip_prefix("svc")
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config() -> Config {
        let rename = [("shop", "shop-green"), ("pay", "pay-green")];
        Config {
            rename: rename.map(|(from, to)| (from.to_string(), to.to_string())).into(),
            ..Config::default()
        }
    }

    fn after(resource: &str, object: &Value) -> Value {
        let mut object = object.clone();
        rename_namespaces(&config(), &Kind { resource, kind: "X" }, &mut object);
        object
    }

    #[test]
    fn texts_of_each_form_follow() {
        for (form, text, expected) in [
            (Form::Name, "shop", Some("shop-green")),
            (Form::Name, "shops", None),
            (Form::Subject, "pay/tls", Some("pay-green/tls")),
            (Form::Subject, "tls", None),
            (Form::Domain, "shop.svc.cluster.local", Some("shop-green.svc.cluster.local")),
            (Form::Domain, "shop.example.com", None),
            (Form::ServiceHost, "db.shop.svc", Some("db.shop-green.svc")),
            (Form::ServiceHost, "db-0.db.pay.svc.cluster.local", Some("db-0.db.pay-green.svc.cluster.local")),
            (Form::ServiceHost, "db.shop.svcs.example.com", None),
            (Form::ServiceHost, "db.other.svc", None),
            (Form::ServiceHost, "www.example.com", None),
            (Form::Account, "system:serviceaccounts:shop", Some("system:serviceaccounts:shop-green")),
            (Form::Account, "system:serviceaccount:pay:web", Some("system:serviceaccount:pay-green:web")),
            (Form::Account, "system:authenticated", None),
            (Form::Account, "shop", None),
        ] {
            assert_eq!(renamed(&config(), form, text).as_deref(), expected, "{form:?} {text}");
        }
    }

    /// Every row of the tables is followed: each place gets the old name, and has the new one afterwards.
    #[test]
    fn every_row_is_followed() {
        let value = |form| match form {
            Form::Name => json!("shop"),
            Form::ServiceHost => json!("db.shop.svc"),
            Form::Domain => json!("shop.svc"),
            Form::Account => json!("system:serviceaccounts:shop"),
            Form::Subject => json!("shop/a"),
            Form::Selector => json!({"matchLabels": {NAME_LABEL: "shop"},
                "matchExpressions": [{"key": NAME_LABEL, "operator": "In", "values": ["shop", "pay"]},
                                     {"key": "team", "operator": "In", "values": ["team"]}]}),
        };
        let build = |place: &str, leaf: Value| {
            place.split('/').skip(1).collect::<Vec<_>>().into_iter().rev().fold(
                leaf,
                |inner, step| match step {
                    "*" => json!([inner]),
                    step => json!({step.replace("~1", "/"): inner}),
                },
            )
        };
        for row in ROWS {
            for kind in if row.kinds.is_empty() { &["x.io/any"] } else { row.kinds } {
                let object = after(kind, &build(row.place, value(row.form)));
                let text = object.to_string();
                assert!(
                    text.contains("shop-green") && !text.contains("\"shop\""),
                    "{kind} {}: {text}",
                    row.place
                );
            }
            assert!(row.source.len() > 10);
        }
        for row in POD_ROWS {
            let object = json!({"spec": {"template": {"spec": build(row.place, value(row.form))}}});
            let text = after("apps/deployments", &object).to_string();
            assert!(text.contains("shop-green") && !text.contains("\"shop\""), "{}: {text}", row.place);
        }
    }

    #[test]
    fn object_itself_is_renamed() {
        let namespace = json!({"metadata": {"name": "shop"}});
        assert_eq!(after("/namespaces", &namespace), json!({"metadata": {"name": "shop-green"}}));
        let service = json!({"metadata": {"name": "shop", "namespace": "shop"}});
        assert_eq!(
            after("/services", &service),
            json!({"metadata": {"name": "shop", "namespace": "shop-green"}})
        );
        let other =
            json!({"metadata": {"name": "a", "namespace": "other"}, "subjects": [{"namespace": "other"}]});
        assert_eq!(after("rbac.authorization.k8s.io/rolebindings", &other), other);
    }

    #[test]
    fn mentions_are_counted() {
        for (text, expected) in [
            ("shop", true),
            ("redis.shop:6379", true),
            ("http://web.shop.svc.cluster.local/x", true),
            ("a=db.shop.svc;b", true),
            ("shop.example.com", false),
            ("www.shop.example.com", false),
            ("redis.shopping", false),
            ("workshop", false),
            ("the shop is open", false),
        ] {
            assert_eq!(mentions_namespace(text, "shop"), expected, "{text}");
        }
        let spec = json!({"containers": [{"env": [{"name": "A", "value": "db.shop"}, {"name": "B"}], "args": ["--to=db.shop.svc"]}]});
        let mut object = json!({"spec": {"template": {"spec": spec}}});
        let kind = Kind { resource: "apps/deployments", kind: "Deployment" };
        assert_eq!(count_mentions(&kind, &mut object, "shop"), 2);
        let uses = Uses::default();
        note_mentions(&config(), &kind, &mut object, &uses);
        assert_eq!(uses.findings().len(), 1, "{:?}", uses.findings());
    }
}
