//! A client that cannot change its cluster, for plans and for clusters that are only a source.

use std::collections::BTreeSet;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::lists::Keep;
use super::{
    Cluster, ClusterError, Collection, FieldApply, GuardedChange, ObjectRef, Pages, ServedKinds, Tried, Typed,
};

/// A client for the API of one cluster that only reads. It can send dry runs, which store nothing.
#[derive(Clone)]
pub struct ReadOnly(Cluster);

impl ReadOnly {
    /// Returns a client that only reads.
    pub fn new(cluster: Cluster) -> Self {
        Self(cluster)
    }

    /// Returns the URL of the API server.
    pub fn server(&self) -> &str {
        self.0.server()
    }

    /// Returns the identity of the cluster, see [`Cluster::identity`].
    pub async fn identity(&self) -> Result<String, ClusterError> {
        self.0.identity().await
    }

    /// Returns the issuer of ServiceAccounts' tokens, see [`Cluster::token_issuer`].
    pub async fn token_issuer(&self) -> Result<String, ClusterError> {
        self.0.token_issuer().await
    }

    /// Returns the keys of ServiceAccounts' tokens, see [`Cluster::token_keys`].
    pub async fn token_keys(&self) -> Result<Value, ClusterError> {
        self.0.token_keys().await
    }

    /// Returns all served kinds, see [`Cluster::served_kinds`].
    pub async fn served_kinds(&self) -> Result<ServedKinds, ClusterError> {
        self.0.served_kinds().await
    }

    /// Reads an object, see [`Cluster::get`].
    pub async fn get(&self, object: &ObjectRef<'_>) -> Result<Option<Value>, ClusterError> {
        self.0.get(object).await
    }

    /// Reads all objects of a kind, see [`Cluster::list_as`].
    pub async fn list_as<T>(
        &self,
        collection: &Collection<'_>,
        keep: Keep<'_, Value, T>,
    ) -> Result<Vec<T>, ClusterError> {
        self.0.list_as(collection, keep).await
    }

    /// Returns the objects of a kind page by page, see [`Cluster::pages`].
    pub async fn pages(&self, collection: &Collection<'_>, most: u32) -> Result<Pages, ClusterError> {
        self.0.pages(collection, most).await
    }

    /// Reads all objects of a type, see [`Cluster::objects_as`].
    pub async fn objects_as<K: Typed, T>(
        &self,
        namespace: Option<&str>,
        keep: Keep<'_, K, T>,
    ) -> Result<Vec<T>, ClusterError> {
        self.0.objects_as(namespace, keep).await
    }

    /// Reads the objects of a type with some labels, see [`Cluster::objects`].
    pub async fn objects<K: Typed>(
        &self,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Result<Vec<K>, ClusterError> {
        self.0.objects(namespace, labels).await
    }

    /// Reads an object of a type, see [`Cluster::object`].
    pub async fn object<K: Typed>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<K>, ClusterError> {
        self.0.object(namespace, name).await
    }

    /// Returns the names of the served API groups, see [`Cluster::groups`].
    pub async fn groups(&self) -> Result<BTreeSet<String>, ClusterError> {
        self.0.groups().await
    }

    /// Checks whether the API server serves a kind, see [`Cluster::serves`].
    pub async fn serves(&self, collection: &Collection<'_>) -> Result<bool, ClusterError> {
        self.0.serves(collection).await
    }

    /// Lists the EndpointSlices of a Service, see [`Cluster::endpoint_slices`].
    pub async fn endpoint_slices(
        &self,
        namespace: &str,
        service: &str,
    ) -> Result<Vec<EndpointSlice>, ClusterError> {
        self.0.endpoint_slices(namespace, service).await
    }

    /// Reads the metadata of all objects of a kind, see [`Cluster::list_metadata`].
    pub async fn list_metadata(&self, collection: &Collection<'_>) -> Result<Vec<ObjectMeta>, ClusterError> {
        self.0.list_metadata(collection).await
    }

    /// Sends an apply as a dry run, see [`Cluster::try_apply_fields`].
    pub async fn try_apply_fields(
        &self,
        manifest: &Value,
        options: FieldApply<'_>,
    ) -> Result<Tried, ClusterError> {
        self.0.try_apply_fields(manifest, options).await
    }

    /// Sends a create request as a dry run, see [`Cluster::try_create_as`].
    pub async fn try_create_as(&self, manifest: &Value, manager: &str) -> Result<Tried, ClusterError> {
        self.0.try_create_as(manifest, manager).await
    }

    /// Sends a change as a dry run, see [`Cluster::try_change`].
    pub async fn try_change(
        &self,
        object: &ObjectRef<'_>,
        guarded: GuardedChange<'_>,
    ) -> Result<Tried, ClusterError> {
        self.0.try_change(object, guarded).await
    }

    /// Sends a delete request as a dry run, see [`Cluster::try_delete`].
    pub async fn try_delete(&self, object: &ObjectRef<'_>, uid: &str) -> Result<(), ClusterError> {
        self.0.try_delete(object, uid).await
    }
}
