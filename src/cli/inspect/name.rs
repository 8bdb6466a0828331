//! Converts the name of an object to its key in etcd.
//!
//! Most resources are stored under their plural name. For exceptions, see `specialDefaultResourcePrefixes` in
//! `pkg/kubeapiserver/default_storage_factory_builder.go` and the `storage.go` file of each resource, v1.36.3.

use crate::store::Key;
use crate::survey::Layout;

/// Names of common resources, including kubectl's short names. Each row has the names of one resource, and the folder in which
/// the API server stores it.
const RESOURCES: &[(&[&str], &str)] = &[
    (&["service", "services", "svc"], "services/specs"),
    (&["endpoints", "endpoint", "ep"], "services/endpoints"),
    (&["node", "nodes", "no"], "minions"),
    (&["range", "ranges", "rangeallocation", "rangeallocations"], "ranges"),
    (&["ipaddress", "ipaddresses", "ip"], "ipaddresses"),
    (&["servicecidr", "servicecidrs"], "servicecidrs"),
    (&["endpointslice", "endpointslices"], "endpointslices"),
    (&["pod", "pods", "po"], "pods"),
    (&["namespace", "namespaces", "ns"], "namespaces"),
    (&["configmap", "configmaps", "cm"], "configmaps"),
    (&["secret", "secrets"], "secrets"),
    (&["serviceaccount", "serviceaccounts", "sa"], "serviceaccounts"),
    (&["deployment", "deployments", "deploy"], "deployments"),
    (&["replicaset", "replicasets", "rs"], "replicasets"),
    (&["daemonset", "daemonsets", "ds"], "daemonsets"),
    (&["statefulset", "statefulsets", "sts"], "statefulsets"),
    (&["replicationcontroller", "replicationcontrollers", "rc"], "controllers"),
    (&["ingress", "ingresses", "ing"], "ingress"),
    (&["networkpolicy", "networkpolicies", "netpol"], "networkpolicies"),
    (&["lease", "leases"], "leases"),
    (&["event", "events", "ev"], "events"),
    (
        &["customresourcedefinition", "customresourcedefinitions", "crd", "crds"],
        "apiextensions.k8s.io/customresourcedefinitions",
    ),
    (&["apiservice", "apiservices"], "apiregistration.k8s.io/apiservices"),
    (&["job", "jobs"], "jobs"),
    (&["cronjob", "cronjobs", "cj"], "cronjobs"),
    (&["persistentvolume", "persistentvolumes", "pv"], "persistentvolumes"),
    (&["persistentvolumeclaim", "persistentvolumeclaims", "pvc"], "persistentvolumeclaims"),
    (&["storageclass", "storageclasses", "sc"], "storageclasses"),
    (&["horizontalpodautoscaler", "horizontalpodautoscalers", "hpa"], "horizontalpodautoscalers"),
    (&["poddisruptionbudget", "poddisruptionbudgets", "pdb"], "poddisruptionbudgets"),
    (&["limitrange", "limitranges", "limits"], "limitranges"),
    (&["resourcequota", "resourcequotas", "quota"], "resourcequotas"),
    (&["role", "roles"], "roles"),
    (&["rolebinding", "rolebindings"], "rolebindings"),
    (&["clusterrole", "clusterroles"], "clusterroles"),
    (&["clusterrolebinding", "clusterrolebindings"], "clusterrolebindings"),
    (&["priorityclass", "priorityclasses", "pc"], "priorityclasses"),
    (&["ingressclass", "ingressclasses"], "ingressclasses"),
    (&["certificatesigningrequest", "certificatesigningrequests", "csr"], "certificatesigningrequests"),
    (&["controllerrevision", "controllerrevisions"], "controllerrevisions"),
    (
        &["validatingwebhookconfiguration", "validatingwebhookconfigurations"],
        "validatingwebhookconfigurations",
    ),
    (&["mutatingwebhookconfiguration", "mutatingwebhookconfigurations"], "mutatingwebhookconfigurations"),
    (&["validatingadmissionpolicy", "validatingadmissionpolicies"], "validatingadmissionpolicies"),
    (&["runtimeclass", "runtimeclasses"], "runtimeclasses"),
];

/// API groups of Kubernetes itself whose names do not end with `.k8s.io`.
const GROUPS: [&str; 5] = ["apps", "batch", "autoscaling", "policy", "extensions"];

