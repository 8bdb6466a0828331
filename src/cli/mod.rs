//! The command line: arguments and output.
//!
//! Each command has one file. The file contains the arguments of the command, with the help as doc comments, and a function `run`
//! that passes the arguments to the other modules. [`crate::session::failure`] gives every error a kind, and `ExitKind::code` returns
//! the exit status of the kind. [`output`] is the only module that prints, and [`source`] finds the store. Parsing reads no files
//! and opens no connections. A command first resolves its arguments, then connects.
//!
//! A new command needs a file, a variant in [`Command`], a line in [`dispatch`], and an example in its long help.

pub mod output;
pub mod report;
pub mod source;

mod agent;
mod api;
mod audit;
mod beside_bar;
mod certs;
mod cni;
mod complete;
mod completions;
mod controlplane;
mod digest;
mod dns;
mod file;
mod findings;
mod gates;
mod help;
mod inspect;
mod ip;
mod ledger_args;
mod lock;
mod log;
mod mirror;
mod network;
mod operation;
mod panic;
mod preflight;
mod progress;
mod ranges;
mod rehearse;
mod renumber;
mod run_args;
mod target;
mod terminal_escape;
mod terminal_ui;
mod tiers;
mod zone;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

pub use crate::session::{ExitKind, Failure};
pub use output::Output;

use log::LogFormat;
use output::{Format, When};

use crate::operation::moment;
use crate::session::Ui;

/// Change the network of a Kubernetes cluster that is serving traffic.
///
/// netsurgeon works on the objects that the API server stores in etcd. It reads a live etcd or a snapshot file, shows and checks
/// every Service address, and moves all Services to another range. It also points DNS names to a mirror of the cluster, through
/// the Kubernetes API and the name servers.
#[derive(Debug, Parser)]
#[command(name = "netsurgeon", version, about, long_about, max_term_width = 100)]
#[command(propagate_version = false, subcommand_required = true, arg_required_else_help = true)]
#[command(after_long_help = "\
Exit status:
  0   done
  1   refused, or failed before any change
  2   wrong usage
  3   done, but there are findings: see the output
  4   failed, and rolled back completely
  5   stuck, or only partly rolled back: see the hints on stderr
  6   paused by a manual step, a closed gate or a signal: resume the operation
  70  a bug in netsurgeon

Data goes to stdout. All messages go to stderr.")]
pub struct Cli {
    /// Format of the data on stdout
    #[arg(short, long, global = true, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
    /// When to use colour. `auto`: if the output is a terminal and NO_COLOR is not set
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    color: When,
    /// Format of messages on stderr: text, or one JSON object per line, described in docs/json.md
    #[arg(long, global = true, value_enum, default_value = "text", value_name = "FORMAT")]
    log_format: LogFormat,
    /// Print more messages on stderr; `-vv` prints even more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
enum Command {
    Rehearse(rehearse::RehearseArgs),
    /// Check whether a cluster is ready for a change, and print what to repair
    #[command(subcommand)]
    Preflight(preflight::PreflightCommand),
    /// Move every Service to another Service range
    #[command(subcommand)]
    Renumber(renumber::RenumberCommand),
    /// Point DNS names to a mirror of the cluster in stages, or back to the cluster
    #[command(subcommand)]
    Dns(dns::DnsCommand),
    /// Copy the declared objects of namespaces to a mirror of the cluster, or remove the copies
    #[command(subcommand)]
    Mirror(mirror::MirrorCommand),
    /// Test the network of a cluster with agents on every node
    #[command(subcommand)]
    Network(network::NetworkCommand),
    /// Plan a change of the CNI
    #[command(subcommand)]
    Cni(cni::CniCommand),
    #[command(subcommand, hide = true)]
    Agent(agent::AgentCommand),
    /// List, show, report, resume, roll back and forget operations
    #[command(subcommand)]
    Operation(operation::OperationCommand),
    Lock(lock::DeployLockArgs),
    Unlock(lock::UnlockArgs),
    Audit(audit::AuditArgs),
    /// Show and check the Service ranges, and rewrite allocation bitmaps
    #[command(subcommand)]
    Ranges(ranges::RangesCommand),
    /// Show, list, decode and compare stored objects
    #[command(subcommand)]
    Inspect(inspect::InspectCommand),
    /// Show, reissue and verify the certificates of a control plane
    #[command(subcommand)]
    Certs(certs::CertsCommand),
    /// Show and change the Service range of API servers and the DNS address of kubelets
    #[command(subcommand, name = "controlplane")]
    ControlPlane(controlplane::ControlPlaneCommand),
    /// Calculate addresses of Service ranges, for scripts
    #[command(subcommand)]
    Ip(ip::IpCommand),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
    /// Print the version
    #[command(after_long_help = "Example:\n  netsurgeon version -o json")]
    Version,
}

/// The context of a command.
#[derive(Debug)]
pub struct Context {
    /// The output of this process.
    pub output: Output,
}

impl Context {
    /// Returns a printer that sends the messages of a session to this output.
    fn ui(&self) -> Ui {
        Ui::new(self.output.clone())
    }
}

/// How a command ended if it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// Done, with findings.
    Findings,
    /// Paused: another process runs an operation; or ended early by a signal.
    Paused,
}

