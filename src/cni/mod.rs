//! The change of a cluster's network plug-in (CNI).

pub mod plan;
