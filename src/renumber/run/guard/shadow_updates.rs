//! The changes that the guard makes through the API. The guard updates shadows so that they match their Services.

use super::Guarding;
use crate::kube_api::{Cluster, ClusterError, ObjectRef};
use crate::operation::repair;
use crate::renumber::guard::{Follow, Followed};
use crate::renumber::run::Ongoing;
use crate::session::Failure;

/// The outcome for shadows that differ from their Services.
#[derive(Debug, Clone, Copy, Default)]
pub struct Behind {
    /// A shadow was changed, by the guard or by another client, so a new check is needed.
    pub again: bool,
    /// A shadow still differs, because it could not be changed.
    pub left: bool,
}

/// The outcome for one shadow.
enum Outcome {
    /// The shadow matches its Service.
    Same,
    Changed,
    /// The change conflicted with a concurrent change.
    Raced,
    /// This guard is not allowed to change the shadow now.
    Left,
}

impl Guarding<'_> {
    /// Changes shadows so that they match their Services.
    pub(super) async fn follow_all(
        &mut self,
        ongoing: &Ongoing,
        follows: impl Iterator<Item = &Follow>,
    ) -> Result<Behind, Failure> {
        let mut behind = Behind::default();
        for follow in follows {
            let Follow { finding, repair: record, .. } = follow;
            self.ledger.alive();
            match self.follow(ongoing, follow).await {
                Ok(Outcome::Same) => {}
                Ok(Outcome::Raced) => behind.again = true,
                Ok(Outcome::Left) => behind.left = true,
                Ok(Outcome::Changed) => {
                    behind.again = true;
                    repair(self.store, &self.cluster, &ongoing.journal, record, &self.time).await?;
                    self.repaired(record)?;
                }
                Err(failure) => {
                    behind.left = true;
                    let text =
                        format!("{}, and the shadow cannot be changed: {:#}", finding.message, failure.error);
                    self.log.say_once("wrong", (&record.subject, finding.code), &text)?;
                }
            }
        }
        Ok(behind)
    }

    async fn follow(&mut self, ongoing: &Ongoing, follow: &Follow) -> Result<Outcome, Failure> {
        let outcome = match &follow.what {
            Followed::Spec(change) => {
                if !self.may_follow(follow)? {
                    return Ok(Outcome::Left);
                }
                let shadow = ObjectRef::new("v1", "Service", Some(&follow.namespace), &follow.name);
                self.api().await?.merge(&shadow, change).await.map(drop)
            }
            Followed::Endpoints(of) => {
                let (api, family) = (self.api().await?, ongoing.plan.work.family);
                let changes = api.slice_changes(&follow.namespace, (of, &follow.name), family).await?;
                if changes.is_empty() {
                    return Ok(Outcome::Same);
                }
                if !self.may_follow(follow)? {
                    return Ok(Outcome::Left);
                }
                api.change_slices(&follow.namespace, &changes).await
            }
        };
        match outcome {
            Ok(()) => Ok(Outcome::Changed),
            Err(ClusterError::Conflict { .. } | ClusterError::AlreadyExists { .. }) => Ok(Outcome::Raced),
            Err(error) => Err(error.into()),
        }
    }

    fn may_follow(&mut self, follow: &Follow) -> Result<bool, Failure> {
        if self.terms.dry_run {
            let record = &follow.repair;
            self.log.say_once("would-repair", (&record.subject, record.code), &record.says)?;
            return Ok(false);
        }
        self.may_repair()
    }

    /// Returns the client for the API. The API must belong to the same cluster as etcd.
    pub(super) async fn api(&mut self) -> Result<Cluster, Failure> {
        if let Some(api) = &self.api {
            return Ok(api.clone());
        }
        let api = self.terms.kube.connect().await?;
        if api.identity().await? != self.cluster {
            return Err(Failure::refused("the kubeconfig and etcd belong to different clusters"));
        }
        self.api = Some(api.clone());
        Ok(api)
    }
}
