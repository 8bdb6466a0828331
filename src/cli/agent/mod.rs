//! `netsurgeon agent`: what netsurgeon runs on nodes, in its own Pods. Hidden from the help, because people do not call it.

mod node_state;

use clap::Subcommand;

use super::{Context, Outcome};
use crate::session::Failure;

#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    NodeState(node_state::NodeStateArgs),
    RunInRoot(node_state::RunInRootArgs),
}

pub fn run(context: &Context, command: &AgentCommand) -> Result<Outcome, Failure> {
    match command {
        AgentCommand::NodeState(args) => node_state::run(context, args),
        AgentCommand::RunInRoot(args) => Err(node_state::run_in_root(args)),
    }
}
