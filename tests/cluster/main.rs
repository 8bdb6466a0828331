//! The tier on a real control plane.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may")]

#[path = "../rig/mod.rs"]
mod rig;

mod eras;
