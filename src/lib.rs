//! netsurgeon changes the network of a Kubernetes cluster that is serving traffic.
//!
//! Each module is a *room*. A room imports only rooms below it. `tests/it/architecture.rs` lists the rooms in order and fails on
//! any other import:
//!
//! ```text
//! main
//! cli                    arguments, output, exit codes: one file per command, the only room that prints
//! preflight   report     checks whether a cluster is ready, one file for each check · one HTML page of an operation
//! renumber, dns, mirror  each creates a plan, compiles it into steps, and runs the steps on a live cluster
//! cni                    the plan of a change of the network plug-in
//! parity                 what nodes and Pods of two clusters can do in AWS, and the changes that make it equal
//! network                tests the paths between nodes, Pods and Services with agents on every node
//! agent                  what runs in the Pods of the network test: answers, and asks other agents
//! kops                   the kOps specification of a mirror, from that of its source: text to text
//! deploy_lock            makes the API server reject changes by deploy pipelines
//! leftovers              what network plug-ins left behind on a node and in a cluster, by exact names
//! audit                  finds where an address of an old range is still recorded
//! inventory              what is in a cluster and in a DNS zone: objects, kinds, nodes, network plug-ins, webhooks, host names
//! controlplane           the flags of the control plane that are visible from this host
//! session                an operation of any kind from start to end: connect, lock, ask, run, gates, progress, metrics
//! operation   survey     plan, step, ledger, executor · the Service addresses of a cluster, and their audit
//! encryption             decrypts and encrypts stored values with the API server's own encryption configuration
//! node_state             reads what is on a node: links, routes, packet filters, IP sets, IPsec, files of network plug-ins
//! store  kube_api  host  etcd, snapshot file, memory, overlay · the Kubernetes API · this machine
//! route53                the record sets of hosted zones in Amazon Route 53
//! aws                    reads EC2, IAM and STS
//! nameserver  registry   the records of a zone on its name servers, and whether the servers accept changes · asks registries for images
//! wire        certs      stored formats, lossless edits, bitmap · X.509, parsed and encoded
//! ip         words       ranges, offsets, first address, old→new map · numbers and times for people
//! ```
//!
//! Every room except `cli` is a library that needs no terminal. This example moves the Services of a cluster:
//!
//! ```no_run
//! # use std::{path::Path, sync::Arc};
//! # use netsurgeon::{kube_api::*, operation::Silent, renumber::{run::*, *}, session::{gates::GateSettings, *}};
//! # use netsurgeon::{store::{etcd::*, seal::Sealed}, survey::*};
//! # async fn move_services() -> Result<(), Failure> {
//! let etcd = EtcdStore::connect(EtcdOptions::new(["http://127.0.0.1:2379"])).await?;
//! let etcd = (Arc::new(Sealed::new(etcd, None)), Layout::default());
//! let api = Cluster::connect(&ClusterOptions::default()).await?;
//! let survey = Survey::read(etcd.0.as_ref(), &etcd.1, None).await?;
//! let plan = plan(&survey, &PlanOptions::new("10.200.0.0/16".parse()?))?;
//! let settings = Settings { agreed: true, ..Settings::default() };
//! let session = Session::open(Ui::new(Silent), etcd, api, settings).await?;
//! let session = RenumberSession::new(session, Choices::default());
//! let (moved, _, _) = session.apply(plan, &GateSettings::default(), Some(Path::new("before.db"))).await?;
//! println!("{}", moved.operation);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::too_many_lines))]

// The rooms without `doc(hidden)` are the surface of the library. The others are public for the program and for tests.
#[doc(hidden)]
pub mod agent;
#[doc(hidden)]
pub mod audit;
#[doc(hidden)]
pub mod aws;
#[doc(hidden)]
pub mod certs;
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod cni;
#[doc(hidden)]
pub mod controlplane;
#[doc(hidden)]
pub mod deploy_lock;
pub mod dns;
#[doc(hidden)]
pub mod encryption;
#[doc(hidden)]
pub mod host;
#[doc(hidden)]
pub mod inventory;
pub mod ip;
#[doc(hidden)]
pub mod kops;
pub mod kube_api;
#[doc(hidden)]
pub mod leftovers;
pub mod mirror;
pub mod nameserver;
#[doc(hidden)]
pub mod network;
#[doc(hidden)]
pub mod node_state;
pub mod operation;
#[doc(hidden)]
pub mod parity;
#[doc(hidden)]
pub mod preflight;
#[doc(hidden)]
pub mod registry;
pub mod renumber;
#[doc(hidden)]
pub mod report;
#[doc(hidden)]
pub mod route53;
pub mod session;
pub mod store;
pub mod survey;
pub mod wire;
#[doc(hidden)]
pub mod words;
