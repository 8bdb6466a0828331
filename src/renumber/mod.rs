//! Moves every Service of a cluster to another Service range.
//!
//! [`plan`] creates a [`Renumbering`] from a survey and the options of the plan. It contains the new address of each Service, and
//! how its old address is held. A [`Renumbering`] compiles to the steps of an operation ([`stages`]), in the order that the
//! storage era requires. [`rehearse`] executes the steps on a private copy.
//!
//! `docs/renumber.md` describes the order and the rules, which were verified on real clusters.

pub mod creation_times;
pub mod drift;
pub mod effect;
pub mod environment;
pub mod estimate;
pub mod expected_answers;
mod failure;
pub mod feature_gates;
pub mod guard;
pub mod hold;
mod index;
mod intention;
pub mod kube_proxy;
pub mod old_address_clients;
mod ownerless_bits;
pub mod plan;
pub mod rehearse;
pub mod replan;
pub mod reserved_bits;
pub mod rewrite;
pub mod run;
pub mod simulate;
pub mod stages;
mod steps;
pub mod sweep;
pub mod target;
pub mod tier;
pub mod verify;
pub mod without_api;

pub use effect::{Awaited, Effect};
pub use hold::Hold;
pub use intention::{
    BitmapChange, Move, OtherRange, Overlap, RecordChange, Renumbering, Shadow, Skipped, Turn,
};
pub use plan::{PlanError, PlanOptions, plan};
pub use rehearse::{Rehearsal, RehearsalError, rehearse};
pub use steps::{Action, Step, is_past_no_return};
pub use tier::{TierSource, Tiers};
