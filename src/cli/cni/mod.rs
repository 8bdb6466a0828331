//! `netsurgeon cni`: plans a change of the network plug-in.

mod plan;
mod plan_text;

use clap::Subcommand;

use super::{Context, Outcome};
use crate::session::Failure;

#[derive(Debug, Subcommand)]
pub enum CniCommand {
    Plan(plan::PlanArgs),
}

/// Runs the command.
pub async fn run(context: &Context, command: &CniCommand) -> Result<Outcome, Failure> {
    match command {
        CniCommand::Plan(args) => Box::pin(plan::run(context, args)).await,
    }
}
