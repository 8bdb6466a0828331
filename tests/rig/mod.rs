//! The test rig: real etcd, real API servers and real controllers on this machine's loopback; or, with nodes,
//! pods and kube-proxies, in network namespaces that no other run sees.
//!
//! Why: what netsurgeon does to a cluster is only worth believing when the components that own the data
//! agree. The tiers `etcd`, `cluster` and `live` and the maker of the fixtures share this module by `#[path]`.
//!
//! What it promises:
//! * everything listens on 127.0.0.1 at ports that the kernel chose, in directories of its own, so runs
//!   side by side do not meet;
//! * everything that it started dies with the test, however the test ends;
//! * nothing waits by sleeping: conditions are polled until a deadline, and a deadline that passes says
//!   what was seen last and shows the end of the log;
//! * a program that is missing fails the test and names the make target that builds it.

#![allow(dead_code, reason = "each tier uses a part of the rig")]

pub mod api;
pub mod api_gate;
pub mod apiserver;
pub mod cluster;
pub mod controllers;
pub mod echo;
pub mod etcd;
pub mod kubelet;
pub mod memory;
pub mod named;
pub mod namespace;
pub mod network;
pub mod pki;
pub mod pods;
pub mod probe;
pub mod process;
pub mod programs;
pub mod proxy;
pub mod relay;
pub mod report;
pub mod run;
pub mod static_pods;
pub mod workspace;
