//! The environment of a mirror operation: reads objects from the source, and writes their copies to the mirror.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::cluster_kind::DEFINITION;
use super::config::Config;
use super::copy::copy;
use super::definition::established;
use super::deletion::{delete, refuse_content};
use super::difference::{Change, get, has_value, set};
use super::field_managers::managers;
use super::former_names::FormerNames;
use super::ledger::{Created, created, created_uid};
use super::left_out::{TOO_LARGE, left_out};
use super::object_write::{self, is_created_by};
use super::reader::{differing, planned_object};
use super::refusal::{fault, is_of_quota, is_stale};
use super::rules::{Rules, Uses, planned_pull_secret};
use super::source_pages::SourcePages;
use super::strip::strip;
use super::webhook_server::refuse_without_server;
use super::work::{Copy, Planned};
use crate::inventory::text;
use crate::kube_api::{Cluster, ClusterError, ReadOnly};
use crate::operation::{
    Answer, Applied, Doing, Environment, Manual, NoWait, Observed, Records, State, StepFault, Wait,
};
use crate::store::Revision;

/// Maximum size of the previous values that a record contains, in bytes of JSON. The record of an operation is a ConfigMap.
const MOST_RECORDED: usize = 8 << 10;

/// How long the write of the intention, directly before an effect, shows that this process still holds the operation. An object that
/// is created later, for example by a process that was suspended, needs another check. What arrives too late in spite of it is
/// deleted ([`Environment::take_back`]).
const JUST_NOW: Duration = Duration::from_secs(1);

/// Both clusters.
pub(super) struct Clusters<'a> {
    /// The source. A rollback does not need it.
    pub source: Option<&'a ReadOnly>,
    pub mirror: &'a Cluster,
    /// Id of the operation.
    pub operation: &'a str,
    /// The rules of the plan.
    pub config: Config,
    /// Whether files that the plan names are read. Another client can have written a plan that is only recorded in the cluster.
    pub reads_files: bool,
    /// What the mirror had before this process created copies.
    pub former: FormerNames,
    /// The objects of the source.
    pub pages: SourcePages,
    /// What mirror operations have created, read on first use. Meanwhile no other operation creates anything.
    pub created: OnceCell<Created>,
}

/// The state of an object of the mirror before its step.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Before {
    /// Whether the object did not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
    /// The fields that the step changes, with their values. `None` if the values are not recorded, because the object is a Secret
    /// or the values are too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Vec<Change>>,
    /// The managers of the fields that the step takes over: entries of `metadata.managedFields` with only these fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub managers: Vec<Value>,
    /// The object that the step deletes. `None` if it is not recorded, for the same reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    object: Option<Value>,
}

impl Before {
    pub(super) fn of(doing: &Doing<'_, Copy>) -> Self {
        serde_json::from_value(doing.before.clone()).unwrap_or_default()
    }
}

