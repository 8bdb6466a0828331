//! The entry of one object in a plan: what happens to it, and whether the mirror's API server accepts the change.

use std::sync::PoisonError;

use serde_json::Value;

use super::cluster_kind::Needs;
use super::content_diff::ContentDiff;
use super::copy::wished;
use super::decision::{Around, Decision};
use super::deployer::note_deployer;
use super::difference::{Change, is_same};
use super::environment::fits_record;
use super::field_managers::managers;
use super::left_out::{self, is_default_account};
use super::object_write::{self, Written};
use super::order::level;
use super::reader::MirrorReader;
use super::refusal;
use super::work::{DryRun, Entry, Planned, Reference};
use crate::inventory::text;
use crate::kube_api::{ClusterError, Tried};
use crate::session::Failure;

impl MirrorReader {
    /// Returns the entry of an object. `is_there`: whether the namespace and the kind of the object exist in the
    /// mirror.
    pub(super) async fn entry(
        &self,
        object: Reference,
        found: &Value,
        live: Option<&Value>,
        around: &Around,
        is_there: bool,
    ) -> Result<Entry, Failure> {
        let decision = around.decide(&object.resource, found, live);
        let mut entry = Entry {
            uid: text(found, "/metadata/uid").to_string(),
            resource_version: text(found, "/metadata/resourceVersion").to_string(),
            mirror_uid: live.map(|live| text(live, "/metadata/uid").to_string()),
            shape: around.shape(&object.resource, found, live),
            ..Entry::new(object)
        };
        let mut diff = self.options.with_diffs.then(|| ContentDiff::new(&entry.object));
        match decision {
            Decision::LeftOut(reason) => entry.refuse(Planned::LeftOut, reason),
            Decision::Faulty(detail) => {
                entry.refuse(Planned::LeftOut, left_out::FAULTY_RULE);
                entry.detail = Some(detail);
            }
            Decision::Conflict(reason) => entry.refuse(Planned::Conflict, reason),
            Decision::Same => {}
            Decision::Create(manifest) => {
                // A controller of the mirror creates it before netsurgeon can.
                let is_given = is_default_account(&entry.object.resource, &entry.object.name);
                entry.action = if is_given { Planned::Adopt } else { Planned::Create };
                if let Some(diff) = &mut diff {
                    diff.note_copy(found, &manifest);
                }
                self.try_create(&mut entry, &manifest, is_there, &mut diff).await?;
            }
            Decision::Differs(manifest, changes) => {
                if let Some(live) = live {
                    let is_ours = around.is_ours(live);
                    self.try_update(&mut entry, (&manifest, &changes), (live, is_ours), &mut diff).await?;
                }
            }
        }
        self.note(diff, entry.action);
        if entry.action.is_copied() {
            entry.passive = match entry.shape.moved {
                Some(_) => None,
                None => wished(&entry.object.resource, found, entry.shape, around.rules()),
            };
            note_deployer(&entry.object.resource, found, &around.uses);
            self.needs.lock().unwrap_or_else(PoisonError::into_inner).add(&entry.object.resource, found);
        }
        Ok(entry)
    }

