//! netsurgeon changes the network of a Kubernetes cluster that is serving traffic.
//!
//! Each module is a *room*; a room imports only rooms below it (`tests/it/architecture.rs` holds the
//! ladder and fails on any other edge):
//!
//! ```text
//! main
//! cli                    one file per command; the only place that prints
//! renumber    freeze     compiles an intention into a plan · locks deploy pipelines out
//! preflight              whether a cluster is ready, judged by what was seen of it
//! audit                  what still says an address of an old range
//! operation   survey     plan, step, ledger, executor · what a cluster holds, and its audit
//! encryption             values encrypted at rest: opened and sealed with the API server's own configuration
//! store  cluster  host   etcd, snapshot file, memory, overlay · the Kubernetes API · this machine
//! nameserver             what name servers say of a zone, and whether they would change it
//! wire        certs      stored formats, lossless edits, bitmap · X.509, bytes in and bytes out
//! ip                     ranges, offsets, first address, old→new map
//! ```
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::too_many_lines))]

pub mod audit;
pub mod certs;
pub mod cli;
pub mod cluster;
pub mod encryption;
pub mod freeze;
pub mod host;
pub mod ip;
pub mod nameserver;
pub mod operation;
pub mod preflight;
pub mod renumber;
pub mod store;
pub mod survey;
pub mod wire;
