//! Reads the local state of this machine, and replaces its files atomically.

pub mod configuration;
pub mod conntrack;
pub mod conntrack_events;
pub mod process;
pub mod replace;
pub mod resolver;
mod rooted;
pub mod routes;

/// Returns the name of this host (`uname`).
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
