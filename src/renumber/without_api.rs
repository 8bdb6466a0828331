//! The way back while no API server answers: every Service gets its old address, in etcd alone.
//!
//! What netsurgeon made through the API, the addresses that clients still know, the new range and the API servers' flag
//! stay as they are; the rest of the way back takes them away once an API server answers. Nobody can be asked whether what
//! is written has arrived, so each wait is a pause of a stated length. While no API server runs nothing arrives anywhere,
//! and kube-proxies go on with the rules that they have; when one starts they read everything anew.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::sleep;

use super::effect::{Awaited, Effect};
use super::intention::Renumbering;
use super::steps::{Step, Wait};
use crate::operation::{Answer, Applied, Doing, Environment, Fault, Manual, Observed, Stage, Work};

/// A renumbering whose way back ends once every Service has its old address.
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

/// The environment while no API server answers.
#[derive(Debug, Clone, Copy)]
pub struct WithoutApi {
    /// How long each wait takes.
    pub pause: Duration,
}

fn without(what: &dyn std::fmt::Display) -> Fault {
    Fault::Halt(format!("not while no API server answers: {what}"))
}

#[async_trait]
impl Environment<Effect> for WithoutApi {
    async fn apply(&self, doing: &Doing<'_, Effect>) -> Result<Applied, Fault> {
        Err(without(doing.effect))
    }

    async fn observe(&self, doing: &Doing<'_, Effect>) -> Result<Observed, Fault> {
        Err(without(doing.effect))
    }

    async fn wait(&self, wait: &Wait) -> Result<(), Fault> {
        // It goes with the rest of the way back.
        if wait.kind == Awaited::Released {
            return Ok(());
        }
        tracing::info!(
            seconds = self.pause.as_secs(),
            until = wait.until,
            "a pause, in place of looking whether"
        );
        sleep(self.pause).await;
        Ok(())
    }

    async fn manual(&self, manual: &Manual, _back: bool) -> Result<Answer, Fault> {
        Err(without(&manual.what))
    }
}
