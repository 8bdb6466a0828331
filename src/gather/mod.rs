//! What the checks of `preflight` look at, read side by side and once: etcd, the APIs, name servers, this host. Nothing here
//! judges; that is what `preflight` does, which is pure.

pub mod cni;
pub mod dns;
mod hardening;
pub mod mirror;
mod permissions;
mod reading;
pub mod renumber;
mod webhooks;

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::session::{Failure, LiveEtcd};
use crate::survey::Layout;

/// Which checks to carry out.
#[derive(Debug, Clone)]
pub struct Selection {
    /// These alone; empty for all.
    pub only: Vec<String>,
    /// All but these.
    pub skip: Vec<String>,
    /// How long one check may take.
    pub within: Duration,
}

impl Selection {
    fn wants(&self, name: &str) -> bool {
        let is_in = |list: &[String]| list.iter().any(|one| one == name);
        if self.only.is_empty() { !is_in(&self.skip) } else { is_in(&self.only) }
    }
}

/// An etcd and an API, as far as they could be connected to.
pub struct Reached {
    /// The etcd, or why not.
    pub store: Result<Arc<LiveEtcd>, Failure>,
    /// The API, or why not.
    pub cluster: Result<Cluster, Failure>,
    /// Where the API server keeps what in etcd.
    pub layout: Layout,
}
