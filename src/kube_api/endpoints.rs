//! Copies the endpoints of a Service to another Service, which has no selector. Controllers create no endpoints for such a
//! Service.
//!
//! A copy is an EndpointSlice that netsurgeon manages and the other Service owns. When that Service is deleted, the garbage
//! collector of the cluster deletes the copy.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{Cluster, ClusterError, Collection, MANAGED_BY, ObjectRef};
use crate::ip::Family;

const API_VERSION: &str = "discovery.k8s.io/v1";
const KIND: &str = "EndpointSlice";
/// Labels that name the Service and the manager of an EndpointSlice. Controllers skip slices of other managers
/// (`staging/src/k8s.io/api/discovery/v1/well_known_labels.go`, v1.36.3).
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// A change of one EndpointSlice.
#[derive(Debug, Clone, PartialEq)]
pub enum SliceChange {
    /// Create a slice.
    Create(Value),
    /// Change the endpoints or ports of a slice.
    Replace(Value),
    /// Delete a slice.
    Delete {
        /// Name of the slice.
        name: String,
        /// Uid of the slice.
        uid: String,
    },
}

impl Cluster {
    /// Lists the EndpointSlices of a Service.
    pub async fn endpoint_slices(
        &self,
        namespace: &str,
        service: &str,
    ) -> Result<Vec<EndpointSlice>, ClusterError> {
        self.objects(Some(namespace), Some(&format!("{SERVICE_NAME}={service}"))).await
    }

    /// Lists the EndpointSlices of a Service as JSON, so that they can be copied.
    pub async fn slices(&self, namespace: &str, service: &str) -> Result<Vec<Value>, ClusterError> {
        let selector = format!("{SERVICE_NAME}={service}");
        self.list(&Collection::new(API_VERSION, KIND, Some(namespace)), Some(&selector)).await
    }

    /// Compares the endpoints of a Service without a selector (`to`) with the endpoints of another Service (`from`), in one
    /// address family. Returns the changes that make the endpoints of `to` equal to the endpoints of `from`. Returns no changes
    /// if `to` does not exist.
    pub async fn slice_changes(
        &self,
        namespace: &str,
        (from, to): (&str, &str),
        family: Family,
    ) -> Result<Vec<SliceChange>, ClusterError> {
        let service = self.object::<Service>(Some(namespace), to).await?;
        let Some(service) = service else { return Ok(Vec::new()) };
        let found = self.slices(namespace, to).await?;
        let wanted = self.slices(namespace, from).await?;
        Ok(changes(&service, &wanted, &found, family))
    }

    /// Applies changes to the EndpointSlices of a namespace, in order. If another client has changed a slice meanwhile, returns
    /// [`ClusterError::Conflict`] or [`ClusterError::AlreadyExists`]. In this case, compare the endpoints again.
    pub async fn change_slices(&self, namespace: &str, changes: &[SliceChange]) -> Result<(), ClusterError> {
        for change in changes {
            match change {
                SliceChange::Create(slice) => drop(self.create(slice).await?),
                SliceChange::Replace(slice) => drop(self.replace(slice).await?),
                SliceChange::Delete { name, uid } => {
                    self.delete(&ObjectRef::new(API_VERSION, KIND, Some(namespace), name), Some(uid)).await?;
                }
            }
        }
        Ok(())
    }
}

/// Returns an EndpointSlice for a Service without a selector. The slice has one port, and one address for each node.
pub(super) fn slice_of_nodes(
    service: &Service,
    family: Family,
    nodes: &[(&str, std::net::IpAddr)],
    port: u16,
) -> Value {
    let endpoint = |(node, address): &(&str, std::net::IpAddr)| json!({"addresses": [address.to_string()], "nodeName": node, "conditions": {"ready": true}});
    let mut slice = copy(service, &Value::Null);
    if let Some(members) = slice.as_object_mut() {
        if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("name".to_string(), service.name_any().into());
        }
        members.insert("addressType".to_string(), json!(family.to_string()));
        members.insert("endpoints".to_string(), nodes.iter().map(endpoint).collect());
        members.insert("ports".to_string(), json!([{"name": "", "protocol": "TCP", "port": port}]));
    }
    slice
}

fn changes(service: &Service, wanted: &[Value], found: &[Value], family: Family) -> Vec<SliceChange> {
    let of_family = |slice: &&Value| text(slice, "/addressType") == family.to_string();
    let is_ours = |slice: &&Value| label(slice, SLICE_MANAGED_BY) == MANAGED_BY.1;
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let has_selector = selector.is_some_and(|selector| !selector.is_empty());
    // If the Service has a selector, a controller manages its endpoints.
    let wanted = wanted.iter().filter(of_family).filter(|_| !has_selector);
    let copies: Vec<Value> = wanted.map(|slice| copy(service, slice)).collect();
    let mut changes = Vec::new();
    for copy in &copies {
        match named(found, name_of(copy)) {
            None => changes.push(SliceChange::Create(copy.clone())),
            Some(old) => changes.extend(updated(old, copy).map(SliceChange::Replace)),
        }
    }
    for old in found.iter().filter(is_ours) {
        if named(&copies, name_of(old)).is_none() {
            let uid = text(old, "/metadata/uid").to_string();
            changes.push(SliceChange::Delete { name: name_of(old).to_string(), uid });
        }
    }
    changes
}

