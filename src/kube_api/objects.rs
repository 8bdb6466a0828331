//! Creates, reads, changes and deletes objects. Objects that are only read have the types of `k8s-openapi`. Objects that are
//! written or copied are JSON, so that unknown fields are not lost.

use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answer::Tried;
use super::connection::{Call, Connection, Verb};
use super::resource::segment;
use super::yaml_escapes::as_yaml;
use super::{Cluster, ClusterError, Collection, MANAGED_BY, ObjectRef};

/// A type of `k8s-openapi` for objects of one kind.
pub trait Typed: kube::Resource<DynamicType = ()> + DeserializeOwned + 'static {}

impl<K: kube::Resource<DynamicType = ()> + DeserializeOwned + 'static> Typed for K {}

/// The path of one or more objects, and their name in error messages.
pub(super) struct Place {
    pub(super) requests: Request,
    pub(super) subject: String,
}

impl Place {
    /// Returns the path of all objects of a type, in one namespace or in all namespaces.
    pub(super) fn of<K: Typed>(namespace: Option<&str>) -> Result<Self, ClusterError> {
        let namespace = namespace.map(segment).transpose()?;
        let subject = Collection::new("", &K::kind(&()), namespace).to_string();
        Ok(Self { requests: Request::new(K::url_path(&(), namespace)), subject })
    }
}

impl Connection {
    /// Returns the path of the objects of a collection. Reads the kind from the API server if it is not cached.
    pub(super) async fn place(&self, collection: &Collection<'_>) -> Result<Place, ClusterError> {
        let requests = self.kind(collection).await?.requests(collection.namespace)?;
        Ok(Place { requests, subject: collection.to_string() })
    }

    /// Checks the name of an object, and returns its path.
    pub(super) async fn place_of(&self, object: &ObjectRef<'_>) -> Result<Place, ClusterError> {
        let kind = self.kind(&object.collection).await?;
        segment(object.name)?;
        if kind.is_namespaced && object.collection.namespace.is_none() {
            let reason = format!("the namespace of {} `{}` is not given", kind.kind, object.name);
            return Err(ClusterError::Manifest { reason });
        }
        Ok(Place { requests: kind.requests(object.collection.namespace)?, subject: object.to_string() })
    }

    /// Creates an object, or only sends the create request as a dry run.
    pub(super) async fn create<K: DeserializeOwned>(
        &self,
        manifest: &Value,
        options: &PostParams,
    ) -> Result<K, ClusterError> {
        self.json(&self.create_call(manifest, options).await?).await
    }

    async fn create_call(&self, manifest: &Value, options: &PostParams) -> Result<Call, ClusterError> {
        let Place { requests, subject } = self.place_of(&ObjectRef::of(manifest)?).await?;
        let request = requests.create(options, manifest.to_string().into_bytes());
        Call::new(Verb::Create, request, subject)
    }

    /// Reads an object; `None` if it does not exist, or the API does not serve its kind.
    pub(super) async fn get(
        &self,
        object: &ObjectRef<'_>,
        options: &GetParams,
    ) -> Result<Option<Value>, ClusterError> {
        let found = async {
            let Place { requests, subject } = self.place_of(object).await?;
            self.json(&Call::new(Verb::Get, requests.get(object.name, options), subject)?).await
        };
        unless_missing(found.await)
    }
}

fn unless_missing<T>(found: Result<T, ClusterError>) -> Result<Option<T>, ClusterError> {
    match found {
        Err(ClusterError::NotFound { .. }) => Ok(None),
        outcome => outcome.map(Some),
    }
}

impl Cluster {
    /// Creates an object and returns it as the API server stored it.
    pub async fn create(&self, manifest: &Value) -> Result<Value, ClusterError> {
        self.connection.create(manifest, &PostParams::default()).await
    }

    /// Creates an object under the name of a field manager.
    pub async fn create_as(&self, manifest: &Value, manager: &str) -> Result<Value, ClusterError> {
        let field_manager = Some(manager.to_string());
        self.connection.create(manifest, &PostParams { field_manager, ..PostParams::default() }).await
    }

    /// Sends [`Self::create_as`] as a dry run.
    pub async fn try_create_as(&self, manifest: &Value, manager: &str) -> Result<Tried, ClusterError> {
        let field_manager = Some(manager.to_string());
        let options = PostParams { field_manager, dry_run: true };
        self.connection.tried(&self.connection.create_call(manifest, &options).await?).await
    }

    /// Sends a create request as a dry run (`dryRun=All`). The API server runs all checks, including admission, but stores
    /// nothing.
    pub async fn try_create(&self, manifest: &Value) -> Result<Value, ClusterError> {
        self.connection.create(manifest, &PostParams { dry_run: true, ..PostParams::default() }).await
    }

    /// Reads the most recent version of an object; `None` if it does not exist.
    pub async fn get(&self, object: &ObjectRef<'_>) -> Result<Option<Value>, ClusterError> {
        self.connection.get(object, &GetParams::default()).await
    }

    /// Reads the most recent version of an object of a type; `None` if it does not exist.
    pub async fn object<K: Typed>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<K>, ClusterError> {
        let requests = Place::of::<K>(namespace)?.requests;
        let kind = K::kind(&());
        let subject = ObjectRef::new("", &kind, namespace, segment(name)?).to_string();
        let call = Call::new(Verb::Get, requests.get(name, &GetParams::default()), subject)?;
        unless_missing(self.connection.json(&call).await)
    }

