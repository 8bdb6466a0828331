//! Kinds that an API server serves, the paths of their objects, and a cache of discovered kinds.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::core::{ApiResource, DynamicObject, GroupVersion, Request, Resource as _};

use super::resource::segment;
use super::{ClusterError, Collection};

/// A kind that the API server serves, in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedKind {
    /// API group, for example `apps`; empty for the core group.
    pub group: String,
    /// API version, for example `v1`.
    pub version: String,
    /// Name of the kind, for example `Deployment`.
    pub kind: String,
    /// Plural name in paths, for example `deployments`.
    pub plural: String,
    /// Whether objects of this kind have a namespace.
    pub is_namespaced: bool,
    /// Supported verbs, for example `list`.
    pub verbs: BTreeSet<String>,
}

impl ServedKind {
    /// Returns a builder for requests about objects of this kind, in one namespace or in all namespaces.
    pub(super) fn requests(&self, namespace: Option<&str>) -> Result<Request, ClusterError> {
        if let Some(namespace) = namespace {
            segment(namespace)?;
            if !self.is_namespaced {
                let reason = format!("{} objects have no namespace, but `{namespace}` is given", self.kind);
                return Err(ClusterError::Manifest { reason });
            }
        }
        let of = GroupVersion::gv(&self.group, &self.version).with_kind(&self.kind);
        let resource = ApiResource::from_gvk_with_plural(&of, segment(&self.plural)?);
        Ok(Request::new(DynamicObject::url_path(&resource, namespace)))
    }
}

/// Splits `apps/v1` into group and version. The group is empty for the core group.
pub(super) fn parts(api_version: &str) -> (&str, &str) {
    api_version.rsplit_once('/').unwrap_or(("", api_version))
}

/// Returns the kinds in a list of resources, without subresources.
pub(super) fn kinds(found: APIResourceList) -> Vec<ServedKind> {
    let (group, version) = parts(&found.group_version);
    let kinds = found.resources.into_iter().filter(|one| !one.name.contains('/'));
    let kind = |one: k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource| ServedKind {
        group: group.to_string(),
        version: version.to_string(),
        kind: one.kind,
        plural: one.name,
        is_namespaced: one.namespaced,
        verbs: one.verbs.into_iter().collect(),
    };
    kinds.map(kind).collect()
}

/// Cache of discovered kinds, by group and version (for example `apps/v1`).
#[derive(Default)]
pub(super) struct Kinds(Mutex<HashMap<String, Vec<ServedKind>>>);

impl Kinds {
    pub(super) fn find(&self, collection: &Collection<'_>) -> Option<ServedKind> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(collection.api_version)?.iter().find(|one| one.kind == collection.kind).cloned()
    }

    pub(super) fn learn(&self, api_version: &str, kinds: Vec<ServedKind>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(api_version.to_string(), kinds);
    }
}

/// Returns the path of a group version, for example `/apis/apps/v1`.
pub(super) fn root(api_version: &str) -> Result<String, ClusterError> {
    for part in api_version.split('/') {
        segment(part)?;
    }
    let root = if api_version.contains('/') { "apis" } else { "api" };
    Ok(format!("/{root}/{api_version}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn served(api_version: &str, plural: &str, kind: &str, is_namespaced: bool) -> ServedKind {
        let found = json!({"groupVersion": api_version, "resources": [
            {"name": plural, "kind": kind, "namespaced": is_namespaced, "singularName": "", "verbs": ["list"]},
            {"name": format!("{plural}/status"), "kind": kind, "namespaced": is_namespaced, "singularName": "", "verbs": []},
        ]});
        let mut found = kinds(serde_json::from_value(found).unwrap());
        assert_eq!(found.len(), 1, "a subresource is not a kind");
        found.remove(0)
    }

    #[test]
    fn paths_are_those_of_the_api() {
        let service = served("v1", "services", "Service", true);
        assert_eq!(service.requests(Some("shop")).unwrap().url_path, "/api/v1/namespaces/shop/services");
        assert_eq!(service.requests(None).unwrap().url_path, "/api/v1/services");
        let address = served("networking.k8s.io/v1beta1", "ipaddresses", "IPAddress", false);
        assert_eq!(address.requests(None).unwrap().url_path, "/apis/networking.k8s.io/v1beta1/ipaddresses");
        let error = address.requests(Some("shop")).unwrap_err().to_string();
        assert!(error.contains("IPAddress objects have no namespace, but `shop` is given"), "{error}");
        assert!(service.requests(Some("../x")).is_err());
        assert_eq!(
            (root("v1").unwrap(), root("apps/v1").unwrap()),
            ("/api/v1".into(), "/apis/apps/v1".into())
        );
        assert!(root("../v1").is_err());
    }
}
