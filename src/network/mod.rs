//! Tests the network of a cluster, pair by pair and path by path, with agents on every node.
//!
//! ```text
//! member      a node, and the agents on it
//! objects     the manifests of the test: Pods, Services, policies
//! deployment  creates them, waits for the agents, and removes everything
//! link        the connection to one agent
//! round       which questions each agent gets: the matrix, or a part of it in a large cluster
//! expectation compares what an agent saw with what must be
//! cell        what is known about one path: rounds, faults, lost packets
//! cause       the likely cause of the failed cells, and its remedy
//! consequence failures that follow from a more basic one
//! isolation   policies of others that may block the traffic of the test
//! baseline    an earlier result: which faults are new
//! options     how to test
//! attendance  which agents are there in a round
//! family      address families that an agent lacks
//! run         the start of a test: its agents
//! course      the rounds of a test
//! picture     the result as SVG; junit, metrics: for other programs
//! ```
//!
//! The probes are those of `netsurgeon network test --help`. Each uses a new source port, because a connection keeps the address
//! translation that its first packet got.

mod attendance;
pub mod baseline;
pub mod cause;
pub mod cell;
mod consequence;
mod counters;
mod course;
mod deployment;
mod expectation;
mod family;
mod fleet;
mod isolation;
mod junit;
mod link;
mod member;
mod metrics;
mod node_object;
pub mod objects;
mod options;
pub mod path;
mod picture;
mod pod_state;
mod policy;
mod result;
mod round;
mod run;
mod simulation;
mod targets;

pub use course::Progress;
pub use deployment::{Cleaned, Deployment, DeploymentError, Started};
pub use junit::file as junit_file;
pub use link::{AgentLink, LinkError};
pub use member::{Agent, Member, Role};
pub use metrics::text as metrics_text;
pub use objects::Settings;
pub use options::Test;
pub use path::Path;
pub use picture::svg;
pub use result::{PathResult, Result as TestResult};
pub use round::{Schedule, rounds_to_cover};
pub use simulation::simulate;
