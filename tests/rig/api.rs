//! A JSON client of an API server, for any kind of object: the tests check stored and served objects, so objects stay
//! `serde_json::Value`s and paths stay visible.

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};

/// The field manager of [`Api::apply`].
const MANAGER: &str = "rig";

/// A client of one API server (or of any that the address routes to).
#[derive(Clone)]
pub struct Api {
    client: Client,
}

impl Api {
    /// Wraps a client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns the typed client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Sends a request; `content_type` is that of the body.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value, kube::Error> {
        let body = body.map(|value| serde_json::to_vec(value).expect("JSON serialises")).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", content_type)
            .header("Accept", "application/json")
            .body(body)
            .expect("the request is well formed");
        self.client.request(request).await
    }

    /// Reads an object or a list, `None` when it does not exist.
    pub async fn find(&self, path: &str) -> Option<Value> {
        match self.request(Method::GET, path, "application/json", None).await {
            Ok(value) => Some(value),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("GET {path}: {error}"),
        }
    }

    /// Reads an object or a list.
    pub async fn get(&self, path: &str) -> Value {
        self.find(path).await.unwrap_or_else(|| panic!("GET {path}: not found"))
    }

    /// Reads the items of a list.
    pub async fn list(&self, path: &str) -> Vec<Value> {
        self.get(path).await["items"].as_array().cloned().unwrap_or_default()
    }

    /// Creates an object at the path that its kind and namespace give; the error is the API server's.
    pub async fn try_create(&self, object: &Value) -> Result<Value, kube::Error> {
        self.request(Method::POST, &collection_path(object), "application/json", Some(object)).await
    }

    /// Creates an object.
    pub async fn create(&self, object: &Value) -> Value {
        let name = object_path(object);
        self.try_create(object).await.unwrap_or_else(|error| panic!("create {name}: {error}"))
    }

    /// Creates or changes an object by server-side apply, which leaves `managedFields` behind.
    pub async fn apply(&self, object: &Value) -> Value {
        let path = format!("{}?fieldManager={MANAGER}", object_path(object));
        self.patch(&path, "application/apply-patch+yaml", object).await
    }

    /// Changes an object with a strategic merge patch, which merges lists by their keys.
    pub async fn strategic(&self, path: &str, change: &Value) -> Value {
        self.patch(path, "application/strategic-merge-patch+json", change).await
    }

    /// Changes an object, or a subresource such as `…/status`, by a JSON merge patch.
    pub async fn merge(&self, path: &str, change: &Value) -> Value {
        self.patch(path, "application/merge-patch+json", change).await
    }

    /// Replaces an object.
    pub async fn replace(&self, object: &Value) -> Value {
        let path = object_path(object);
        self.request(Method::PUT, &path, "application/json", Some(object))
            .await
            .unwrap_or_else(|error| panic!("PUT {path}: {error}"))
    }

    /// Deletes an object.
    pub async fn delete(&self, path: &str) {
        self.request(Method::DELETE, path, "application/json", None)
            .await
            .unwrap_or_else(|error| panic!("DELETE {path}: {error}"));
    }

    /// Creates a namespace.
    pub async fn create_namespace(&self, name: &str) -> Value {
        self.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await
    }

    /// Creates a Service with this `spec`.
    pub async fn create_service(&self, namespace: &str, name: &str, spec: Value) -> Value {
        let metadata = json!({"namespace": namespace, "name": name});
        let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata});
        service["spec"] = spec;
        self.create(&service).await
    }

    async fn patch(&self, path: &str, content_type: &str, change: &Value) -> Value {
        self.request(Method::PATCH, path, content_type, Some(change))
            .await
            .unwrap_or_else(|error| panic!("PATCH {path}: {error}"))
    }
}

/// Returns the path of an object's collection, as in `/api/v1/namespaces/shop/services`.
pub fn collection_path(object: &Value) -> String {
    let version = object["apiVersion"].as_str().expect("an object has an apiVersion");
    let root = if version.contains('/') { "apis" } else { "api" };
    let kind = object["kind"].as_str().expect("an object has a kind");
    let namespace = object["metadata"]["namespace"].as_str();
    let within = namespace.map(|name| format!("namespaces/{name}/")).unwrap_or_default();
    format!("/{root}/{version}/{within}{}", plural(kind))
}

/// Returns the path of an object, as in `/api/v1/namespaces/shop/services/web`.
pub fn object_path(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    format!("{}/{name}", collection_path(object))
}

/// English plurals, as Kubernetes forms them; the one exception is Endpoints.
fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.as_str() {
        "endpoints" => kind,
        _ if kind.ends_with('s') => format!("{kind}es"),
        _ if kind.ends_with('y') => format!("{}ies", kind.trim_end_matches('y')),
        _ => format!("{kind}s"),
    }
}
