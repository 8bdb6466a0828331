//! `netsurgeon network`: tests the network of a cluster with agents on every node.

mod clean;
mod test;
mod test_output;

use std::time::Duration;

use clap::Subcommand;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::{Context, Outcome};
use crate::network::DeploymentError;
use crate::session::gates::until::duration_of;
use crate::session::{ExitKind, Failure};

#[derive(Debug, Subcommand)]
pub enum NetworkCommand {
    Test(Box<test::TestArgs>),
    Clean(clean::CleanArgs),
}

/// Runs the command.
pub async fn run(context: &Context, command: &NetworkCommand) -> Result<Outcome, Failure> {
    match command {
        NetworkCommand::Test(args) => Box::pin(test::run(context, args)).await,
        NetworkCommand::Clean(args) => clean::run(context, args).await,
    }
}

/// Waits until a signal asks this process to end.
pub(in crate::cli) async fn until_signal() {
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::hangup()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

/// Returns the failure of a test, with what to do next.
pub(in crate::cli) fn failure(error: DeploymentError, namespace: &str) -> Failure {
    match error {
        DeploymentError::Api(error) => error.into(),
        DeploymentError::Rejected { .. } => Failure::refused(error.to_string()).hint(
            "give a namespace with the Pod Security level `privileged` and the roles of `netsurgeon network test --print-rbac`; exempt \
             it from the policy that is named above",
        ),
        DeploymentError::Busy { .. } => Failure::refused(error.to_string()).hint(format!(
            "wait until it has ended; or, if it does not run any more: `netsurgeon network clean --namespace {namespace} --force`"
        )),
        DeploymentError::UnknownNode(_) => Failure::usage(error.to_string()).hint("`kubectl get nodes`"),
        DeploymentError::NoNodes => Failure::refused(error.to_string()).hint("check `--node`: `kubectl get nodes`"),
        DeploymentError::NotRemoved { .. } => Failure::refused(error.to_string())
            .hint(format!("later: `netsurgeon network clean --namespace {namespace}`")),
    }
}

/// Prints roles as YAML documents.
pub(in crate::cli) fn roles(context: &Context, documents: Vec<Value>) -> Result<Outcome, Failure> {
    let documents = documents.into_iter().map(|document| {
        serde_saphyr::to_string(&document).map_err(|error| Failure::of(ExitKind::Bug, error.to_string()))
    });
    let documents = documents.collect::<Result<Vec<String>, Failure>>()?;
    context.output.document(&documents.join("---\n"))?;
    Ok(Outcome::Done)
}

/// The longest time of an option, in seconds: a week.
const LONGEST: u64 = 7 * 86_400;

/// Parses a time such as `90s`, `10m` or `1h30m`.
pub(in crate::cli) fn time(text: &str) -> Result<Duration, String> {
    let time = duration_of(text).filter(|time| time.as_secs() <= LONGEST);
    time.ok_or_else(|| "give a time of at most 7 days, for example `10m`".to_string())
}
