//! `netsurgeon operation` on a cutover of DNS names.

use async_trait::async_trait;

use super::of_kind::OfKind;
use super::{ResumeArgs, UndoArgs};
use crate::cli::live::LiveArgs;
use crate::cli::report::ReportArgs;
use crate::cli::{Context, Outcome, dns};
use crate::session::{ClusterSession, Failure, confirm_only};

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

    async fn report(&self, _context: &Context, id: &str, _args: &ReportArgs) -> Result<Outcome, Failure> {
        Err(Failure::refused("a cutover has no report page yet")
            .hint(format!("its steps and times: `netsurgeon operation show {id} -o json`")))
    }
}
