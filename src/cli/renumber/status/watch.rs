//! `renumber status --watch`: checks repeatedly until the renumbering ends.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::StandingArgs;
use crate::cli::output::Output;
use crate::cli::{Context, Outcome, findings};
use crate::renumber::run::flows::words;
use crate::renumber::run::status::Look;
use crate::renumber::run::{is_gone, unfinished};
use crate::session::Failure;
use crate::session::LiveEtcd;
use crate::survey::Survey;

/// Maximum number of findings on the screen.
const SHOWN: usize = 12;

/// Runs the command.
pub(super) async fn run(context: &Context, args: &StandingArgs, every: Duration) -> Result<Outcome, Failure> {
    let store = args.etcd.connect().await?;
    if args.operation.is_none() {
        wait_for_one(context, args, store.as_ref(), every).await?;
    }
    let mut last = args.look(&store, None).await?;
    show(&context.output, &last)?;
    let mut trouble = None;
    while !last.has_ended() {
        sleep(every).await;
        let started = Instant::now();
        match args.look(&store, Some(&last.operation)).await {
            Ok(look) if look == last && !(look.has_figures() && context.output.redraws()) => {}
            Ok(look) => {
                last = look;
                show(&context.output, &last)?;
            }
            Err(failure) => {
                if is_gone(store.as_ref(), &last.operation).await.unwrap_or(false) {
                    context.output.progress(&format!(
                        "{}: the journal no longer exists; `renumber retire` deletes it",
                        last.operation
                    ));
                    break;
                }
                // etcd can be unavailable for a moment, so the command continues to watch.
                let text = failure.error.to_string();
                if trouble.replace(text.clone()).as_ref() != Some(&text) {
                    context.output.warn(&text);
                }
                continue;
            }
        }
        trouble = None;
        // A check reads every Service. The extra pause makes each pause at least as long as the check before it.
        sleep(started.elapsed().saturating_sub(every)).await;
    }
    Ok(Outcome::Done)
}

/// Waits until a renumbering is under way.
async fn wait_for_one(
    context: &Context,
    args: &StandingArgs,
    store: &LiveEtcd,
    every: Duration,
) -> Result<(), Failure> {
    let cluster = Survey::identity(store, &args.etcd.layout()).await?.unwrap_or_default();
    let mut is_told = false;
    while unfinished(store, &cluster).await?.is_empty() {
        if !is_told {
            context.output.note("no renumbering of this cluster is under way; waiting for one");
            is_told = true;
        }
        sleep(every).await;
    }
    Ok(())
}

fn show(output: &Output, look: &Look) -> Result<(), Failure> {
    if output.is_structured() {
        return output.line_of(look);
    }
    if !output.redraws() {
        return output.text(&look.to_string());
    }
    output.redraw(&layout(output, look))
}

/// Returns the status with a line for each part, and the first findings, as `--watch` draws them on a terminal.
pub(super) fn layout(output: &Output, look: &Look) -> String {
    let table = findings::tabled(output, &look.findings);
    let mut lines: Vec<&str> = table.lines().take(SHOWN.saturating_add(1)).collect();
    let more = look.findings.len().saturating_sub(SHOWN);
    let rest = format!("... and {more} more; `netsurgeon renumber verify` shows all");
    if more > 0 {
        lines.push(&rest);
    }
    let mut parts = look.parts().join("\n  ");
    for probed in &look.probes {
        parts = format!("{parts}\n  {}", probed.words());
    }
    for user in look.users.iter().flatten().take(SHOWN) {
        parts = format!("{parts}\n  {}", words(user));
    }
    if lines.is_empty() { parts } else { format!("{parts}\n\n{}", lines.join("\n")) }
}
