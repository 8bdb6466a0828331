//! The hermetic tier: nothing outside the repository is started or reached.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    reason = "test code"
)]

mod codegen;
