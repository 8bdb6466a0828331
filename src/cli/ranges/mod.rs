//! `netsurgeon ranges`: shows how full the Service ranges of a cluster are, checks them, and rewrites allocation bitmaps.

mod counts;
mod node_ports;
mod rewrite;
mod show;

use clap::{Args, Subcommand};
use serde::Serialize;

pub(super) use rewrite::{resume, roll_back};

use super::output::counted;
use super::source::SourceArgs;
use super::{Context, Outcome, findings};
use crate::session::Failure;
use crate::store::Revision;
use crate::survey::audit::audit_beside;
use crate::survey::{Finding, Severity};

#[derive(Debug, Subcommand)]
pub enum RangesCommand {
    Show(show::ShowArgs),
    Check(CheckArgs),
    Rewrite(rewrite::RewriteArgs),
}

/// Check that Services, ranges and records of allocations agree
///
/// Compares the Services with each other, with the Service ranges, with the IPAddress objects and with the RangeAllocation
/// bitmaps. Compares node ports in the same way. Compares the ranges with the addresses of Pods and Nodes. docs/findings.md
/// explains each finding, and what to do.
///
/// The exit status is 3 if there is an error or a warning; otherwise it is 0.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # on a kubeadm control-plane host
  netsurgeon ranges check
  netsurgeon ranges check --snapshot backup.db
  netsurgeon ranges check -o json | jq -r '.findings[].code'")]
pub struct CheckArgs {
    #[command(flatten)]
    source: SourceArgs,
}

/// The output of `ranges check -o json`.
#[derive(Serialize)]
struct Checked<'a> {
    version: u8,
    era: crate::survey::Era,
    era_because: &'a str,
    revision: Revision,
    findings: &'a [Finding],
}

/// Runs the command.
pub async fn run(context: &Context, command: &RangesCommand) -> Result<Outcome, Failure> {
    match command {
        RangesCommand::Show(args) => show::run(context, args).await,
        RangesCommand::Check(args) => check(context, args).await,
        RangesCommand::Rewrite(args) => rewrite::run(context, args).await,
    }
}

async fn check(context: &Context, args: &CheckArgs) -> Result<Outcome, Failure> {
    let (survey, ours, store) = args.source.survey_beside(context).await?;
    let found = audit_beside(&ours, &survey);
    let value = Checked {
        version: 1,
        era: survey.era.era,
        era_because: &survey.era.because,
        revision: survey.revision,
        findings: &found,
    };
    context.output.data(&value, |output| findings::tabled(output, &found))?;
    let count = |severity| found.iter().filter(|finding| finding.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    context.output.progress(&format!(
        "{store}, revision {}, era {}: {} checked, {}, {}",
        survey.revision,
        survey.era.era,
        counted(survey.services.len(), "Service", "Services"),
        counted(errors, "error", "errors"),
        counted(warnings, "warning", "warnings"),
    ));
    Ok(findings::outcome(&found))
}
