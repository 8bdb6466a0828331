//! The steps that change what else of a cluster knows the range: kubeadm's ConfigMaps, routers, caches of the DNS.

use super::Compiler;
use super::edits::both;
use super::range::external;
use crate::operation::{Action, ApiChange, KeyChange, KeyEdit, Step, StepId, ValueChange};
use crate::renumber::intention::{Overlap, OverlapValue, RecordChange};
use crate::wire::edit::FieldChange;
use crate::wire::{Field, FieldEdit};

impl Compiler<'_> {
    /// Changes a value in a ConfigMap, and nothing else of it; it may have been changed already.
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
        Step { id, about: format!("ConfigMap kube-system/{}", record.config_map), action }
    }

    /// Tells an object of both ranges.
    pub(in crate::renumber) fn overlap(overlap: &Overlap) -> Step {
        let forward = change(overlap, |value| (&value.before, &value.both));
        around("overlap", overlap, forward)
    }

    /// Tells them of the new range alone: those that need to know before old addresses are given up, or the others.
    pub(super) fn overlaps_end(&self, early: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        for overlap in self.work.overlaps.iter().filter(|overlap| overlap.ends_early == early) {
            let forward = change(overlap, |value| (&value.both, &value.after));
            steps.push(around("overlap-end", overlap, forward));
        }
        if early && !steps.is_empty() {
            // `__PILLAR__CLUSTER__DNS__` in its Corefile is the environment of its Pods (kubernetes/dns `cmd/node-cache`).
            steps.push(external(
                "node-local-dns",
                "wait until every Pod of DaemonSet `kube-system/node-local-dns` was made anew".to_string(),
                "those that are older ask the DNS at an old address, which they have from their environment",
            ));
        }
        steps
    }
}

fn change<'v>(
    overlap: &'v Overlap,
    of: impl Fn(&'v OverlapValue) -> (&'v serde_json::Value, &'v serde_json::Value),
) -> ApiChange {
    let values = overlap.values.iter().map(|value| {
        let (before, after) = of(value);
        ValueChange { pointer: value.pointer.clone(), before: before.clone(), after: after.clone() }
    });
    ApiChange::Replace {
        api_version: overlap.api_version.clone(),
        kind: overlap.kind.clone(),
        namespace: overlap.namespace.clone(),
        name: overlap.name.clone(),
        values: values.collect(),
    }
}

fn around(name: &str, overlap: &Overlap, forward: ApiChange) -> Step {
    let subject = format!("{}-{}", overlap.kind, overlap.name);
    let backward = forward.inverse();
    let about = format!("{} {}", overlap.kind, overlap.name);
    Step { id: StepId(format!("{name}/{subject}")), about, action: Action::Api { forward, backward } }
}
