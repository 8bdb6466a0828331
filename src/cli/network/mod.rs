//! `netsurgeon network`: tests the network of a cluster with agents on every node.

mod clean;
mod test;
mod test_output;

use std::time::Duration;

use clap::Subcommand;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::{Context, Outcome};
use crate::network::{Deployment, DeploymentError};
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

/// Does work until it ends or a signal arrives. Returns `None` if a signal stopped it.
pub(in crate::cli) async fn unless_stopped<T>(
    work: impl Future<Output = Result<T, DeploymentError>>,
) -> Result<Option<T>, DeploymentError> {
    tokio::select! {
        done = work => done.map(Some),
        () = until_signal() => Ok(None),
    }
}

/// Does work with Pods of netsurgeon, and removes the Pods however it ends. Returns the result of the work and how the removal ended;
/// if the work failed, or has no result because a signal stopped it, its failure.
pub(in crate::cli) async fn and_clean<T>(
    context: &Context,
    deployment: &Deployment,
    work: impl Future<Output = Result<Option<T>, DeploymentError>>,
) -> Result<(T, Result<(), Failure>), Failure> {
    let namespace = &deployment.settings().namespace;
    let done = work.await;
    context.output.progress("removing the Pods");
    let cleaned = tokio::select! {
        cleaned = deployment.clean() => cleaned.map(drop).map_err(|error| failure(error, namespace)),
        () = until_signal() => Err(Failure::refused("stopped before everything was removed")
            .hint(format!("remove the rest: `netsurgeon network clean --namespace {namespace} --force`"))),
    };
    match done {
        Ok(None) => {
            cleaned?;
            Err(Failure::of(ExitKind::Paused, "stopped by a signal; everything was removed")
                .hint("run the command again"))
        }
        // The first failure is the interesting one.
        Err(error) => {
            if let Err(second) = cleaned {
                context.output.warn(&second.to_string());
            }
            Err(failure(error, namespace))
        }
        Ok(Some(done)) => Ok((done, cleaned)),
    }
}

/// Returns the failure of a test, with what to do next.
fn failure(error: DeploymentError, namespace: &str) -> Failure {
    match error {
        DeploymentError::Api(error) => error.into(),
        DeploymentError::Rejected { .. } => Failure::refused(error.to_string()).hint(
            "give a namespace with the Pod Security level `privileged` and the roles of `netsurgeon network test --print-rbac`; exempt \
             it from the policy that is named above",
        ),
        DeploymentError::Busy { .. } => Failure::refused(error.to_string()).hint(format!(
            "wait until it has ended; or, if it does not run any more: `netsurgeon network clean --namespace {namespace} --force`"
        )),
        DeploymentError::LeaseLost { .. } => Failure::refused(error.to_string())
            .hint("run the command again later, or in a namespace of its own (`--namespace`)"),
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
