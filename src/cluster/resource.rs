//! Which kinds of object this program names, and where the API serves them.
//!
//! The API would tell (discovery); but what is renumbered is known beforehand, and a kind that is not in the
//! table is refused by its name rather than looked for at a path that was guessed.

use std::fmt::{self, Write as _};

use serde_json::Value;

use super::ClusterError;

/// A kind of object: `apiVersion`, `kind`, the plural in paths, and whether its objects have a namespace.
///
/// Sources: `staging/src/k8s.io/api/*/register.go` and `pkg/registry/*/rest/storage_*.go`, v1.36.3; the same
/// in v1.32.2, where `networking.k8s.io/v1` has no IPAddress and ServiceCIDR. Calico: `crd.projectcalico.org/v1`; Cilium, Argo CD and
/// cert-manager: the CustomResourceDefinitions that they install.
type Row = (&'static str, &'static str, &'static str, bool);

const KINDS: &[Row] = &[
    ("v1", "ConfigMap", "configmaps", true),
    ("v1", "Endpoints", "endpoints", true),
    ("v1", "Event", "events", true),
    ("v1", "Namespace", "namespaces", false),
    ("v1", "Node", "nodes", false),
    ("v1", "PersistentVolume", "persistentvolumes", false),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
    ("v1", "Pod", "pods", true),
    ("v1", "ResourceQuota", "resourcequotas", true),
    ("v1", "Secret", "secrets", true),
    ("v1", "Service", "services", true),
    ("v1", "ServiceAccount", "serviceaccounts", true),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", false),
    ("apps/v1", "DaemonSet", "daemonsets", true),
    ("apps/v1", "Deployment", "deployments", true),
    ("apps/v1", "StatefulSet", "statefulsets", true),
    ("argoproj.io/v1alpha1", "Application", "applications", true),
    ("autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    ("batch/v1", "CronJob", "cronjobs", true),
    ("batch/v1", "Job", "jobs", true),
    ("cert-manager.io/v1", "Certificate", "certificates", true),
    ("cert-manager.io/v1", "ClusterIssuer", "clusterissuers", false),
    ("cert-manager.io/v1", "Issuer", "issuers", true),
    ("certificates.k8s.io/v1", "CertificateSigningRequest", "certificatesigningrequests", false),
    ("cilium.io/v2", "CiliumBGPAdvertisement", "ciliumbgpadvertisements", false),
    ("cilium.io/v2", "CiliumClusterwideNetworkPolicy", "ciliumclusterwidenetworkpolicies", false),
    ("cilium.io/v2", "CiliumNetworkPolicy", "ciliumnetworkpolicies", true),
    ("cilium.io/v2", "CiliumPodIPPool", "ciliumpodippools", false),
    ("cilium.io/v2alpha1", "CiliumBGPAdvertisement", "ciliumbgpadvertisements", false),
    ("cilium.io/v2alpha1", "CiliumPodIPPool", "ciliumpodippools", false),
    ("coordination.k8s.io/v1", "Lease", "leases", true),
    ("crd.antrea.io/v1beta1", "ClusterNetworkPolicy", "clusternetworkpolicies", false),
    ("crd.antrea.io/v1beta1", "NetworkPolicy", "networkpolicies", true),
    ("crd.projectcalico.org/v1", "BGPConfiguration", "bgpconfigurations", false),
    ("crd.projectcalico.org/v1", "FelixConfiguration", "felixconfigurations", false),
    ("crd.projectcalico.org/v1", "GlobalNetworkPolicy", "globalnetworkpolicies", false),
    ("crd.projectcalico.org/v1", "IPPool", "ippools", false),
    ("crd.projectcalico.org/v1", "NetworkPolicy", "networkpolicies", true),
    ("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", true),
    ("events.k8s.io/v1", "Event", "events", true),
    ("gateway.networking.k8s.io/v1", "Gateway", "gateways", true),
    ("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes", true),
    ("kubeovn.io/v1", "Subnet", "subnets", false),
    ("networking.k8s.io/v1", "IPAddress", "ipaddresses", false),
    ("networking.k8s.io/v1", "Ingress", "ingresses", true),
    ("networking.k8s.io/v1", "IngressClass", "ingressclasses", false),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", true),
    ("networking.k8s.io/v1", "ServiceCIDR", "servicecidrs", false),
    ("networking.k8s.io/v1beta1", "IPAddress", "ipaddresses", false),
    ("networking.k8s.io/v1beta1", "ServiceCIDR", "servicecidrs", false),
    ("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", false),
    ("operator.tigera.io/v1", "Installation", "installations", false),
    ("policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy", "adminnetworkpolicies", false),
    (
        "policy.networking.k8s.io/v1alpha1",
        "BaselineAdminNetworkPolicy",
        "baselineadminnetworkpolicies",
        false,
    ),
    ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
    ("projectcalico.org/v3", "FelixConfiguration", "felixconfigurations", false),
    ("projectcalico.org/v3", "IPPool", "ippools", false),
    ("rbac.authorization.k8s.io/v1", "Role", "roles", true),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true),
    ("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false),
    ("storage.k8s.io/v1", "StorageClass", "storageclasses", false),
    (ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false),
    (ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false),
    (ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false),
    (ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false),
];

const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// The objects of one kind, in one namespace or everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collection<'a> {
    /// As in `networking.k8s.io/v1`.
    pub api_version: &'a str,
    /// As in `ServiceCIDR`.
    pub kind: &'a str,
    /// `None` for kinds without namespaces, and for a list over all of them.
    pub namespace: Option<&'a str>,
}

/// One object by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectRef<'a> {
    /// Where it belongs.
    pub collection: Collection<'a>,
    /// Its name.
    pub name: &'a str,
}

