//! Server-side apply that takes no field from another manager, for objects that are copied from another cluster.
//!
//! The API server parses the body of an apply as YAML, also if it is JSON (`apiserver/pkg/endpoints/handlers/patch.go`, v1.37.2).
//! Its YAML parser refuses some characters that JSON allows, and silently changes others: U+0085 becomes a space, and blanks around
//! U+2028 and U+2029 are lost. So these characters are sent as escapes.

use std::fmt::Write as _;

use kube::api::{Patch, PatchParams};
use serde_json::Value;

use super::connection::{Call, Verb};
use super::objects::Place;
use super::{Cluster, ClusterError, ObjectRef};

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
        self.send_apply(manifest, options, false).await
    }

    /// Sends an apply as a dry run. The API server runs all checks, and stores nothing. Returns the object as it would be stored.
    pub async fn try_apply_fields(
        &self,
        manifest: &Value,
        options: FieldApply<'_>,
    ) -> Result<Value, ClusterError> {
        self.send_apply(manifest, options, true).await
    }

    async fn send_apply(
        &self,
        manifest: &Value,
        options: FieldApply<'_>,
        dry_run: bool,
    ) -> Result<Value, ClusterError> {
        let mut manifest = manifest.clone();
        let version = match options.replaces {
            Replaces::Nothing => Some(NEVER_STORED),
            Replaces::Version(version) => Some(version),
            Replaces::Anything => None,
        };
        if let (Some(version), Some(metadata)) =
            (version, manifest.get_mut("metadata").and_then(Value::as_object_mut))
        {
            metadata.insert("resourceVersion".to_string(), version.into());
        }
        let Place { requests, subject } = self.connection.place_of(&ObjectRef::of(&manifest)?).await?;
        let name = ObjectRef::of(&manifest)?.name;
        let params = PatchParams { dry_run, ..PatchParams::apply(options.manager) };
        let request = requests.patch(name, &params, &Patch::Apply(&manifest)).map(|mut request| {
            *request.body_mut() = as_yaml(&manifest).into_bytes();
            request
        });
        self.connection.json(&Call::new(Verb::Patch, request, subject)?).await
    }
}

/// Returns a value as JSON that a YAML parser reads without a change.
fn as_yaml(value: &Value) -> String {
    let json = value.to_string();
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        match u32::from(letter) {
            code @ (0x7f..=0x9f | 0x2028 | 0x2029 | 0xfeff | 0xfffe | 0xffff) => {
                let _ = write!(text, "\\u{code:04x}");
            }
            _ => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn characters_that_yaml_changes_are_escaped() {
        let value = json!({"a": "x\u{85}y \u{2028} z\u{7f}\u{ffff}", "b": "é😀/\n\""});
        let text = as_yaml(&value);
        assert!(text.contains(r"x\u0085y \u2028 z\u007f\uffff"), "{text}");
        assert!(text.contains("é😀/"), "other characters stay as they are: {text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
