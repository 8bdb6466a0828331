//! Runs one operation of any kind from start to end, without a terminal. A session connects, acquires the lease, asks questions,
//! runs the steps, stops at gates, reports progress, and exposes metrics.
//!
//! [`Session::open`] verifies that an etcd and an API belong to the same cluster. [`Session::lock`] acquires the operation lease.
//! [`Session::execute`] runs the steps of a [`Work`](crate::operation::Work) with gates and limits. Reports go to a [`Ui`],
//! which the caller implements. This module never prints and never ends the process.

mod base;
mod cluster_session;
mod connection;
mod encryption_check;
mod etcd_silence;
mod exclusion;
pub mod execute;
pub mod failure;
pub mod gates;
mod lease;
pub mod ledger_place;
mod manual_steps;
mod message_kind;
pub mod metrics;
pub mod progress;
mod recorded;
mod refusals;
mod servers;
mod time;
pub mod ui;
mod under_way;

pub use base::{SessionBase, Settings, show};
pub use cluster_session::{ClusterSession, EndOfRun, Holding};
pub use connection::{Api, Connect, LiveEtcd, Session, is_leased};
pub use execute::{Arrival, Heading, Subject, record_of_stop, rolled_back, stopped_before_end};
pub use failure::{ExitKind, Failure};
pub use lease::{LeaseTerms, Taking, release};
pub use manual_steps::confirm_only;
pub use message_kind::MessageKind;
pub use recorded::Recorded;
pub use refusals::{give_up, if_killed, refuse_ended, refuse_removing, status_hint};
pub use time::StoredTime;
pub use ui::{Countdown, Ui, UserInterface};
pub use under_way::Candidates;
