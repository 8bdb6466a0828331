//! What an operation consists of: a closed set of step kinds, each plain data with its way back.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::store::Key;
use crate::wire::edit::Condition;
use crate::wire::{Field, FieldEdit};

/// The name of a step, unique in its plan and the same on every machine: as in `flip/default/web`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepId(pub String);

impl StepId {
    /// Returns what it does, a word: `flip` of `flip/default/web`.
    pub fn kind(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Its name.
    pub id: StepId,
    /// What it is about, as in `default/web`; empty for a step that the whole operation needs. Once a step
    /// cannot be undone, what came before it for the same thing is left as it is, and so is what the whole
    /// operation needs: undoing it would take from under it what it stands on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// What it does, and how to undo it.
    pub action: Action,
    /// Whether nothing stands on it: if it cannot be undone, only what it is about is left as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
}

/// The kinds of step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// A transaction in the store, and the one that undoes it, if there is anything to undo.
    Swap {
        /// On the way forward.
        forward: Swap,
        /// On the way back.
        backward: Option<Swap>,
    },
    /// A transaction that matters on the way back only: it is carried out, in its place in the reverse order,
    /// when an operation is undone in which another step had been carried out.
    WayBack {
        /// The other step.
        of: StepId,
        /// The transaction.
        swap: Swap,
    },
    /// A change through the Kubernetes API.
    Api {
        /// On the way forward.
        forward: ApiChange,
        /// On the way back.
        backward: Option<ApiChange>,
    },
    /// Waiting for something to be true; done in both directions, on the way back whenever something was
    /// undone since the last wait.
    Wait(Wait),
    /// Waiting that matters on the way back only, when one of these steps had been carried out; as long as nothing
    /// is undone in between, once for all waits for the same thing. Whoever asks to stop need not wait for its end.
    WaitBack {
        /// The other steps.
        of: Vec<StepId>,
        /// What for.
        wait: Wait,
    },
    /// Something that a person or another component does.
    External(External),
    /// From here on the operation cannot be rolled back.
    PointOfNoReturn,
}

impl Action {
    /// Whether there is nothing to do on the way forward.
    pub fn is_for_the_way_back(&self) -> bool {
        matches!(self, Self::WayBack { .. } | Self::WaitBack { .. })
    }
}

/// Changes of a few keys in one transaction, with what must hold of others.
///
/// At most one key of a resource: a Kubernetes watch that resumes after a revision loses the second of two
/// objects of a resource that were written at the same revision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    /// The changes.
    pub edits: Vec<KeyEdit>,
    /// What must hold of other keys at the moment of the commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<KeyCheck>,
}

/// One key's change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyEdit {
    /// The key.
    pub key: Key,
    /// What becomes of it.
    pub change: KeyChange,
}

/// What becomes of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyChange {
    /// It is made; it must not exist.
    Create {
        /// The value.
        value: Vec<u8>,
        /// Fields to fill at the moment of the change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fill: Vec<Fill>,
    },
    /// Some of its fields change; it must exist.
    Edit {
        /// What must hold besides what the edits expect, such as the object's uid.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        require: Vec<Condition>,
        /// The changes.
        edits: Vec<FieldEdit>,
        /// Fields to fill at the moment of the change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fill: Vec<Fill>,
    },
    /// It is removed. A key that is gone already is as it should be.
    Delete {
        /// What must hold of it.
        require: Vec<Condition>,
    },
    /// This change, if the key exists and all conditions hold. Otherwise the object belongs to another client by now, and
    /// stays as it is.
    If {
        /// The conditions.
        holds: Vec<Condition>,
        /// The change.
        change: Box<KeyChange>,
    },
}

/// A field whose value is made at the moment of the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fill {
    /// The field.
    pub field: Field,
    /// Its value.
    pub with: Generated,
}

/// A value made at the moment of the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Generated {
    /// A random uid (RFC 9562, version 4).
    FreshUid,
    /// The time of the change, plus this many seconds.
    Now {
        /// Seconds into the future.
        ahead: i64,
    },
}

/// What must hold of a key that is not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyCheck {
    /// The key; it must exist.
    pub key: Key,
    /// The conditions.
    pub conditions: Vec<Condition>,
}

/// A change through the Kubernetes API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApiChange {
    /// An object is made.
    Create {
        /// The object, with `apiVersion`, `kind` and `metadata`.
        manifest: serde_json::Value,
    },
    /// An object is deleted, if it is still there.
    Delete {
        /// As in `networking.k8s.io/v1`.
        api_version: String,
        /// As in `ServiceCIDR`.
        kind: String,
        /// `None` for objects without a namespace.
        namespace: Option<String>,
        /// The object's name.
        name: String,
    },
    /// A list in an object gets items and loses others, whatever else is in it. An object that is not there, or has no such
    /// list, needs none of them.
    List {
        /// As in `crd.projectcalico.org/v1`.
        api_version: String,
        /// As in `BGPConfiguration`.
        kind: String,
        /// `None` for objects without a namespace.
        namespace: Option<String>,
        /// The object's name.
        name: String,
        /// Where the list is (RFC 6901).
        pointer: String,
        /// What it must have.
        with: Vec<serde_json::Value>,
        /// What it must not have.
        without: Vec<serde_json::Value>,
    },
}

impl fmt::Display for ApiChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { manifest } => {
                let text = |path: &str| manifest.pointer(path).and_then(|v| v.as_str()).unwrap_or_default();
                write!(f, "create {} `{}`", text("/kind"), text("/metadata/name"))
            }
            Self::Delete { kind, name, .. } => write!(f, "delete {kind} `{name}`"),
            Self::List { kind, name, .. } => write!(f, "change {kind} `{name}`"),
        }
    }
}

/// Something to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// What, as a word for the port: `barrier`.
    pub name: String,
    /// The batch of the plan that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// The one thing of its batch that it is about, by the id that its steps are about, if not about all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// In words.
    pub until: String,
}

/// Something that a person or another component does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct External {
    /// What, as a word for the port: `flags`.
    pub name: String,
    /// What, in words for the operator.
    pub what: String,
    /// Why it must happen at this place.
    pub why: String,
    /// What, on the way back; `None` for what may stay as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// What it does to the store, where a rehearsal must take it as done to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed: Option<Swap>,
    /// What undoing it does to the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed_back: Option<Swap>,
}
