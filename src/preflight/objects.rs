//! What is read of objects of several types: how they are called and labelled, whether a Pod still runs, and what a container is
//! started with.

use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Returns the name of an object.
pub fn name(object: &impl Metadata<Ty = ObjectMeta>) -> &str {
    object.metadata().name.as_deref().unwrap_or_default()
}

/// Returns the namespace of an object; empty where its kind has none.
pub fn namespace(object: &impl Metadata<Ty = ObjectMeta>) -> &str {
    object.metadata().namespace.as_deref().unwrap_or_default()
}

/// Returns namespace and name of an object, in words.
pub fn subject(object: &impl Metadata<Ty = ObjectMeta>) -> String {
    format!("`{}/{}`", namespace(object), name(object))
}

/// Returns what a label of an object says.
pub fn label<'o>(object: &'o impl Metadata<Ty = ObjectMeta>, name: &str) -> Option<&'o str> {
    object.metadata().labels.as_ref()?.get(name).map(String::as_str)
}

/// Returns the words that a container is started with.
pub fn words(container: &Container) -> impl Iterator<Item = &str> {
    container.command.iter().chain(&container.args).flatten().map(String::as_str)
}

/// Whether a Pod has not come to its end.
pub fn is_alive(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}
