//! The rules of the configuration: pure functions that change the copy of one object. Knowledge of kinds is in tables: where a Pod
//! specification is, where a host name is, and where an object refers to a namespace.

mod choices;
mod hosts;
mod images;
mod json_patch;
mod kind_names;
mod namespace_references;
mod patches;
mod places;
mod pod_specs;
mod pull_secrets;
mod replicas;
mod uses;
mod warnings;

use serde_json::Value;

pub(super) use choices::{Choice, Choices, Workload, is_only_chosen, pod_labels};
pub(super) use hosts::CertificateNames;
pub(super) use images::{image_conflict, is_registry_prefix};
pub(super) use json_patch::check_patch;
pub use kind_names::is_excluded;
pub(super) use kind_names::{Kind, is_kind};
pub(super) use pod_specs::image_pulls;
pub use pod_specs::{POD_SPECS, pod_spec_place};
pub(super) use pull_secrets::{PULL_SECRET_TYPE, planned_pull_secret, pull_secret};
pub(super) use replicas::{has_replicas, make_passive};
pub use uses::Uses;
pub(super) use warnings::warnings;

use super::config::Config;
use crate::inventory::text;

/// Why a rule cannot change an object, for people. It contains no value of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RuleFault(pub String);

/// The rules, and where their matches are noted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules<'a> {
    pub config: &'a Config,
    pub uses: &'a Uses,
}

impl Rules<'_> {
    /// Changes a copy. `kind`: `GROUP/PLURAL`. Patches come last.
    pub fn apply(&self, kind: &str, copy: &mut Value) -> Result<(), RuleFault> {
        let Self { config, uses } = *self;
        if config.is_empty() {
            return Ok(());
        }
        let name = text(copy, "/kind").to_string();
        let namespace = if kind == "/namespaces" { "/metadata/name" } else { "/metadata/namespace" };
        let namespace = text(copy, namespace).to_string();
        let kind = Kind { resource: kind, kind: &name };
        pull_secrets::attach_pull_secrets(config, &kind, copy, uses);
        images::change_images(config, &kind, copy, uses);
        hosts::change_hosts(config, &kind, copy, uses);
        replicas::change_replicas(config, &kind, copy, uses);
        namespace_references::rename_namespaces(config, &kind, copy);
        patches::replace_text(config, &kind, copy, uses);
        patches::patch(config, (&kind, &namespace), copy, uses)?;
        namespace_references::note_mentions(config, &kind, copy, uses);
        Ok(())
    }
}
