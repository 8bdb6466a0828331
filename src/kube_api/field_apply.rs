//! Server-side apply that takes no field from another manager, for objects that are copied from another cluster.

use kube::api::{Patch, PatchParams};
use serde_json::Value;

use super::{Cluster, ClusterError, ObjectRef, Tried};

/// The `resourceVersion` of an apply that must create its object. No stored object has this revision: etcd's first revision is 1,
/// and the API server's own objects are written before any client's. The API server ignores a `resourceVersion` if the object does
/// not exist, and refuses the apply if the object has another one.
const NEVER_STORED: &str = "1";

/// How an apply behaves.
#[derive(Debug, Clone, Copy)]
pub struct FieldApply<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// The state that the apply replaces.
    pub replaces: Replaces<'a>,
}

/// The state that an apply replaces. If the object has another state, the apply fails with [`ClusterError::Conflict`].
#[derive(Debug, Clone, Copy)]
pub enum Replaces<'a> {
    /// The object must not exist.
    Nothing,
    /// The object must have this `resourceVersion`.
    Version(&'a str),
    /// Any state.
    Anything,
}

impl Cluster {
    /// Applies a manifest. Fails with [`ClusterError::Conflict`] if another manager owns a field with another value.
    pub async fn apply_fields(
        &self,
        manifest: &Value,
        options: FieldApply<'_>,
    ) -> Result<Value, ClusterError> {
        let manifest = with_precondition(manifest, options.replaces);
        let params = PatchParams::apply(options.manager);
        self.patch(&ObjectRef::of(&manifest)?, &params, &Patch::Apply(&manifest)).await
    }

    /// Sends an apply as a dry run. The API server runs all checks, and stores nothing.
    pub async fn try_apply_fields(
        &self,
        manifest: &Value,
        options: FieldApply<'_>,
    ) -> Result<Tried, ClusterError> {
        let manifest = with_precondition(manifest, options.replaces);
        let params = PatchParams { dry_run: true, ..PatchParams::apply(options.manager) };
        self.try_patch(&ObjectRef::of(&manifest)?, &params, &Patch::Apply(&manifest)).await
    }
}

/// Returns a manifest whose apply fails unless the object has the expected state.
fn with_precondition(manifest: &Value, replaces: Replaces<'_>) -> Value {
    let mut manifest = manifest.clone();
    let version = match replaces {
        Replaces::Nothing => Some(NEVER_STORED),
        Replaces::Version(version) => Some(version),
        Replaces::Anything => None,
    };
    if let (Some(version), Some(metadata)) =
        (version, manifest.get_mut("metadata").and_then(Value::as_object_mut))
    {
        metadata.insert("resourceVersion".to_string(), version.into());
    }
    manifest
}
