//! `netsurgeon certs`: shows, reissues and verifies the certificates of a control plane.

mod places;
mod reissue;
mod show;
mod verify;
mod words;

use clap::Subcommand;
use time::OffsetDateTime;

use super::{Context, Outcome};
use crate::operation::{Ambient as _, SystemAmbient};
use crate::session::Failure;

#[derive(Debug, Subcommand)]
pub enum CertsCommand {
    Show(show::ShowArgs),
    Reissue(reissue::ReissueArgs),
    Verify(verify::VerifyArgs),
}

/// Runs the command.
pub async fn run(context: &Context, command: &CertsCommand) -> Result<Outcome, Failure> {
    match command {
        CertsCommand::Show(args) => show::run(context, args).await,
        CertsCommand::Reissue(args) => reissue::run(context, args),
        CertsCommand::Verify(args) => verify::run(context, args).await,
    }
}

fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(SystemAmbient.now()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
