//! References to objects of the API, of any kind.

use std::fmt::{self, Write as _};

use serde_json::Value;

use super::ClusterError;

/// The objects of one kind, in one namespace or in all namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collection<'a> {
    /// API group and version, for example `networking.k8s.io/v1`.
    pub api_version: &'a str,
    /// Name of the kind, for example `ServiceCIDR`.
    pub kind: &'a str,
    /// `None` for kinds without namespaces, and for a list over all namespaces.
    pub namespace: Option<&'a str>,
}

/// A reference to one object by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectRef<'a> {
    /// Kind and namespace of the object.
    pub collection: Collection<'a>,
    /// Name of the object.
    pub name: &'a str,
}

impl<'a> Collection<'a> {
    /// Returns the collection of the objects of a kind. `namespace` is `None` for kinds without namespaces, and for all
    /// namespaces.
    pub fn new(api_version: &'a str, kind: &'a str, namespace: Option<&'a str>) -> Self {
        Self { api_version, kind, namespace }
    }
}

impl fmt::Display for Collection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace {
            Some(namespace) => write!(f, "{} objects in `{namespace}`", self.kind),
            None => write!(f, "{} objects", self.kind),
        }
    }
}

impl<'a> ObjectRef<'a> {
    /// Returns a reference to an object; `namespace` is `None` for kinds without namespaces.
    pub fn new(api_version: &'a str, kind: &'a str, namespace: Option<&'a str>, name: &'a str) -> Self {
        Self { collection: Collection::new(api_version, kind, namespace), name }
    }

    /// Returns the reference to the object that a manifest describes.
    pub fn of(manifest: &'a Value) -> Result<Self, ClusterError> {
        let text =
            |path: &str| manifest.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
        let missing = |what: &str| ClusterError::Manifest { reason: format!("it has no `{what}`") };
        Ok(Self::new(
            text("/apiVersion").ok_or_else(|| missing("apiVersion"))?,
            text("/kind").ok_or_else(|| missing("kind"))?,
            text("/metadata/namespace"),
            text("/metadata/name").ok_or_else(|| missing("metadata.name"))?,
        ))
    }
}

impl fmt::Display for ObjectRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.collection.namespace {
            Some(namespace) => write!(f, "{} `{namespace}/{}`", self.collection.kind, self.name),
            None => write!(f, "{} `{}`", self.collection.kind, self.name),
        }
    }
}

/// Checks that a name can be used as a segment of a path. Object names are DNS names (RFC 1123), except the names of IPAddresses,
/// which can have colons.
pub(super) fn segment(name: &str) -> Result<&str, ClusterError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || ['-', '.', ':', '_'].contains(&c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(fits) {
        return Err(ClusterError::Manifest { reason: format!("`{name}` is not a valid object name") });
    }
    Ok(name)
}

/// Escapes a value for a query (RFC 3986, section 2.3).
pub fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_cannot_change_the_path() {
        for name in ["", "..", "a/b", "a?b", "a%2fb", "a b"] {
            let error = segment(name).unwrap_err();
            assert!(matches!(error, ClusterError::Manifest { .. }), "{name}: {error}");
        }
        assert_eq!(segment("fd00::1").unwrap(), "fd00::1");
    }

    #[test]
    fn reference_is_read_from_a_manifest() {
        let manifest =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": "b"}});
        assert_eq!(ObjectRef::of(&manifest).unwrap().to_string(), "Service `a/b`");
        let error = ObjectRef::of(&json!({"apiVersion": "v1", "kind": "Service"})).unwrap_err();
        assert!(error.to_string().contains("metadata.name"), "{error}");
    }

    #[test]
    fn queries_are_escaped() {
        assert_eq!(escaped("a.b/c=d,e"), "a.b%2Fc%3Dd%2Ce");
    }
}