fn known(resource: &str) -> Option<&'static (&'static [&'static str], &'static str)> {
    RESOURCES.iter().find(|(names, _)| names.contains(&resource))
}

/// Returns the folder of a resource, with a trailing slash. Accepts `RESOURCE.GROUP`, as kubectl does; a custom resource is in a
/// folder of its group. For an unknown resource, the folder is the resource's name.
pub(super) fn folder(layout: &Layout, resource: &str) -> String {
    let lower = resource.to_lowercase();
    let folder = match (known(&lower), lower.split_once('.')) {
        (Some((_, folder)), _) => (*folder).to_string(),
        (None, Some((plural, group))) if !lower.contains('/') => match known(plural) {
            Some((_, folder)) if group.ends_with(".k8s.io") || GROUPS.contains(&group) => {
                (*folder).to_string()
            }
            _ => format!("{group}/{plural}"),
        },
        (None, _) => resource.trim_matches('/').to_string(),
    };
    format!("{}/{folder}/", layout.prefix())
}

/// Returns the key prefix of a prefix that starts with a slash, or of `RESOURCE[/NAMESPACE[/NAME]]`.
pub(super) fn prefix(layout: &Layout, text: &str) -> String {
    if text.starts_with('/') {
        return text.to_string();
    }
    match text.split_once('/') {
        Some((resource, rest)) if known(&resource.to_lowercase()).is_some() => {
            format!("{}{rest}", folder(layout, resource))
        }
        _ => folder(layout, text),
    }
}

/// Returns whether an object of this kind belongs to a resource, which can have any of kubectl's names.
pub(super) fn is_kind(kind: &str, resource: &str) -> bool {
    let (kind, resource) = (kind.to_lowercase(), resource.to_lowercase());
    kind == resource
        || known(&resource)
            .is_some_and(|(names, _)| names.contains(&resource.as_str()) && names.contains(&kind.as_str()))
}

/// Returns the key of `RESOURCE [NAMESPACE/]NAME`. If no name is given and `resource` starts with a slash, `resource` is the key.
pub(super) fn key(layout: &Layout, resource: &str, name: Option<&str>) -> Option<Key> {
    match name {
        None if resource.starts_with('/') => Some(Key::from(resource)),
        None => None,
        Some(name) => Some(Key::from(format!("{}{name}", folder(layout, resource)))),
    }
}

/// Returns whether a key belongs to a Secret. Does not read the value.
pub(super) fn is_secret(layout: &Layout, key: &[u8]) -> bool {
    key.starts_with(folder(layout, "secrets").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_and_name_become_a_key() {
        let of = |resource: &str, name: Option<&str>| {
            key(&Layout::default(), resource, name).map(|key| key.to_string())
        };
        assert_eq!(of("/registry/x", None).as_deref(), Some("/registry/x"));
        assert_eq!(of("svc", Some("default/web")).as_deref(), Some("/registry/services/specs/default/web"));
        assert_eq!(of("Node", Some("n1")).as_deref(), Some("/registry/minions/n1"));
        assert_eq!(of("range", Some("serviceips")).as_deref(), Some("/registry/ranges/serviceips"));
        assert_eq!(
            of("example.org/things", Some("a/b")).as_deref(),
            Some("/registry/example.org/things/a/b")
        );
        assert_eq!(of("service", None), None);
    }

    #[test]
    fn names_of_kubectl_become_prefixes() {
        let of = |text: &str| prefix(&Layout::default(), text);
        for (text, wanted) in [
            ("svc", "/registry/services/specs/"),
            ("Services", "/registry/services/specs/"),
            ("svc/default", "/registry/services/specs/default"),
            ("deploy", "/registry/deployments/"),
            ("deployments.apps", "/registry/deployments/"),
            ("endpointslices.discovery.k8s.io", "/registry/endpointslices/"),
            ("networkpolicies.crd.projectcalico.org", "/registry/crd.projectcalico.org/networkpolicies/"),
            ("crd.projectcalico.org/networkpolicies", "/registry/crd.projectcalico.org/networkpolicies/"),
            ("/registry/ranges", "/registry/ranges"),
            ("widgets", "/registry/widgets/"),
        ] {
            assert_eq!(of(text), wanted, "{text}");
        }
        assert!(is_kind("Service", "svc") && is_kind("Service", "SERVICES") && is_kind("Widget", "widget"));
        assert!(!is_kind("ServiceCIDR", "svc") && !is_kind("Endpoints", "service"));
    }
}
