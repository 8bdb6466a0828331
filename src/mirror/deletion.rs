//! Deletes objects of the mirror, waits until they are gone, and names what keeps them.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::cluster_kind::DEFINITION;
use super::namespace_content::first_object;
use super::refusal::fault;
use super::work::Reference;
use crate::inventory::{list, text};
use crate::kube_api::{Cluster, ClusterError, Collection};
use crate::operation::{StepFault, Stop};

/// Maximum time until an object with finalizers is gone. Its controller has to remove them.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum time until a namespace is gone. Its Pods have 30 s to end by default.
const NAMESPACE_PATIENCE: Duration = Duration::from_mins(3);
/// Time between two reads of an object that is being deleted.
const PAUSE: Duration = Duration::from_millis(500);

/// Deletes an object, and waits until it is gone. Skips the object if it is still there after some time, and names what keeps it. A
/// stop request ends the wait: the deletion continues without netsurgeon.
pub(super) async fn delete(
    mirror: &Cluster,
    object: &Reference,
    uid: &str,
    stop: &Stop,
) -> Result<(), StepFault> {
    let of = |error: &ClusterError| fault(error, object.is_secret());
    mirror.delete(&object.object(), Some(uid)).await.map_err(|error| of(&error))?;
    let patience = if object.is_namespace() { NAMESPACE_PATIENCE } else { PATIENCE };
    let started = Instant::now();
    loop {
        let found = mirror.get(&object.object()).await.map_err(|error| of(&error))?;
        let found = found.filter(|found| text(found, "/metadata/uid") == uid);
        let Some(found) = found else { return Ok(()) };
        if started.elapsed() >= patience {
            let seconds = patience.as_secs();
            let keeps = what_keeps(&found);
            return Err(StepFault::Skip(format!(
                "it is being deleted, but still exists after {seconds} s: {keeps}"
            )));
        }
        tokio::select! {
            () = stop.asked() => return Err(StepFault::InDoubt("stopped while the object was being deleted".to_string())),
            () = sleep(PAUSE) => {}
        }
    }
}

/// Returns what keeps an object that is being deleted: its finalizers, or the messages of a namespace about its content.
fn what_keeps(object: &Value) -> String {
    let conditions = list(object, "/status/conditions").iter();
    let is_reason = |condition: &&Value| {
        text(condition, "/type").starts_with("Namespace") && text(condition, "/status") == "True"
    };
    let messages: Vec<&str> = conditions.filter(is_reason).map(|one| text(one, "/message")).collect();
    if !messages.is_empty() {
        return messages.join("; ");
    }
    let finalizers: Vec<&str> =
        list(object, "/metadata/finalizers").iter().filter_map(Value::as_str).collect();
    if finalizers.is_empty() {
        "no finalizer keeps it, so its deletion continues".to_string()
    } else {
        format!("no controller removes the finalizers {}", finalizers.join(", "))
    }
}

/// Skips a namespace, or the definition of a kind, that contains an object of another client: its deletion would delete that object.
pub(super) async fn refuse_content(
    mirror: &Cluster,
    object: &Reference,
    live: &Value,
) -> Result<(), StepFault> {
    let found = if object.is_namespace() {
        first_object(mirror, &object.name).await
    } else if object.resource == DEFINITION.0 {
        first_of_kind(mirror, live).await
    } else {
        Ok(None)
    };
    match found.map_err(|error| fault(&error, false))? {
        None => Ok(()),
        Some(other) if object.is_namespace() => {
            Err(StepFault::Skip(format!("the namespace contains another object: {other}")))
        }
        Some(other) => {
            Err(StepFault::Skip(format!("its deletion would delete an object of this kind: {other}")))
        }
    }
}

/// Returns an object of the kind that a CustomResourceDefinition defines.
async fn first_of_kind(mirror: &Cluster, definition: &Value) -> Result<Option<String>, ClusterError> {
    let kind = text(definition, "/spec/names/kind");
    let mut versions = list(definition, "/spec/versions").iter();
    let Some(version) = versions.find(|version| version["served"] == true) else { return Ok(None) };
    let version = format!("{}/{}", text(definition, "/spec/group"), text(version, "/name"));
    let found = mirror.list_metadata(&Collection::new(&version, kind, None)).await;
    let found = match found {
        Err(ClusterError::NotFound { .. }) => return Ok(None),
        found => found?,
    };
    let name = |one: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        let namespace = one.namespace.iter().map(|namespace| format!("{namespace}/"));
        format!("{kind} {}{}", namespace.collect::<String>(), one.name.as_deref().unwrap_or_default())
    };
    Ok(found.first().map(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reason_for_a_long_deletion_is_named() {
        let condition = |kind: &str, status: &str, message: &str| json!({"type": kind, "status": status, "message": message});
        let conditions = json!([
            condition("NamespaceDeletionContentFailure", "False", "x"),
            condition(
                "NamespaceContentRemaining",
                "True",
                "Some resources are remaining: widgets.example.com has 1 resource instances"
            ),
            condition("NamespaceFinalizersRemaining", "True", "example.com/hold in 1 resource instances"),
        ]);
        let keeps = what_keeps(&json!({"status": {"conditions": conditions}}));
        assert!(keeps.contains("widgets.example.com") && keeps.contains("example.com/hold"), "{keeps}");
        let keeps = what_keeps(&json!({"metadata": {"finalizers": ["example.com/hold", "example.com/b"]}}));
        assert!(keeps.ends_with("example.com/hold, example.com/b"), "{keeps}");
        assert!(what_keeps(&json!({})).starts_with("no finalizer"));
    }
}