    /// Replaces an object with a changed copy. Returns [`ClusterError::Conflict`] if the object has changed since it was read.
    pub async fn replace(&self, manifest: &Value) -> Result<Value, ClusterError> {
        let object = ObjectRef::of(manifest)?;
        let Place { requests, subject } = self.connection.place_of(&object).await?;
        let request =
            requests.replace(object.name, &PostParams::default(), manifest.to_string().into_bytes());
        self.connection.json(&Call::new(Verb::Replace, request, subject)?).await
    }

    /// Changes an object with a JSON merge patch (RFC 7386) and returns the changed object.
    pub async fn merge(&self, object: &ObjectRef<'_>, change: &Value) -> Result<Value, ClusterError> {
        self.patch(object, &PatchParams::default(), &Patch::Merge(change)).await
    }

    /// Creates or changes an object to match a manifest (server-side apply with the field manager `netsurgeon`). netsurgeon takes
    /// over fields of other managers. Fields that netsurgeon owned before and that are not in the manifest are removed.
    pub async fn apply(&self, manifest: &Value) -> Result<Value, ClusterError> {
        let options = PatchParams::apply(MANAGED_BY.1).force();
        self.patch(&ObjectRef::of(manifest)?, &options, &Patch::Apply(manifest)).await
    }

    pub(super) async fn patch(
        &self,
        object: &ObjectRef<'_>,
        options: &PatchParams,
        patch: &Patch<&Value>,
    ) -> Result<Value, ClusterError> {
        self.connection.json(&self.patch_call(object, options, patch).await?).await
    }

    pub(super) async fn try_patch(
        &self,
        object: &ObjectRef<'_>,
        options: &PatchParams,
        patch: &Patch<&Value>,
    ) -> Result<Tried, ClusterError> {
        self.connection.tried(&self.patch_call(object, options, patch).await?).await
    }

    async fn patch_call(
        &self,
        object: &ObjectRef<'_>,
        options: &PatchParams,
        patch: &Patch<&Value>,
    ) -> Result<Call, ClusterError> {
        let Place { requests, subject } = self.connection.place_of(object).await?;
        let mut request = requests.patch(object.name, options, patch);
        if let (Patch::Apply(manifest), Ok(request)) = (patch, &mut request) {
            *request.body_mut() = as_yaml(manifest).into_bytes();
        }
        Call::new(Verb::Patch, request, subject)
    }

    /// Deletes an object, and its dependents in the background. A missing object is not an error. With `uid`, returns
    /// [`ClusterError::Conflict`] if the object has another uid.
    ///
    /// An object with finalizers exists until its finalizers are removed.
    pub async fn delete(&self, object: &ObjectRef<'_>, uid: Option<&str>) -> Result<(), ClusterError> {
        self.delete_if(object, (uid.map(str::to_string), None), false).await
    }

    /// Sends [`Self::delete`] as a dry run.
    pub async fn try_delete(&self, object: &ObjectRef<'_>, uid: &str) -> Result<(), ClusterError> {
        self.delete_if(object, (Some(uid.to_string()), None), true).await
    }

    /// Deletes an object like [`Self::delete`], if it is still equal to `read`. Returns [`ClusterError::Conflict`] if it has
    /// changed since.
    pub async fn delete_unchanged(&self, object: &ObjectRef<'_>, read: &Value) -> Result<(), ClusterError> {
        let of = |name: &str| {
            read.pointer(&format!("/metadata/{name}")).and_then(Value::as_str).unwrap_or_default().to_string()
        };
        self.delete_if(object, (Some(of("uid")), Some(of("resourceVersion"))), false).await
    }

    /// Deletes a Pod at once, without the confirmation of its kubelet (`gracePeriodSeconds: 0`). If the node of the Pod still runs,
    /// its kubelet ends the containers later. Only for Pods without state.
    pub async fn delete_at_once(&self, pod: &ObjectRef<'_>, uid: &str) -> Result<(), ClusterError> {
        let options = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::background() };
        self.delete_with(pod, (Some(uid.to_string()), None), options).await
    }

    async fn delete_if(
        &self,
        object: &ObjectRef<'_>,
        equal_to: (Option<String>, Option<String>),
        dry_run: bool,
    ) -> Result<(), ClusterError> {
        self.delete_with(object, equal_to, DeleteParams { dry_run, ..DeleteParams::background() }).await
    }

    async fn delete_with(
        &self,
        object: &ObjectRef<'_>,
        (uid, resource_version): (Option<String>, Option<String>),
        options: DeleteParams,
    ) -> Result<(), ClusterError> {
        let deleted = async {
            let Place { requests, subject } = self.connection.place_of(object).await?;
            let has_one = uid.is_some() || resource_version.is_some();
            let preconditions = has_one.then_some(Preconditions { uid, resource_version });
            let options = DeleteParams { preconditions, ..options };
            let call = Call::new(Verb::Delete, requests.delete(object.name, &options), subject)?;
            self.connection.request(&call).await
        };
        unless_missing(deleted.await).map(drop)
    }
}
