//! Reads the data for the checks of `preflight` concurrently, each part once: etcd, the APIs, name servers, this host. The module
//! `preflight` checks the data.

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

/// Selection of the checks to run.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Names of the only checks to run; empty to run all.
    pub only: Vec<String>,
    /// Names of the checks to skip.
    pub skip: Vec<String>,
    /// Time limit of one check.
    pub within: Duration,
}

impl Selection {
    fn wants(&self, name: &str) -> bool {
        let is_in = |list: &[String]| list.iter().any(|one| one == name);
        if self.only.is_empty() { !is_in(&self.skip) } else { is_in(&self.only) }
    }
}

/// The connections to etcd and the API, or why a connection failed.
pub struct Reached {
    /// Connection to etcd, or why it failed.
    pub store: Result<Arc<LiveEtcd>, Failure>,
    /// Connection to the API, or why it failed.
    pub cluster: Result<Cluster, Failure>,
    /// Layout of the API server's keys in etcd.
    pub layout: Layout,
}