impl Clusters<'_> {
    pub(super) async fn live(&self, effect: &Copy) -> Result<Option<Value>, StepFault> {
        let found = self.mirror.get(&effect.object.object()).await;
        found.map_err(|error| fault(&error, effect.object.is_secret()))
    }

    /// Reads the object of the source again, and returns its copy.
    pub(super) async fn copy(&self, effect: &Copy) -> Result<Value, StepFault> {
        if effect.uid.is_empty() {
            let secret = planned_pull_secret(&self.config, &effect.source, self.reads_files);
            return self.changed(effect, &secret.map_err(|fault| StepFault::Skip(fault.0))?);
        }
        let source = self.source.ok_or_else(|| StepFault::Halt("the source is not connected".to_string()))?;
        let mut found = self.pages.take(source, &effect.source, &effect.uid).await;
        if found.is_none() {
            let read = planned_object(source, &effect.source.object(), &effect.uid).await;
            found = read.map_err(|error| fault(&error, effect.object.is_secret()))?;
        }
        let Some(found) = found else {
            return Err(StepFault::Skip(
                "the source has deleted or replaced the object since the plan".to_string(),
            ));
        };
        if let Some(reason) = left_out(&effect.object.resource, &found) {
            let text = reason.text;
            return Err(StepFault::Skip(format!(
                "the object of the source has changed since the plan: {text}"
            )));
        }
        self.changed(effect, &found)
    }

    /// Returns the copy of an object of the source.
    fn changed(&self, effect: &Copy, found: &Value) -> Result<Value, StepFault> {
        let rules = Rules { config: &self.config, uses: &Uses::default() };
        let copied = copy(&effect.object.resource, found, effect.shape, rules);
        copied.map_err(|fault| StepFault::Skip(fault.0))
    }

    /// Returns the fields of a copy that have other values in the mirror.
    pub(super) async fn differing(
        &self,
        effect: &Copy,
        copy: &Value,
        live: &Value,
    ) -> Result<Vec<Change>, StepFault> {
        let mirror = ReadOnly::new(self.mirror.clone());
        let found = differing(&mirror, copy, live).await;
        found.map_err(|error| fault(&error, effect.object.is_secret()))
    }

    /// Returns the uid of the object that the step created. If the process that created it could not record this, the object is the
    /// one that netsurgeon applied and that did not exist before.
    fn created(&self, doing: &Doing<'_, Copy>, live: &Value) -> Option<String> {
        if let Some(uid) = created_uid(&doing.made) {
            return Some(uid);
        }
        let is_ours = doing.made.is_null() && Before::of(doing).absent && is_created_by(live, self.operation);
        is_ours.then(|| text(live, "/metadata/uid").to_string())
    }

    pub(super) async fn create(&self, doing: &Doing<'_, Copy>) -> Result<Applied, StepFault> {
        let effect = doing.effect;
        let noted = Instant::now();
        let manifest = self.copy(effect).await?;
        refuse_without_server(self.mirror, &effect.object.resource, &manifest).await?;
        if noted.elapsed() > JUST_NOW {
            doing.fence.still_ours().await?;
        }
        match object_write::create(self.mirror, &manifest, self.operation).await {
            Ok(made) => return Ok(Applied::Made(self.made(doing, text(&made, "/metadata/uid")).await?)),
            Err(ClusterError::AlreadyExists { .. }) => {}
            Err(ClusterError::Conflict { reason, .. }) if is_stale(&reason) && !is_of_quota(&reason) => {}
            Err(error) => return Err(fault(&error, effect.object.is_secret())),
        }
        match self.live(effect).await? {
            Some(live) => self.arrived(doing, &live).await,
            None => Err(another_client_created(effect)),
        }
    }

    /// Returns the result for an object that exists already. An own request can have created it, whose answer was lost, or which a
    /// killed process had sent.
    async fn arrived(&self, doing: &Doing<'_, Copy>, live: &Value) -> Result<Applied, StepFault> {
        let uid = self.created(doing, live).ok_or_else(|| another_client_created(doing.effect))?;
        Ok(Applied::Made(self.made(doing, &uid).await?))
    }

    /// Returns the result of a creation. Waits until the mirror serves the kind of a definition.
    async fn made(&self, doing: &Doing<'_, Copy>, uid: &str) -> Result<Value, StepFault> {
        if doing.effect.object.resource == DEFINITION.0 {
            established(self.mirror, &doing.effect.object, doing.stop).await?;
        }
        Ok(json!({"uid": uid, "created": true}))
    }

    async fn update(&self, doing: &Doing<'_, Copy>) -> Result<Applied, StepFault> {
        let effect = doing.effect;
        let (live, manifest) = tokio::try_join!(self.planned_live(effect), self.copy(effect))?;
        self.change(doing, &live, &manifest).await
    }

    /// Changes the fields of an object of the mirror that differ from its copy, unless they differ from what is recorded.
    pub(super) async fn change(
        &self,
        doing: &Doing<'_, Copy>,
        live: &Value,
        manifest: &Value,
    ) -> Result<Applied, StepFault> {
        let effect = doing.effect;
        let made = Applied::Made(json!({"uid": text(live, "/metadata/uid")}));
        let changes = self.differing(effect, manifest, live).await?;
        if changes.is_empty() {
            return Ok(made);
        }
        let is_adopted = effect.action == Planned::Adopt;
        // An adoption without a record could not be undone.
        if Before::of(doing).changes.map_or(is_adopted, |recorded| recorded != changes) {
            return Err(StepFault::Skip(
                "the object has changed since its previous values were recorded; create a new plan"
                    .to_string(),
            ));
        }
        doing.fence.still_ours().await?;
        let version = text(live, "/metadata/resourceVersion");
        let written = if is_adopted {
            object_write::patch(self.mirror, (live, &changes), version).await
        } else {
            object_write::change(self.mirror, (manifest, &changes), version).await
        };
        written.map_err(|error| fault(&error, effect.object.is_secret()))?;
        Ok(made)
    }

    /// Returns the object of the mirror that an update changes.
    pub(super) async fn planned_live(&self, effect: &Copy) -> Result<Value, StepFault> {
        let live = self.live(effect).await?;
        let is_planned = |live: &Value| Some(text(live, "/metadata/uid")) == effect.mirror_uid.as_deref();
        live.filter(is_planned).ok_or_else(|| {
            StepFault::Skip("another client has deleted or replaced the object since the plan".to_string())
        })
    }

    /// Deletes the object that the step created.
    pub(super) async fn delete(&self, doing: &Doing<'_, Copy>) -> Result<Applied, StepFault> {
        let effect = doing.effect;
        let Some(live) = self.live(effect).await? else { return Ok(Applied::NOTHING) };
        let uid = text(&live, "/metadata/uid");
        if self.created(doing, &live).as_deref() != Some(uid) && !self.has_recreated(uid).await? {
            return Err(StepFault::Skip("another client has replaced the object".to_string()));
        }
        if text(&live, "/metadata/deletionTimestamp").is_empty() {
            refuse_content(self.mirror, &effect.object, &live).await?;
        }
        doing.fence.still_ours().await?;
        delete(self.mirror, &effect.object, uid, doing.stop).await?;
        Ok(Applied::NOTHING)
    }

    /// Returns whether another mirror operation created an object: the rollback of its deletion gave it a new uid.
    async fn has_recreated(&self, uid: &str) -> Result<bool, StepFault> {
        let read = async || created(self.mirror).await.map(|(created, _)| created);
        let created = self.created.get_or_try_init(read).await;
        Ok(created.map_err(|failure| StepFault::Halt(failure.to_string()))?.contains_key(uid))
    }

    /// Restores the previous values of the fields that an update changed.
    async fn restore(&self, doing: &Doing<'_, Copy>) -> Result<Applied, StepFault> {
        let effect = doing.effect;
        let Some(changes) = Before::of(doing).changes else {
            return Err(StepFault::Skip(
                "its previous values are not recorded, so it keeps the values of the copy".to_string(),
            ));
        };
        if self.live(effect).await?.is_none() {
            return Ok(Applied::NOTHING);
        }
        let live = self.planned_live(effect).await?;
        let mut manifest = strip(&effect.object.resource, &live, true);
        let Undo { due, foreign } = Undo::of(&changes, &live);
        for change in &due {
            set(&mut manifest, &change.path, change.to.as_ref());
        }
        if !due.is_empty() {
            doing.fence.still_ours().await?;
            let version = text(&live, "/metadata/resourceVersion");
            let written = object_write::change(self.mirror, (&manifest, &due), version).await;
            written.map_err(|error| fault(&error, effect.object.is_secret()))?;
        }
        refuse_foreign(&foreign)
    }
}