impl<'a> Collection<'a> {
    /// Returns the objects of a kind; `namespace` is `None` for kinds that have none, and for all of them.
    pub fn new(api_version: &'a str, kind: &'a str, namespace: Option<&'a str>) -> Self {
        Self { api_version, kind, namespace }
    }

    fn row(&self) -> Result<&'static Row, ClusterError> {
        let row = KINDS.iter().find(|row| row.0 == self.api_version && row.1 == self.kind);
        row.ok_or_else(|| ClusterError::UnknownKind {
            api_version: self.api_version.to_string(),
            kind: self.kind.to_string(),
        })
    }

    /// Returns the path of the kind's group and version, as in `/apis/discovery.k8s.io/v1`.
    pub(super) fn group_path(&self) -> Result<String, ClusterError> {
        let (api_version, ..) = self.row()?;
        let root = if api_version.contains('/') { "apis" } else { "api" };
        Ok(format!("/{root}/{api_version}"))
    }

    /// Returns the path, as in `/api/v1/namespaces/shop/services`.
    pub(super) fn path(&self) -> Result<String, ClusterError> {
        let (_, kind, plural, namespaced) = self.row()?;
        let root = self.group_path()?;
        match (self.namespace, namespaced) {
            (None, _) => Ok(format!("{root}/{plural}")),
            (Some(namespace), true) => Ok(format!("{root}/namespaces/{}/{plural}", segment(namespace)?)),
            (Some(namespace), false) => Err(ClusterError::Manifest {
                reason: format!("a {kind} has no namespace, `{namespace}` is given"),
            }),
        }
    }
}

impl fmt::Display for Collection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace {
            Some(namespace) => write!(f, "{} objects in `{namespace}`", self.kind),
            None => write!(f, "{} objects", self.kind),
        }
    }
}

impl<'a> ObjectRef<'a> {
    /// Names an object; `namespace` is `None` for kinds that have none.
    pub fn new(api_version: &'a str, kind: &'a str, namespace: Option<&'a str>, name: &'a str) -> Self {
        Self { collection: Collection::new(api_version, kind, namespace), name }
    }

