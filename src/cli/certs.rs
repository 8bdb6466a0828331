//! `netsurgeon certs`: the certificates of a control plane.

mod places;
mod show;

use clap::{Args, Subcommand};

use super::failure::Failure;
use super::{Context, Outcome};

/// Look at the certificates of a control plane
#[derive(Debug, Args)]
pub struct CertsArgs {
    #[command(subcommand)]
    command: CertsCommand,
}

#[derive(Debug, Subcommand)]
enum CertsCommand {
    Show(show::ShowArgs),
}

/// Runs the command.
pub fn run(context: &Context, args: &CertsArgs) -> Result<Outcome, Failure> {
    match &args.command {
        CertsCommand::Show(args) => show::run(context, args),
    }
}
