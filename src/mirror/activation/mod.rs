//! Moves what is passive in the mirror from the source to the mirror, and back. Nothing is active in both clusters at any instant.
//!
//! ```text
//! records of mirror operations ─► copies ─► reader ─► Activation (plan: references, times, no content)
//! Activation ─► one step for each object ─► HandOver: quiet in one cluster and proven quiet, then awake in the other
//! ```
//!
//! Three rules keep an object from being active twice, whatever is killed and however late a request arrives:
//!
//! 1. An object wakes in one cluster only after this process has found it quiet in the other cluster ([`cron_job`], [`workload`]).
//! 2. Each change names the `resourceVersion` of the object that it changes. The object is read before the fence is checked, and the
//!    fence before the request is sent.
//! 3. Before an object wakes in one cluster, this process writes the object of the other cluster. So a request of an earlier process
//!    that would wake that object fails, even if it arrives later.

mod cron_job;
mod environment;
mod jobs;
pub mod ledger;
mod moved_copy;
mod progress;
pub mod reader;
mod rights;
pub mod run;
mod schedule;
mod side;
mod work;
mod workload;

pub use moved_copy::{MovedCopies, MovedCopy};
pub use work::{Activation, CronJobFacts, Entry, HandOver, KIND, Moved, Waits};
