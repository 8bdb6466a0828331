//! `netsurgeon certs`: the certificates of a control plane.

mod places;
mod reissue;
mod show;
mod verify;
mod words;

use clap::{Args, Subcommand};
use time::OffsetDateTime;

use super::{Context, Outcome};
use crate::operation::{Ambient as _, SystemAmbient};
use crate::session::Failure;

/// Show, reissue and verify the certificates of a control plane
#[derive(Debug, Args)]
pub struct CertsArgs {
    #[command(subcommand)]
    command: CertsCommand,
}

#[derive(Debug, Subcommand)]
enum CertsCommand {
    Show(show::ShowArgs),
    Reissue(reissue::ReissueArgs),
    Verify(verify::VerifyArgs),
}

/// Runs the command.
pub async fn run(context: &Context, args: &CertsArgs) -> Result<Outcome, Failure> {
    match &args.command {
        CertsCommand::Show(args) => show::run(context, args).await,
        CertsCommand::Reissue(args) => reissue::run(context, args),
        CertsCommand::Verify(args) => verify::run(context, args).await,
    }
}

fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(SystemAmbient.now()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
