//! Lists objects page by page, at one revision, and keeps only the needed part of each object. An object in memory takes many
//! times the size of its JSON, and a list can have many objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::connection::{Call, Verb};
use super::objects::{Place, Typed};
use super::{Cluster, ClusterError, Collection, ServedKind};

/// Number of objects in a page of a list, the same as for kubectl (`--chunk-size`).
const PAGE: u32 = 500;

/// Maximum number of attempts to read a list. Reading restarts if the API server no longer has the revision of the earlier pages.
/// API servers keep revisions for five minutes (etcd's compaction interval), so even one restart is rare.
const MOST_LISTS: usize = 4;

/// Function that receives each object of a list. Returns the part of the object that is kept, or `None` to drop the object.
pub type Keep<'k, K, T> = &'k (dyn Fn(K) -> Option<T> + Sync);

/// A page of a list. Its objects are parsed one by one.
#[derive(Deserialize)]
struct Page<'a> {
    /// The objects; `null` if the list has no objects.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    metadata: PageMetadata,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    /// Token for the next page; empty on the last page.
    #[serde(rename = "continue", default)]
    next: String,
}

/// Options of a list, and limits for the number of objects.
struct Wanted {
    options: ListParams,
    /// Maximum number of objects in a page.
    page: u32,
    /// Whether the API server sends only metadata (`PartialObjectMetadataList`, 1.15 and later), without the content of objects.
    is_metadata: bool,
    /// Number of kept objects after which reading stops.
    enough: usize,
}

impl Wanted {
    fn all(labels: Option<&str>) -> Self {
        let options = ListParams { label_selector: labels.map(str::to_string), ..ListParams::default() };
        Self { options, page: PAGE, is_metadata: false, enough: usize::MAX }
    }

    fn metadata() -> Self {
        Self { is_metadata: true, ..Self::all(None) }
    }
}

impl Cluster {
    /// Reads all objects of a kind, page by page, at one revision; `labels` is a selector, for example `app=web,tier!=db`.
    pub async fn list(
        &self,
        collection: &Collection<'_>,
        labels: Option<&str>,
    ) -> Result<Vec<Value>, ClusterError> {
        self.each(&self.connection.place(collection).await?, Wanted::all(labels), &Some).await
    }

    /// Reads all objects of a kind like [`list`](Self::list). Returns the parts that `keep` selects.
    pub async fn list_as<T>(
        &self,
        collection: &Collection<'_>,
        keep: Keep<'_, Value, T>,
    ) -> Result<Vec<T>, ClusterError> {
        self.each(&self.connection.place(collection).await?, Wanted::all(None), keep).await
    }