impl Outcome {
    fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Findings => 3,
            Self::Paused => 6,
        }
    }
}

/// Parses the arguments of this process, runs the command, and returns the exit status.
pub fn main() -> ExitCode {
    leave_no_core();
    panic::install_hook();
    complete::answer();
    let outcome = std::panic::catch_unwind(|| run(std::env::args_os().collect()));
    outcome.unwrap_or_else(|_| ExitCode::from(ExitKind::Bug.code()))
}

/// Protects the credentials and Secrets in the memory of this process. The kernel writes no core dump to a file or to a program
/// (core(5)), and only root can read the memory. Ignores a failure, because the rest of the program does not depend on this
/// protection.
fn leave_no_core() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = setrlimit(Resource::Core, none);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

fn run(arguments: Vec<OsString>) -> ExitCode {
    if is_called(arguments.first(), complete::KUBECTL) {
        complete::answer_kubectl(arguments);
        return ExitCode::SUCCESS;
    }
    let wants_json = log::is_asked_for(&arguments);
    let parsed = command_named(arguments.first()).try_get_matches_from(arguments);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(mut error) => {
            suggest(&mut error);
            hide_credentials(&mut error);
            if error.use_stderr() && wants_json {
                log::start(LogFormat::Json);
                output::plain(log::MessageKind::Error, error.to_string().trim());
                return ExitCode::from(ExitKind::Usage.code());
            }
            // For clap, help and version are "errors" with status 0. A closed pipe is ignored.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    log::start(cli.log_format);
    let context = Context { output: Output::new(cli.output, cli.color) };
    output::start_tracing(cli.verbose);
    let finished = runtime().and_then(|runtime| {
        let finished = runtime.block_on(dispatch(&context, &cli.command));
        // No task has to continue after the command, so the runtime does not wait for tasks.
        runtime.shutdown_background();
        finished
    });
    match finished {
        Ok(outcome) => ExitCode::from(outcome.code()),
        Err(failure) => {
            context.output.failure(&failure);
            ExitCode::from(failure.kind.code())
        }
    }
}

/// Minimum similarity of two words for a suggestion, from 0 to 1. clap itself requires 0.7.
const ALIKE: f64 = 0.8;

/// Suggests subcommands with the same or a similar name for an unknown subcommand. The suggestions can be at any level, for
/// example `renumber plan` for `plan`.
fn suggest(error: &mut clap::Error) {
    use clap::error::{ContextKind, ContextValue};
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let mut found = Vec::new();
    similar(&Cli::command(), "", typed, &mut found);
    found.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let best = found.first().map_or(0.0, |(likeness, _)| *likeness);
    // If a name matches exactly, similar names are dropped.
    found.retain(|(likeness, _)| best < 1.0 || *likeness >= 1.0);
    let paths: Vec<String> = found.into_iter().map(|(_, path)| path).collect();
    if !paths.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(paths));
    }
}

