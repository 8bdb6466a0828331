//! Cuts DNS names over from a cluster to its mirror in stages, and back.
//!
//! ```text
//! names, records, targets ──► plan ──► Cutover (value, digest) ──► stages of changes ──► Live ──► Provider, probes, resolver
//! (`preflight dns` reads)
//!
//! stages:   ttl ─► caches ─► share 1 ─► confirm ─► soak ─► share 2 ─► ... ─► share n ─► confirm ─► soak ─► final
//! rollback: final ─► share n ─► ... ─► share 1 ─► confirm ─► drain ─► ttl
//! ```
//!
//! A stage changes each name by one update, whose prerequisites are the record sets of the previous stage. So a name that another
//! client changed is skipped, and never overwritten. Before a name moves, the mirror is probed at its own address; the probe is
//! part of the change.
//!
//! The operation is recorded in the cluster ([`ClusterSession`](crate::session::ClusterSession)). A provider of DNS is one file
//! in [`provider`].

mod cutover;
mod live;
mod mix;
pub mod plan;
mod probe;
mod progress;
pub mod provider;
pub mod run;
mod situation;

pub use cutover::{Awaited, Change, Cutover, KIND, KeyFile, Name, Share};
pub use plan::{Facts, Found, PlanOptions, Refusal, plan};
pub use probe::{Probing, Scheme};
pub use situation::{Situation, Standing};
