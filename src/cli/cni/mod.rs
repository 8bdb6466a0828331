//! `netsurgeon cni`: shows the network plug-in, and plans a change of it.

mod plan;
mod plan_text;
mod show;

use clap::Subcommand;

use super::{Context, Outcome};
use crate::session::Failure;

#[derive(Debug, Subcommand)]
pub enum CniCommand {
    Show(Box<show::ShowArgs>),
    Plan(plan::PlanArgs),
}

/// Runs the command.
pub async fn run(context: &Context, command: &CniCommand) -> Result<Outcome, Failure> {
    match command {
        CniCommand::Show(args) => Box::pin(show::run(context, args)).await,
        CniCommand::Plan(args) => Box::pin(plan::run(context, args)).await,
    }
}
