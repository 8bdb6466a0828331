//! What an operation consists of: a closed set of step kinds, each plain data with its rollback. What a step does outside
//! the store is a type of the domain.

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
    /// Returns the kind of the step: `flip` of `flip/default/web`.
    pub fn kind(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One step. `E` is the effect outside the store that steps of this kind of operation have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step<E: Effect> {
    /// Its name.
    pub id: StepId,
    /// The object that it changes, as in `default/web`; empty for a step that the whole operation needs. If a step
    /// cannot be undone, earlier steps of the same subject stay done, and so do the steps that the whole operation
    /// needs: they are what it depends on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// What it does, and how to undo it.
    pub action: Action<E>,
    /// No other step depends on this one: if it cannot be undone, only its own subject stays done.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub independent: bool,
    /// If not empty, the step runs only in a rollback: at its place of the reverse order, if one of these steps was
    /// executed. Empty for a step of both directions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub back_of: Vec<StepId>,
}

impl<E: Effect> Step<E> {
    /// Whether the step runs only in a rollback.
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
        /// Forward.
        forward: Swap,
        /// In a rollback.
        backward: Option<Swap>,
    },
    /// An effect outside the store, or one whose transaction is computed at that moment; a rollback undoes it with the
    /// same effect ([`Effect`]).
    Do(E),
    /// A wait for a condition, in both directions: in a rollback whenever a step was undone since the last wait. In a
    /// rollback, waits of [`Step::back_of`] for the same condition run once, as long as no step is undone in between. A
    /// stop request does not wait for its end.
    Wait(Wait<E::Wait>),
    /// A step that a person does.
    Manual(Manual),
    /// From here on the operation cannot be rolled back.
    PointOfNoReturn,
}

/// What steps of one kind of operation do outside the store: a type of the room of that kind, executed by its
/// [`Environment`](super::Environment).
pub trait Effect: Clone + fmt::Debug + Serialize + Send + Sync + 'static {
    /// What steps of that kind of operation wait for.
    type Wait: WaitKind;

    /// Whether a rollback has to undo it.
    fn has_way_back(&self) -> bool {
        true
    }
}

/// The effect type of operations that change only the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum NoEffect {}

impl Effect for NoEffect {
    type Wait = NoWait;
}

/// What steps wait for: an enum of the room of that kind of operation, whose [`Environment`](super::Environment) waits.
pub trait WaitKind: Copy + Eq + Hash + fmt::Debug + Serialize + Send + Sync + 'static {
    /// Its name, as serialised: `barrier`.
    fn name(self) -> &'static str;
}

/// The wait type of operations without waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum NoWait {}

impl WaitKind for NoWait {
    fn name(self) -> &'static str {
        match self {}
    }
}

/// Changes of a few keys in one transaction, with preconditions on other keys.
///
/// At most one key of a resource: a Kubernetes watch that resumes after a revision loses the second of two
/// objects of a resource that were written at the same revision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    /// The changes.
    pub edits: Vec<KeyEdit>,
    /// Preconditions on other keys at the moment of the commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<KeyCheck>,
}

/// One key's change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyEdit {
    /// The key.
    pub key: Key,
    /// Its change.
    pub change: KeyChange,
}

/// The change of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyChange {
    /// It is created; it must not exist.
    Create {
        /// The value.
        value: Vec<u8>,
        /// Fields to fill at the moment of the change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fill: Vec<Fill>,
    },
    /// Some of its fields change; it must exist.
    Edit {
        /// Conditions besides those of the edits, such as the object's uid.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        require: Vec<Condition>,
        /// The changes.
        edits: Vec<FieldEdit>,
        /// Fields to fill at the moment of the change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fill: Vec<Fill>,
    },
    /// It is deleted. A missing key is as it should be.
    Delete {
        /// The conditions.
        require: Vec<Condition>,
    },
    /// This change, if the key exists and all conditions hold. Otherwise the object now belongs to another client, and
    /// stays unchanged.
    If {
        /// The conditions.
        holds: Vec<Condition>,
        /// The change.
        change: Box<KeyChange>,
    },
}

/// A field whose value is generated at the moment of the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fill {
    /// The field.
    pub field: Field,
    /// Its value.
    pub with: Generated,
}

/// A value generated at the moment of the change.
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

/// A precondition on a key that is not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyCheck {
    /// The key; it must exist.
    pub key: Key,
    /// The conditions.
    pub conditions: Vec<Condition>,
}

/// A condition to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wait<K> {
    /// Its kind.
    #[serde(rename = "name")]
    pub kind: K,
    /// The batch of the plan that it belongs to, if any.
    pub batch: Option<usize>,
    /// The one subject of its batch that it is for; `None` if it is for all of them.
    pub subject: Option<String>,
    /// The condition, for people.
    #[serde(skip)]
    pub until: String,
}

/// A step that a person does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Manual {
    /// Its name: `flags`.
    pub name: String,
    /// What to do, for the operator.
    #[serde(skip)]
    pub what: String,
    /// Why it must happen at this point.
    #[serde(skip)]
    pub why: String,
    /// What to do in a rollback; `None` if nothing has to be undone.
    #[serde(serialize_with = "is_there")]
    pub undo: Option<String>,
}

/// Text that is only shown is serialised as whether there is any.
#[expect(clippy::ref_option, reason = "serde passes the field as it is")]
fn is_there<S: Serializer>(words: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(words.is_some())
}