    /// Returns the name of the object that a manifest describes.
    pub fn of(manifest: &'a Value) -> Result<Self, ClusterError> {
        let text =
            |path: &str| manifest.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
        let missing = |what: &str| ClusterError::Manifest { reason: format!("it has no `{what}`") };
        Ok(Self::new(
            text("/apiVersion").ok_or_else(|| missing("apiVersion"))?,
            text("/kind").ok_or_else(|| missing("kind"))?,
            text("/metadata/namespace"),
            text("/metadata/name").ok_or_else(|| missing("metadata.name"))?,
        ))
    }

    /// Returns the path, as in `/api/v1/namespaces/shop/services/web`.
    pub(super) fn path(&self) -> Result<String, ClusterError> {
        let (.., namespaced) = self.collection.row()?;
        if *namespaced && self.collection.namespace.is_none() {
            let reason = format!("the namespace of {} `{}` is not given", self.collection.kind, self.name);
            return Err(ClusterError::Manifest { reason });
        }
        Ok(format!("{}/{}", self.collection.path()?, segment(self.name)?))
    }
}

impl fmt::Display for ObjectRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.collection.namespace {
            Some(namespace) => write!(f, "{} `{namespace}/{}`", self.collection.kind, self.name),
            None => write!(f, "{} `{}`", self.collection.kind, self.name),
        }
    }
}

/// Checks a name that becomes a part of a path. Names of the kinds above are DNS names (RFC 1123), but for
/// those of IPAddresses, which may have colons.
pub(super) fn segment(name: &str) -> Result<&str, ClusterError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || ['-', '.', ':', '_'].contains(&c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(fits) {
        return Err(ClusterError::Manifest { reason: format!("`{name}` is no name of an object") });
    }
    Ok(name)
}

/// Escapes a value for a query (RFC 3986, section 2.3).
pub fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let path = |api_version, kind, namespace, name| {
            ObjectRef::new(api_version, kind, namespace, name).path().unwrap()
        };
        assert_eq!(path("v1", "Service", Some("shop"), "web"), "/api/v1/namespaces/shop/services/web");
        assert_eq!(path("v1", "Node", None, "node-1"), "/api/v1/nodes/node-1");
        assert_eq!(
            path("networking.k8s.io/v1beta1", "IPAddress", None, "fd00::1"),
            "/apis/networking.k8s.io/v1beta1/ipaddresses/fd00::1"
        );
        let everywhere = Collection::new("discovery.k8s.io/v1", "EndpointSlice", None);
        assert_eq!(everywhere.path().unwrap(), "/apis/discovery.k8s.io/v1/endpointslices");
        assert_eq!(
            path("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", None, "x"),
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/x"
        );
    }

    #[test]
    fn a_kind_that_is_not_in_the_table_is_refused_by_its_name() {
        let error = ObjectRef::new("apps/v1", "ControllerRevision", Some("shop"), "web").path().unwrap_err();
        assert!(error.to_string().contains("`ControllerRevision` of `apps/v1`"), "{error}");
        let error = ObjectRef::new("networking.k8s.io/v2", "ServiceCIDR", None, "x").path().unwrap_err();
        assert!(matches!(error, ClusterError::UnknownKind { .. }), "{error}");
    }

    #[test]
    fn names_cannot_lead_elsewhere() {
        for name in ["", "..", "a/b", "a?b", "a%2fb", "a b"] {
            let error = ObjectRef::new("v1", "Node", None, name).path().unwrap_err();
            assert!(matches!(error, ClusterError::Manifest { .. }), "{name}: {error}");
        }
        assert!(ObjectRef::new("v1", "Service", None, "web").path().is_err(), "no namespace");
        assert!(ObjectRef::new("v1", "Node", Some("shop"), "n").path().is_err(), "no kind for one");
    }

    #[test]
    fn a_manifest_names_its_object() {
        let manifest =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": "b"}});
        assert_eq!(ObjectRef::of(&manifest).unwrap().to_string(), "Service `a/b`");
        let error = ObjectRef::of(&json!({"apiVersion": "v1", "kind": "Service"})).unwrap_err();
        assert!(error.to_string().contains("metadata.name"), "{error}");
    }

    #[test]
    fn queries_are_escaped() {
        assert_eq!(escaped("a.b/c=d,e"), "a.b%2Fc%3Dd%2Ce");
    }
}
