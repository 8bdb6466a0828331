//! Completion at the shell prompt. The completion script calls this program. The program completes its own options, and reads the
//! ids of operations from etcd and the cluster. If a read fails, the program completes no ids from this source and prints no
//! error.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Arg, Command, Parser};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate, complete};
use clap_complete::env::{CompleteEnv, Shells};
use tokio::time::timeout;

use super::ledger_args::LedgerArgs;
use super::output::{Format, Output, When};
use super::{Failure, command};
use crate::preflight::{Check, cni, dns, mirror, renumber};
use crate::renumber::environment::MANUAL_STEPS;

/// Environment variable that the completion script sets when it calls this program.
const ASKED: &str = "NETSURGEON_COMPLETE";
/// Name of the program that kubectl calls to complete the words after `kubectl netsurgeon`. kubectl passes the words as arguments
/// (`SetupPluginCompletion`, k8s.io/kubectl/pkg/cmd/plugin/plugin_completion.go, v0.36.3).
pub const KUBECTL: &str = "kubectl_complete-netsurgeon";
/// Maximum time to read the ids of operations.
const PATIENCE: Duration = Duration::from_secs(3);
/// Directive with which kubectl completes no file names: `ShellCompDirectiveNoFileComp` of `spf13/cobra` (completions.go,
/// v1.10.2).
const NO_FILES: &str = ":4";
/// Directive with which kubectl completes file names: `ShellCompDirectiveDefault`.
const FILES: &str = ":0";

/// If the completion script called this program, prints completions and ends the process.
pub fn answer() {
    CompleteEnv::with_factory(|| with_candidates(command("netsurgeon"))).var(ASKED).complete();
}

/// Returns the completion script for a shell.
pub fn script(shell: &str) -> Result<Vec<u8>, Failure> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(shell) else {
        return Err(Failure::usage(format!("there is no completion for `{shell}`")));
    };
    shell.write_registration(ASKED, "netsurgeon", "netsurgeon", "netsurgeon", &mut script)?;
    Ok(script)
}

/// Prints completions for kubectl. Each line has a candidate, a tab and its description. The last line is a directive.
pub fn answer_kubectl(arguments: Vec<OsString>) {
    let last = arguments.len().saturating_sub(1);
    let mut command = with_candidates(command("kubectl netsurgeon"));
    let found = complete(&mut command, arguments, last, None).unwrap_or_default();
    let mut lines = Vec::new();
    for candidate in found.iter().filter(|candidate| !candidate.is_hide_set()) {
        let help = candidate.get_help().map(|help| format!("\t{help}")).unwrap_or_default();
        lines.push(format!("{}{help}", candidate.get_value().to_string_lossy()));
    }
    lines.push(if lines.is_empty() { FILES } else { NO_FILES }.to_string());
    // If the shell stopped reading, no error message is needed.
    let _ = Output::new(Format::Table, When::Never).text(&lines.join("\n"));
}

/// Adds completion candidates for option values to a command and all its subcommands.
fn with_candidates(command: Command) -> Command {
    let checks = match command.get_name() {
        "renumber" => names(renumber::CHECKS),
        "mirror" => names(mirror::CHECKS),
        "dns" => names(dns::CHECKS),
        "cni" => names(cni::CHECKS),
        _ => Vec::new(),
    };
    command.mut_subcommands(with_candidates).mut_args(|arg| match arg.get_id().as_str() {
        "operation" => arg.add(ArgValueCandidates::new(operations)),
        "confirm" => fixed(arg, MANUAL_STEPS.to_vec()),
        "only" | "skip" => fixed(arg, checks.clone()),
        _ => arg,
    })
}

fn names<C>(checks: &[Check<C>]) -> Vec<&'static str> {
    checks.iter().map(|check| check.name).collect()
}

fn fixed(arg: Arg, names: Vec<&'static str>) -> Arg {
    arg.add(ArgValueCandidates::new(move || names.iter().map(CompletionCandidate::new).collect::<Vec<_>>()))
}

/// The options that select where operations are recorded. They come only from the environment, because the other arguments of the
/// command line are unknown here.
#[derive(Debug, Parser)]
struct Homes {
    #[command(flatten)]
    homes: LedgerArgs,
}

/// Returns the ids of operations with their states, newest first.
fn operations() -> Vec<CompletionCandidate> {
    let Ok(Homes { homes }) = Homes::try_parse_from(["netsurgeon"]) else { return Vec::new() };
    let Ok(runtime) = super::runtime() else { return Vec::new() };
    let found = runtime.block_on(async { timeout(PATIENCE, homes.quietly()).await.unwrap_or_default() });
    runtime.shutdown_background();
    let mut found: Vec<_> = found.into_iter().map(|found| found.listed).collect();
    found.sort_by_key(|listed| std::cmp::Reverse(listed.summary.started));
    let candidate = |(at, listed): (usize, crate::operation::Listed)| {
        let status = listed.summary.status.to_string();
        CompletionCandidate::new(listed.operation).help(Some(status.into())).display_order(Some(at))
    };
    found.into_iter().enumerate().map(candidate).collect()
}
