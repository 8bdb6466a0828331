//! What an operation consists of: a closed set of step kinds, each plain data with its way back. What a step does outside
//! the store is the domain's own type.

use std::fmt;
use std::hash::Hash;

use serde::{Deserialize, Serialize, Serializer};

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

/// One step. `E` is what steps of its kind of operation do outside the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step<E: Effect> {
    /// Its name.
    pub id: StepId,
    /// What it is about, as in `default/web`; empty for a step that the whole operation needs. Once a step
    /// cannot be undone, what came before it for the same subject is left as it is, and so is what the whole
    /// operation needs: undoing it would take from under it what it stands on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// What it does, and how to undo it.
    pub action: Action<E>,
    /// Whether nothing stands on it: if it cannot be undone, only what it is about is left as it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
    /// With any, the step matters on the way back only: in its place of the reverse order it is carried out when one of
    /// these steps had been. Empty for a step of both ways.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub back_of: Vec<StepId>,
}

impl<E: Effect> Step<E> {
    /// Whether there is nothing to do on the way forward.
    pub fn is_for_the_way_back(&self) -> bool {
        !self.back_of.is_empty()
    }
}

/// What a step does, and how it is undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action<E: Effect> {
    /// A transaction in the store, and the one that undoes it, if there is anything to undo.
    Swap {
        /// On the way forward.
        forward: Swap,
        /// On the way back.
        backward: Option<Swap>,
    },
    /// An effect outside the store, or one whose transaction is made at that moment; undone by the same effect on the
    /// way back ([`Effect`]).
    Do(E),
    /// Waiting for something to be true; done in both directions, on the way back whenever something was
    /// undone since the last wait. On the way back only ([`Step::back_of`]) once for all waits for the same thing,
    /// as long as nothing is undone in between. Whoever asks to stop need not wait for its end.
    Wait(Wait<E::Wait>),
    /// Something that a person does.
    Manual(Manual),
    /// From here on the operation cannot be rolled back.
    PointOfNoReturn,
}

/// What steps of one kind of operation do outside the store: data that the room of that kind brings, and its
/// [`Environment`](super::Environment) carries out.
pub trait Effect: Clone + fmt::Debug + Serialize + Send + Sync + 'static {
    /// What steps of that kind of operation wait for.
    type Wait: WaitKind;

    /// Whether there is something to undo of it.
    fn has_way_back(&self) -> bool {
        true
    }
}

/// The effect of operations that change the store alone: there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum NoEffect {}

impl Effect for NoEffect {
    type Wait = NoWait;
}

/// What steps wait for: an enum of the room that brings the kind of operation, whose [`Environment`](super::Environment) waits.
pub trait WaitKind: Copy + Eq + Hash + fmt::Debug + Serialize + Send + Sync + 'static {
    /// A word for it, as serialised: `barrier`.
    fn name(self) -> &'static str;
}

/// What operations wait for that wait for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum NoWait {}

impl WaitKind for NoWait {
    fn name(self) -> &'static str {
        match self {}
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

/// Something to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wait<K> {
    /// What.
    #[serde(rename = "name")]
    pub kind: K,
    /// The batch of the plan that it is about, if it is about one.
    pub batch: Option<usize>,
    /// The one thing of its batch that it is about, by the id that its steps are about, if not about all of them.
    pub subject: Option<String>,
    /// In words.
    #[serde(skip)]
    pub until: String,
}

/// Something that a person does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Manual {
    /// What, as a word: `flags`.
    pub name: String,
    /// What, in words for the operator.
    #[serde(skip)]
    pub what: String,
    /// Why it must happen at this place.
    #[serde(skip)]
    pub why: String,
    /// What, on the way back; `None` for what may stay as it is.
    #[serde(serialize_with = "is_there")]
    pub undo: Option<String>,
}

/// Of words that are only shown it matters whether there are any.
#[expect(clippy::ref_option, reason = "serde passes the field as it is")]
fn is_there<S: Serializer>(words: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(words.is_some())
}