/// What a rollback does with the fields that a step changed. Fields that have their previous value are in neither list.
pub(super) struct Undo {
    /// The changes to send: from the value of the copy to the previous value.
    pub due: Vec<Change>,
    /// The fields that another client has changed.
    pub foreign: Vec<String>,
}

impl Undo {
    /// Compares the changes of a step with the object as it is now.
    pub fn of(changes: &[Change], live: &Value) -> Self {
        let (mut due, mut foreign) = (Vec::new(), Vec::new());
        for change in changes {
            let now = get(live, &change.path);
            if now == change.from.as_ref() {
                continue;
            }
            if has_value(now, change.to.as_ref()) {
                due.push(change.reversed());
            } else {
                foreign.push(change.field());
            }
        }
        Self { due, foreign }
    }
}

/// Skips an object of which another client has changed fields. Its other fields are restored.
pub(super) fn refuse_foreign(foreign: &[String]) -> Result<Applied, StepFault> {
    if foreign.is_empty() {
        return Ok(Applied::NOTHING);
    }
    Err(StepFault::Skip(format!("another client has changed these fields: {}", foreign.join(", "))))
}

/// Returns whether a record can contain a value.
pub(super) fn fits_record(value: &impl Serialize) -> bool {
    json!(value).to_string().len() <= MOST_RECORDED
}

