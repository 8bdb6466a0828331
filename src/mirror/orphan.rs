//! Copies whose objects the source has deleted.

use std::collections::HashSet;

use super::entry::refused;
use super::left_out;
use super::reader::MirrorReader;
use super::work::{DryRun, Entry, KindLeftOut, Planned, Reference};
use crate::inventory::text;
use crate::session::Failure;

impl MirrorReader {
    /// Adds the copies whose objects the source has deleted. A kind that could not be read is not compared. An object without a
    /// namespace can belong to the plan of other namespaces, so only a teardown deletes it.
    pub(super) async fn add_orphans(
        &self,
        objects: &mut Vec<Entry>,
        left_out: &[KindLeftOut],
    ) -> Result<(), Failure> {
        let known: HashSet<_> = objects.iter().map(|entry| place(&entry.object)).collect();
        let is_unread = |one: &Reference| {
            left_out.iter().any(|kind| {
                let of_group = one.resource.strip_prefix(&kind.resource);
                of_group.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        let is_compared = |one: &Reference| {
            one.namespace.as_ref().is_some_and(|namespace| self.options.namespaces.contains(namespace))
        };
        // A copy in a namespace with a former name belongs to a plan with that rename.
        let gone = self.options.ours.iter().filter(|(_, (one, copy))| {
            let is_in_place = one.renamed(&self.options.config) == *copy;
            is_in_place && is_compared(one) && !is_unread(one) && !known.contains(&place(one))
        });
        let mut found = Vec::new();
        for (uid, (reference, copy)) in gone {
            let live = self.mirror.get(&copy.object()).await?;
            let Some(live) = live.filter(|live| text(live, "/metadata/uid") == uid) else { continue };
            let mut entry = Entry::new(reference.clone());
            (entry.action, entry.mirror_uid) = (Planned::Delete, Some(uid.clone()));
            if text(&live, "/metadata/deletionTimestamp").is_empty() {
                match self.mirror.try_delete(&copy.object(), uid).await {
                    Ok(()) => entry.dry_run = Some(DryRun::Accepted),
                    Err(error) => refused(&mut entry, &error)?,
                }
            } else {
                entry.refuse(Planned::Conflict, left_out::TERMINATING);
            }
            found.push(entry);
        }
        objects.extend(found);
        Ok(())
    }
}

/// Returns what identifies an object in both clusters, in whichever version it was read.
fn place(one: &Reference) -> (String, Option<String>, String) {
    (one.resource.clone(), one.namespace.clone(), one.name.clone())
}
