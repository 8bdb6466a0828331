//! Creates and changes objects of the mirror: by server-side apply, or in another way if server-side apply refuses a legal object.
//!
//! Server-side apply refuses lists with duplicate keys, such as two variables of one name (kubernetes/kubernetes#113482), and large
//! objects with many keys, because their `managedFields` do not fit. A client can create such objects and change single fields. A
//! field that was written in this way belongs to another entry of `managedFields`, so a later apply of it conflicts with netsurgeon
//! itself, and the field is changed in the same way again.

use serde_json::{Map, Value};

use super::difference::{CREATED_BY, Change, MANAGER, is_applied, set};
use super::strip::has_values;
use crate::inventory::text;
use crate::kube_api::{
    Cluster, ClusterError, FieldApply, GuardedChange, ObjectRef, ReadOnly, Replaces, Tried,
};

/// How an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// By server-side apply.
    Applied,
    /// By a create request or a merge patch, because server-side apply refuses the object.
    WithoutApply,
}

/// Creates an object for an operation. The object must not exist. A process that continues the operation recognises the object
/// ([`is_created_by`]).
pub(super) async fn create(
    mirror: &Cluster,
    manifest: &Value,
    operation: &str,
) -> Result<Value, ClusterError> {
    let options = FieldApply { manager: MANAGER, replaces: Replaces::Nothing };
    // Without a value, the API server writes no `managedFields` for an apply.
    let created = if has_values(manifest) { manifest } else { &marked(manifest, operation) };
    match mirror.apply_fields(created, options).await {
        // The API server drops the `managedFields` of an object that is too large with them.
        Err(error) if is_refused_by_apply(&error) => {
            mirror.create_as(&marked(manifest, operation), MANAGER).await
        }
        made => made,
    }
}

fn marked(manifest: &Value, operation: &str) -> Value {
    let mut marked = manifest.clone();
    let path = ["metadata", "annotations", CREATED_BY].map(str::to_string);
    set(&mut marked, &path, Some(&operation.into()));
    marked
}

/// Returns whether an operation created an object that did not exist when the operation looked. No other client uses the field
/// manager by accident, and copies of labels and annotations do not count.
pub(super) fn is_created_by(live: &Value, operation: &str) -> bool {
    let marks = live.pointer("/metadata/annotations").and_then(|annotations| annotations.get(CREATED_BY));
    is_applied(live) || marks.and_then(Value::as_str) == Some(operation)
}

/// Sends [`create`] as a dry run.
pub(super) async fn try_create(
    mirror: &ReadOnly,
    manifest: &Value,
) -> Result<(Tried, Written), ClusterError> {
    let options = FieldApply { manager: MANAGER, replaces: Replaces::Nothing };
    match mirror.try_apply_fields(manifest, options).await {
        Err(error) if is_refused_by_apply(&error) => {
            mirror.try_create_as(manifest, MANAGER).await.map(|tried| (tried, Written::WithoutApply))
        }
        tried => tried.map(|tried| (tried, Written::Applied)),
    }
}

/// Changes an object so that it has the fields of a manifest. `changes`: the fields that differ. The object must have this
/// `resourceVersion`.
pub(super) async fn change(
    mirror: &Cluster,
    (manifest, changes): (&Value, &[Change]),
    version: &str,
) -> Result<Value, ClusterError> {
    let options = FieldApply { manager: MANAGER, replaces: Replaces::Version(version) };
    match mirror.apply_fields(manifest, options).await {
        Err(error) if is_to_patch(&error) => patch(mirror, (manifest, changes), version).await,
        made => made,
    }
}

/// Sends [`change`] as a dry run, from any state of the object.
pub(super) async fn try_change(
    mirror: &ReadOnly,
    (manifest, changes): (&Value, &[Change]),
    live: &Value,
) -> Result<(Tried, Written), ClusterError> {
    let options = FieldApply { manager: MANAGER, replaces: Replaces::Anything };
    match mirror.try_apply_fields(manifest, options).await {
        Err(error) if is_to_patch(&error) => {
            try_patch(mirror, (live, changes)).await.map(|tried| (tried, Written::WithoutApply))
        }
        tried => tried.map(|tried| (tried, Written::Applied)),
    }
}

/// Changes fields of an object with a merge patch. The object must have this `resourceVersion`. Other managers lose these fields.
pub(super) async fn patch(
    mirror: &Cluster,
    (object, changes): (&Value, &[Change]),
    version: &str,
) -> Result<Value, ClusterError> {
    let change = merge_patch(changes);
    mirror.change(&ObjectRef::of(object)?, guarded(version, &change)).await
}

/// Sends [`patch`] as a dry run, from the state of the object that was read.
pub(super) async fn try_patch(
    mirror: &ReadOnly,
    (object, changes): (&Value, &[Change]),
) -> Result<Tried, ClusterError> {
    let (version, change) = (text(object, "/metadata/resourceVersion"), merge_patch(changes));
    mirror.try_change(&ObjectRef::of(object)?, guarded(version, &change)).await
}

