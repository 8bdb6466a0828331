//! `nodes`: whether every node can run Pods.

use super::Cni;
use crate::preflight::Check;
use crate::preflight::facts::nodes;

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "nodes",
    why: "Pods of a drained node must be able to run on other nodes",
    judge: |input| Box::pin(async { Ok(nodes::judge(input.read.nodes().await?)) }),
};
