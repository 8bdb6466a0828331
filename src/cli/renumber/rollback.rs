//! `netsurgeon renumber rollback`: gives every Service its old address back, which ends a renumbering.

use std::time::Duration;

use clap::Args;

use super::end_output::{print, say_given_up};
use crate::cli::run_args::LiveArgs;
use crate::cli::{Context, Outcome};
use crate::operation::Report;
use crate::renumber::run::{again, left_alone, refuse_past_no_return};
use crate::session::{ExitKind, Failure};

/// Roll back a renumbering: every Service gets its old address back
///
/// You can roll back at any time before the first step of `renumber retire`. The rollback changes only what the renumbering
/// changed. The rollback keeps labels, ports and selectors that other clients changed meanwhile. If another client changed the
/// address of a Service, the rollback skips this Service and lists it, and the exit status is 5.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon renumber rollback
  netsurgeon renumber rollback --operation renumber-20261121T083915Z-3f2a \\
      --yes --confirm flags
  # no API server answers: restore the old addresses in etcd
  netsurgeon renumber rollback --without-api 10")]
pub struct RollbackArgs {
    /// Id of the renumbering [default: the renumbering under way]
    #[arg(long, value_name = "ID")]
    pub(in crate::cli) operation: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) api: ApiLessArgs,
    #[command(flatten)]
    pub(in crate::cli) live: LiveArgs,
}

/// Options for a rollback in etcd only.
#[derive(Debug, Clone, Args)]
pub struct ApiLessArgs {
    /// Use this only if no API server answers. netsurgeon restores the old address of every Service in etcd. It cannot wait for
    /// API servers or nodes, so it pauses for this many seconds instead of each wait. The exit status is then 6, because the
    /// remaining part of the rollback needs the API. When an API server answers, run the rollback again without this option
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(..=3600))]
    without_api: Option<u16>,
}

impl ApiLessArgs {
    /// Returns whether an option of this group is given.
    pub(in crate::cli) fn is_given(&self) -> bool {
        self.without_api.is_some()
    }
}

/// Runs `rollback`. `give_up`: the subjects to give up.
pub async fn rollback(
    context: &Context,
    (args, give_up): (&RollbackArgs, &[String]),
) -> Result<Outcome, Failure> {
    let mut session = match args.api.without_api {
        None => args.live.open(context).await?,
        Some(seconds) => {
            let pause = Duration::from_secs(seconds.into());
            args.live.open_without_api(context, pause).await?
        }
    };
    session.choices.give_up = give_up.to_vec();
    let mut ongoing = session.find(args.operation.as_deref()).await?;
    refuse_past_no_return(&ongoing)?;
    if ongoing.summary.has_ended() {
        print(context, &ongoing, &Report::default())?;
        say_given_up(context, &ongoing);
        context.output.progress(if ongoing.summary.given_up.is_empty() {
            "already rolled back: every Service has its old address"
        } else {
            "already rolled back"
        });
        return Ok(Outcome::Done);
    }
    session.confirm_only_known(&ongoing, true)?;
    ongoing.options = if args.live.run.yes { " --yes".to_string() } else { String::new() };
    let report = session.undo(&mut ongoing).await?;
    print(context, &ongoing, &report)?;
    if let Some(failure) = left_alone(&ongoing, &report.stuck.iter().collect::<Vec<_>>(), "undone") {
        return Err(again(failure, &ongoing));
    }
    if session.cluster().is_none() {
        let text = format!(
            "in etcd, every Service has its old address again; the remaining steps of the rollback need the API; when an API server answers, run `netsurgeon operation rollback {}`",
            ongoing.operation
        );
        return Err(Failure::of(ExitKind::Paused, text));
    }
    session.say_what_is_left(&ongoing.plan.work).await;
    say_given_up(context, &ongoing);
    context.output.progress(if ongoing.summary.given_up.is_empty() {
        "rolled back: every Service has its old address"
    } else {
        "rolled back, without the subjects that were given up"
    });
    Ok(Outcome::Done)
}
