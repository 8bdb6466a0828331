//! Cuts over DNS names from a cluster to its mirror in stages, and rolls a cutover back.
//!
//! ```text
//! names, records, targets ──► plan ──► Cutover (value, digest) ──► stages of changes ──► Live ──► Provider, probes, resolver
//! (`reader`)
//!
//! stages:   own ─► ttl ─► caches ─► share 1 ─► confirm ─► soak ─► share 2 ─► ... ─► share n ─► confirm ─► soak ─► final
//! rollback: home ─► restored ─► drained ─► resolved          of one stage: share n
//! ```
//!
//! A stage changes each name with one update, which succeeds only if the name still has the record sets of the previous stage.
//! Therefore a name that another client changed is skipped and never overwritten. Before a name moves, netsurgeon probes the
//! mirror at the mirror's own address. The probe is part of the change.
//!
//! A rollback of the whole cutover takes each name straight to its old records, with one update ([`straight_rollback`]). If a gate rolls
//! back a single stage, the names return to the previous stage.
//!
//! ExternalDNS changes a record only if a TXT record names this ExternalDNS as the owner. The first stage makes netsurgeon the
//! owner. The last stage makes the mirror's ExternalDNS the owner. Therefore two instances never change the same name, and no
//! instance has to be stopped.
//!
//! The operation is recorded in the cluster ([`ClusterSession`](crate::session::ClusterSession)). Each DNS provider is one file
//! in [`provider`].

mod annotations;
pub mod answers;
mod cutover;
mod environment;
pub mod external_dns;
mod measured_share;
mod mix;
pub mod plan;
mod probe;
mod progress;
mod provider;
pub mod reader;
pub mod run;
mod situation;
pub mod space;
mod stages;
mod straight_rollback;
pub mod target;
mod views;
mod waiver;
mod whereabouts;

pub use annotations::{Annotating, Annotations, Published};
pub use cutover::{Awaited, Change, Cutover, KIND, Name, Ownership, Point, Share};
pub use measured_share::{SeenShare, ShareQuery};
pub use plan::{Facts, Found, LeftOut, PlanOptions, Planned, Refusal, TOO_MANY_TARGETS, plan};
pub use probe::{Prober, Probing, Scheme, Served, addresses};
pub use situation::{NameState, Situation};
pub use whereabouts::{PLANNED_ROLLBACK, Whereabouts};
