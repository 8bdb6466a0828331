//! The configuration of `mirror`: its types, and its label selectors.

mod configuration;
mod label_selector;

pub use configuration::{
    AttachTo, Config, HostRule, ImagePath, ImageRule, Kinds, NamespaceSelector, Namespaces, Passive,
    PatchRule, PullSecret, Replicas, TextRule,
};
pub use label_selector::parse_selector;
