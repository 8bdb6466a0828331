//! `netsurgeon agent node-state`: prints the network state of this node, as JSON.

use std::path::PathBuf;

use clap::Args;

use super::{Context, Outcome};
use crate::node_state;
use crate::session::Failure;

/// Print the network state of this node: links, routes, packet filters, files of network plug-ins
///
/// Reads only. Loads no kernel module.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  netsurgeon agent node-state --root /host")]
pub struct NodeStateArgs {
    /// Folder in which the root file system of the node is mounted
    #[arg(long, default_value = "/", value_name = "FOLDER")]
    root: PathBuf,
}

pub fn run(context: &Context, args: &NodeStateArgs) -> Result<Outcome, Failure> {
    context.output.json(&node_state::read(&args.root))?;
    Ok(Outcome::Done)
}

/// Change the root folder and run a program of the node
#[derive(Debug, Args)]
#[command(
    after_long_help = "Example:\n  netsurgeon agent run-in-root --root /host -- /usr/sbin/iptables-legacy-save"
)]
pub struct RunInRootArgs {
    /// The new root folder
    #[arg(long, value_name = "FOLDER")]
    root: PathBuf,
    /// Path of the program in the new root folder
    #[arg(value_name = "PROGRAM")]
    program: String,
    /// Arguments of the program
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Returns only if the program cannot be run.
pub fn run_in_root(args: &RunInRootArgs) -> Failure {
    let error = node_state::legacy::run_in_root(&args.root, &args.program, &args.arguments);
    Failure::refused(format!("cannot run `{}` in `{}`: {error}", args.program, args.root.display()))
}
