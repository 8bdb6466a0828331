//! Arranges the help of every command: first the command's own options, then the options for etcd and the API. Tuning options are
//! under "Advanced", and options that all commands have are under "Global options". `-h` omits tuning options.

use clap::Command;

/// Ids of the options that tune a command. The defaults of these options are right for most clusters.
const ADVANCED: [&str; 11] = [
    "barrier",
    "etcd_prefix",
    "etcd_timeout",
    "linger",
    "lock_ttl",
    "metrics_listen",
    "no_events",
    "parallel",
    "rate",
    "tier_command_timeout",
    "without_api_server",
];

/// Sections that `-h` also omits, because one line is not enough to explain their options.
const LONG_ONLY: [&str; 2] = ["Gates between batches", "Tiers"];

const MORE: &str = "`--help` also shows examples, tuning, and every option in full.";

/// Arranges the options of a command and of all its subcommands in sections.
pub fn arranged(command: Command) -> Command {
    let command = command.mut_subcommands(arranged).mut_args(|arg| {
        let is_advanced = ADVANCED.contains(&arg.get_id().as_str());
        let is_long_only = arg.get_help_heading().is_some_and(|heading| LONG_ONLY.contains(&heading));
        match () {
            () if arg.is_global_set() => arg.help_heading("Global options"),
            () if is_advanced => arg.help_heading("Advanced").hide_short_help(true),
            () if is_long_only => arg.hide_short_help(true),
            () => arg,
        }
    });
    let has_own = command.get_arguments().any(|arg| !arg.is_global_set());
    if has_own { command.after_help(MORE) } else { command }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn commands(command: &Command, all: &mut Vec<Command>) {
        all.push(command.clone());
        command.get_subcommands().for_each(|one| commands(one, all));
    }

    fn every_command() -> Vec<Command> {
        let mut all = Vec::new();
        commands(&arranged(Cli::command()), &mut all);
        all
    }

    /// Every command has a help text. The long help of every command without subcommands contains an example.
    #[test]
    fn every_command_has_an_example() {
        for command in every_command() {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "`{name}` has no help");
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(command.has_subcommands() || help.contains("netsurgeon "), "`{name}` has no example");
        }
    }

    #[test]
    fn every_advanced_option_exists() {
        let all = every_command();
        for id in ADVANCED {
            let has = |command: &Command| command.get_arguments().any(|arg| arg.get_id() == id);
            assert!(all.iter().any(has), "no command has `{id}`");
        }
    }

    /// clap wraps the help at the width of the terminal, or at 100 columns if the terminal is wider. Many terminals have 80
    /// columns. Users copy the examples, so clap must not wrap them.
    #[test]
    fn examples_fit_in_eighty_columns() {
        for command in every_command() {
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().filter(|line| line.starts_with("  ")) {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
        }
    }
}
