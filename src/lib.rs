//! netsurgeon changes the network of a Kubernetes cluster that is serving traffic.
//!
//! Each module is a *room*; a room imports only rooms below it (`tests/it/architecture.rs` holds the
//! ladder and fails on any other edge):
//!
//! ```text
//! main
//! cli                    arguments, printing, exit codes: one file per command, the only place that prints
//! gather      report     reads what preflight judges · one HTML page of an operation
//! renumber    freeze     compiles an intention into a plan, and runs it on a live cluster · locks deploy pipelines out
//! preflight              whether a cluster is ready, judged by what was seen of it
//! audit                  what still says an address of an old range
//! controlplane           the flags of API servers, as far as they can be observed
//! session                an operation of any kind from start to end: connect, lock, ask, run, gates, progress, metrics
//! operation   survey     plan, step, ledger, executor · what a cluster holds, and its audit
//! encryption             values encrypted at rest: opened and sealed with the API server's own configuration
//! store  cluster  host   etcd, snapshot file, memory, overlay · the Kubernetes API · this machine
//! nameserver             what name servers say of a zone, and whether they would change it
//! wire        certs      stored formats, lossless edits, bitmap · X.509, bytes in and bytes out
//! ip         words       ranges, offsets, first address, old→new map · numbers and times in words
//! ```
//!
//! All but `cli` is a library that needs no terminal:
//!
//! ```no_run
//! # use std::{path::Path, sync::Arc};
//! # use netsurgeon::{cluster::*, operation::Silent, renumber::{run::*, *}, session::{gates::GateSettings, *}};
//! # use netsurgeon::{store::{etcd::*, seal::Sealed}, survey::*};
//! # async fn move_services() -> Result<(), Failure> {
//! let etcd = EtcdStore::connect(EtcdOptions::new(["http://127.0.0.1:2379"])).await?;
//! let etcd = (Arc::new(Sealed::new(etcd, None)), Layout::default());
//! let api = Cluster::connect(&ClusterOptions::default()).await?;
//! let survey = Survey::read(etcd.0.as_ref(), &etcd.1, None).await?;
//! let plan = plan(&survey, &PlanOptions::new("10.200.0.0/16".parse()?))?;
//! let settings = Settings { agreed: true, ..Settings::default() };
//! let session = Session::open(Voice::new(Silent), etcd, api, settings).await?;
//! let session = RenumberSession::new(session, Choices::default());
//! let (moved, _, _) = session.apply(plan, &GateSettings::default(), Some(Path::new("before.db"))).await?;
//! println!("{}", moved.operation);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::too_many_lines))]

pub mod audit;
pub mod certs;
pub mod cli;
pub mod cluster;
pub mod controlplane;
pub mod encryption;
pub mod freeze;
pub mod gather;
pub mod host;
pub mod ip;
pub mod nameserver;
pub mod operation;
pub mod preflight;
pub mod renumber;
pub mod report;
pub mod session;
pub mod store;
pub mod survey;
pub mod wire;
pub mod words;