/// Removes an invalid value from an error if the value could be a URL with a password.
fn hide_credentials(error: &mut clap::Error) {
    use clap::error::{ContextKind, ContextValue};
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue)
        && value.contains('@')
    {
        error.insert(ContextKind::InvalidValue, ContextValue::String("...@...".to_string()));
    }
}

fn similar(command: &clap::Command, path: &str, typed: &str, found: &mut Vec<(f64, String)>) {
    for one in command.get_subcommands() {
        let path = format!("{path} {}", one.get_name()).trim().to_string();
        let likeness = strsim::jaro(typed, one.get_name());
        if likeness > ALIKE {
            found.push((likeness, path.clone()));
        }
        similar(one, &path, typed, found);
    }
}

/// Returns the command line with the name by which the user called the program. For the kubectl plugin `kubectl-netsurgeon`, the
/// name is `kubectl netsurgeon`.
fn command_named(program: Option<&OsString>) -> clap::Command {
    command(if is_called(program, "kubectl-netsurgeon") { "kubectl netsurgeon" } else { "netsurgeon" })
}

fn is_called(program: Option<&OsString>, name: &str) -> bool {
    program.and_then(|path| Path::new(path).file_stem()).is_some_and(|stem| stem == name)
}

/// Returns the command line, with its help in sections.
fn command(name: &str) -> clap::Command {
    help::arranged(Cli::command()).bin_name(name)
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::refused(format!("cannot start threads: {error}")))
}

async fn dispatch(context: &Context, command: &Command) -> Result<Outcome, Failure> {
    match command {
        Command::Rehearse(args) => rehearse::run(context, args).await,
        Command::Preflight(command) => preflight::run(context, command).await,
        Command::Renumber(command) => renumber::run(context, command).await,
        Command::Dns(command) => dns::run(context, command).await,
        Command::Mirror(command) => mirror::run(context, command).await,
        Command::Network(command) => network::run(context, command).await,
        Command::Cni(command) => cni::run(context, command).await,
        Command::Agent(command) => agent::run(context, command).await,
        Command::Operation(command) => operation::run(context, command).await,
        Command::Lock(args) => lock::lock(context, args).await,
        Command::Unlock(args) => lock::unlock(context, args).await,
        Command::Audit(args) => audit::run(context, args).await,
        Command::Ranges(command) => ranges::run(context, command).await,
        Command::Inspect(command) => inspect::run(context, command).await,
        Command::Certs(command) => certs::run(context, command).await,
        Command::ControlPlane(command) => controlplane::run(context, command).await,
        Command::Ip(command) => ip::run(context, command),
        Command::Completions(args) => completions::completions(context, args),
        Command::Man(args) => completions::man(context, args),
        Command::Version => completions::version(context),
    }
}

/// Returns the suffix of files with old content: `.YYYYMMDDTHHMMSSZ.old`.
fn file_suffix() -> String {
    format!(".{}.old", moment())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn bin_name_follows_the_program_name() {
        let name = |path: &str| command_named(Some(&path.into())).get_bin_name().map(String::from);
        assert_eq!(name("/usr/local/bin/kubectl-netsurgeon").as_deref(), Some("kubectl netsurgeon"));
        assert_eq!(name("./target/debug/netsurgeon").as_deref(), Some("netsurgeon"));
    }

    #[test]
    fn unknown_subcommand_suggests_those_of_other_commands() {
        let tip = |words: &str| {
            let mut error = Cli::try_parse_from(words.split_whitespace()).expect_err(words);
            suggest(&mut error);
            error.to_string()
        };
        for (words, path) in [
            ("netsurgeon plan --to 10.200.0.0/16", "'renumber plan'"),
            ("netsurgeon paln", "'renumber plan'"),
            ("netsurgeon rollback", "'renumber rollback'"),
            ("netsurgeon renumber resume", "'operation resume'"),
            ("netsurgeon renumbr", "'renumber'"),
        ] {
            assert!(tip(words).contains(path), "{words}: {}", tip(words));
        }
        assert!(!tip("netsurgeon xyzzy").contains("tip:"), "{}", tip("netsurgeon xyzzy"));
    }
}