/// Returns whether server-side apply refuses an object that the API server would store.
fn is_refused_by_apply(error: &ClusterError) -> bool {
    let ClusterError::Server { reason, .. } = error else { return false };
    let is_duplicate =
        reason.contains("failed to create typed patch object") && reason.contains("duplicate entries");
    // An update without `managedFields` is stored, but an apply is not (apiserver/pkg/endpoints/handlers/patch.go).
    is_duplicate || reason.contains("request is too large") || reason.contains("message larger than max")
}

fn is_to_patch(error: &ClusterError) -> bool {
    is_refused_by_apply(error)
        || matches!(error, ClusterError::Conflict { reason, .. } if is_with_ourselves(reason))
}

/// Returns whether an apply conflicts only with fields that netsurgeon itself wrote without an apply. The message names each manager
/// as `conflict with "NAME"` or `conflicts with "NAME"` (structured-merge-diff, `merge/conflict.go`).
fn is_with_ourselves(reason: &str) -> bool {
    let mut managers = reason.split(" with \"").skip(1).peekable();
    managers.peek().is_some() && managers.all(|manager| manager.split('"').next() == Some(MANAGER))
}

fn guarded<'a>(version: &'a str, change: &'a Value) -> GuardedChange<'a> {
    GuardedChange { manager: MANAGER, subresource: None, version, change }
}

/// Returns a JSON merge patch (RFC 7386) that sets fields.
fn merge_patch(changes: &[Change]) -> Value {
    let mut patch = Value::Object(Map::new());
    for change in changes {
        let Some((last, parents)) = change.path.split_last() else { continue };
        let mut place = &mut patch;
        for name in parents {
            if !place[name].is_object() {
                place[name] = Value::Object(Map::new());
            }
            place = &mut place[name];
        }
        place[last] = change.to.clone().unwrap_or_default();
    }
    patch
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patch_sets_and_removes_fields() {
        let change = |path: &[&str], to: Option<Value>| Change {
            path: path.iter().map(|name| (*name).to_string()).collect(),
            from: None,
            to,
        };
        let changes = [
            change(&["spec", "replicas"], Some(json!(3))),
            change(&["spec", "template", "x"], Some(json!([1]))),
            change(&["metadata", "labels", "a/b"], None),
        ];
        let expected = json!({
            "metadata": {"labels": {"a/b": null}},
            "spec": {"replicas": 3, "template": {"x": [1]}},
        });
        assert_eq!(merge_patch(&changes), expected);
    }

    #[test]
    fn object_without_values_is_marked() {
        let named = |more: Value| {
            let mut object =
                json!({"apiVersion": "v1", "kind": "A", "metadata": {"namespace": "shop", "name": "a"}});
            object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            object
        };
        let labels = json!({"metadata": {"name": "a", "labels": {"a": "b"}}});
        for (object, expected) in [
            (named(json!({})), false),
            (
                named(
                    json!({"metadata": {"name": "a", "labels": {}}, "spec": {"podSelector": {}}, "data": null}),
                ),
                false,
            ),
            (named(labels), true),
            (named(json!({"data": {"a": ""}})), true),
            (named(json!({"automountServiceAccountToken": false})), true),
        ] {
            assert_eq!(has_values(&object), expected, "{object}");
            assert!(
                is_created_by(&marked(&object, "one"), "one")
                    && !is_created_by(&marked(&object, "one"), "two")
            );
        }
    }

    #[test]
    fn only_conflicts_with_netsurgeon_are_patched() {
        let conflict =
            |reason: &str| ClusterError::Conflict { subject: String::new(), reason: reason.to_string() };
        let server = |reason: &str| ClusterError::Server {
            server: String::new(),
            verb: "patch",
            subject: String::new(),
            code: 500,
            reason: reason.to_string(),
        };
        for (error, expected) in [
            (
                conflict(
                    "Apply failed with 1 conflict: conflict with \"netsurgeon-mirror\" using v1: .data.a",
                ),
                true,
            ),
            (
                conflict(
                    "Apply failed with 2 conflicts: conflicts with \"netsurgeon-mirror\" using v1:\n- .a\n- .b",
                ),
                true,
            ),
            (
                conflict(
                    "Apply failed with 2 conflicts: conflict with \"netsurgeon-mirror\": .a\nconflict with \"team\": .b",
                ),
                false,
            ),
            (conflict("the object has been modified"), false),
            (
                server(
                    "failed to create typed patch object (a/b; apps/v1): duplicate entries for key [name=\"A\"]",
                ),
                true,
            ),
            (
                server("failed to create typed patch object (a/b; v1): .x: field not declared in schema"),
                false,
            ),
            (server("etcdserver: request is too large"), true),
            (server("etcdserver: leader changed"), false),
        ] {
            assert_eq!(is_to_patch(&error), expected, "{error}");
        }
    }
}
