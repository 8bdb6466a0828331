//! Runs one operation from start to end, of any kind and without a terminal: connect, acquire the lease, ask, run, stop at gates,
//! report progress, count metrics.
//!
//! [`Session::open`] verifies that an etcd and an API belong to the same cluster. [`Session::lock`] acquires the operation lease.
//! [`Session::execute`] runs the steps of a [`Work`](crate::operation::Work) with gates and limits. Reports go to a [`Voice`],
//! which the caller implements. This room never prints and never ends the process.

mod confirming;
mod connection;
pub mod execute;
pub mod failure;
pub mod gates;
pub mod homes;
mod in_cluster;
mod lease;
pub mod metrics;
pub mod progress;
mod refusals;
mod said;
mod sealing;
mod vigil;
pub mod voice;

pub use crate::words::{and_more, counted, first_few, in_words, titled};
pub use confirming::confirm_only;
pub use connection::{Api, Connect, LiveEtcd, Session, Settings, is_leased, show};
pub use execute::{Arrival, Heading, Subject, rolled_back, status_after};
pub use failure::{Failure, Kind};
pub use in_cluster::{ClusterSession, Holding, Recorded};
pub use lease::{LeaseTerms, Taking, lock_cluster, release};
pub use refusals::{refuse_done, refuse_ended, refuse_removing};
pub use said::Said;
pub use voice::{Countdown, Talk, Voice};
