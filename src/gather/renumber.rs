//! What is looked at before a renumbering: side by side, and what several checks look at is read once.

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
use crate::preflight::{Check, Judged, RENUMBER};
use crate::renumber::{PlanOptions, Renumbering, plan};
use crate::session::Failure;
use crate::survey::Survey;

/// What the checks look at.
struct Looking {
    read: Reading,
    options: PlanOptions,
    backup: Option<PathBuf>,
    server_flags: OnceCell<Read<Vec<ServerFlags>>>,
    survey: OnceCell<Read<Survey>>,
    plan: OnceCell<Read<Plan<Renumbering>>>,
}

/// Carries the checks out.
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
    carry_out(RENUMBER, asked, async |name| looking.judge(name).await).await
}

fn failed(failure: &Failure) -> Judged {
    Judged::fail(format!("{:#}", failure.error), failure.hints.join("; "))
}

impl Looking {
    async fn judge(&self, name: &str) -> Read<Judged> {
        match name {
            "etcd-leader" => self.leader().await,
            "room" => self.room().await,
            "encryption" => self.stored().await,
            "backup" => self.backup().await,
            "versions-tested" => self.tested().await,
            "api-flags" => self.flags().await,
            "api-gates" => self.gates().await,
            "etcd-overrides" => self.overrides().await,
            "allocations" => self.survey().await.map(allocations),
            "plan" => self.plan().await.map(planned),
            "kube-proxy" => self.proxies().await,
            "windows" => self.windows().await,
            "overlaps" => self.overlaps().await,
            "advertised" => self.announced().await,
            "kubeadm-config" => self.kubeadm().await,
            "pinned" => self.pinned().await,
            "webhooks" => self.webhooks().await,
            "certificates" => self.certificates().await,
            "policies" => self.policies().await,
            "rights" => self.rights().await,
            other => self.read.judge(other).await,
        }
    }

    async fn survey(&self) -> Read<&Survey> {
        let read = async || {
            let survey = Survey::read(self.read.store()?, &self.read.layout, None).await;
            survey.map_err(|error| failed(&Failure::from(error)))
        };
        self.survey.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the ranges that Services leave: none once they have left.
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
