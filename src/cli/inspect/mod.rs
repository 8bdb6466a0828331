//! `netsurgeon inspect`: shows stored objects of any kind and encoding in readable form.
//!
//! The content of a Secret is never shown: not decoded, not as raw bytes, and not in a difference.

mod decode;
mod diff;
mod get;
mod list;
mod name;
mod tree_diff;
mod view;

use clap::Subcommand;

use super::{Context, Outcome};
use crate::session::Failure;

#[derive(Debug, Subcommand)]
pub enum InspectCommand {
    Get(get::GetArgs),
    List(list::ListArgs),
    Decode(decode::DecodeArgs),
    Diff(diff::DiffArgs),
}

/// Runs the command.
pub async fn run(context: &Context, command: &InspectCommand) -> Result<Outcome, Failure> {
    match command {
        InspectCommand::Get(args) => get::run(context, args).await,
        InspectCommand::List(args) => list::run(context, args).await,
        InspectCommand::Decode(args) => decode::run(context, args),
        InspectCommand::Diff(args) => diff::run(context, args).await,
    }
}
