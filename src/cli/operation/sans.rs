//! `netsurgeon operation` for names that were added to certificates.

use async_trait::async_trait;

use super::kind::{Next, OfKind};
use super::{ResumeArgs, UndoArgs};
use crate::cli::mirror::sans::{conclude, open};
use crate::cli::report::ReportArgs;
use crate::cli::run_args::LiveArgs;
use crate::cli::{Context, Outcome};
use crate::mirror::sans::Sans;
use crate::mirror::sans::run::SansSession;
use crate::operation::{ClusterLock, Status};
use crate::report::sans::page;
use crate::session::ledger_place::FoundOperation;
use crate::session::{Failure, Recorded, confirm_only, is_leased};
use crate::survey::Layout;

/// Operations of kind `mirror-sans`.
pub(super) struct SansOperations;

async fn session(context: &Context, live: &LiveArgs) -> Result<SansSession, Failure> {
    confirm_only(&live.confirm, &[], &[])?;
    live.renumber.refuse_of_another_kind()?;
    open(context, &live.home.kube, &live.run).await
}

#[async_trait(?Send)]
impl OfKind for SansOperations {
    async fn next(&self, found: &FoundOperation, status: Status, _: &Layout) -> Next {
        let id = &found.listed.operation;
        let is_open = !status.is_at_work() && !status.has_ended();
        let command = is_open.then(|| format!("netsurgeon operation resume {id}"));
        let is_to_undo = (is_open && !found.listed.summary.back) || status == Status::Done;
        let rollback = is_to_undo.then(|| format!("netsurgeon operation rollback {id}"));
        Next { command, rollback, ..Next::default() }
    }

    async fn resume(&self, context: &Context, id: &str, args: &ResumeArgs) -> Result<Outcome, Failure> {
        args.key.refuse_of_another_kind()?;
        if args.gates.settings().resolve()?.are_there() {
            return Err(Failure::usage("this operation has no gates").hint("omit the gate options"));
        }
        let session = session(context, &args.live).await?.giving_up(&args.give_up);
        conclude(context, &session.resume(id).await?)
    }

    async fn roll_back(&self, context: &Context, id: &str, args: &UndoArgs) -> Result<Outcome, Failure> {
        args.key.refuse_of_another_kind()?;
        args.refuse_of_a_renumbering()?;
        let session = session(context, &args.live).await?.giving_up(&args.give_up);
        let known = session.read::<Sans>(id).await?;
        if known.summary.status == Status::RolledBack {
            let text = format!("the operation `{id}` was already rolled back; nothing was changed");
            context.output.progress(&text);
            return Ok(Outcome::Done);
        }
        session.ask(&format!("Remove the names that `{id}` added from the Certificates?"))?;
        conclude(context, &session.roll_back(id).await?)
    }

    async fn report(&self, context: &Context, id: &str, args: &ReportArgs) -> Result<Outcome, Failure> {
        let api = args.homes.kube.connect().await?;
        let recorded: Recorded<Sans> = Recorded::read(&api, id).await?;
        let held = ClusterLock::holder(&api).await?;
        args.write(context, &page(&recorded, is_leased(held.as_ref(), id)))
    }
}
