//! The test tier on a real data plane: real kube-proxies on nodes that are network namespaces, and clients that notice every
//! failed connection. It needs the programs that `make rig` builds, and root.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking, and shows logs when it does"
)]

#[path = "../rig/mod.rs"]
mod rig;

mod api_servers;
mod around;
mod barrier;
mod certificates;
mod chaos;
mod clocks;
mod cluster_ip;
mod confirming;
mod copies;
mod corners;
mod cut;
mod disturbed;
mod dns;
mod encrypted;
mod evidence;
mod external_ip;
mod families;
mod frozen;
mod gates;
mod guard;
mod in_cluster;
mod kept;
mod killed;
mod lease;
mod matrix;
mod preflight;
mod promises;
mod renumber;
mod repair;
mod report;
mod rewriting;
mod rights;
mod roles;
mod runbook;
mod sentinel;
mod serving;
mod storm;
mod tenant;
mod tiers;
mod trouble;
mod unrouted;
mod watched;
mod world;
