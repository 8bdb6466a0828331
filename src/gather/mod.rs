//! Reads the data for the checks of `preflight`, concurrently and once: etcd, the APIs, name servers, this host. The module
//! `preflight` judges it.

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

use crate::kube_api::Cluster;
use crate::session::{Failure, LiveEtcd};
use crate::survey::Layout;

/// The checks to run.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Only these; empty for all.
    pub only: Vec<String>,
    /// All but these.
    pub skip: Vec<String>,
    /// The time limit of a check.
    pub within: Duration,
}

impl Selection {
    fn wants(&self, name: &str) -> bool {
        let is_in = |list: &[String]| list.iter().any(|one| one == name);
        if self.only.is_empty() { !is_in(&self.skip) } else { is_in(&self.only) }
    }
}

/// The connections to etcd and the API, or why there are none.
pub struct Reached {
    /// The etcd, or why not.
    pub store: Result<Arc<LiveEtcd>, Failure>,
    /// The API, or why not.
    pub cluster: Result<Cluster, Failure>,
    /// The key layout of the API server in etcd.
    pub layout: Layout,
}
