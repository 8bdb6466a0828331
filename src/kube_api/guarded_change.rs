//! A change that is executed only if the object is unchanged since it was read. A request that arrives late then fails, if another
//! process has changed the object in the meantime.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::connection::{Call, Verb};
use super::{Cluster, ClusterError, ObjectRef, Tried};

/// A change of an object that was read.
#[derive(Debug, Clone, Copy)]
pub struct GuardedChange<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// The subresource, for example `status` or `scale`; `None` for the object itself.
    pub subresource: Option<&'a str>,
    /// The `resourceVersion` that the object must have.
    pub version: &'a str,
    /// The change, as a JSON merge patch.
    pub change: &'a Value,
}

impl GuardedChange<'_> {
    /// Returns the merge patch, with the `resourceVersion`.
    fn patch(&self) -> Value {
        let mut change = self.change.clone();
        if let Some(fields) = change.as_object_mut() {
            let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("resourceVersion".to_string(), self.version.into());
            }
        }
        change
    }

    fn params(&self, dry_run: bool) -> PatchParams {
        PatchParams { field_manager: Some(self.manager.to_string()), dry_run, ..PatchParams::default() }
    }
}

impl Cluster {
    /// Sends [`Self::change`] of the object itself as a dry run.
    pub async fn try_change(
        &self,
        object: &ObjectRef<'_>,
        guarded: GuardedChange<'_>,
    ) -> Result<Tried, ClusterError> {
        self.try_patch(object, &guarded.params(true), &Patch::Merge(&guarded.patch())).await
    }

    /// Changes an object. Fails with [`ClusterError::Conflict`] if the object has another `resourceVersion`.
    pub async fn change(
        &self,
        object: &ObjectRef<'_>,
        guarded: GuardedChange<'_>,
    ) -> Result<Value, ClusterError> {
        let (change, params) = (guarded.patch(), guarded.params(false));
        let Some(subresource) = guarded.subresource else {
            return self.patch(object, &params, &Patch::Merge(&change)).await;
        };
        let place = self.connection.place_of(object).await?;
        let request =
            place.requests.patch_subresource(subresource, object.name, &params, &Patch::Merge(&change));
        self.connection
            .json(&Call::new(Verb::Patch, request, format!("{} /{subresource}", place.subject))?)
            .await
    }
}
