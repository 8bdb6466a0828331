//! Rolls a renumbering back while no API server responds. Every Service gets its old address. All changes are writes to etcd.
//!
//! This part of the rollback does not remove the new addresses or the new range, and does not change the API servers' flag. It
//! also keeps objects that netsurgeon created through the API. When an API server responds again, the remaining part of the
//! rollback undoes these changes.
//!
//! Without an API server, the operation cannot confirm that a write has propagated, so each wait is a pause of a given length.
//! While no API server responds, no write propagates, and kube-proxies keep their rules. When an API server starts, the
//! kube-proxies read all objects again.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::sleep;

use super::effect::{Awaited, Effect};
use super::intention::Renumbering;
use super::steps::{Step, Wait};
use crate::operation::{
    Answer, Applied, Doing, Environment, Manual, Observed, Records, Stage, StepFault, Work,
};

/// A renumbering whose rollback ends once every Service has its old address.
pub struct MovesBack<'a>(pub &'a Renumbering);

impl Work for MovesBack<'_> {
    type Effect = Effect;

    fn stages(&self) -> Vec<Stage> {
        self.0.stages()
    }

    fn steps(&self, stage: &Stage) -> Vec<Step> {
        self.0.steps(stage)
    }

    fn way_back(&self) -> Vec<Stage> {
        self.0.moves_back()
    }
}

/// The environment while no API server responds.
#[derive(Debug, Clone, Copy)]
pub struct WithoutApi {
    /// Length of each wait.
    pub pause: Duration,
}

fn without(what: &dyn std::fmt::Display) -> StepFault {
    StepFault::Halt(format!("not possible while no API server responds: {what}"))
}

#[async_trait]
impl Environment<Effect> for WithoutApi {
    async fn apply(&self, doing: &Doing<'_, Effect>) -> Result<Applied, StepFault> {
        Err(without(doing.effect))
    }

    async fn observe(&self, doing: &Doing<'_, Effect>) -> Result<Observed, StepFault> {
        Err(without(doing.effect))
    }

    async fn wait(&self, wait: &Wait, _: Records<'_>) -> Result<(), StepFault> {
        // This wait is skipped, because the remaining part of the rollback waits until the deletion of the Service completes.
        if wait.kind == Awaited::Released {
            return Ok(());
        }
        tracing::info!(
            seconds = self.pause.as_secs(),
            until = wait.until,
            "no API server responds: pausing instead of checking the condition"
        );
        sleep(self.pause).await;
        Ok(())
    }

    async fn manual(&self, manual: &Manual, _back: bool) -> Result<Answer, StepFault> {
        Err(without(&manual.what))
    }
}
