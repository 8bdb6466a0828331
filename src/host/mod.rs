//! Reads the local state of this machine, replaces its files atomically, and runs programs.
//!
//! netsurgeon does not use the crate `procfs` 0.18, because the crate cannot read tracked connections or IPv6 routes. The crate
//! also drops empty arguments, fails on arguments that are not UTF-8, and reads environments without a limit.

pub mod configuration;
pub mod conntrack;
pub mod conntrack_events;
pub mod kernel;
pub mod netlink;
pub mod process;
pub mod program;
pub mod replace;
pub mod resolver;
pub mod routes;
pub mod untrusted_root;

/// Returns the name of this host (`uname`).
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
