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
];

/// Returns the folder of a resource, with a trailing slash. For an unknown resource, the folder is the resource's name.
pub(super) fn folder(layout: &Layout, resource: &str) -> String {
    let lower = resource.to_lowercase();
    let known = RESOURCES.iter().find(|(names, _)| names.contains(&lower.as_str()));
    format!("{}/{}/", layout.prefix(), known.map_or(resource, |(_, folder)| folder).trim_matches('/'))
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
}
