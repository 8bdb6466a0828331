//! Reads the input of the checks of `preflight renumber` concurrently. Shared data is read once.

mod etcd;
mod nodes;
mod objects;
mod servers;

use std::path::PathBuf;

use tokio::sync::OnceCell;

use self::objects::{allocations, planned};
use super::reading::{Read, Reading, carry_out};
use super::{Reached, Selection};
use crate::ip::ServiceCidr;
use crate::operation::Plan;
use crate::preflight::flags::ServerFlags;
use crate::preflight::{Check, Judged, RENUMBER, RenumberCheck};
use crate::renumber::{PlanOptions, Renumbering, plan};
use crate::session::Failure;
use crate::survey::Survey;

/// Input of the checks of `preflight renumber`.
struct Looking {
    read: Reading,
    options: PlanOptions,
    backup: Option<PathBuf>,
    server_flags: OnceCell<Read<Vec<ServerFlags>>>,
    survey: OnceCell<Read<Survey>>,
    plan: OnceCell<Read<Plan<Renumbering>>>,
}

/// Runs the checks of `preflight renumber`.
pub async fn look(
    reached: Reached,
    options: PlanOptions,
    backup: Option<PathBuf>,
    asked: &Selection,
) -> Vec<Check> {
    let looking = Looking {
        options,
        read: Reading::begin(reached).await,
        backup,
        server_flags: OnceCell::new(),
        survey: OnceCell::new(),
        plan: OnceCell::new(),
    };
    carry_out(RENUMBER, asked, async |check| looking.judge(check).await).await
}

fn failed(failure: &Failure) -> Judged {
    Judged::fail(format!("{:#}", failure.error), failure.hints.join("; "))
}

impl Looking {
    async fn judge(&self, check: RenumberCheck) -> Read<Judged> {
        match check {
            RenumberCheck::EtcdLeader => self.leader().await,
            RenumberCheck::Room => self.room().await,
            RenumberCheck::Encryption => self.stored().await,
            RenumberCheck::Backup => self.backup().await,
            RenumberCheck::VersionsTested => self.tested().await,
            RenumberCheck::ApiFlags => self.flags().await,
            RenumberCheck::ApiGates => self.gates().await,
            RenumberCheck::EtcdOverrides => self.overrides().await,
            RenumberCheck::Allocations => self.survey().await.map(allocations),
            RenumberCheck::Plan => self.plan().await.map(planned),
            RenumberCheck::KubeProxy => self.proxies().await,
            RenumberCheck::Windows => self.windows().await,
            RenumberCheck::Overlaps => self.overlaps().await,
            RenumberCheck::Advertised => self.announced().await,
            RenumberCheck::KubeadmConfig => self.kubeadm().await,
            RenumberCheck::Pinned => self.pinned().await,
            RenumberCheck::Webhooks => self.webhooks().await,
            RenumberCheck::Certificates => self.certificates().await,
            RenumberCheck::Policies => self.policies().await,
            RenumberCheck::Rights => self.rights().await,
            RenumberCheck::Shared(check) => self.read.judge(check).await,
        }
    }

    async fn survey(&self) -> Read<&Survey> {
        let read = async || {
            let survey = Survey::read(self.read.store()?, &self.read.layout, None).await;
            survey.map_err(|error| failed(&Failure::from(error)))
        };
        self.survey.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the ranges from which Services move away; none after the renumbering.
    fn left(&self, survey: &Survey) -> Vec<ServiceCidr> {
        let to = self.options.to;
        let mut ranges = survey.service_ranges();
        ranges.retain(|range| *range != to && range.family() == to.family());
        ranges
    }

    async fn plan(&self) -> Read<&Plan<Renumbering>> {
        let planned = async || {
            let survey = self.survey().await?;
            if self.left(survey).is_empty() {
                return Err(Judged::pass(format!(
                    "no Service would move: the cluster's range is {}",
                    self.options.to
                )));
            }
            plan(survey, &self.options).map_err(|error| failed(&Failure::from(error)))
        };
        self.plan.get_or_init(planned).await.as_ref().map_err(Clone::clone)
    }
}
