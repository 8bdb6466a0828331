//! `netsurgeon operation report`: writes an HTML page about an operation.

use std::path::PathBuf;

use clap::Args;

use super::file::{Readers, write_file};
use super::ledger_args::LedgerArgs;
use super::{Context, Outcome};
use crate::operation::Lock;
use crate::renumber::run::{later_renumbering, open_operation};
use crate::report::{Subject, page};
use crate::session::Failure;
use crate::session::is_leased;
use crate::survey::Survey;

/// Write an HTML page about an operation: timeline, Services and findings
///
/// The page is one HTML file that you can attach to a ticket or an email, because it loads no other files and has no scripts. You
/// can write the page during or after the operation, as long as the journal exists: until `operation forget`, or until the end of
/// `renumber retire --forget`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # for the operation under way
  netsurgeon operation report --html report.html
  netsurgeon operation report renumber-20261121T083915Z-3f2a --html r.html")]
pub struct ReportArgs {
    /// Id of the operation [default: the operation under way]
    #[arg(value_name = "ID")]
    pub(super) operation: Option<String>,
    /// Write the page to this file
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
    #[command(flatten)]
    pub(super) homes: LedgerArgs,
}

/// Runs the command.
pub async fn run(context: &Context, id: &str, args: &ReportArgs) -> Result<Outcome, Failure> {
    let store = args.homes.etcd.connect().await?;
    let survey = Survey::read(store.as_ref(), &args.homes.etcd.layout(), None).await?;
    let cluster = survey.cluster_id.clone().unwrap_or_default();
    let ongoing = open_operation(store.as_ref(), &cluster, Some(id), Some(survey.revision)).await?;
    let held = Lock::holder(store.as_ref(), &cluster).await?;
    let page = page(&Subject {
        operation: &ongoing.operation,
        plan: &ongoing.plan,
        summary: &ongoing.summary,
        journal: &ongoing.journal,
        survey: &survey,
        is_leased: is_leased(held.as_ref(), &ongoing.operation),
        later: later_renumbering(store.as_ref(), &cluster, &ongoing).await?,
    });
    args.write(context, &page)
}

impl ReportArgs {
    /// Writes a page to the given file.
    pub(super) fn write(&self, context: &Context, page: &str) -> Result<Outcome, Failure> {
        write_file(&self.html, page.as_bytes(), Readers::All)?;
        context.output.progress(&format!("the page was written to `{}`", self.html.display()));
        Ok(Outcome::Done)
    }
}