/// The action `delete`, and its rollback.
impl Clusters<'_> {
    /// Deletes the copy of an object that the source has deleted.
    async fn remove(&self, doing: &Doing<'_, Copy>) -> Result<Applied, StepFault> {
        let effect = doing.effect;
        let Some(live) = self.live(effect).await? else { return Ok(Applied::NOTHING) };
        let uid = text(&live, "/metadata/uid");
        if Some(uid) != effect.mirror_uid.as_deref() {
            return Err(StepFault::Skip("another client has replaced the object since the plan".to_string()));
        }
        doing.fence.still_ours().await?;
        delete(self.mirror, &effect.object, uid, doing.stop).await?;
        Ok(Applied::NOTHING)
    }

    /// Creates a deleted copy again, from its recorded content.
    async fn recreate(&self, doing: &Doing<'_, Copy>) -> Result<Applied, StepFault> {
        let effect = doing.effect;
        let Some(manifest) = Before::of(doing).object else {
            return Err(StepFault::Skip(
                "its content is not recorded, and the source has deleted it, so it stays deleted".to_string(),
            ));
        };
        if let Some(live) = self.live(effect).await? {
            return self.recreated(effect, &live).ok_or_else(|| another_client_created(effect));
        }
        doing.fence.still_ours().await?;
        match object_write::create(self.mirror, &manifest, self.operation).await {
            Ok(made) => Ok(Applied::Made(json!({"recreated": text(&made, "/metadata/uid")}))),
            // A killed process can have sent this request.
            Err(ClusterError::AlreadyExists { .. }) => {
                let live = self.live(effect).await?;
                live.and_then(|live| self.recreated(effect, &live))
                    .ok_or_else(|| another_client_created(effect))
            }
            Err(error) => Err(fault(&error, effect.object.is_secret())),
        }
    }

    /// Returns the result if a deletion was never executed, or if a lost answer created the object again.
    fn recreated(&self, effect: &Copy, live: &Value) -> Option<Applied> {
        let uid = text(live, "/metadata/uid");
        if Some(uid) == effect.mirror_uid.as_deref() {
            return Some(Applied::NOTHING);
        }
        is_created_by(live, self.operation).then(|| Applied::Made(json!({"recreated": uid})))
    }
}

fn another_client_created(effect: &Copy) -> StepFault {
    StepFault::Skip(format!("another client has created {} since the plan", effect.object))
}

