//! Runs one operation of any kind from start to end, without a terminal. A session connects, acquires the lease, asks questions,
//! runs the steps, stops at gates, reports progress, and exposes metrics.
//!
//! [`Session::open`] verifies that an etcd and an API belong to the same cluster. [`Session::lock`] acquires the operation lease.
//! [`Session::execute`] runs the steps of a [`Work`](crate::operation::Work) with gates and limits. Reports go to a [`Voice`],
//! which the caller implements. This module never prints and never ends the process.

mod confirming;
mod connection;
mod exclusion;
pub mod execute;
pub mod failure;
pub mod gates;
pub mod homes;
mod in_cluster;
mod lease;
pub mod metrics;
pub mod progress;
mod recorded;
mod refusals;
mod said;
mod sealing;
mod servers;
mod time;
mod vigil;
pub mod voice;

pub use crate::words::{all_of, and_more, counted, first_few, in_words, pasted, quoted_or, titled};
pub use confirming::confirm_only;
pub use connection::{Api, Connect, LiveEtcd, Session, Settings, is_leased, show};
pub use execute::{Arrival, Heading, Subject, rolled_back, status_after, why_stopped};
pub use failure::{Failure, Kind};
pub use in_cluster::{ClusterSession, Holding};
pub use lease::{LeaseTerms, Taking, lock_cluster, release};
pub use recorded::Recorded;
pub use refusals::{give_up, if_killed, refuse_ended, refuse_removing, status_hint};
pub use said::Said;
pub use time::StoredTime;
pub use voice::{Countdown, Talk, Voice};
