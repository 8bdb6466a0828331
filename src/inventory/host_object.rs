//! Objects with host names that ExternalDNS can publish: Ingresses and Services.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::kube_api::ObjectRef;

/// A kind of object from which ExternalDNS publishes names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HostObjectKind {
    /// `Ingress` of `networking.k8s.io/v1`.
    Ingress,
    /// `Service` of `v1`.
    Service,
}

impl HostObjectKind {
    /// Returns the API group and the plural, for a permission check.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            Self::Ingress => ("networking.k8s.io", "ingresses"),
            Self::Service => ("", "services"),
        }
    }

    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::Service => "Service",
        }
    }
}

/// An Ingress or a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostObject {
    /// Kind of the object.
    pub kind: HostObjectKind,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl fmt::Display for HostObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}/{}`", self.kind.name(), self.namespace, self.name)
    }
}

impl HostObject {
    /// Returns the reference to the object.
    pub fn reference(&self) -> ObjectRef<'_> {
        let api_version = match self.kind {
            HostObjectKind::Ingress => "networking.k8s.io/v1",
            HostObjectKind::Service => "v1",
        };
        ObjectRef::new(api_version, self.kind.name(), Some(&self.namespace), &self.name)
    }
}
