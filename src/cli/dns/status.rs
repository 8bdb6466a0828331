//! `netsurgeon dns status`: shows the stage of a cutover, and the records that name servers and the resolver return now.

use clap::Args;
use serde::Serialize;

use super::cutover::{chosen, read};
use super::{KeyArgs, Origin};
use crate::cli::api::KubeArgs;
use crate::cli::output::{Tone, table};
use crate::cli::{Context, Outcome};
use crate::dns::answers::{Answers, query};
use crate::dns::{Cutover, NameState, Situation};
use crate::operation::{ClusterLock, Status};
use crate::session::{ClusterSession, Failure, Settings, if_killed, is_leased};

/// Show the stage of a cutover, and the records that the name server and the resolver return now
///
/// Reads the journal of the cutover from the cluster, and queries the records of each name. If the plan contains a query for the
/// mirror's share of the requests, the command also shows this share with `--share-prometheus`. The command needs a TSIG key only
/// if a name server has several views and the key selects one. For Route 53 it needs credentials. It changes nothing. The exit status is 3 if a name does not have the records that the cutover set.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon dns status                               # the cutover under way
  netsurgeon dns status dns-cutover-20261121T083915Z-3f2a -o json \\
      | jq '.names[] | select(.observed.difference)'")]
pub struct StatusArgs {
    /// Id of the cutover [default: the cutover under way]
    #[arg(value_name = "ID")]
    operation: Option<String>,
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    kube: KubeArgs,
}

/// The output of `dns status -o json`.
#[derive(Serialize)]
struct CutoverStatusOutput<'a> {
    version: u8,
    operation: &'a str,
    status: Status,
    /// Number of the first stage that is not complete, counted from 1.
    next_stage: Option<usize>,
    /// The command that continues the cutover.
    next: Option<String>,
    rollback: Option<String>,
    /// The command that continues without the skipped names.
    give_up: Option<String>,
    names: Vec<NameStateOutput<'a>>,
    /// What a rollback could not confirm, and at which server.
    unconfirmed: &'a [String],
}

#[derive(Serialize)]
struct NameStateOutput<'a> {
    #[serde(flatten)]
    standing: &'a NameState,
    observed: Answers,
}

/// Runs the command.
pub async fn run(context: &Context, args: &StatusArgs) -> Result<Outcome, Failure> {
    let session = ClusterSession::open(context.ui(), args.kube.connect().await?, Settings::default()).await?;
    let id = chosen(&session, "netsurgeon dns status", args.operation.as_deref()).await?;
    let recorded = read(&session, &id).await?;
    let held = ClusterLock::holder(&session.api).await?;
    let options = args.key.repeated(&recorded.plan.work);
    let situation = Situation::of(&recorded, is_leased(held.as_ref(), &id)).repeating(&options);
    let (share, note) = args.key.seen(&recorded.plan.work, Origin::Journal)?;
    let work = Cutover { seen: share, ..recorded.plan.work };
    let seen = query(&work, &situation, args.key.of_views(&work)?).await;
    let names = situation.names.iter().zip(seen);
    let shown = CutoverStatusOutput {
        version: 1,
        operation: &situation.operation,
        status: situation.status,
        next_stage: situation.next_stage,
        next: situation.next(),
        rollback: situation.rollback(),
        give_up: situation.give_up(),
        names: names.map(|(standing, observed)| NameStateOutput { standing, observed }).collect(),
        unconfirmed: &situation.unconfirmed,
    };
    context.output.data(&shown, |output| {
        let rows = shown.names.iter().map(|NameStateOutput { standing, observed }| {
            let tone = if observed.difference.is_none() { Tone::Good } else { Tone::Bad };
            let note = standing.remark().or_else(|| observed.difference.clone());
            let note = note.or_else(|| observed.share_error.clone());
            let seen = observed.share.map(|share| format!(", observed: {share:.0} %")).unwrap_or_default();
            [
                standing.name.clone(),
                format!("{}{seen}", standing.share()),
                output.paint(tone, &observed.server),
                observed.resolver.clone(),
                note.unwrap_or_default(),
            ]
        });
        table(["NAME", "SHARE", "NAME SERVER", "RESOLVER", "NOTE"], rows)
    })?;
    context.output.progress(&format!("{id}: {}; {}", situation.status, situation.progress()));
    say_next(context, &situation);
    if let Some(note) = note {
        context.output.note(&note);
    }
    let differs = shown.names.iter().any(|name| name.observed.difference.is_some());
    Ok(if differs { Outcome::Findings } else { Outcome::Done })
}

/// Prints what is not confirmed, and how the cutover continues.
fn say_next(context: &Context, situation: &Situation) {
    for text in situation.not_confirmed() {
        context.output.warn(&text);
    }
    if let Some(next) = situation.next() {
        context.output.note(&format!("next: `{next}`"));
    }
    if let Some(hint) = situation.without_skipped() {
        context.output.note(&hint);
    }
    if let Some(back) = situation.rollback() {
        context.output.note(&format!("to go back: `{back}`"));
    }
    if situation.status.is_at_work() {
        context.output.note(&if_killed(&situation.operation));
    }
}
