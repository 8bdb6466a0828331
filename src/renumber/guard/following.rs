//! Shadows that follow their Services: selector and ports, and endpoints where no controller gives them any. Both go
//! through the API.

use serde_json::{Value, json};

use super::{about, mend_of};
use crate::ip::Family;
use crate::operation::Mend;
use crate::renumber::intention::Move;
use crate::renumber::plan::shadow_spec;
use crate::survey::{Finding, ServiceRecord};

/// A shadow that is to be as its Service is.
#[derive(Debug, Clone, PartialEq)]
pub struct Follow {
    /// What to say if it cannot be done.
    pub finding: Finding,
    /// Where the shadow is.
    pub namespace: String,
    /// The shadow's name.
    pub name: String,
    /// In what it follows.
    pub what: Followed,
    /// The record of it; it changes nothing else.
    pub mend: Mend,
}

/// In what a shadow follows its Service.
#[derive(Debug, Clone, PartialEq)]
pub enum Followed {
    /// Selector and ports, by a JSON merge patch, which is refused if the shadow was changed meanwhile. They are validated,
    /// and their defaults set, by the API server: so it is asked.
    Spec(Value),
    /// The endpoints of the Service of this name, which are not in the survey: they are to be compared.
    Endpoints(String),
}

/// What a shadow must become whose Service has another selector or other ports; `None` where it has the same.
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
    let says = format!("has another selector or other ports than its shadow `{}`", shadow.name);
    let part = |spec: &Value, name: &str| spec.get(name).cloned().unwrap_or_default();
    let mut selector = part(wanted, "selector");
    if let (Some(new), Some(old)) = (selector.as_object_mut(), part(found, "selector").as_object()) {
        // A merge patch takes away what is null.
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
    let done = format!("the shadow `{}` follows it", shadow.name);
    Follow {
        finding: Finding::error("shadow-behind", about(candidate)).says(says),
        namespace: candidate.namespace.to_string(),
        name: shadow.name.to_string(),
        what: Followed::Spec(change),
        mend: mend_of(candidate, "shadow-follows", done, Vec::new(), Vec::new()),
    }
}

/// The shadow of a Service that has, or had, no selector; also if it has one by now: then the copies go.
pub(super) fn copies(candidate: &Move, service: Option<&ServiceRecord>) -> Option<Follow> {
    let has_none = service.is_some_and(|service| service.spec.selector.is_empty());
    let shadow = candidate.shadow.as_ref().filter(|shadow| has_none || shadow.has_copies())?;
    let says = format!("has other endpoints than its shadow `{}`", shadow.hold_name);
    let done = format!("the shadow `{}` gets its endpoints", shadow.hold_name);
    Some(Follow {
        finding: Finding::error("shadow-behind", about(candidate)).says(says),
        namespace: candidate.namespace.to_string(),
        name: shadow.hold_name.clone(),
        what: Followed::Endpoints(candidate.name.to_string()),
        mend: mend_of(candidate, "shadow-follows", done, Vec::new(), Vec::new()),
    })
}

/// As much of a shadow's spec as decides where traffic goes. What a client writes in another way than the API
/// server stores it is the same.
fn decides(spec: &Value) -> Value {
    let part = |name: &str| spec.get(name).cloned().unwrap_or_default();
    json!([part("selector"), part("ports"), part("sessionAffinity"), part("publishNotReadyAddresses")])
}