    /// Returns what the objects that were read refer to.
    pub(super) fn needs(&self) -> Needs {
        std::mem::take(&mut *self.needs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes what a change changes.
    fn note(&self, diff: Option<ContentDiff>, action: Planned) {
        if let Some(diff) = diff.filter(|diff| !diff.is_empty()) {
            let mut diffs = self.diffs.lock().unwrap_or_else(PoisonError::into_inner);
            let place = (level(&diff.object.resource), diff.object.clone());
            diffs.insert(place, ContentDiff { action, ..diff });
        }
    }

    async fn try_create(
        &self,
        entry: &mut Entry,
        manifest: &Value,
        is_there: bool,
        diff: &mut Option<ContentDiff>,
    ) -> Result<(), Failure> {
        if !is_there {
            entry.dry_run = Some(DryRun::Unchecked);
            return Ok(());
        }
        let _turn = self.dry_runs.acquire().await;
        match object_write::try_create(&self.mirror, manifest).await {
            Ok((tried, written)) => {
                if let Some(diff) = diff {
                    diff.note_mirror(manifest, &tried.object);
                }
                accepted(entry, tried, written);
            }
            // The role of a binding is copied before the binding.
            Err(ClusterError::NotFound { reason, .. }) if refusal::is_of_binding(&reason) => {
                entry.dry_run = Some(DryRun::Unchecked);
            }
            Err(error) => refused(entry, &error)?,
        }
        Ok(())
    }

    /// Finds out in a dry run whether an apply changes an object of the mirror, and who owns the object.
    async fn try_update(
        &self,
        entry: &mut Entry,
        (manifest, changes): (&Value, &[Change]),
        (live, is_ours): (&Value, bool),
        diff: &mut Option<ContentDiff>,
    ) -> Result<(), Failure> {
        let _turn = self.dry_runs.acquire().await;
        let tried = object_write::try_change(&self.mirror, (manifest, changes), live).await;
        // An empty value of the source can mean the default, which the comparison of fields cannot know.
        if tried.as_ref().is_ok_and(|(tried, _)| is_same(&tried.object, live)) {
            return Ok(());
        }
        entry.fields = changes.iter().map(Change::field).collect();
        if let Some(diff) = diff {
            diff.note_change(live, tried.as_ref().ok().map(|(tried, _)| &tried.object), changes);
        }
        if !is_ours {
            return self.try_adopt(entry, changes, live).await;
        }
        entry.action = Planned::Update;
        match tried {
            Ok((tried, written)) => accepted(entry, tried, written),
            Err(ClusterError::Conflict { .. }) => entry.refuse(Planned::Conflict, left_out::OTHER_MANAGER),
            Err(error) => refused(entry, &error)?,
        }
        Ok(())
    }
    /// Finds out in a dry run whether an object of another client can be adopted.
    async fn try_adopt(&self, entry: &mut Entry, changes: &[Change], live: &Value) -> Result<(), Failure> {
        let reason = if !self.options.adopts && !entry.object.is_of_every_namespace() {
            Some(left_out::EXISTS)
        } else if entry.object.is_secret() {
            Some(left_out::FOREIGN_SECRET)
        } else if !fits_record(&(changes, managers(live, changes))) {
            Some(left_out::TOO_LARGE)
        } else {
            None
        };
        if let Some(reason) = reason {
            entry.refuse(Planned::Conflict, reason);
            return Ok(());
        }
        entry.action = Planned::Adopt;
        match object_write::try_patch(&self.mirror, (live, changes)).await {
            Ok(tried) => accepted(entry, tried, Written::Applied),
            Err(error) => refused(entry, &error)?,
        }
        Ok(())
    }
}

/// Notes that the mirror's API server accepts a change.
fn accepted(entry: &mut Entry, tried: Tried, written: Written) {
    entry.dry_run = Some(DryRun::Accepted);
    // A warning can contain values of the object.
    if !entry.object.is_secret() {
        entry.warnings = tried.warnings;
    }
    if written == Written::WithoutApply {
        (entry.reason, entry.detail) =
            (Some(left_out::WITHOUT_APPLY.code.to_string()), Some(left_out::WITHOUT_APPLY.text.to_string()));
    }
}

/// Notes that the mirror's API server refuses a change. Fails if the error does not concern only this object.
pub(super) fn refused(entry: &mut Entry, error: &ClusterError) -> Result<(), Failure> {
    if !refusal::is_of_object(error) {
        return Err(Failure::refused(refusal::words(error, entry.object.is_secret())).hints(error.hint()));
    }
    entry.dry_run = Some(DryRun::Refused);
    entry.detail = Some(refusal::reason_and_advice(error, entry.object.is_secret()));
    Ok(())
}
