//! The network plug-in (CNI) of a cluster: which one is in place and what others left behind, and the plan of a change.

pub mod plan;
pub mod show;
