//! The configuration of a mirror: which namespaces, and the rules that change copies. A plan contains it, so `apply` uses the same
//! rules.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The configuration. `config_file/schema.json` has the same fields, each with its description.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// The namespaces to copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Namespaces>,
    /// New names of namespaces in the mirror, by their names in the source.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rename: BTreeMap<String, String>,
    /// Which kinds are copied.
    #[serde(skip_serializing_if = "Kinds::is_empty")]
    pub kinds: Kinds,
    /// Rules for images. The first match wins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRule>,
    /// Where custom resources contain images.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_paths: Vec<ImagePath>,
    /// Pull secrets of the mirror.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pull_secrets: Vec<PullSecret>,
    /// Rules for host names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostRule>,
    /// What is passive in the mirror.
    #[serde(skip_serializing_if = "Passive::is_empty")]
    pub passive: Passive,
    /// Label selectors of workloads that run in the mirror although no Service selects them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub run: Vec<String>,
    /// The number of replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Replicas>,
    /// Patches of single objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<PatchRule>,
    /// Replacements of text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub text: Vec<TextRule>,
}

/// The namespaces to copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Namespaces {
    /// Their names.
    Names(Vec<String>),
    /// Every namespace whose labels the selector selects.
    Selected(NamespaceSelector),
}

/// A label selector of namespaces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSelector {
    /// The selector.
    pub selector: String,
}

/// Which kinds are copied.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kinds {
    /// Kinds whose objects are not copied, each as `KIND`, `PLURAL` or `PLURAL.GROUP`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Kinds of custom resources whose objects are copied although they are left out by default, in the same form.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
}

impl Kinds {
    fn is_empty(&self) -> bool {
        self.exclude.is_empty() && self.include.is_empty()
    }
}

/// A rule for images.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageRule {
    /// Start of the full name of an image.
    pub from: String,
    /// The new start.
    pub to: String,
}

/// Where a custom resource contains an image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImagePath {
    /// The kind, as `KIND`, `PLURAL` or `PLURAL.GROUP`.
    pub kind: String,
    /// JSON pointer of a text. `*` stands for each item of a list, or each value of a map.
    pub path: String,
}

/// A pull secret that each namespace of the mirror gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullSecret {
    /// Name of the Secret.
    pub name: String,
    /// Path of a file with the content of `.dockerconfigjson`. The plan contains only the path.
    pub from_file: String,
    /// Which objects refer to the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach_to: Option<AttachTo>,
}

/// Which objects refer to a pull secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AttachTo {
    /// Each ServiceAccount that is copied.
    ServiceAccounts,
    /// Each Pod template.
    PodTemplates,
}

/// A rule for host names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostRule {
    /// The domain.
    pub suffix: String,
    /// A second domain: each name in the first domain also exists in this domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add: Option<String>,
    /// The new domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace: Option<String>,
}

/// What is passive in the mirror.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Passive {
    /// Label selectors of workloads that have 0 replicas in the mirror.
    pub workloads: Vec<String>,
}

impl Passive {
    fn is_empty(&self) -> bool {
        self.workloads.is_empty()
    }
}

/// The number of replicas of workloads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replicas {
    /// Factor for the number of the source. The product is rounded up.
    pub factor: f64,
    /// The smallest number. 0 replicas stay 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<u32>,
}

/// A patch of single objects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchRule {
    /// The kinds, each as `KIND`, `PLURAL` or `PLURAL.GROUP`.
    pub kinds: Vec<String>,
    /// Pattern of names, in which `*` stands for any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<String>,
    /// Namespaces of the source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// A list is a JSON patch (RFC 6902), and a map is a merge patch (RFC 7396).
    pub patch: Value,
}

/// A replacement of text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextRule {
    /// The kinds, each as `KIND`, `PLURAL` or `PLURAL.GROUP`.
    pub kinds: Vec<String>,
    /// The text to replace.
    pub from: String,
    /// The new text.
    pub to: String,
}

impl Config {
    /// Returns whether the configuration changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the name of a namespace in the mirror.
    pub fn renamed<'a>(&'a self, namespace: &'a str) -> &'a str {
        self.rename.get(namespace).map_or(namespace, String::as_str)
    }
}
