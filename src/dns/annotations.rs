//! Computes the annotations of the objects from which ExternalDNS publishes names, at each point of a cutover.
//!
//! ExternalDNS v0.23 reads the targets of an Ingress or a Service from the annotation `target`, or from the status if the
//! annotation is missing (`source/ingress.go`, `source/service.go`). It changes the TTL of a record only if a TTL is given
//! (`plan/plan.go`, `shouldUpdateTTL`). Therefore netsurgeon first writes the current TTL as an annotation. A rollback removes
//! this annotation only when the name servers return the original TTL again.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::inventory::host_object::HostObject;
use crate::nameserver::{RecordSet, have_same_data};

/// Names of the annotations that ExternalDNS reads, without their prefix.
const TARGET: &str = "target";
const TTL: &str = "ttl";

/// Annotations by key; `None` if the object does not have the annotation.
pub type Annotations = BTreeMap<String, Option<String>>;

/// An object from which ExternalDNS publishes one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// The object.
    pub object: HostObject,
    /// The annotations before the cutover, for every prefix that ExternalDNS can use.
    pub before: Annotations,
}

/// A change to the annotations of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Annotating {
    /// The object.
    pub object: HostObject,
    /// The annotations before the change.
    pub from: Annotations,
    /// The annotations after the change.
    pub to: Annotations,
}

impl Published {
    /// Returns an object with its current annotations. `prefixes` are the annotation prefixes that ExternalDNS can use. Each
    /// prefix ends with a slash.
    pub fn new<'p>(
        object: HostObject,
        prefixes: impl IntoIterator<Item = &'p str>,
        present: &BTreeMap<String, String>,
    ) -> Self {
        let keys =
            prefixes.into_iter().flat_map(|prefix| [TARGET, TTL].map(|name| format!("{prefix}{name}")));
        let before = keys.map(|key| (key.clone(), present.get(&key).cloned())).collect();
        Self { object, before }
    }

    /// Returns the annotations with which ExternalDNS publishes these record sets. `old` contains the record sets before the
    /// cutover. Their targets need no annotation.
    pub(super) fn annotations(&self, sets: &[RecordSet], old: &[RecordSet]) -> Annotations {
        let targets: BTreeSet<&str> = sets.iter().flat_map(|set| &set.data).map(String::as_str).collect();
        let targets = targets.into_iter().collect::<Vec<_>>().join(",");
        // ExternalDNS does not accept a TTL of 0 (`source/annotations/processors.go`).
        let ttl = sets.iter().map(|set| set.ttl).max().filter(|ttl| *ttl > 0).map(|ttl| ttl.to_string());
        let is_old = have_same_data(sets, old);
        let value = |(key, before): (&String, &Option<String>)| {
            let value = match () {
                () if key.ends_with(&format!("/{TTL}")) => ttl.clone().or_else(|| before.clone()),
                () if is_old => before.clone(),
                () => Some(targets.clone()),
            };
            (key.clone(), value)
        };
        self.before.iter().map(value).collect()
    }
}

impl Annotating {
    pub(super) fn reversed(&self) -> Self {
        Self { object: self.object.clone(), from: self.to.clone(), to: self.from.clone() }
    }
}

/// Returns the current values of these annotations of an object.
pub(super) fn present(keys: &Annotations, object: &serde_json::Value) -> Annotations {
    let all = object.pointer("/metadata/annotations");
    let value = |key: &String| Some(all?.get(key)?.as_str()?.to_string());
    keys.keys().map(|key| (key.clone(), value(key))).collect()
}

/// Formats annotations as text.
pub(super) fn in_text(annotations: &Annotations) -> String {
    let given = annotations.iter().filter_map(|(key, value)| Some(format!("`{key}: {}`", value.as_ref()?)));
    let given: Vec<String> = given.collect();
    if given.is_empty() { "none".to_string() } else { given.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::host_object::HostObjectKind;
    use crate::nameserver::RecordKind;

    #[test]
    fn ttl_is_explicit_while_the_cutover_runs() {
        let object =
            HostObject { kind: HostObjectKind::Ingress, namespace: "shop".into(), name: "web".into() };
        let (alpha, own) = ("external-dns.alpha.kubernetes.io/", "external-dns.kubernetes.io/");
        let present = BTreeMap::from([(format!("{own}ttl"), "5m".to_string())]);
        let published = Published::new(object, [alpha, own], &present);
        let set = |ttl, data: &[&str]| {
            let data = data.iter().map(ToString::to_string).collect();
            vec![RecordSet::new("www.example.com", RecordKind::A, ttl, data)]
        };
        let old = set(300, &["192.0.2.1"]);
        let values = |sets: &[RecordSet]| {
            published.annotations(sets, &old).into_values().map(Option::unwrap_or_default).collect::<Vec<_>>()
        };
        assert_eq!(published.before.values().flatten().collect::<Vec<_>>(), ["5m"]);
        assert_eq!(values(&old), ["", "300", "", "300"]);
        assert_eq!(values(&set(60, &["192.0.2.1"])), ["", "60", "", "60"]);
        assert_eq!(values(&set(0, &["192.0.2.1"])), ["", "", "", "5m"]);
        let both = "192.0.2.1,198.51.100.1";
        assert_eq!(values(&set(60, &["192.0.2.1", "198.51.100.1"])), [both, "60", both, "60"]);
    }
}
