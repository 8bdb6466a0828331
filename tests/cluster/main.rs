//! The tier on a real control plane: the API servers of each storage era on everything that netsurgeon reads and writes. It needs
//! the programs that `make rig` builds.

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

mod api_room;
mod audit;
mod canary;
mod cbor;
mod certificates;
mod cni_plan;
mod commands;
mod configmap_kind;
mod connections;
mod edits;
mod encryption;
mod eras;
mod exclusion;
mod flags;
mod former_layout;
mod high_availability;
mod large;
mod ledger;
mod live;
mod lock;
mod mirror;
mod mirror_acme;
mod mirror_activation;
mod mirror_adoption;
mod mirror_content;
mod mirror_images;
mod mirror_kills;
mod mirror_objects;
mod mirror_pair;
mod mirror_parity;
mod mirror_refusals;
mod mirror_rights;
mod mirror_rules;
mod mirror_sans;
mod mirror_size;
mod mirror_surroundings;
mod planted_records;
mod refusals;
