//! A second kind of operation, as small as possible: it creates ConfigMaps in another cluster, and then waits for them. If
//! another client has a ConfigMap of that name, it is skipped.

use async_trait::async_trait;
use netsurgeon::kube_api::{Cluster as Api, ClusterError, ObjectRef};
use netsurgeon::operation::{
    Action, Answer, Applied, Doing, Effect, Environment, Manual, Observed, OperationKind, Records, Stage,
    Step, StepFault, StepId, Wait, WaitKind, Work,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const NAMESPACE: &str = "default";
/// The annotation with the step that created an object.
const STEP: &str = "netsurgeon.io/step";

/// Creates a ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Make {
    pub name: String,
}

impl Effect for Make {
    type Wait = There;
}

/// All of them exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct There;

impl WaitKind for There {
    fn name(self) -> &'static str {
        "there"
    }
}

/// ConfigMaps to create, one after the other; then a wait for them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Maps {
    pub names: Vec<String>,
}

impl OperationKind for Maps {
    const NAME: &'static str = "maps";
    const VERSION: u32 = 1;
}

pub fn step_of(name: &str) -> StepId {
    StepId(format!("make/{name}"))
}

impl Work for Maps {
    type Effect = Make;

    fn stages(&self) -> Vec<Stage> {
        let stage = |index, name: &str| Stage { index, name: name.into(), batch: None, title: name.into() };
        vec![stage(0, "make"), stage(1, "wait")]
    }

    fn steps(&self, stage: &Stage) -> Vec<Step<Make>> {
        let step = |id, about: &str, action| Step {
            id,
            subject: about.into(),
            action,
            independent: false,
            back_of: Vec::new(),
        };
        if stage.index == 0 {
            let make = |name: &String| step(step_of(name), name, Action::Do(Make { name: name.clone() }));
            return self.names.iter().map(make).collect();
        }
        let wait = Wait { kind: There, batch: None, subject: None, until: "they exist".into() };
        vec![step(StepId("wait/there".into()), "", Action::Wait(wait))]
    }
}

/// The other cluster, through its API.
pub struct Elsewhere<'a> {
    pub api: &'a Api,
    /// The operation's id.
    pub operation: &'a str,
}

fn object(name: &str) -> ObjectRef<'_> {
    ObjectRef::new("v1", "ConfigMap", Some(NAMESPACE), name)
}

fn fault(error: ClusterError) -> StepFault {
    match error {
        ClusterError::TimedOut { .. } | ClusterError::Unreachable { .. } => {
            StepFault::InDoubt(error.to_string())
        }
        ClusterError::AlreadyExists { .. } | ClusterError::Conflict { .. } => {
            StepFault::Skip(error.to_string())
        }
        error => StepFault::Halt(error.to_string()),
    }
}

fn uid(found: &Value) -> Value {
    found["metadata"]["uid"].clone()
}

impl Elsewhere<'_> {
    fn mark(&self, doing: &Doing<'_, Make>) -> String {
        format!("{}/{}", self.operation, doing.step)
    }

    async fn find(&self, doing: &Doing<'_, Make>) -> Result<Option<Value>, StepFault> {
        self.api.get(&object(&doing.effect.name)).await.map_err(fault)
    }

    fn is_ours(&self, doing: &Doing<'_, Make>, found: &Value) -> bool {
        found["metadata"]["annotations"][STEP] == self.mark(doing)
    }
}

#[async_trait]
impl Environment<Make> for Elsewhere<'_> {
    async fn apply(&self, doing: &Doing<'_, Make>) -> Result<Applied, StepFault> {
        let name = &doing.effect.name;
        if doing.back {
            // The process that created it may have been killed before it could record that.
            let found = self.find(doing).await?.filter(|found| self.is_ours(doing, found));
            if let Some(uid) = found.as_ref().and_then(|found| found["metadata"]["uid"].as_str()) {
                self.api.delete(&object(name), Some(uid)).await.map_err(fault)?;
            }
            return Ok(Applied::Made(Value::Null));
        }
        let manifest = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": NAMESPACE, "name": name, "annotations": {STEP: self.mark(doing)}},
        });
        let made = match self.api.create(&manifest).await {
            // Perhaps created by an own request whose answer was lost.
            Err(ClusterError::AlreadyExists { .. }) => match self.observe(doing).await? {
                Observed::Done(made) => return Ok(Applied::Made(made)),
                _ => return Err(StepFault::Skip(format!("another client has created `{name}`"))),
            },
            outcome => outcome.map_err(fault)?,
        };
        Ok(Applied::Made(json!({"uid": uid(&made)})))
    }

    async fn observe(&self, doing: &Doing<'_, Make>) -> Result<Observed, StepFault> {
        Ok(match (self.find(doing).await?, doing.back) {
            (None, false) => Observed::NotDone,
            (Some(found), false) if self.is_ours(doing, &found) => {
                Observed::Done(json!({"uid": uid(&found)}))
            }
            (Some(found), true) if self.is_ours(doing, &found) => Observed::NotDone,
            // No object of this operation exists.
            (_, true) => Observed::Done(Value::Null),
            (Some(_), false) => {
                Observed::Changed(format!("another client has created `{}`", doing.effect.name))
            }
        })
    }

    async fn wait(&self, _wait: &Wait<There>, _: Records<'_>) -> Result<(), StepFault> {
        Ok(())
    }

    async fn manual(&self, manual: &Manual, _back: bool) -> Result<Answer, StepFault> {
        Err(StepFault::Halt(manual.what.clone()))
    }
}
