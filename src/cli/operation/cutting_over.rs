//! `netsurgeon operation` on a cutover of DNS names.

use async_trait::async_trait;

use super::of_kind::OfKind;
use super::{ResumeArgs, UndoArgs};
use crate::cli::live::LiveArgs;
use crate::cli::report::ReportArgs;
use crate::cli::{Context, Outcome, dns};
use crate::dns::Cutover;
use crate::operation::ClusterLock;
use crate::report::cutover::page;
use crate::session::{ClusterSession, Failure, Settings, confirm_only, is_leased};

/// Operations of kind `dns-cutover`.
pub(super) struct Cutovers;

async fn open(context: &Context, live: &LiveArgs) -> Result<ClusterSession, Failure> {
    confirm_only(&live.confirm, &[], &[])?;
    ClusterSession::open(context.voice(), live.home.kube.connect().await?, live.settings()).await
}

#[async_trait(?Send)]
impl OfKind for Cutovers {
    async fn resume(&self, context: &Context, id: &str, args: &ResumeArgs) -> Result<Outcome, Failure> {
        let gates = args.gates.settings();
        gates.resolve()?;
        let session = open(context, &args.live).await?;
        dns::resume_on(context, session, id, (&gates, args.no_gates)).await
    }

    async fn roll_back(&self, context: &Context, id: &str, args: &UndoArgs) -> Result<Outcome, Failure> {
        dns::roll_back_on(context, open(context, &args.live).await?, id).await
    }

    async fn report(&self, context: &Context, id: &str, args: &ReportArgs) -> Result<Outcome, Failure> {
        let api = args.homes.kube.connect().await?;
        let session = ClusterSession::open(context.voice(), api, Settings::default()).await?;
        let recorded = session.read::<Cutover>(id).await?;
        let held = ClusterLock::holder(&session.api).await?;
        args.write(context, &page(&recorded, is_leased(held.as_ref(), id)))
    }
}
