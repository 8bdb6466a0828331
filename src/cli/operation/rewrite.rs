//! `netsurgeon operation` for a rewrite of a RangeAllocation.

use async_trait::async_trait;

use super::kind::{Next, OfKind};
use super::{ResumeArgs, UndoArgs};
use crate::cli::report::ReportArgs;
use crate::cli::{Context, Outcome, ranges};
use crate::operation::{EtcdRecord, Status};
use crate::renumber::rewrite::RangeRewrite;
use crate::report::rewrite::page;
use crate::session::ledger_place::FoundOperation;
use crate::session::{Failure, Recorded, confirm_only};
use crate::survey::Layout;
use crate::survey::Survey;

/// Operations of kind `rewrite-range`.
pub(super) struct RangeRewrites;

#[async_trait(?Send)]
impl OfKind for RangeRewrites {
    async fn next(&self, found: &FoundOperation, status: Status, _: &Layout) -> Next {
        let id = &found.listed.operation;
        // If the rollback of a rewrite is stuck, the rewrite stays in effect, and there is no next command.
        let is_open = !status.is_at_work() && !status.has_ended() && status != Status::Stuck;
        let command = is_open.then(|| format!("netsurgeon operation resume {id}"));
        let is_to_undo = is_open || status == Status::Done;
        let rollback = is_to_undo.then(|| format!("netsurgeon operation rollback {id}"));
        Next { command, rollback, ..Next::default() }
    }

    async fn resume(&self, context: &Context, id: &str, args: &ResumeArgs) -> Result<Outcome, Failure> {
        args.source.refuse_of_another_kind()?;
        confirm_only(&args.live.confirm, &[], &[])?;
        args.live.renumber.refuse_of_another_kind()?;
        refuse_to_give_up(&args.give_up, id)?;
        args.key.refuse_of_another_kind()?;
        if args.gates.settings().resolve()?.are_there() {
            return Err(Failure::usage("a rewrite has no batches, so it cannot have gates")
                .hint("omit the gate options"));
        }
        let run = &args.live.run;
        ranges::resume(context, (&args.live.home, &run.lock, run.yes), id).await
    }

    async fn roll_back(&self, context: &Context, id: &str, args: &UndoArgs) -> Result<Outcome, Failure> {
        confirm_only(&args.live.confirm, &[], &[])?;
        args.live.renumber.refuse_of_another_kind()?;
        refuse_to_give_up(&args.give_up, id)?;
        args.refuse_of_a_renumbering()?;
        args.key.refuse_of_another_kind()?;
        args.source.refuse_of_another_kind()?;
        let run = &args.live.run;
        ranges::roll_back(context, (&args.live.home, &run.lock, run.yes), id).await
    }

    async fn report(&self, context: &Context, id: &str, args: &ReportArgs) -> Result<Outcome, Failure> {
        let store = args.homes.etcd.connect().await?;
        let cluster = Survey::identity(store.as_ref(), &args.homes.etcd.layout()).await?.unwrap_or_default();
        let record = EtcdRecord::new(store.as_ref(), &cluster, id);
        let opened: Recorded<RangeRewrite> = Recorded::open(id, &record).await?;
        args.write(context, &page(&opened))
    }
}

/// Refuses the option `--give-up`. A rewrite is one transaction, and it can always end: if the RangeAllocation changed, either
/// nothing was written, or the rewrite stays in effect and its journal can be removed.
fn refuse_to_give_up(given: &[String], id: &str) -> Result<(), Failure> {
    if given.is_empty() {
        return Ok(());
    }
    Err(Failure::usage("a rewrite has only one object, so there is nothing to give up")
        .hint(format!("to remove its journal after a rollback: `netsurgeon operation forget {id}`")))
}
