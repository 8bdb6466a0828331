//! Moves a workload with a number of replicas from one cluster to the other: it has no Pod in one cluster before it gets replicas in
//! the other. An autoscaler does nothing while there are no replicas.

use futures_util::FutureExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cron_job::{suspended_in_both, within};
use super::side::{ACTIVATION, Side, token_of};
use super::work::{HandOver, Waits};
use crate::inventory::text;
use crate::kube_api::Collection;
use crate::operation::{Ambient as _, Applied, Doing, Observed, StepFault, SystemAmbient};

/// The state before the step.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Before {
    /// Distinguishes this activation of the copy from others.
    token: String,
    /// The number of replicas in the source.
    replicas: i64,
}

/// A workload in both clusters.
pub(super) struct Workload<'a> {
    pub source: Side<'a>,
    pub mirror: Side<'a>,
    /// The number of replicas in the mirror.
    pub wanted: i64,
    pub waits: Waits,
}

/// Returns the number of replicas that an object asks for. The API server sets 1 if there is none.
pub(super) fn replicas(live: &Value) -> i64 {
    live.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

fn is_quiet(live: &Value) -> bool {
    replicas(live) == 0
}

fn before_of(doing: &Doing<'_, HandOver>) -> Option<Before> {
    serde_json::from_value(doing.before.clone()).ok()
}

impl Workload<'_> {
    pub async fn before(&self) -> Result<Value, StepFault> {
        let (source, mirror) = (self.source.read().await?, self.mirror.read().await?);
        if is_quiet(&source) {
            return Err(StepFault::Skip(
                "the source has scaled the workload to 0 since the plan".to_string(),
            ));
        }
        if !is_quiet(&mirror) {
            return Err(self.mirror.woken());
        }
        Ok(json!(Before { token: SystemAmbient.uid(), replicas: replicas(&source) }))
    }

    pub async fn observe(&self, doing: &Doing<'_, HandOver>) -> Result<Observed, StepFault> {
        let Some(before) = before_of(doing).filter(|_| !doing.back) else { return Ok(Observed::NotDone) };
        let (source, mirror) = (self.source.read().await?, self.mirror.read().await?);
        if is_quiet(&mirror) {
            return Ok(Observed::NotDone);
        }
        if token_of(&mirror).0 == before.token && is_quiet(&source) {
            return Ok(Observed::Done(self.made(&before, true)));
        }
        Ok(Observed::Changed("another client has scaled the copy in the mirror".to_string()))
    }

    /// Moves the workload to the mirror.
    pub async fn activate(&self, doing: &Doing<'_, HandOver>) -> Result<Applied, StepFault> {
        let Some(before) = before_of(doing) else {
            return Err(StepFault::Halt("the record of the step has no previous state".to_string()));
        };
        let moved = async {
            self.quieten(&self.source, doing).await?;
            self.wake((&self.source, &self.mirror), doing, (self.wanted, Some(&before.token))).await
        };
        match moved.await {
            Ok(()) => Ok(Applied::Made(self.made(&before, self.is_available(doing).await?))),
            Err(StepFault::Skip(why)) => {
                let mirror = self.mirror.find().await?;
                if mirror.is_some_and(|mirror| !is_quiet(&mirror) && token_of(&mirror).0 == before.token) {
                    return Ok(Applied::Made(self.made(&before, true)));
                }
                let again = self.return_to_source(doing, &before).await;
                again.map_err(|fault| suspended_in_both(&why, fault))?;
                Err(StepFault::Skip(format!("{why}; the workload runs in the source, as before")))
            }
            Err(fault) => Err(fault),
        }
    }

    /// Moves the workload back to the source.
    pub async fn deactivate(&self, doing: &Doing<'_, HandOver>) -> Result<Applied, StepFault> {
        let Some(before) = before_of(doing) else { return Ok(Applied::NOTHING) };
        let source = self.source.read().await?;
        let Some(mirror) = self.mirror.find().await? else {
            let why = "the mirror has deleted or replaced the copy; scale the workload in the source";
            return Err(StepFault::Skip(why.to_string()));
        };
        if !is_quiet(&source) {
            if !is_quiet(&mirror) {
                return Err(StepFault::Skip(
                    "another client has scaled the workload in both clusters".to_string(),
                ));
            }
            // A request of an earlier process that scales it down can still be under way.
            self.source.touch(doing, |_| true).await?;
            return Ok(Applied::NOTHING);
        }
        if !is_quiet(&mirror) && token_of(&mirror).0 != before.token {
            return Err(self.mirror.woken());
        }
        let moved = async {
            self.quieten(&self.mirror, doing).await?;
            self.wake((&self.mirror, &self.source), doing, (before.replicas, None)).await
        };
        match moved.await {
            Ok(()) => Ok(Applied::NOTHING),
            Err(StepFault::Skip(why)) if token_of(&mirror).0 == before.token => {
                let again = self.return_to_mirror(doing, &before).await;
                again.map_err(|fault| suspended_in_both(&why, fault))?;
                Err(StepFault::Skip(format!("{why}; the workload runs in the mirror, as before")))
            }
            Err(fault) => Err(fault),
        }
    }

    async fn return_to_source(&self, doing: &Doing<'_, HandOver>, before: &Before) -> Result<(), StepFault> {
        if self.source.find().await?.is_none_or(|live| !is_quiet(&live)) {
            return Ok(());
        }
        if self.mirror.find().await?.is_some() {
            self.mirror.touch(doing, is_quiet).await?;
        }
        self.wake((&self.mirror, &self.source), doing, (before.replicas, None)).await
    }

    async fn return_to_mirror(&self, doing: &Doing<'_, HandOver>, before: &Before) -> Result<(), StepFault> {
        if self.mirror.find().await?.is_none_or(|live| !is_quiet(&live)) {
            return Ok(());
        }
        if self.source.find().await?.is_some() {
            self.source.touch(doing, is_quiet).await?;
        }
        let wanted = (self.wanted, Some(before.token.as_str()));
        self.wake((&self.source, &self.mirror), doing, wanted).await
    }

    /// Scales the workload to 0, and waits until it has no Pod. Terminating Pods also count, because they can still work.
    async fn quieten(&self, side: &Side<'_>, doing: &Doing<'_, HandOver>) -> Result<(), StepFault> {
        let change = |live: &Value| Ok((!is_quiet(live)).then(|| json!({"spec": {"replicas": 0}})));
        let live = side.change(doing, Some("scale"), change).await?;
        if is_quiet(&live) {
            // An earlier process can have scaled it. Its other requests must fail.
            side.touch(doing, is_quiet).await?;
        }
        let left = within(self.waits.jobs, doing, || self.pods(side).boxed()).await?;
        if left.is_empty() {
            return Ok(());
        }
        let (cluster, seconds) = (side.cluster, self.waits.jobs);
        let pods = left.join(", ");
        Err(StepFault::Skip(format!("these Pods of the {cluster} have not ended within {seconds} s: {pods}")))
    }

    /// Returns what a workload still has: its Pods, or itself if its controller has not seen the change.
    async fn pods(&self, side: &Side<'_>) -> Result<Vec<String>, StepFault> {
        let live = side.read().await?;
        if !is_quiet(&live) {
            return Err(side.woken());
        }
        let number = |path: &str| live.pointer(path).and_then(Value::as_i64).unwrap_or_default();
        if number("/status/observedGeneration") < number("/metadata/generation")
            || number("/status/replicas") > 0
        {
            return Ok(vec![format!("{}", side.object)]);
        }
        let selector = selector(&live);
        let pods = Collection::new("v1", "Pod", side.object.collection.namespace);
        let found = side.api.list(&pods, Some(&selector)).await.map_err(|error| side.fault(&error))?;
        let is_over = |pod: &Value| matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        let is_owned = |pod: &Value| pod.pointer("/metadata/ownerReferences").is_some();
        let left = found.iter().filter(|pod| is_owned(pod) && !is_over(pod));
        Ok(left.map(|pod| text(pod, "/metadata/name").to_string()).collect())
    }

    /// Scales the workload in the second cluster. It must still have no replicas in the first one.
    async fn wake(
        &self,
        (from, to): (&Side<'_>, &Side<'_>),
        doing: &Doing<'_, HandOver>,
        (replicas, token): (i64, Option<&str>),
    ) -> Result<(), StepFault> {
        // An object that does not exist is quiet.
        if from.find().await?.is_some_and(|live| !is_quiet(&live)) {
            return Err(from.woken());
        }
        let change = |live: &Value| {
            if !is_quiet(live) {
                return Err(to.woken());
            }
            let spec = json!({"replicas": replicas});
            Ok(Some(match token {
                Some(token) => json!({"metadata": {"annotations": {ACTIVATION: token}}, "spec": spec}),
                None => json!({"spec": spec}),
            }))
        };
        // The copy belongs to netsurgeon, so its annotation can be written too.
        to.change(doing, if token.is_some() { None } else { Some("scale") }, change).await.map(drop)
    }

    /// Waits until the workload is available in the mirror. Returns whether it is.
    async fn is_available(&self, doing: &Doing<'_, HandOver>) -> Result<bool, StepFault> {
        match within(self.waits.ready, doing, || self.unavailable().boxed()).await {
            Ok(missing) => Ok(missing.is_empty()),
            // The hand-over itself is complete.
            Err(StepFault::Skip(_)) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    async fn unavailable(&self) -> Result<Vec<String>, StepFault> {
        let live = self.mirror.read().await?;
        let available = live.pointer("/status/availableReplicas").and_then(Value::as_i64).unwrap_or_default();
        Ok((available < self.wanted).then(|| available.to_string()).into_iter().collect())
    }

    fn made(&self, before: &Before, is_available: bool) -> Value {
        json!({
            "active": true, "uid": self.mirror.uid, "wish": {"replicas": self.wanted}, "source_replicas": before.replicas,
            "is_available": is_available,
        })
    }
}

/// Returns the selector of a workload as text.
fn selector(live: &Value) -> String {
    let labels = live.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let mut terms: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
        .collect();
    let expressions = live.pointer("/spec/selector/matchExpressions").and_then(Value::as_array);
    for expression in expressions.into_iter().flatten() {
        let key = text(expression, "/key");
        let values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        terms.push(match text(expression, "/operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_string(),
            _ => format!("!{key}"),
        });
    }
    terms.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selector_has_labels_and_expressions() {
        let object = json!({"spec": {"selector": {"matchLabels": {"app": "web"}, "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["a", "b"]}, {"key": "old", "operator": "DoesNotExist"}]}}});
        assert_eq!(selector(&object), "app=web,tier in (a,b),!old");
    }
}
