//! The ConfigMaps of an operation: their names, labels and content.

use std::collections::BTreeMap;

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::MOST_SHARDS;
use crate::kube_api::{Collection, MANAGED_BY, ObjectRef};
use crate::operation::{LeaseHolder, OperationError};
use crate::store::Revision;

/// Namespace of the ConfigMaps. It contains nothing else, so a user who may write records cannot replace other objects.
pub(super) const NAMESPACE: &str = "netsurgeon";
/// The namespaces with records. Earlier versions stored them in `kube-system`.
pub(super) const NAMESPACES: [&str; 2] = [NAMESPACE, "kube-system"];
/// Label that contains the id of an operation.
const OPERATION: &str = "netsurgeon.io/operation";
/// Label that contains the role of a ConfigMap.
const PART: &str = "netsurgeon.io/part";

/// The role of a ConfigMap, as in its label `netsurgeon.io/part`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The head, which contains the summary of the operation. It owns the other ConfigMaps.
    Head,
    /// A part of the plan.
    Plan,
    /// The records of steps.
    Records,
}

impl Role {
    fn label(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Plan => "plan",
            Self::Records => "records",
        }
    }
}

/// A record, with the revision of its last change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Stored {
    #[serde(rename = "r")]
    pub(super) revision: Revision,
    /// The written value, byte for byte.
    #[serde(rename = "v")]
    pub(super) value: Box<RawValue>,
}

/// Records of parts, by name.
pub(super) type Records = BTreeMap<String, Stored>;

/// A ConfigMap of records as it was read.
#[derive(Debug, Clone)]
pub(super) struct RecordMap {
    /// The whole object, so that a write keeps the fields that other clients added.
    object: Value,
    /// Epoch of the process that can write this ConfigMap.
    pub(super) epoch: u64,
    pub(super) records: Records,
}

/// The fields of a head, without its records.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) cluster: String,
    pub(super) operation: String,
    /// The current or last holder of the operation.
    pub(super) holder: LeaseHolder,
    /// Number of ConfigMaps with records of steps.
    pub(super) shards: usize,
    /// Which ConfigMap stores a record.
    pub(super) placement: Placement,
    /// Namespace of all ConfigMaps of the operation.
    pub(super) namespace: String,
}

/// Which ConfigMap stores the record of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// The hash of its name decides. Earlier versions used this.
    Hash,
    /// The first ConfigMap that is not full when the step starts. Steps that run at the same time then share a write, and each
    /// write is small.
    Order,
}

impl RecordMap {
    pub(super) fn of(object: Value) -> Result<Self, OperationError> {
        let epoch =
            text(&object, "epoch")?.parse().map_err(|_| broken(&object, "its `epoch` is not a number"))?;
        let records = serde_json::from_str(text(&object, "records")?);
        let records = records.map_err(|error| broken(&object, &format!("its `records`: {error}")))?;
        Ok(Self { object, epoch, records })
    }

    /// Returns the object with these records and this epoch.
    pub(super) fn with(&self, epoch: u64, records: &Records) -> Value {
        let mut object = self.object.clone();
        if let Some(data) = object.get_mut("data").and_then(Value::as_object_mut) {
            data.insert("epoch".into(), json!(epoch.to_string()));
            // Serialising plain data with text keys cannot fail.
            data.insert("records".into(), json!(serde_json::to_string(records).unwrap_or_default()));
        }
        object
    }

    pub(super) fn head(&self) -> Result<Head, OperationError> {
        let read = |name| text(&self.object, name);
        let (name, namespace) = (name_of(&self.object), namespace_of(&self.object).to_string());
        let holder = serde_json::from_str(read("holder")?);
        let holder = holder.map_err(|error| broken(&self.object, &format!("its `holder`: {error}")))?;
        let shards = read("shards")?.parse();
        let shards = shards.map_err(|_| broken(&self.object, "its `shards` is not a number"))?;
        if !(1..=MOST_SHARDS).contains(&shards) {
            return Err(broken(
                &self.object,
                &format!("its `shards` is {shards}, expected 1 to {MOST_SHARDS}"),
            ));
        }
        let (cluster, operation) = (read("cluster")?.to_string(), read("operation")?.to_string());
        if name != head_name(&operation) {
            let reason = format!("its `operation` is `{operation}`, which does not match its name");
            return Err(broken(&self.object, &reason));
        }
        let placement = match read("placement") {
            Ok("order") => Placement::Order,
            Ok(other) => return Err(broken(&self.object, &format!("its `placement` is `{other}`"))),
            Err(_) => Placement::Hash,
        };
        Ok(Head { cluster, operation, holder, shards, placement, namespace })
    }

    pub(super) fn object(&self) -> &Value {
        &self.object
    }

    pub(super) fn uid(&self) -> &str {
        uid_of(&self.object)
    }
}

/// Returns the manifest of the head of an operation that starts.
pub(super) fn head(cluster: &str, by: &LeaseHolder, shards: usize) -> Value {
    let holder = json!(by).to_string();
    let data = json!({
        "cluster": cluster, "operation": by.operation, "holder": holder, "shards": shards.to_string(),
        "epoch": "1", "records": "{}", "placement": "order",
    });
    manifest(&by.operation, Role::Head, &head_name(&by.operation), json!({"data": data}))
}

