//! Which network plug-in is in place, which configuration wins on each node, and what others left behind. Changes nothing.
//!
//! ```text
//! cluster_facts   what the API shows: agents and their installers, Nodes, Pods, objects with the names of plug-ins
//! node_reader     reads the state of each node with a privileged Pod, whose mounts are read-only
//! shown           both together
//! ```

mod cluster_facts;
mod node_reader;
mod shown;

pub use cluster_facts::{AgentSet, ClusterFacts};
pub use node_reader::{NodeRead, node_states};
pub use shown::{Conflict, NodeShown, Shown, shown};
