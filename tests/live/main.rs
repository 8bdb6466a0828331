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

mod address_owners;
mod api_servers;
mod barrier;
mod certificates;
mod chaos;
mod client_changes;
mod clocks;
mod cluster_ip;
mod cni_show;
mod control_plane_faults;
mod cut_connections;
mod data_plane_faults;
mod dns;
mod encryption;
mod evidence;
mod external_ip;
mod families;
mod frozen;
mod gates;
mod guard;
mod ignored_external_ips;
mod in_cluster;
mod kill_points;
mod lease;
mod leftovers;
mod manual_steps;
mod matrix;
mod network_test;
mod other_objects;
mod outputs;
mod overlapping_ranges;
mod preflight;
mod real_nodes;
mod renumber;
mod repair;
mod report;
mod rewrite;
mod rig_network;
mod rights;
mod roles;
mod runbook;
mod selectorless_services;
mod sentinel;
mod serving_cluster;
mod storm;
mod tenant;
mod tiers;
mod whole_renumbering;
