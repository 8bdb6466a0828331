//! `netsurgeon renumber status` and `verify`: how a renumbering stands, and whether that is so.

use clap::Args;
use serde::Serialize;

use crate::cli::failure::Failure;
use crate::cli::live::open_operation;
use crate::cli::output::{Tone, table};
use crate::cli::source::EtcdArgs;
use crate::cli::{Context, Outcome};
use crate::renumber::current;
use crate::renumber::verify::{self, Verified};
use crate::survey::{Finding, Severity, Survey};

/// Show how far a renumbering has come
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon renumber status
  netsurgeon renumber status -o json | jq .held")]
pub struct StatusArgs {
    #[command(flatten)]
    standing: StandingArgs,
}

/// Check that every Service stands where the journal says
///
/// Each moved Service has its new address, its old one is held, and both are protected from being given away.
/// Exit status 3 if something is wrong; docs/findings.md says what to do about each finding.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon renumber verify
  netsurgeon renumber verify -o json | jq '.findings[].code'")]
pub struct VerifyArgs {
    #[command(flatten)]
    standing: StandingArgs,
}

/// Which renumbering, and where.
#[derive(Debug, Args)]
struct StandingArgs {
    /// Which renumbering [default: the one under way]
    #[arg(long, value_name = "ID")]
    operation: Option<String>,
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// What both print with `-o json`.
#[derive(Serialize)]
struct Standing<'a> {
    version: u8,
    operation: &'a str,
    /// `running`, `paused`, `stopped`, `held`, `done`, `rolled-back` or `stuck`.
    status: &'a str,
    digest: &'a str,
    from: Vec<String>,
    to: String,
    /// Services with their old address.
    waiting: usize,
    /// Services with their new address, whose old one is held.
    held: usize,
    /// Services whose old address was retired.
    retired: usize,
    /// Services born in the old range.
    newcomers: &'a [String],
    findings: &'a [Finding],
}

/// Runs `status`.
pub async fn status(context: &Context, args: &StatusArgs) -> Result<Outcome, Failure> {
    stand(context, &args.standing).await?;
    Ok(Outcome::Done)
}

/// Runs `verify`.
pub async fn verify(context: &Context, args: &VerifyArgs) -> Result<Outcome, Failure> {
    let verified = stand(context, &args.standing).await?;
    let is_wrong = |finding: &Finding| finding.severity != Severity::Info;
    Ok(if verified.findings.iter().any(is_wrong) { Outcome::Findings } else { Outcome::Done })
}

async fn stand(context: &Context, args: &StandingArgs) -> Result<Verified, Failure> {
    let store = args.etcd.connect().await?;
    let survey = Survey::read(store.as_ref(), &args.etcd.layout(), None).await?;
    let cluster = survey.cluster_id.clone().unwrap_or_default();
    let ongoing = open_operation(store.as_ref(), &cluster, args.operation.as_deref()).await?;
    let work = &ongoing.plan.work;
    let verified = verify::verify(work, &survey, |step| ongoing.journal.state(step));
    let newcomers = current::compare(work, &survey).newcomers;
    let [waiting, held, retired] = verified.counts;
    let standing = Standing {
        version: 1,
        operation: &ongoing.operation,
        status: &ongoing.summary.status,
        digest: &ongoing.plan.digest,
        from: work.from.iter().map(ToString::to_string).collect(),
        to: work.to.to_string(),
        waiting,
        held,
        retired,
        newcomers: &newcomers,
        findings: &verified.findings,
    };
    context.output.data(&standing, |output| {
        let rows: Vec<[String; 4]> = verified
            .findings
            .iter()
            .map(|finding| {
                let tone = if finding.severity == Severity::Error { Tone::Bad } else { Tone::Careful };
                let severity = output.paint(tone, &finding.severity.to_string());
                [severity, finding.code.to_string(), finding.subject.clone(), finding.message.clone()]
            })
            .collect();
        let heading = ["SEVERITY", "CODE", "SUBJECT", "MESSAGE"];
        Ok(if rows.is_empty() { String::new() } else { table(heading, rows) })
    })?;
    context.output.progress(&format!(
        "{}: {}, to {}; {waiting} waiting, {held} moved and held, {retired} retired, {} born in the old range, {} \
         findings",
        standing.operation,
        standing.status,
        standing.to,
        newcomers.len(),
        verified.findings.len(),
    ));
    Ok(verified)
}