/// Returns the head with `by` as its holder.
pub(super) fn held_by(mut head: Value, by: &LeaseHolder) -> Value {
    if let Some(data) = head.get_mut("data").and_then(Value::as_object_mut) {
        data.insert("holder".into(), json!(json!(by).to_string()));
    }
    head
}

/// Returns the manifest of the ConfigMap of records with this number.
pub(super) fn shard(operation: &str, number: usize, owner: &str) -> Value {
    let data = json!({"epoch": "1", "records": "{}"});
    let name = shard_name(operation, number);
    owned(manifest(operation, Role::Records, &name, json!({"data": data})), operation, owner)
}

/// Returns the manifest of a part of the plan. This ConfigMap is never changed.
pub(super) fn plan(operation: &str, number: usize, part: &[u8], owner: &str) -> Value {
    let more = json!({"immutable": true, "binaryData": {"part": BASE64.encode(part)}});
    owned(manifest(operation, Role::Plan, &plan_name(operation, number), more), operation, owner)
}

/// Returns the content of a part of the plan.
pub(super) fn plan_of(object: &Value) -> Result<Vec<u8>, OperationError> {
    let part = object.pointer("/binaryData/part").and_then(Value::as_str).unwrap_or_default();
    BASE64.decode(part.as_bytes()).map_err(|error| broken(object, &error.to_string()))
}

fn manifest(operation: &str, role: Role, name: &str, more: Value) -> Value {
    let labels = json!({MANAGED_BY.0: MANAGED_BY.1, OPERATION: operation, PART: role.label()});
    let metadata = json!({"namespace": NAMESPACE, "name": name, "labels": labels});
    let mut members = Map::new();
    members.insert("apiVersion".into(), json!("v1"));
    members.insert("kind".into(), json!("ConfigMap"));
    members.insert("metadata".into(), metadata);
    if let Value::Object(more) = more {
        members.extend(more);
    }
    Value::Object(members)
}

/// Returns the object with the head as its owner.
fn owned(mut object: Value, operation: &str, uid: &str) -> Value {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": head_name(operation), "uid": uid});
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("ownerReferences".into(), json!([owner]));
    }
    object
}

/// Returns the name of the head. The name of a ConfigMap must be in lower case (RFC 1123).
pub(super) fn head_name(operation: &str) -> String {
    format!("netsurgeon-{}", operation.to_ascii_lowercase())
}

pub(super) fn shard_name(operation: &str, number: usize) -> String {
    format!("{}-records-{number:02}", head_name(operation))
}

pub(super) fn plan_name(operation: &str, number: usize) -> String {
    format!("{}-plan-{number:05}", head_name(operation))
}

/// Returns a reference to the ConfigMap with this name.
pub(super) fn named<'a>(namespace: &'a str, name: &'a str) -> ObjectRef<'a> {
    ObjectRef::new("v1", "ConfigMap", Some(namespace), name)
}

/// Returns the collection of all ConfigMaps of a namespace.
pub(super) fn config_maps(namespace: &str) -> Collection<'_> {
    Collection::new("v1", "ConfigMap", Some(namespace))
}

/// Returns the manifest of the namespace. No Pod with more permissions than it needs can run there, because nothing runs there.
pub(super) fn namespace() -> Value {
    let labels = json!({MANAGED_BY.0: MANAGED_BY.1, "pod-security.kubernetes.io/enforce": "restricted"});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
}

/// Returns the label selector for the ConfigMaps with this role, for one operation or for all operations.
pub(super) fn selector(operation: Option<&str>, role: Role) -> String {
    let of = operation.map(|operation| format!(",{OPERATION}={operation}")).unwrap_or_default();
    format!("{PART}={}{of}", role.label())
}

/// Returns the name of an object, for a message.
pub(super) fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// Returns the namespace of an object.
pub(super) fn namespace_of(object: &Value) -> &str {
    object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default()
}

/// Returns the uid of an object.
pub(super) fn uid_of(object: &Value) -> &str {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default()
}

fn text<'a>(object: &'a Value, name: &str) -> Result<&'a str, OperationError> {
    let found = object.get("data").and_then(|data| data.get(name)).and_then(Value::as_str);
    found.ok_or_else(|| broken(object, &format!("it has no `{name}`")))
}

fn broken(object: &Value, reason: &str) -> OperationError {
    OperationError::Journal { what: place(namespace_of(object), name_of(object)), reason: reason.to_string() }
}

/// Returns the kind and name of a ConfigMap, for a message.
pub(super) fn place(namespace: &str, name: &str) -> String {
    format!("ConfigMap `{namespace}/{name}`")
}

/// The error for a ConfigMap of records that does not exist.
pub(super) fn missing(namespace: &str, name: &str) -> OperationError {
    let reason = "it is missing: without it the operation cannot be resumed or rolled back";
    OperationError::Journal { what: place(namespace, name), reason: reason.to_string() }
}
