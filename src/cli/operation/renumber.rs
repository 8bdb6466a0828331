//! `netsurgeon operation` for a renumbering.

use async_trait::async_trait;

use super::kind::{Next, OfKind};
use super::{ResumeArgs, UndoArgs};
use crate::cli::output::counted;
use crate::cli::renumber::{EvidenceArgs, RetireArgs, RollbackArgs, retire, rollback};
use crate::cli::report::{self, ReportArgs};
use crate::cli::run_args::LiveArgs;
use crate::cli::{Context, Outcome};
use crate::operation::{Action, Report, State, Status};
use crate::renumber::run::situation::{Situation, steps_of_the_end};
use crate::renumber::run::{Ongoing, half_removed, open_operation};
use crate::session::ledger_place::{FoundOperation, LedgerPlace};
use crate::session::{Failure, refuse_ended};
use crate::survey::Layout;

/// Operations of kind `renumber`.
pub(super) struct Renumberings;

#[async_trait(?Send)]
impl OfKind for Renumberings {
    async fn next(&self, found: &FoundOperation, status: Status, layout: &Layout) -> Next {
        let (LedgerPlace::Etcd(store), listed) = (&found.home, &found.listed) else { return Next::default() };
        let ongoing = open_operation(store.as_ref(), &listed.cluster, Some(&listed.operation), None).await;
        let Ok(ongoing) = ongoing else { return Next::default() };
        let situation = Situation::of_ongoing(&ongoing, status.is_at_work());
        // If the Services cannot be read, only the journal determines the next command.
        let newcomers =
            ongoing.blocking_newcomers(&situation, store.as_ref(), layout).await.unwrap_or_default();
        let (manual_step, situation) = (situation.manual_step.clone(), situation.with_newcomers(&newcomers));
        let (command, rollback) = (situation.next(), situation.rollback());
        Next { command, rollback, give_up: situation.give_up(), manual_step }
    }

    async fn resume(&self, context: &Context, id: &str, args: &ResumeArgs) -> Result<Outcome, Failure> {
        args.source.refuse_of_another_kind()?;
        Box::pin(resume(context, id, args)).await
    }

    async fn roll_back(&self, context: &Context, id: &str, args: &UndoArgs) -> Result<Outcome, Failure> {
        args.key.refuse_of_another_kind()?;
        args.source.refuse_of_another_kind()?;
        let (operation, live) = (Some(id.to_string()), args.live.clone());
        let args = (RollbackArgs { operation, api: args.api.clone(), live }, args.give_up.as_slice());
        rollback(context, (&args.0, args.1)).await
    }

    async fn report(&self, context: &Context, id: &str, args: &ReportArgs) -> Result<Outcome, Failure> {
        report::run(context, id, args).await
    }
}

async fn resume(context: &Context, id: &str, args: &ResumeArgs) -> Result<Outcome, Failure> {
    // The arguments are checked before a connection is opened.
    let given = args.gates.settings();
    given.resolve()?;
    args.key.refuse_of_another_kind()?;
    let mut session = args.live.open(context).await?;
    session.choices.give_up.clone_from(&args.give_up);
    let is_half_removed =
        half_removed(session.store.as_ref(), &session.id).await?.iter().any(|one| one == id);
    let retiring = RetireArgs {
        operation: Some(id.to_string()),
        accept_unverified_flags: false,
        forget: false,
        keep_journal: false,
        evidence: EvidenceArgs::waived(),
        live: args.live.clone(),
    };
    if is_half_removed {
        return retire(context, (&retiring, &args.give_up)).await;
    }
    let ongoing = session.find(Some(id)).await?;
    refuse_ended(&ongoing.operation, &ongoing.summary)?;
    session.confirm_only_known(&ongoing, ongoing.situation().back)?;
    if ongoing.has_begun_to_retire() {
        return retire(context, (&retiring, &args.give_up)).await;
    }
    // A rollback checks no gates.
    let is_back = ongoing.situation().back;
    let gates = if is_back { given } else { given.or_recorded(&ongoing.summary.gates, args.no_gates)? };
    let session = session.with_gates(gates.resolve()?);
    let (ongoing, report) = session.resume(id, &gates).await?;
    // The operation has already continued: a failed read only makes the next command less precise.
    let (store, layout) = (session.store.as_ref(), &session.layout);
    let newcomers = ongoing.blocking_newcomers(&ongoing.situation(), store, layout).await.unwrap_or_default();
    Ok(conclude(context, args, (&ongoing, &newcomers), &report))
}

fn conclude(
    context: &Context,
    args: &ResumeArgs,
    (ongoing, newcomers): (&Ongoing, &[String]),
    report: &Report,
) -> Outcome {
    context.output.progress(&format!(
        "{}: {}; {} executed, {} already done",
        ongoing.operation,
        ongoing.situation().words(),
        counted(report.done, "step", "steps"),
        report.skipped
    ));
    for name in confirmed_too_early(ongoing, &args.live) {
        context.output.warn(&format!(
            "`--confirm {name}`: that manual step belongs to `renumber retire`, which `operation resume` does not start"
        ));
    }
    let situation = ongoing.situation().with_newcomers(newcomers);
    if let Some(next) = situation.next() {
        let when = match situation.is_to_retire {
            true if ongoing.plan.work.moves.is_empty() => "to complete the change",
            true => "once no client uses an old address",
            false => "next",
        };
        context.output.note(&format!("{when}: `{next}`"));
    }
    if let Some(hint) = situation.rollback_hint() {
        context.output.note(&hint);
    }
    if let Some(first) = report.stuck.first() {
        let count = counted(report.stuck.len(), "step was", "steps were");
        context.output.warn(&format!("{count} skipped, the first is `{}`: {}", first.step, first.reason));
        return Outcome::Findings;
    }
    Outcome::Done
}

/// Returns the manual steps that the user confirmed, but that `operation resume` does not reach.
fn confirmed_too_early(ongoing: &Ongoing, live: &LiveArgs) -> Vec<String> {
    let (work, journal) = (&ongoing.plan.work, &ongoing.journal);
    let open = steps_of_the_end(work).filter(|step| journal.state(&step.id) != Some(State::Done));
    let names = open.filter_map(|step| match step.action {
        Action::Manual(manual) => Some(manual.name),
        _ => None,
    });
    names.filter(|name| live.confirm.contains(name)).collect()
}
