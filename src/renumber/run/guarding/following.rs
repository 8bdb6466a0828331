//! What the guard does through the API: shadows become as their Services are.

use super::Guarding;
use crate::cluster::{Cluster, ClusterError, ObjectRef};
use crate::operation::{SystemAmbient, mend};
use crate::renumber::guard::{Follow, Followed};
use crate::renumber::run::Ongoing;
use crate::session::Failure;

/// What came of shadows that are behind.
#[derive(Debug, Clone, Copy, Default)]
pub struct Behind {
    /// Some were changed: look again.
    pub again: bool,
    /// Some were not.
    pub left: bool,
}

/// What came of one of them.
enum Outcome {
    /// It is as it should be.
    Same,
    Changed,
    /// Somebody else was faster.
    Raced,
    /// It may not be changed now.
    Left,
}

impl Guarding<'_> {
    /// Changes shadows as their Services were changed.
    pub(super) async fn follow_all(
        &mut self,
        ongoing: &Ongoing,
        follows: impl Iterator<Item = &Follow>,
    ) -> Result<Behind, Failure> {
        let mut behind = Behind::default();
        for follow in follows {
            let Follow { finding, mend: record, .. } = follow;
            self.ledger.alive();
            match self.follow(ongoing, follow).await {
                Ok(Outcome::Same) => {}
                Ok(Outcome::Raced) => behind.again = true,
                Ok(Outcome::Left) => behind.left = true,
                Ok(Outcome::Changed) => {
                    behind.again = true;
                    mend(self.store, &self.cluster, &ongoing.journal, record, &SystemAmbient).await?;
                    self.mended(record)?;
                }
                Err(failure) => {
                    behind.left = true;
                    let text = format!("{}, and it cannot be changed: {:#}", finding.message, failure.error);
                    self.voice.say_once("wrong", (&record.subject, finding.code), &text)?;
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
            let record = &follow.mend;
            self.voice.say_once("would-mend", (&record.subject, record.code), &record.says)?;
            return Ok(false);
        }
        self.may_mend()
    }

    /// The API, which must be that of the cluster whose etcd is watched.
    async fn api(&mut self) -> Result<Cluster, Failure> {
        if let Some(api) = &self.api {
            return Ok(api.clone());
        }
        let api = self.terms.kube.connect().await?;
        if api.identity().await? != self.cluster {
            return Err(Failure::refused("the kubeconfig is another cluster's than etcd"));
        }
        self.api = Some(api.clone());
        Ok(api)
    }
}
