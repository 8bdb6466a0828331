//! An object in one of the two clusters, and its changes.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::inventory::text;
use crate::kube_api::{Cluster, ClusterError, GuardedChange, ObjectRef};
use crate::mirror::refusal::fault;
use crate::operation::{Ambient as _, Doing, StepFault, SystemAmbient};

use super::work::HandOver;

/// The field manager of the changes.
pub(super) const MANAGER: &str = "netsurgeon-activation";
/// The annotation of a copy that an activation has woken: the token of the step. While the copy goes back to sleep, also the resource
/// version of the Jobs before that. Only on the copy, never on the object of the source.
pub(super) const ACTIVATION: &str = "mirror.netsurgeon.io/activation";
/// The annotation whose value changes so that requests of earlier processes fail.
const TOUCHED: &str = "mirror.netsurgeon.io/touched";
/// Maximum number of attempts to change an object that other clients keep changing.
const MOST_ATTEMPTS: usize = 20;
/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(50);

/// An object in one cluster.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub api: &'a Cluster,
    pub object: ObjectRef<'a>,
    pub uid: &'a str,
    /// `source` or `mirror`.
    pub cluster: &'static str,
}

impl Side<'_> {
    /// Reads the object. Skips the subject if the object does not exist or was replaced.
    pub async fn read(&self) -> Result<Value, StepFault> {
        self.find().await?.ok_or_else(|| {
            StepFault::Skip(format!("the {} has deleted or replaced {}", self.cluster, self.object))
        })
    }

    /// Reads the object; `None` if it does not exist or was replaced.
    pub async fn find(&self) -> Result<Option<Value>, StepFault> {
        let found = self.api.get(&self.object).await.map_err(|error| self.fault(&error))?;
        Ok(found.filter(|found| text(found, "/metadata/uid") == self.uid))
    }

    /// Converts an error, and names the cluster.
    pub fn fault(&self, error: &ClusterError) -> StepFault {
        let named = |text: String| format!("{}: {text}", self.cluster);
        match fault(error, false) {
            StepFault::Skip(text) => StepFault::Skip(named(text)),
            StepFault::Retry { why, after } => StepFault::Retry { why: named(why), after },
            StepFault::InDoubt(text) => StepFault::InDoubt(named(text)),
            StepFault::Halt(text) => StepFault::Halt(named(text)),
        }
    }

    /// Changes the object. `change` receives the object as it is now, and returns the change, or `None` if there is nothing to
    /// change. Returns the object as it was read last, before the change.
    ///
    /// The order is important: the object is read, then the fence is checked, then the request is sent, which names the resource
    /// version that was read. A process that takes the operation over writes the object, so this request fails from then on.
    pub async fn change(
        &self,
        doing: &Doing<'_, HandOver>,
        subresource: Option<&str>,
        change: impl Fn(&Value) -> Result<Option<Value>, StepFault> + Send,
    ) -> Result<Value, StepFault> {
        for _ in 0..MOST_ATTEMPTS {
            let live = self.read().await?;
            let Some(wanted) = change(&live)? else { return Ok(live) };
            doing.fence.still_ours().await?;
            let version = text(&live, "/metadata/resourceVersion");
            let guarded = GuardedChange { manager: MANAGER, subresource, version, change: &wanted };
            match self.api.change(&self.object, guarded).await {
                Ok(_) => return Ok(live),
                Err(ClusterError::Conflict { .. }) => sleep(PAUSE).await,
                Err(error) => return Err(self.fault(&error)),
            }
        }
        let why = format!("{}: other clients keep changing {}", self.cluster, self.object);
        Err(StepFault::Retry { why, after: None })
    }

    /// Writes an annotation, so that every request fails that an earlier process has prepared. `is_quiet` must hold.
    pub async fn touch(
        &self,
        doing: &Doing<'_, HandOver>,
        is_quiet: impl Fn(&Value) -> bool + Send + Sync,
    ) -> Result<(), StepFault> {
        let token = SystemAmbient.uid();
        let change = |live: &Value| {
            if !is_quiet(live) {
                return Err(self.woken());
            }
            Ok(Some(json!({"metadata": {"annotations": {TOUCHED: token}}})))
        };
        self.change(doing, None, change).await.map(drop)
    }

    /// The fault if another client has activated an object that must be passive.
    pub fn woken(&self) -> StepFault {
        StepFault::Skip(format!(
            "another client has activated {} in the {}; nothing was activated in the other cluster",
            self.object, self.cluster
        ))
    }
}

/// Returns the token of the activation in the annotation of a copy, and what follows it.
pub(super) fn token_of(copy: &Value) -> (String, Option<String>) {
    let all = copy.pointer("/metadata/annotations").and_then(|all| all.get(ACTIVATION));
    let mut words = all.and_then(Value::as_str).unwrap_or_default().split(' ').map(str::to_string);
    (words.next().unwrap_or_default(), words.next())
}
