//! `netsurgeon mirror sans`: adds the names of the mirror to the certificates of the source.

mod apply;
mod plan;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{RunOutput, configuration};
use crate::cli::api::KubeArgs;
use crate::cli::output::table;
use crate::cli::run_args::RunArgs;
use crate::cli::{Context, Outcome};
use crate::kube_api::{Cluster, ReadOnly};
use crate::mirror::namespace_choice::chosen_namespaces;
use crate::mirror::sans::reader::{SansReader, refuse_without_additions};
use crate::mirror::sans::run::{SansRun, SansSession};
use crate::mirror::sans::{Sans, SansAction, SansEntry};
use crate::operation::{Plan, Status};
use crate::session::{ClusterSession, Failure, give_up};
use crate::words::counted;

#[derive(Debug, Subcommand)]
pub enum SansCommand {
    Plan(plan::SansPlanArgs),
    Apply(Box<apply::SansApplyArgs>),
}

/// Runs the command.
pub async fn run(context: &Context, command: &SansCommand) -> Result<Outcome, Failure> {
    match command {
        SansCommand::Plan(args) => plan::run(context, args).await,
        SansCommand::Apply(args) => apply::run(context, args).await,
    }
}

/// What a plan depends on.
#[derive(Debug, Args)]
pub struct SansChoiceArgs {
    /// YAML file of the mirror: its `hosts` rules with `add` name the new names, and its namespaces are the default
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only these namespaces; can be repeated, or a list separated by commas
    #[arg(short, long = "namespace", value_name = "NAMESPACE", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// Seconds to wait until a certificate is issued. An issuer with DNS-01 challenges needs more than 60
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = clap::value_parser!(u64).range(1..=86400))]
    wait_issued: u64,
}

impl SansChoiceArgs {
    /// Connects to the source, and creates the plan. Prints its warnings.
    async fn plan(&self, context: &Context, kube: &KubeArgs) -> Result<(Cluster, Plan<Sans>), Failure> {
        let config = configuration(&self.config)?;
        refuse_without_additions(&config.hosts)?;
        let cluster = kube.connect().await?;
        let source = ReadOnly::new(cluster.clone());
        let namespaces = chosen_namespaces(&source, &config, &self.namespaces).await?;
        let plan = SansReader::new(&source, namespaces, &config.hosts, self.wait_issued).plan().await?;
        for warning in &plan.work.warnings {
            context.output.warn(warning);
        }
        Ok((cluster, plan))
    }
}

/// Starts a session on the source.
pub(in crate::cli) async fn open(
    context: &Context,
    source: &KubeArgs,
    run: &RunArgs,
) -> Result<SansSession, Failure> {
    session(context, source.connect().await?, run).await
}

async fn session(context: &Context, source: Cluster, run: &RunArgs) -> Result<SansSession, Failure> {
    // One Certificate never stops the others.
    Ok(SansSession::new(ClusterSession::open(context.ui(), source, run.settings(usize::MAX)).await?))
}

/// Prints that no Certificate gets a name.
fn nothing(context: &Context, digest: &str) -> Result<Outcome, Failure> {
    context.output.data(&RunOutput::nothing(digest), |_| String::new())?;
    context.output.progress(&format!("no Certificate gets a name; nothing was written (plan {digest})"));
    Ok(Outcome::Done)
}

/// Prints the result of a run.
pub(in crate::cli) fn conclude(context: &Context, ran: &SansRun) -> Result<Outcome, Failure> {
    let (id, status) = (&ran.recorded.operation, ran.recorded.summary.status);
    let stuck = &ran.report.stuck;
    let rollback = (status == Status::Done).then(|| format!("netsurgeon operation rollback {id}"));
    let shown = RunOutput::of(&ran.recorded, &ran.report, rollback.clone());
    context.output.data(&shown, |_| String::new())?;
    let certificates = counted(ran.report.done, "certificate", "certificates");
    let what = if status == Status::Done { "issued with the added names" } else { "changed back" };
    context.output.progress(&format!("{id}: {status}; {certificates} {what}"));
    for one in stuck {
        context.output.warn(&format!("skipped: {}: {}", one.step, one.reason));
    }
    if status == Status::Stuck {
        let options = give_up(stuck.iter().map(|one| one.step.0.trim_start_matches("sans/")));
        context.output.note(&format!(
            "to end the rollback and leave these Certificates as they are: `netsurgeon operation rollback {id}{options}`"
        ));
    }
    if status == Status::RolledBack && ran.report.done > 0 {
        context.output.note(
            "cert-manager issues new certificates without the names; the command does not wait for them",
        );
    }
    if let Some(rollback) = rollback {
        context.output.note(&format!("to remove the added names: `{rollback}`"));
    }
    Ok(if stuck.is_empty() { Outcome::Done } else { Outcome::Findings })
}

/// Returns a table of the Certificates. Certificates without a rule are only counted.
fn describe(plan: &Plan<Sans>) -> String {
    let is_shown = |entry: &&SansEntry| entry.reason.as_deref() != Some("no-rule");
    let row = |entry: &SansEntry| {
        let reason = entry.reason.iter().chain(&entry.detail).cloned().collect::<Vec<_>>().join(": ");
        let note = match (entry.names.is_empty(), reason.is_empty()) {
            (false, _) => entry.names.join(", "),
            (true, false) => reason,
            (true, true) => "-".to_string(),
        };
        let issuer = if entry.is_acme { format!("{} (ACME)", entry.issuer) } else { entry.issuer.clone() };
        [entry.object.to_string(), entry.action.name().to_string(), issuer, note]
    };
    table(
        ["CERTIFICATE", "ACTION", "ISSUER", "NAMES OR REASON"],
        plan.work.certificates.iter().filter(is_shown).map(row),
    )
}

/// Returns a summary of a plan.
fn summary(plan: &Plan<Sans>) -> String {
    let work = &plan.work;
    let of = |action| work.certificates.iter().filter(|entry| entry.action == action).count();
    let [add, same, left_out] = [SansAction::Add, SansAction::Same, SansAction::LeftOut].map(of);
    let no_rule = work.certificates.iter().filter(|entry| entry.reason.as_deref() == Some("no-rule")).count();
    let namespaces = work.namespaces.join(", ");
    format!(
        "namespaces {namespaces}: {add} add, {same} same, {left_out} left out ({no_rule} without a rule)\ndigest {}",
        plan.digest
    )
}
