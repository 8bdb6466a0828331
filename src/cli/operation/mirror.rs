//! `netsurgeon operation` for a mirror operation.

use async_trait::async_trait;

use super::kind::{Next, OfKind};
use super::{ResumeArgs, UndoArgs};
use crate::cli::report::ReportArgs;
use crate::cli::run_args::LiveArgs;
use crate::cli::{Context, Outcome, mirror};
use crate::kube_api::ReadOnly;
use crate::mirror::Mirror;
use crate::mirror::run::MirrorSession;
use crate::operation::{ClusterLock, Status};
use crate::report::mirror::page;
use crate::session::ledger_place::FoundOperation;
use crate::session::{ClusterSession, Failure, Recorded, confirm_only, is_leased};
use crate::survey::Layout;

/// Operations of kind `mirror`.
pub(super) struct Mirrors;

async fn open(context: &Context, live: &LiveArgs) -> Result<ClusterSession, Failure> {
    confirm_only(&live.confirm, &[], &[])?;
    live.renumber.refuse_of_another_kind()?;
    mirror::open(context, &live.home.kube, &live.run).await
}

#[async_trait(?Send)]
impl OfKind for Mirrors {
    async fn next(&self, found: &FoundOperation, status: Status, _: &Layout) -> Next {
        let id = &found.listed.operation;
        let is_open = !status.is_at_work() && !status.has_ended();
        let is_back = found.listed.summary.back;
        let source = if is_back { "" } else { " --source-context NAME" };
        let command = is_open.then(|| format!("netsurgeon operation resume {id}{source}"));
        let is_to_undo = (is_open && !is_back) || status == Status::Done;
        let rollback = is_to_undo.then(|| format!("netsurgeon operation rollback {id}"));
        Next { command, rollback, ..Next::default() }
    }

    async fn resume(&self, context: &Context, id: &str, args: &ResumeArgs) -> Result<Outcome, Failure> {
        args.key.refuse_of_another_kind()?;
        if args.gates.settings().resolve()?.are_there() {
            return Err(Failure::usage("a mirror operation has no gates").hint("omit the gate options"));
        }
        let session = open(context, &args.live).await?;
        let source = match args.source.named(&args.live.home.kube) {
            Some(source) => Some(ReadOnly::new(source.connect().await?)),
            None => None,
        };
        let session = MirrorSession::new(session, source).giving_up(&args.give_up);
        mirror::resume_on(context, session, id).await
    }

    async fn roll_back(&self, context: &Context, id: &str, args: &UndoArgs) -> Result<Outcome, Failure> {
        args.key.refuse_of_another_kind()?;
        args.refuse_of_a_renumbering()?;
        let session = open(context, &args.live).await?;
        mirror::roll_back_on(context, session, (id, &args.give_up)).await
    }

    async fn report(&self, context: &Context, id: &str, args: &ReportArgs) -> Result<Outcome, Failure> {
        let api = args.homes.kube.connect().await?;
        let recorded: Recorded<Mirror> = Recorded::read(&api, id).await?;
        let held = ClusterLock::holder(&api).await?;
        args.write(context, &page(&recorded, is_leased(held.as_ref(), id)))
    }
}
