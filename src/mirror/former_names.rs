//! Which objects the mirror has when a process starts to create copies. An object that netsurgeon has applied and that is not among
//! them is a copy of this operation: the process holds the operation lease, so no other mirror operation creates anything.
//!
//! One list of names takes the place of a request for each object.

use std::collections::{HashMap, HashSet};

use tokio::sync::OnceCell;

use super::refusal::is_of_object;
use super::source_pages::{Group, MANY, group};
use super::work::Reference;
use crate::kube_api::{Cluster, ClusterError, Collection};

/// The names, each group read on first use.
#[derive(Debug, Default)]
pub(super) struct FormerNames(HashMap<Group, OnceCell<HashSet<String>>>);

impl FormerNames {
    /// Returns the names for copies that are created, each given as its object in the mirror. Reads nothing yet.
    pub fn of(created: impl Iterator<Item = Reference>) -> Self {
        let mut counts: HashMap<Group, usize> = HashMap::new();
        for object in created {
            let count = counts.entry(group(&object)).or_default();
            *count = count.saturating_add(1);
        }
        let many = counts.into_iter().filter(|(_, count)| *count >= MANY);
        Self(many.map(|(group, _)| (group, OnceCell::new())).collect())
    }

    /// Returns whether the mirror had an object; `None` if the names of its kind are not listed.
    pub async fn has(&self, mirror: &Cluster, object: &Reference) -> Result<Option<bool>, ClusterError> {
        let Some(names) = self.0.get(&group(object)) else { return Ok(None) };
        let read = async || {
            let Reference { api_version, kind, namespace, .. } = object;
            let names = mirror.list_names(&Collection::new(api_version, kind, namespace.as_deref())).await?;
            Ok(names.into_iter().collect())
        };
        match names.get_or_try_init(read).await {
            Ok(names) => Ok(Some(names.contains(&object.name))),
            Err(error) if is_of_object(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
