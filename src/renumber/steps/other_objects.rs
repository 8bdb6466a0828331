//! The steps that change other objects that contain the range: kubeadm's ConfigMaps, and configurations of routers.

use serde_json::Value;

use super::edits::both;
use super::{Action, Compiler, Step};
use crate::operation::{KeyChange, KeyEdit, StepId};
use crate::renumber::effect::{Effect, List};
use crate::renumber::intention::{Overlap, RecordChange};
use crate::wire::edit::FieldChange;
use crate::wire::{Field, FieldEdit};

impl Compiler<'_> {
    /// Changes only one value in a ConfigMap. The ConfigMap may already have the new value.
    pub(in crate::renumber) fn record(&self, record: &RecordChange) -> Step {
        let (path, before, after) = (record.path.clone(), record.before.clone(), record.after.clone());
        let change = FieldChange::Part { path, before, after };
        let forward = FieldEdit { field: Field::config_map_entry(&record.entry), change };
        let backward = forward.inverse().into_iter().collect();
        let edit = |edits: Vec<FieldEdit>| {
            let key = self.layout.system_config_map(&record.config_map);
            vec![KeyEdit { key, change: KeyChange::Edit { require: Vec::new(), edits, fill: Vec::new() } }]
        };
        let action = both(edit(vec![forward]), edit(backward));
        let id = StepId(format!("record/{}-{}", record.config_map, record.before.replace('/', "-")));
        let subject = format!("ConfigMap kube-system/{}", record.config_map);
        Step { id, subject, action, independent: true, back_of: Vec::new() }
    }

    /// Adds the new range to a list that contains the old range.
    pub(in crate::renumber) fn overlap(overlap: &Overlap) -> Step {
        around("overlap", overlap, (&overlap.new, &[]), true)
    }

    /// Removes the old range from all lists that contain both ranges.
    pub(super) fn overlaps_end(&self) -> Vec<Step> {
        let end = |overlap: &Overlap| around("overlap-end", overlap, (&[], &overlap.old), false);
        self.work.overlaps.iter().map(end).collect()
    }
}

fn around(name: &str, overlap: &Overlap, (with, without): (&[Value], &[Value]), is_undone: bool) -> Step {
    let list = List {
        api_version: overlap.api_version.clone(),
        kind: overlap.kind.clone(),
        name: overlap.name.clone(),
        pointer: overlap.pointer.clone(),
        with: with.to_vec(),
        without: without.to_vec(),
        is_undone,
    };
    Step {
        id: StepId(format!("{name}/{}-{}", overlap.kind, overlap.name)),
        subject: format!("{} {}", overlap.kind, overlap.name),
        action: Action::Do(Effect::List(list)),
        independent: true,
        back_of: Vec::new(),
    }
}
