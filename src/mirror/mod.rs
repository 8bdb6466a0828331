//! Copies the declared objects of namespaces from a source cluster to a mirror cluster, and removes the copies again.
//!
//! ```text
//! source ─► reader ─► decision (left out, copy, difference) ─► dry run ─► Mirror (plan: references, no content)
//! mirror ─►
//! Mirror ─► stages by order level ─► Clusters: reads each object again, applies its copy, records uid and previous values
//! ```
//!
//! The plan contains no content of any object, so it contains no Secret data. A step reads its object from the source again. Secret
//! data goes from one API server to the other, and to no other place.
//!
//! What acts on the world outside the cluster is passive in the mirror: a CronJob is suspended. Jobs and bare Pods are not copied. A
//! workload that no Service selects is copied only if the operator names it.
//!
//! The operation is recorded in the mirror ([`ClusterSession`](crate::session::ClusterSession)). Only an object whose uid is in such a
//! record belongs to netsurgeon. A rollback deletes exactly these objects. An apply that creates fails if the object exists, and no
//! apply takes a field from another manager.

pub mod activation;
mod adoption;
mod class;
mod cluster_kind;
mod cluster_object;
pub mod config;
pub mod config_file;
pub mod content_diff;
mod copy;
mod decision;
mod definition;
mod deletion;
mod deployer;
mod difference;
mod entry;
mod environment;
mod field_managers;
mod former_names;
pub mod image_pulls;
mod kind_comparison;
pub mod ledger;
mod left_out;
pub mod namespace_choice;
mod namespace_content;
mod object_write;
mod order;
mod orphan;
mod paired_pages;
mod progress;
pub mod reader;
mod readiness;
mod refusal;
pub mod rules;
pub mod run;
pub mod sans;
mod source_pages;
mod strip;
pub mod verify;
mod webhook_server;
mod wish;
mod work;

pub use copy::Shape;
pub use left_out::RULE_FAILED;
pub use work::{Copy, DryRun, Entry, KIND, KindLeftOut, Mirror, Planned, Reference};