    /// Reads all objects of a type, in one namespace or in all namespaces, like [`list`](Self::list).
    pub async fn objects<K: Typed>(
        &self,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Result<Vec<K>, ClusterError> {
        self.each(&Place::of::<K>(namespace)?, Wanted::all(labels), &Some).await
    }

    /// Reads all objects of a type like [`objects`](Self::objects). Returns the parts that `keep` selects.
    pub async fn objects_as<K: Typed, T>(
        &self,
        namespace: Option<&str>,
        keep: Keep<'_, K, T>,
    ) -> Result<Vec<T>, ClusterError> {
        self.each(&Place::of::<K>(namespace)?, Wanted::all(None), keep).await
    }

    /// Reads only the metadata of all objects of a kind. Use this function to list Secrets. Keeps names, uid, labels, owners, and
    /// the annotation that marks ServiceAccount tokens. The annotation of `kubectl apply`
    /// (`kubectl.kubernetes.io/last-applied-configuration`) contains the whole Secret, so this function drops the annotation as
    /// soon as a page is read.
    pub async fn list_metadata(&self, collection: &Collection<'_>) -> Result<Vec<ObjectMeta>, ClusterError> {
        let place = self.connection.place(collection).await?;
        self.each(&place, Wanted::metadata(), &|found: Bare| Some(found.kept())).await
    }

    /// Reads only the names of all objects of a kind.
    pub async fn list_names(&self, collection: &Collection<'_>) -> Result<Vec<String>, ClusterError> {
        let place = self.connection.place(collection).await?;
        self.each(&place, Wanted::metadata(), &|found: Bare| found.metadata.name).await
    }

    /// Returns the objects of a kind page by page, with up to `most` objects in a page. Reads nothing yet.
    pub async fn pages(&self, collection: &Collection<'_>, most: u32) -> Result<Pages, ClusterError> {
        let place = self.connection.place(collection).await?;
        let wanted = Wanted { page: most, ..Wanted::all(None) };
        let next = Some(PageRequest::first(&wanted));
        let (api_version, kind) = (collection.api_version.to_string(), collection.kind.to_string());
        Ok(Pages { cluster: self.clone(), place, api_version, kind, wanted, next })
    }

    /// Returns the first object of a kind for which `is_wanted` is true, in the form of [`Cluster::list_metadata`]. Searches one
    /// namespace, or all namespaces except the namespaces in `without`. Reads pages of 100 objects until it finds such an object.
    pub async fn first_of(
        &self,
        kind: &ServedKind,
        namespace: Option<&str>,
        without: &[&str],
        is_wanted: impl Fn(&ObjectMeta) -> bool + Sync,
    ) -> Result<Option<ObjectMeta>, ClusterError> {
        let place = Place { requests: kind.requests(namespace)?, subject: format!("{} objects", kind.kind) };
        let mut wanted = Wanted { page: 100, enough: 1, ..Wanted::metadata() };
        if !without.is_empty() {
            // The API server can select objects of every kind, including custom resources, by their namespace.
            let others = without.iter().map(|name| format!("metadata.namespace!={name}"));
            wanted.options = wanted.options.fields(&others.collect::<Vec<_>>().join(","));
        }
        let keep = |found: Bare| Some(found.kept()).filter(|kept| is_wanted(kept));
        Ok(self.each(&place, wanted, &keep).await?.into_iter().next())
    }

    async fn each<K: DeserializeOwned, T>(
        &self,
        place: &Place,
        wanted: Wanted,
        keep: Keep<'_, K, T>,
    ) -> Result<Vec<T>, ClusterError> {
        let mut attempts = 1;
        loop {
            match self.each_once(place, &wanted, keep).await {
                // Status 410: the revision of the earlier pages is compacted.
                Err(ClusterError::Server { code: 410, .. }) if attempts < MOST_LISTS => {
                    attempts = attempts.saturating_add(1);
                }
                outcome => return outcome,
            }
        }
    }

    async fn each_once<K: DeserializeOwned, T>(
        &self,
        place: &Place,
        wanted: &Wanted,
        keep: Keep<'_, K, T>,
    ) -> Result<Vec<T>, ClusterError> {
        let (mut items, mut next) = (Vec::new(), Some(PageRequest::first(wanted)));
        while let Some(page) = next.take().filter(|_| items.len() < wanted.enough) {
            next = self.page(place, (wanted, page), keep, &mut items).await?;
        }
        Ok(items)
    }

    /// Reads a page. Returns the request for the next one; `None` after the last page.
    async fn page<K: DeserializeOwned, T>(
        &self,
        place: &Place,
        (wanted, mut page): (&Wanted, PageRequest),
        keep: Keep<'_, K, T>,
        items: &mut Vec<T>,
    ) -> Result<Option<PageRequest>, ClusterError> {
        loop {
            page.options.limit = Some(page.size);
            let request = if wanted.is_metadata {
                place.requests.list_metadata(&page.options)
            } else {
                place.requests.list(&page.options)
            };
            let call = Call::new(Verb::List, request, &place.subject)?;
            let answer = match self.connection.request(&call).await {
                Err(ClusterError::TooLarge { .. }) if page.size > 1 => {
                    page.size = page.size.saturating_div(4).max(1);
                    continue;
                }
                outcome => outcome?,
            };
            let read: Page<'_> = self.connection.read(&call, &answer.body)?;
            page.size = page.size.saturating_mul(2).min(wanted.page);
            for item in read.items.unwrap_or_default() {
                items.extend(keep(self.connection.object(&call, item.get().as_bytes())?));
            }
            if read.metadata.next.is_empty() {
                return Ok(None);
            }
            page.options.continue_token = Some(read.metadata.next);
            return Ok(Some(page));
        }
    }
}

/// The request for a page of a list.
struct PageRequest {
    options: ListParams,
    size: u32,
}

impl PageRequest {
    fn first(wanted: &Wanted) -> Self {
        Self { options: wanted.options.clone(), size: wanted.page }
    }
}

/// The objects of a kind, page by page, at one revision. If the API server no longer has this revision, reading fails with status 410.
pub struct Pages {
    cluster: Cluster,
    place: Place,
    api_version: String,
    kind: String,
    wanted: Wanted,
    /// `None` after the last page.
    next: Option<PageRequest>,
}

impl Pages {
    /// Reads the next page, with the kind of each object; `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<Vec<Value>>, ClusterError> {
        let Some(page) = self.next.take() else { return Ok(None) };
        let mut items = Vec::new();
        let complete = |object| Some(with_kind(object, &self.api_version, &self.kind));
        self.next = self.cluster.page(&self.place, (&self.wanted, page), &complete, &mut items).await?;
        Ok(Some(items))
    }
}

/// Adds the API version and the kind to an item of a list, which has none.
pub fn with_kind(mut item: Value, api_version: &str, kind: &str) -> Value {
    if let Some(fields) = item.as_object_mut() {
        fields.insert("apiVersion".to_string(), api_version.into());
        fields.insert("kind".to_string(), kind.into());
    }
    item
}

/// The metadata of an object, without its other fields.
#[derive(Deserialize)]
struct Bare {
    metadata: ObjectMeta,
}

/// Annotation that marks a ServiceAccount token (`ServiceAccountNameKey`, `k8s.io/api/core/v1/types.go`, v1.36.3).
const ACCOUNT: &str = "kubernetes.io/service-account.name";

impl Bare {
    /// Returns the part of the metadata that is kept.
    fn kept(self) -> ObjectMeta {
        let ObjectMeta { namespace, name, uid, labels, owner_references, annotations, .. } = self.metadata;
        let account = annotations.unwrap_or_default().remove_entry(ACCOUNT);
        let annotations = account.map(|account| [account].into());
        ObjectMeta { namespace, name, uid, labels, owner_references, annotations, ..ObjectMeta::default() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn annotations_with_secret_content_are_dropped() {
        let annotations = json!({
            "kubectl.kubernetes.io/last-applied-configuration": "{\"data\": \"planted\"}", ACCOUNT: "web", "note": "planted",
        });
        let owners =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "2", "controller": true}]);
        let kept = json!({"namespace": "shop", "name": "x", "uid": "1", "labels": {"a": "b"}, "ownerReferences": owners});
        let mut metadata = kept.clone();
        metadata["annotations"] = annotations;
        metadata["managedFields"] = json!([{"fieldsV1": {"f:data": {"f:planted": {}}}}]);
        let mut expected = kept.clone();
        expected["annotations"] = json!({ACCOUNT: "web"});
        let bare =
            |object| serde_json::to_value(serde_json::from_value::<Bare>(object).unwrap().kept()).unwrap();
        assert_eq!(bare(json!({"kind": "x", "metadata": metadata})), expected);
        assert_eq!(bare(json!({"metadata": kept})), kept);
    }
}