/// Copies an EndpointSlice to another Service. The name of the copy identifies the source slice and the Service, so a recreated
/// Service gets its own copies.
fn copy(service: &Service, slice: &Value) -> Value {
    let short = |uid: &str| uid.chars().take(8).collect::<String>();
    let (name, uid) = (service.name_any(), service.uid().unwrap_or_default());
    let list = |field: &str| slice.get(field).cloned().unwrap_or_default();
    json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "metadata": {
            "name": format!("{name}-{}-{}", short(&uid), short(text(slice, "/metadata/uid"))),
            "namespace": service.namespace().unwrap_or_default(),
            "labels": {SERVICE_NAME: name, SLICE_MANAGED_BY: MANAGED_BY.1, MANAGED_BY.0: MANAGED_BY.1},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid}],
        },
        "addressType": list("addressType"), "endpoints": list("endpoints"), "ports": list("ports"),
    })
}

/// Returns `copy` with the metadata of `old`, the existing older copy; `None` if their endpoints and ports are equal. The result
/// is built from `copy`, because `old` comes from a list, where objects have neither `apiVersion` nor `kind`.
fn updated(old: &Value, copy: &Value) -> Option<Value> {
    let differs =
        |name: &str| old.get(name).unwrap_or(&Value::Null) != copy.get(name).unwrap_or(&Value::Null);
    if !differs("endpoints") && !differs("ports") {
        return None;
    }
    let mut new = copy.clone();
    new.as_object_mut()?.insert("metadata".to_string(), old.get("metadata")?.clone());
    Some(new)
}

fn named<'a>(slices: &'a [Value], name: &str) -> Option<&'a Value> {
    slices.iter().find(|slice| name_of(slice) == name)
}

pub(super) fn name_of(object: &Value) -> &str {
    text(object, "/metadata/name")
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn label<'a>(object: &'a Value, name: &str) -> &'a str {
    object
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(name))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(uid: &str, selector: &Value) -> Service {
        let metadata = json!({"name": "shadow", "namespace": "shop", "uid": uid});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"selector": selector}})).unwrap()
    }

    fn slice(uid: &str, family: &str, addresses: &[&str]) -> Value {
        let endpoints: Vec<Value> = addresses
            .iter()
            .map(|address| json!({"addresses": [address], "conditions": {"ready": true}}))
            .collect();
        json!({
            "metadata": {"name": format!("web-{uid}"), "uid": uid, "labels": {SERVICE_NAME: "web"}},
            "addressType": family, "endpoints": endpoints, "ports": [{"port": 8080, "protocol": "TCP"}],
        })
    }

    fn created(changes: &[SliceChange]) -> Vec<Value> {
        let of = |change: &SliceChange| match change {
            SliceChange::Create(slice) => slice.clone(),
            other => panic!("{other:?}"),
        };
        changes.iter().map(of).collect()
    }

    /// Returns slices in the form of a list response, without `apiVersion` and `kind`.
    fn listed(slices: &[Value]) -> Vec<Value> {
        let mut slices = slices.to_vec();
        for members in slices.iter_mut().filter_map(Value::as_object_mut) {
            members.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
        }
        slices
    }

    #[test]
    fn copies_are_created_once_and_follow_their_source() {
        let shadow = service("11112222-3333", &Value::Null);
        let of = |wanted: &[Value], found: &[Value]| changes(&shadow, wanted, found, Family::V4);
        let wanted =
            [slice("aaaabbbb-1", "IPv4", &["192.0.2.1"]), slice("ccccdddd-1", "IPv6", &["2001:db8::1"])];
        let made = created(&of(&wanted, &[]));
        let names: Vec<&str> = made.iter().map(|slice| text(slice, "/metadata/name")).collect();
        assert_eq!(names, ["shadow-11112222-aaaabbbb"], "of one family");
        assert_eq!(made[0]["endpoints"], wanted[0]["endpoints"]);
        assert_eq!(label(&made[0], SERVICE_NAME), "shadow");
        assert_eq!(made[0]["metadata"]["ownerReferences"][0]["uid"], "11112222-3333");
        assert_eq!(of(&wanted, &listed(&made)), [], "twice is once");

        let other = [slice("aaaabbbb-1", "IPv4", &["192.0.2.1", "192.0.2.2"])];
        let [SliceChange::Replace(replaced)] = &of(&other, &listed(&made))[..] else {
            panic!("it is changed")
        };
        assert_eq!((&replaced["kind"], &replaced["apiVersion"]), (&made[0]["kind"], &made[0]["apiVersion"]));
        assert_eq!(replaced["endpoints"], other[0]["endpoints"]);
        assert_eq!(replaced["metadata"], made[0]["metadata"], "and what else it has stays");
        assert!(matches!(&of(&[], &made)[..], [SliceChange::Delete { .. }]));
        let recreated = service("99998888-3333", &Value::Null);
        let both = changes(&recreated, &wanted, &made, Family::V4);
        assert!(
            matches!(&both[..], [SliceChange::Create(_), SliceChange::Delete { .. }]),
            "the new one first"
        );
    }

    #[test]
    fn slices_of_other_managers_stay() {
        let found = [slice("eeeeffff-1", "IPv4", &["192.0.2.9"])];
        assert_eq!(changes(&service("1", &Value::Null), &[], &found, Family::V4), []);
        let selecting = service("11112222-3333", &json!({"app": "web"}));
        let wanted = [slice("aaaabbbb-1", "IPv4", &["192.0.2.1"])];
        assert_eq!(
            changes(&selecting, &wanted, &found, Family::V4),
            [],
            "a controller gives it its endpoints"
        );
        let ours = created(&changes(&service("11112222-3333", &json!({})), &wanted, &[], Family::V4));
        assert!(matches!(&changes(&selecting, &wanted, &ours, Family::V4)[..], [SliceChange::Delete { .. }]));
    }
}
