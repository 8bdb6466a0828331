//! This machine: what only it knows, and its files, replaced so that nobody ever sees half of a change.

pub mod begun;
pub mod configuration;
pub mod conntrack;
pub mod process;
pub mod replace;
pub mod resolver;
mod rooted;
pub mod routes;

/// Returns the name of this host (`uname`).
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
