//! What an object that is passive in the mirror gets when it becomes active: an annotation of the copy.

use serde_json::{Value, json};

/// The annotation that contains whether the source has suspended a CronJob.
pub(super) const SUSPEND: &str = "mirror.netsurgeon.io/suspend";
/// The annotation with the number of replicas that a workload gets when it becomes active.
pub(super) const REPLICAS: &str = "mirror.netsurgeon.io/replicas";

/// Sets a field of `spec`, and the annotation with the wish. `field`: name and value. `annotation`: name and value.
pub(super) fn set(copy: &mut Value, field: (&str, Value), annotation: (&str, String)) {
    if let Some(spec) = copy.pointer_mut("/spec").and_then(Value::as_object_mut) {
        spec.insert(field.0.to_string(), field.1);
    }
    if let Some(metadata) = copy.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(annotation.0.to_string(), annotation.1.into());
        }
    }
}
