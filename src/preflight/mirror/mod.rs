//! Checks before the objects of some namespaces are copied from one cluster (the source) to another cluster (the mirror).

mod capacity;
mod classes;
mod fixed_addresses;
mod images;
mod issuers;
mod kinds;
mod mirror_nodes;
mod mirror_rights;
mod mirror_webhooks;
mod namespaces;
mod outside_owners;
mod placement;
mod planned_objects;
mod pull_secrets;
mod source_rights;
mod stateless;
mod two_clusters;

use super::{Check, shared};
use crate::inventory::ClusterReader;
use crate::inventory::namespaces::NamespaceReader;
use crate::kube_api::Cluster;
use crate::mirror::config::Config;
use crate::session::Failure;

/// The checks, in display order. Shared checks read the source.
pub const CHECKS: &[Check<Mirror>] = &[
    shared::api_servers::check("the copy reads from these API servers while they serve clients"),
    two_clusters::CHECK,
    namespaces::CHECK,
    mirror_nodes::CHECK,
    kinds::CHECK,
    stateless::CHECK,
    classes::CHECK,
    issuers::CHECK,
    pull_secrets::CHECK,
    images::CHECK,
    placement::CHECK,
    capacity::CHECK,
    fixed_addresses::CHECK,
    outside_owners::CHECK,
    planned_objects::CHECK,
    shared::gitops::check("a GitOps controller changes the source while it is copied"),
    mirror_webhooks::CHECK,
    source_rights::CHECK,
    mirror_rights::CHECK,
];

/// A connection to an API, or why it failed.
type Connected = Result<Cluster, Failure>;

/// Input of the checks, from the APIs of both clusters.
pub struct Mirror {
    source: NamespaceReader,
    target: ClusterReader,
    /// The rules of the copy.
    config: Config,
}

impl AsRef<ClusterReader> for Mirror {
    fn as_ref(&self) -> &ClusterReader {
        &self.source.reader
    }
}

impl Mirror {
    /// Creates the input with connections to the source and the mirror. `named`: namespaces that the user names. `config`: the rules of
    /// the copy.
    pub fn new(
        (source, mirror): (Option<Connected>, Option<Connected>),
        named: Vec<String>,
        config: Config,
    ) -> Self {
        Self {
            config,
            source: NamespaceReader::new(source, "the API of the source", named),
            target: ClusterReader::of_api(mirror, "the API of the mirror"),
        }
    }
}
