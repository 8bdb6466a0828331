//! The tier on a real etcd, current and Debian's. It needs the programs that `make rig` builds.

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

#[path = "../contract/mod.rs"]
mod contract;
#[path = "../rig/mod.rs"]
mod rig;

mod lock;
mod members;
mod operations;
mod servers;
mod snapshot_files;
mod store;
mod surveys;
