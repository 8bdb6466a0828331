//! Updates of shadows after their Services have changed. The guard updates the selector and the ports, and also the endpoints if
//! no controller creates them. All updates are written through the API.

use serde_json::{Value, json};

use super::{about, repair_of};
use crate::ip::Family;
use crate::operation::Repair;
use crate::renumber::intention::Move;
use crate::renumber::plan::shadow_spec;
use crate::survey::{Finding, ServiceRecord};

/// A shadow to update from its Service.
#[derive(Debug, Clone, PartialEq)]
pub struct Follow {
    /// The finding to report if the update fails.
    pub finding: Finding,
    /// The shadow's namespace.
    pub namespace: String,
    /// The shadow's name.
    pub name: String,
    /// The part to update.
    pub what: Followed,
    /// The repair that records the update. It contains no other changes.
    pub repair: Repair,
}

/// The part of a shadow that is updated from its Service.
#[derive(Debug, Clone, PartialEq)]
pub enum Followed {
    /// Selector and ports, as a JSON merge patch. The API server rejects the patch if the shadow was changed concurrently. The
    /// API server also validates the selector and ports and sets their defaults, so they are not written to etcd directly.
    Spec(Value),
    /// The endpoints, copied from the Service with this name. They are not in the survey, so the caller must compare them.
    Endpoints(String),
}

/// Returns the update of a shadow if its Service has another selector or other ports; `None` if the selector and the ports are
/// the same.
pub(in crate::renumber) fn behind(
    candidate: &Move,
    service: &ServiceRecord,
    shadow: &ServiceRecord,
    family: Family,
) -> Option<Follow> {
    let (wanted, found) = (shadow_spec(service, family), shadow_spec(shadow, family));
    (decides(&wanted) != decides(&found)).then(|| follow(candidate, shadow, &found, &wanted))
}

fn follow(candidate: &Move, shadow: &ServiceRecord, found: &Value, wanted: &Value) -> Follow {
    let says = format!("does not have the same selector and ports as its shadow `{}`", shadow.name);
    let part = |spec: &Value, name: &str| spec.get(name).cloned().unwrap_or_default();
    let mut selector = part(wanted, "selector");
    if let (Some(new), Some(old)) = (selector.as_object_mut(), part(found, "selector").as_object()) {
        // A merge patch removes members that are null.
        for key in old.keys() {
            new.entry(key.as_str()).or_insert(Value::Null);
        }
    }
    let or = |name: &str, default: Value| wanted.get(name).cloned().unwrap_or(default);
    let change = json!({
        // The API's resourceVersion is etcd's mod_revision.
        "metadata": {"resourceVersion": shadow.mod_revision.to_string()},
        "spec": {
            "selector": selector, "ports": part(wanted, "ports"),
            "sessionAffinity": or("sessionAffinity", "None".into()),
            "publishNotReadyAddresses": or("publishNotReadyAddresses", false.into()),
        },
    });
    let done = format!("its shadow `{}` was updated", shadow.name);
    Follow {
        finding: Finding::error("shadow-behind", about(candidate)).says(says),
        namespace: candidate.namespace.to_string(),
        name: shadow.name.to_string(),
        what: Followed::Spec(change),
        repair: repair_of(candidate, "shadow-follows", done, Vec::new(), Vec::new()),
    }
}

/// Returns the update of the endpoints of a shadow, if the Service has no selector, or had no selector at planning. If the
/// Service now has a selector, the update removes the copies of its endpoints.
pub(super) fn copies(candidate: &Move, service: Option<&ServiceRecord>) -> Option<Follow> {
    let has_none = service.is_some_and(|service| service.spec.selector.is_empty());
    let shadow = candidate.shadow.as_ref().filter(|shadow| has_none || shadow.has_copies())?;
    let says = format!("does not have the same endpoints as its shadow `{}`", shadow.hold_name);
    let done = format!("the endpoints of the shadow `{}` were updated", shadow.hold_name);
    Some(Follow {
        finding: Finding::error("shadow-behind", about(candidate)).says(says),
        namespace: candidate.namespace.to_string(),
        name: shadow.hold_name.clone(),
        what: Followed::Endpoints(candidate.name.to_string()),
        repair: repair_of(candidate, "shadow-follows", done, Vec::new(), Vec::new()),
    })
}

/// Returns the part of a shadow's spec that decides where traffic goes. Values that the API server stores in the same way are
/// equal.
fn decides(spec: &Value) -> Value {
    let part = |name: &str| spec.get(name).cloned().unwrap_or_default();
    json!([part("selector"), part("ports"), part("sessionAffinity"), part("publishNotReadyAddresses")])
}
