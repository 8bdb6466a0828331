//! The hermetic tier: nothing outside the repository is started or reached.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::too_many_lines,
    reason = "a test fails by panicking"
)]

#[path = "../contract/mod.rs"]
mod contract;

mod architecture;
mod asking;
mod cli_audit;
mod cli_certs;
mod cli_controlplane;
mod cli_failures;
mod cli_inspect;
mod cli_ranges;
mod cli_reissue;
mod cli_reissue_chains;
mod cli_renumber;
mod cli_tiers;
mod codegen;
mod company;
mod completing;
mod cycles;
mod deploy;
mod effects;
mod findings;
mod gates;
mod gone;
mod guarding;
mod handing;
mod harness;
mod hints;
mod inventory;
mod lingering;
mod logging;
mod loops;
mod meddling;
mod parallel;
mod planning;
mod program;
mod rehearsal;
mod replanning;
mod report;
mod returning;
mod rewriting;
mod saboteur;
mod security;
mod situation;
mod store_contract;
mod tiers;
mod verifying;
mod waits;
mod waivers;
mod wire_fixtures;
mod wording;