#[async_trait]
impl Environment<Copy> for Clusters<'_> {
    async fn before(&self, doing: &Doing<'_, Copy>) -> Result<Value, StepFault> {
        let effect = doing.effect;
        if effect.action == Planned::Create {
            let known = self.former.has(self.mirror, &effect.object).await;
            let known = known.map_err(|error| fault(&error, effect.object.is_secret()))?;
            let absent = match known {
                Some(is_there) => !is_there,
                None => self.live(effect).await?.is_none(),
            };
            return Ok(json!(Before { absent, ..Before::default() }));
        }
        if effect.action == Planned::Adopt {
            let Some(live) = self.awaited(doing).await? else {
                return Ok(json!(Before { absent: true, ..Before::default() }));
            };
            let changes = self.differing(effect, &self.copy(effect).await?, &live).await?;
            let managers = managers(&live, &changes);
            if !fits_record(&(&changes, &managers)) {
                return Err(StepFault::Skip(TOO_LARGE.text.to_string()));
            }
            return Ok(json!(Before { changes: Some(changes), managers, ..Before::default() }));
        }
        let live = self.planned_live(effect).await?;
        if effect.action == Planned::Delete {
            let object = strip(&effect.object.resource, &live, true);
            let is_small = fits_record(&object) && !effect.object.is_secret();
            return Ok(json!(Before { object: is_small.then_some(object), ..Before::default() }));
        }
        let manifest = self.copy(effect).await?;
        let changes = self.differing(effect, &manifest, &live).await?;
        let changes = (fits_record(&changes) && !effect.object.is_secret()).then_some(changes);
        Ok(json!(Before { changes, ..Before::default() }))
    }

    async fn apply(&self, doing: &Doing<'_, Copy>) -> Result<Applied, StepFault> {
        match (doing.effect.action, doing.back) {
            (Planned::Adopt, false) => self.adopt(doing).await,
            (Planned::Adopt, true) => self.give_back(doing).await,
            (Planned::Update, false) => self.update(doing).await,
            (Planned::Update, true) => self.restore(doing).await,
            (Planned::Delete, false) => self.remove(doing).await,
            (Planned::Delete, true) => self.recreate(doing).await,
            (_, false) => self.create(doing).await,
            (_, true) => self.delete(doing).await,
        }
    }

    async fn observe(&self, doing: &Doing<'_, Copy>) -> Result<Observed, StepFault> {
        let effect = doing.effect;
        if effect.action != Planned::Create {
            // An update, an adoption, a deletion and their rollbacks compare the object themselves.
            return Ok(Observed::NotDone);
        }
        let Some(live) = self.live(effect).await? else {
            return Ok(if doing.back { Observed::Done(Value::Null) } else { Observed::NotDone });
        };
        let uid = text(&live, "/metadata/uid");
        let is_ours = self.created(doing, &live).is_some_and(|created| created == uid);
        Ok(match (doing.back, is_ours) {
            (true, true) => Observed::NotDone,
            (false, true) => Observed::Done(self.made(doing, uid).await?),
            (_, false) => Observed::Changed(format!("another client has created {}", effect.object)),
        })
    }

    /// Deletes an object that arrived after another process had rolled its step back.
    async fn take_back(&self, doing: &Doing<'_, Copy>, _: Option<Revision>) -> Result<bool, StepFault> {
        let is_undone = (doing.records)(doing.step).is_some_and(|record| record.state == State::UndoDone);
        let (Some(uid), true, false) = (created_uid(&doing.made), is_undone, doing.back) else {
            return Ok(false);
        };
        let deleted = self.mirror.delete(&doing.effect.object.object(), Some(&uid)).await;
        deleted.map_err(|error| fault(&error, doing.effect.object.is_secret()))?;
        Ok(true)
    }

    async fn wait(&self, wait: &Wait<NoWait>, _: Records<'_>) -> Result<(), StepFault> {
        match wait.kind {}
    }

    async fn manual(&self, manual: &Manual, _back: bool) -> Result<Answer, StepFault> {
        Err(StepFault::Halt(format!("a mirror operation has no manual step: {}", manual.what)))
    }
}
