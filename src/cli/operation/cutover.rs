//! `netsurgeon operation` for a cutover of DNS names.

use async_trait::async_trait;

use super::kind::{Next, OfKind};
use super::{ResumeArgs, UndoArgs};
use crate::cli::dns::KeyArgs;
use crate::cli::report::ReportArgs;
use crate::cli::run_args::LiveArgs;
use crate::cli::{Context, Outcome, dns};
use crate::dns::{Cutover, Situation};
use crate::operation::{ClusterLock, Status};
use crate::report::cutover::page;
use crate::session::ledger_place::{FoundOperation, LedgerPlace};
use crate::session::{ClusterSession, Failure, Recorded, confirm_only, is_leased};
use crate::survey::Layout;

/// Operations of kind `dns-cutover`.
pub(super) struct Cutovers;

async fn open(context: &Context, live: &LiveArgs) -> Result<ClusterSession, Failure> {
    confirm_only(&live.confirm, &[], &[])?;
    live.renumber.refuse_of_another_kind()?;
    // One name never stops the others.
    let settings = live.run.settings(usize::MAX);
    ClusterSession::open(context.ui(), live.home.kube.connect().await?, settings).await
}

#[async_trait(?Send)]
impl OfKind for Cutovers {
    async fn next(&self, found: &FoundOperation, status: Status, _: &Layout) -> Next {
        let LedgerPlace::Cluster(api) = &found.home else { return Next::default() };
        let recorded: Result<Recorded<Cutover>, _> = Recorded::read(api, &found.listed.operation).await;
        let Ok(recorded) = recorded else { return Next::default() };
        let options = KeyArgs::default().repeated(&recorded.plan.work);
        let situation = Situation::of(&recorded, status.is_at_work()).repeating(&options);
        let (command, rollback) = (situation.next(), situation.rollback());
        Next { command, rollback, give_up: situation.give_up(), manual_step: None }
    }

    async fn resume(&self, context: &Context, id: &str, args: &ResumeArgs) -> Result<Outcome, Failure> {
        args.source.refuse_of_another_kind()?;
        let gates = args.gates.settings();
        gates.resolve()?;
        let session = open(context, &args.live).await?;
        dns::resume_on(context, (session, (&args.key, &args.give_up)), id, (&gates, args.no_gates)).await
    }

    async fn roll_back(&self, context: &Context, id: &str, args: &UndoArgs) -> Result<Outcome, Failure> {
        args.refuse_of_a_renumbering()?;
        args.source.refuse_of_another_kind()?;
        let session = open(context, &args.live).await?;
        dns::roll_back_on(context, (session, (&args.key, &args.give_up)), id).await
    }

    async fn report(&self, context: &Context, id: &str, args: &ReportArgs) -> Result<Outcome, Failure> {
        let api = args.homes.kube.connect().await?;
        let recorded: Recorded<Cutover> = Recorded::read(&api, id).await?;
        let held = ClusterLock::holder(&api).await?;
        args.write(context, &page(&recorded, is_leased(held.as_ref(), id)))
    }
}
