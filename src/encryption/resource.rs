//! The resource of an etcd key, and the names and patterns of resources in an encryption configuration.

/// A resource and its API group. In a pattern, the resource and the group can each be `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    name: String,
    group: String,
}

impl Resource {
    /// Reads `services`, `ipaddresses.networking.k8s.io`, `*.apps`, `*.` (the core group) or `*.*`
    /// (`schema.ParseGroupResource`, `k8s.io/apimachinery/pkg/runtime/schema/group_version.go`, v0.36.3).
    pub fn parse(text: &str) -> Self {
        let (name, group) = text.split_once('.').unwrap_or((text, ""));
        Self { name: name.to_string(), group: group.to_string() }
    }

    pub(super) fn whole_group(&self) -> Self {
        Self { name: "*".to_string(), group: self.group.clone() }
    }

    pub(super) fn everything() -> Self {
        Self::parse("*.*")
    }

    /// Returns the resource of an etcd key below the API server's prefix. Returns `None` if the group cannot be derived from the
    /// key. Also returns `None` for keys that have no resource, such as the keys of RangeAllocations and of the API servers' own
    /// leases (`StorageFactory.NewConfig` sets no transformer for them; `pkg/registry/core/rest/storage_core.go`, v1.36.3).
    pub fn of(key: &[u8], etcd_prefix: &str) -> Option<Self> {
        let path = std::str::from_utf8(key).ok()?.strip_prefix(etcd_prefix)?.strip_prefix('/')?;
        let (first, rest) = path.split_once('/')?;
        if first.contains('.') {
            let name = rest.split('/').next().unwrap_or_default();
            return Some(Self { name: name.to_string(), group: first.to_string() });
        }
        if let Some((_, name)) = RENAMED.iter().find(|(stored, _)| path.starts_with(stored)) {
            return Some(Self::parse(name));
        }
        let group = GROUPS.iter().find(|(_, names)| names.contains(&first))?.0;
        Some(Self { name: first.to_string(), group: group.to_string() })
    }
}

/// Resources that are stored under another name (`SpecialDefaultResourcePrefixes`,
/// `pkg/kubeapiserver/default_storage_factory_builder.go`, v1.36.3).
const RENAMED: &[(&str, &str)] = &[
    ("services/specs/", "services"),
    ("services/endpoints/", "endpoints"),
    ("minions/", "nodes"),
    ("controllers/", "replicationcontrollers"),
    ("ingress/", "ingresses.networking.k8s.io"),
    ("podsecuritypolicy/", "podsecuritypolicies.policy"),
];

/// Resources with etcd keys that do not contain the API group. These are the built-in resources of Kubernetes
/// (`pkg/controlplane/instance.go` and the groups' `rest/storage_*.go`, v1.36.3).
const GROUPS: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "configmaps",
            "events",
            "limitranges",
            "namespaces",
            "persistentvolumeclaims",
            "persistentvolumes",
            "pods",
            "podtemplates",
            "resourcequotas",
            "secrets",
            "serviceaccounts",
        ],
    ),
    ("apps", &["controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("autoscaling", &["horizontalpodautoscalers"]),
    ("batch", &["cronjobs", "jobs"]),
    ("certificates.k8s.io", &["certificatesigningrequests", "clustertrustbundles", "podcertificaterequests"]),
    ("coordination.k8s.io", &["leases", "leasecandidates"]),
    ("discovery.k8s.io", &["endpointslices"]),
    ("flowcontrol.apiserver.k8s.io", &["flowschemas", "prioritylevelconfigurations"]),
    ("networking.k8s.io", &["ingressclasses", "ipaddresses", "networkpolicies", "servicecidrs"]),
    ("node.k8s.io", &["runtimeclasses"]),
    ("policy", &["poddisruptionbudgets"]),
    ("rbac.authorization.k8s.io", &["clusterrolebindings", "clusterroles", "rolebindings", "roles"]),
    ("resource.k8s.io", &["deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"]),
    ("scheduling.k8s.io", &["priorityclasses"]),
    (
        "storage.k8s.io",
        &[
            "csidrivers",
            "csinodes",
            "csistoragecapacities",
            "storageclasses",
            "volumeattachments",
            "volumeattributesclasses",
        ],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "validatingwebhookconfigurations",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_is_derived_from_the_key() {
        let of = |key: &str| Resource::of(key.as_bytes(), "/registry");
        let named = |text: &str| Some(Resource::parse(text));
        assert_eq!(of("/registry/services/specs/default/web"), named("services"));
        assert_eq!(of("/registry/services/endpoints/default/web"), named("endpoints"));
        assert_eq!(of("/registry/minions/a"), named("nodes"));
        assert_eq!(of("/registry/ipaddresses/10.96.0.1"), named("ipaddresses.networking.k8s.io"));
        assert_eq!(of("/registry/servicecidrs/kubernetes"), named("servicecidrs.networking.k8s.io"));
        assert_eq!(of("/registry/configmaps/kube-system/kubeadm-config"), named("configmaps"));
        assert_eq!(
            of("/registry/crd.projectcalico.org/bgpconfigurations/default"),
            named("bgpconfigurations.crd.projectcalico.org")
        );
        for none in [
            "/registry/ranges/serviceips",
            "/registry/masterleases/10.0.0.1",
            "/netsurgeon/a/lock",
            "/registry",
            "",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(Resource::of(b"/k8s/secrets/a/b", "/k8s"), named("secrets"));
    }
}
