//! `netsurgeon completions`, `man` and `version`: print the completion scripts, the manual and the version.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use serde::Serialize;

use super::{Cli, Context, Outcome, complete};
use crate::session::Failure;

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  source <(netsurgeon completions bash)        # in ~/.bashrc
  source <(netsurgeon completions zsh)         # in ~/.zshrc
  netsurgeon completions fish | source         # in ~/.config/fish/config.fish
  # in the folder that contains the program kubectl-netsurgeon
  ln -s netsurgeon /usr/local/bin/kubectl_complete-netsurgeon")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Print the manual, or write its pages to a folder
///
/// Prints the page for netsurgeon itself to stdout, or writes one page per command to a folder.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon man | man -l -
  netsurgeon man --directory /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Write all pages into this folder
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
}

/// The output of `version -o json`. Only `make dist` sets the last two.
#[derive(Serialize)]
struct VersionOutput {
    version: u8,
    netsurgeon: &'static str,
    commit: Option<&'static str>,
    date: Option<&'static str>,
}

impl VersionOutput {
    const THIS: Self = Self {
        version: 1,
        netsurgeon: env!("CARGO_PKG_VERSION"),
        commit: option_env!("NETSURGEON_COMMIT"),
        date: option_env!("NETSURGEON_DATE"),
    };
}

impl std::fmt::Display for VersionOutput {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "netsurgeon {}", self.netsurgeon)?;
        if let (Some(commit), Some(date)) = (self.commit, self.date) {
            write!(formatter, " ({commit}, {date})")?;
        }
        Ok(())
    }
}

/// Prints a completion script.
pub fn completions(context: &Context, args: &CompletionsArgs) -> Result<Outcome, Failure> {
    let script = complete::script(&args.shell.to_string())?;
    context.output.text(&String::from_utf8_lossy(&script))?;
    Ok(Outcome::Done)
}

/// Prints or writes the manual.
pub fn man(context: &Context, args: &ManArgs) -> Result<Outcome, Failure> {
    let Some(folder) = &args.directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        context.output.text(&String::from_utf8_lossy(&page))?;
        return Ok(Outcome::Done);
    };
    clap_mangen::generate_to(Cli::command(), folder).map_err(|error| {
        Failure::refused(format!("cannot write to `{}`: {error}", folder.display()))
            .hint("the folder must exist, and you must be allowed to write to it")
    })?;
    Ok(Outcome::Done)
}

/// Prints the version.
pub fn version(context: &Context) -> Result<Outcome, Failure> {
    context.output.data(&VersionOutput::THIS, |_| VersionOutput::THIS.to_string())?;
    Ok(Outcome::Done)
}
