//! `netsurgeon operation` for an activation of a mirror.

use async_trait::async_trait;

use super::kind::{Next, OfKind};
use super::{ResumeArgs, UndoArgs};
use crate::cli::api::{KubeArgs, SourceKubeArgs};
use crate::cli::mirror::activation::{Clusters, conclude};
use crate::cli::report::ReportArgs;
use crate::cli::run_args::LiveArgs;
use crate::cli::{Context, Outcome};
use crate::mirror::activation::Activation;
use crate::mirror::activation::ledger::in_force;
use crate::mirror::activation::run::ActivationSession;
use crate::operation::{ClusterLock, Status};
use crate::report::activation::page;
use crate::session::ledger_place::{FoundOperation, LedgerPlace};
use crate::session::{Failure, Recorded, confirm_only, is_leased};
use crate::survey::Layout;

/// Operations of kind `mirror-activate`.
pub(super) struct Activations;

async fn open(
    context: &Context,
    live: &LiveArgs,
    source: &SourceKubeArgs,
) -> Result<ActivationSession, Failure> {
    confirm_only(&live.confirm, &[], &[])?;
    live.renumber.refuse_of_another_kind()?;
    let mirror: &KubeArgs = &live.home.kube;
    let source = source.named(mirror).ok_or_else(|| {
        Failure::usage("give the source: an activation changes both clusters, in both directions")
            .hint("add `--source-context NAME`, or `--source-kubeconfig FILE`")
    })?;
    Clusters::connect(&source, mirror).await?.session(context, &live.run).await
}

#[async_trait(?Send)]
impl OfKind for Activations {
    async fn next(&self, found: &FoundOperation, status: Status, _: &Layout) -> Next {
        let id = &found.listed.operation;
        let is_open = !status.is_at_work() && !status.has_ended();
        let command = is_open.then(|| format!("netsurgeon operation resume {id} --source-context NAME"));
        let is_to_undo = (is_open && !found.listed.summary.back) || status == Status::Done;
        let rollback =
            is_to_undo.then(|| format!("netsurgeon operation rollback {id} --source-context NAME"));
        Next { command, rollback, ..Next::default() }
    }

    async fn resume(&self, context: &Context, id: &str, args: &ResumeArgs) -> Result<Outcome, Failure> {
        args.key.refuse_of_another_kind()?;
        if args.gates.settings().resolve()?.are_there() {
            return Err(Failure::usage("an activation has no gates").hint("omit the gate options"));
        }
        let session = open(context, &args.live, &args.source).await?.giving_up(&args.give_up);
        conclude(context, &[session.resume(id).await?])
    }

    async fn roll_back(&self, context: &Context, id: &str, args: &UndoArgs) -> Result<Outcome, Failure> {
        args.key.refuse_of_another_kind()?;
        args.refuse_of_a_renumbering()?;
        let session = open(context, &args.live, &args.source).await?.giving_up(&args.give_up);
        let known = session.read::<Activation>(id).await?;
        if known.summary.status == Status::RolledBack {
            let text = format!("the operation `{id}` was already rolled back; nothing was changed");
            context.output.progress(&text);
            return Ok(Outcome::Done);
        }
        session.ask(&format!("Move the objects of `{id}` back to the source?"))?;
        conclude(context, &[session.roll_back(id).await?])
    }

    async fn refuse_forget(&self, found: &FoundOperation) -> Result<(), Failure> {
        let (LedgerPlace::Cluster(api), id) = (&found.home, &found.listed.operation) else { return Ok(()) };
        // A journal that cannot be read moves nothing back.
        let in_force = in_force(api).await.unwrap_or_default();
        let Some(first) = in_force.iter().find(|one| one.operation == *id) else { return Ok(()) };
        let object = &first.entry.object;
        let text = format!(
            "operation `{id}` has moved {object} to the mirror: its journal is needed to move it back"
        );
        Err(Failure::refused(text).hint(format!(
            "to move everything back: `netsurgeon mirror deactivate {id} --mirror-context NAME`"
        )))
    }

    async fn report(&self, context: &Context, id: &str, args: &ReportArgs) -> Result<Outcome, Failure> {
        let api = args.homes.kube.connect().await?;
        let recorded: Recorded<Activation> = Recorded::read(&api, id).await?;
        let held = ClusterLock::holder(&api).await?;
        args.write(context, &page(&recorded, is_leased(held.as_ref(), id)))
    }
}
