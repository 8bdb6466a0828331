//! The test rig: real etcd, real API servers and real controllers on this machine's loopback; or, with nodes, Pods and
//! kube-proxies, in network namespaces that no other run uses.
//!
//! Why: a test of netsurgeon's changes to a cluster is only credible when the components that own the data agree. The tiers
//! `etcd`, `cluster` and `live` and the program that makes the fixtures share this module by `#[path]`.
//!
//! Its promises:
//! * everything listens on 127.0.0.1 at ports that the kernel chose, in its own directories, so runs side by side do not
//!   conflict;
//! * everything that it started ends with the test, however the test ends;
//! * it never waits a fixed time: conditions are polled until a deadline, and a missed deadline reports the last observed state
//!   and the end of the log;
//! * a missing program fails the test and names the make target that builds it.

#![allow(dead_code, reason = "each tier uses a part of the rig")]

pub mod api;
pub mod api_gate;
pub mod apiserver;
pub mod balancer;
pub mod bind;
pub mod cert_manager;
pub mod cluster;
pub mod cluster_dns;
pub mod containerd;
pub mod controllers;
pub mod echo;
pub mod etcd;
pub mod external_dns;
pub mod image;
pub mod kubelet;
pub mod machine;
pub mod memory;
pub mod moto;
pub mod namespace;
pub mod network;
pub mod pebble;
pub mod pki;
pub mod pod_network;
pub mod pods;
pub mod probe;
pub mod process;
pub mod programs;
pub mod proxy;
pub mod real_node;
pub mod registry;
pub mod relay;
pub mod report;
pub mod route53;
pub mod route53_proxy;
pub mod run;
pub mod sample;
pub mod shifted_clock;
pub mod static_pods;
pub mod times;
pub mod tls_server;
pub mod transfer;
pub mod visitor;
pub mod workspace;
