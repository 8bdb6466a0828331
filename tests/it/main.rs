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
mod batch_rollback;
mod cli_audit;
mod cli_certs;
mod cli_controlplane;
mod cli_failures;
mod cli_inspect;
mod cli_kops;
mod cli_ranges;
mod cli_reissue;
mod cli_reissue_chains;
mod cli_renumber;
mod cli_tiers;
mod client_changes;
mod codegen;
mod company;
mod cycles;
mod deleted_services;
mod deploy;
mod effects;
mod expired_reservations;
mod findings;
mod gates;
mod guard;
mod harness;
mod hints;
mod inventory;
mod irregular_plans;
mod json_log;
mod linger;
mod loops;
mod manual_steps;
mod mirror_config;
mod parallel;
mod program;
mod rehearsal;
mod release;
mod replan;
mod report;
mod rewrite;
mod saboteur;
mod security;
mod shell_completion;
mod situation;
mod store_contract;
mod tiers;
mod verify;
mod waits;
mod waivers;
mod wire_fixtures;
mod wording;
