//! The steps of an operation. The set of step kinds is fixed. Each step is plain data, and also describes its rollback. Each kind
//! of operation has its own type for the effects of its steps on systems other than the store.

use std::fmt;
use std::hash::Hash;

use serde::{Deserialize, Serialize, Serializer};

use crate::store::Key;
use crate::wire::edit::Condition;
use crate::wire::{Field, FieldEdit};

/// The id of a step, such as `flip/default/web`. Unique in its plan and the same on every machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepId(pub String);

impl StepId {
    /// Returns the kind of the step: `flip` for `flip/default/web`.
    pub fn kind(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A step. `E` is the type of the effects on systems other than the store. Each kind of operation has its own type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step<E: Effect> {
    /// Id of the step.
    pub id: StepId,
    /// The object that the step changes, such as `default/web`; empty for a step that the whole operation needs. A step depends
    /// on the earlier steps with the same subject, and on the earlier steps that the whole operation needs. If a step cannot be
    /// undone, the steps that it depends on stay done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// What the step does, and how to undo it.
    pub action: Action<E>,
    /// Whether no other step depends on this step. If an independent step cannot be undone, a rollback still undoes the other
    /// steps.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub independent: bool,
    /// Empty for a step that runs in both directions. Otherwise the step runs only in a rollback, and only if at least one step
    /// in this list was executed. It then runs at its place in the reverse order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub back_of: Vec<StepId>,
}

impl<E: Effect> Step<E> {
    /// Returns whether the step runs only in a rollback.
    pub fn is_for_the_way_back(&self) -> bool {
        !self.back_of.is_empty()
    }

    /// Returns whether the step is a wait that runs beside the steps of other subjects ([`WaitKind::may_have_company`]).
    pub(super) fn is_wait_with_company(&self) -> bool {
        matches!(&self.action, Action::Wait(wait) if wait.kind.may_have_company()) && !self.subject.is_empty()
    }
}

/// What a step does, and how to undo it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action<E: Effect> {
    /// A transaction in the store, and the transaction that undoes it, if there is anything to undo.
    Swap {
        /// Transaction for the forward direction.
        forward: Swap,
        /// Transaction for a rollback.
        backward: Option<Swap>,
    },
    /// An effect on a system other than the store, or a transaction in the store that is computed when the step runs. In a
    /// rollback, the same [`Effect`] value describes what to undo.
    Do(E),
    /// A wait for a condition. Waits run in both directions. In a rollback, a wait runs only if a step was undone since the last
    /// wait for the same condition. So if several rollback waits ([`Step::back_of`]) have the same condition, only the first wait
    /// runs, unless a step is undone in between. A stop request ends the wait early.
    Wait(Wait<E::Wait>),
    /// A step that a person does.
    Manual(Manual),
    /// The point of no return: afterwards the operation cannot be rolled back.
    PointOfNoReturn,
}

/// The effects of steps on systems other than the store, for one kind of operation. The module of that kind defines the type, and
/// its [`Environment`](super::Environment) executes the effects.
pub trait Effect: Clone + fmt::Debug + Serialize + Send + Sync + 'static {
    /// The conditions that the steps of this operation kind can wait for.
    type Wait: WaitKind;

    /// Returns whether a rollback has to undo the effect.
    fn has_way_back(&self) -> bool {
        true
    }
}

/// The effect type for operations that change only the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum NoEffect {}

impl Effect for NoEffect {
    type Wait = NoWait;
}

/// The conditions that the steps of one operation kind can wait for. The module of that kind defines the enum, and its
/// [`Environment`](super::Environment) waits for the conditions.
pub trait WaitKind: Copy + Eq + Hash + fmt::Debug + Serialize + Send + Sync + 'static {
    /// Returns the name of the condition in its serialised form, such as `barrier`.
    fn name(self) -> &'static str;

    /// Returns whether a wait with a subject runs beside the steps of other subjects. It then concerns only its subject: a later
    /// change of another subject does not repeat it, and if it fails with [`StepFault::Skip`](super::StepFault::Skip), only its subject
    /// is skipped. By default, every wait runs alone.
    fn may_have_company(self) -> bool {
        false
    }
}

/// The wait type for operations without waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum NoWait {}

impl WaitKind for NoWait {
    fn name(self) -> &'static str {
        match self {}
    }
}

/// Changes of a few keys in one transaction, with preconditions on other keys.
///
/// A swap changes at most one key per resource. If one transaction changed two objects of a resource, both objects would have the
/// same revision. A Kubernetes watch that has received only the first object, and resumes after that revision, would miss the
/// second object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    /// The changes.
    pub edits: Vec<KeyEdit>,
    /// Preconditions on other keys. They must hold when the transaction is committed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<KeyCheck>,
}

/// A key and its change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyEdit {
    /// The key.
    pub key: Key,
    /// Change of the key.
    pub change: KeyChange,
}

/// The change of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyChange {
    /// Creates the key, which must not exist.
    Create {
        /// The value.
        value: Vec<u8>,
        /// Fields whose values are generated at the moment of the change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fill: Vec<Fill>,
    },
    /// Changes some fields of the object, which must exist.
    Edit {
        /// Conditions in addition to the conditions of the edits, such as a condition on the object's uid.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        require: Vec<Condition>,
        /// The changes.
        edits: Vec<FieldEdit>,
        /// Fields whose values are generated at the moment of the change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fill: Vec<Fill>,
    },
    /// Deletes the key. A missing key is not an error.
    Delete {
        /// Conditions that must hold if the key exists.
        require: Vec<Condition>,
    },
    /// Applies a change if the key exists and all conditions hold. Otherwise the key stays unchanged, because another client has
    /// deleted the object or now owns it.
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
    /// OperationKind of value to generate.
    pub with: Generated,
}

/// A value generated at the moment of the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Generated {
    /// A random uid (RFC 9562, version 4).
    FreshUid,
    /// The time of the change, plus the number of seconds in `ahead`.
    Now {
        /// Seconds into the future.
        ahead: i64,
    },
}

/// A precondition on a key that the swap does not change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyCheck {
    /// Key that must exist.
    pub key: Key,
    /// The conditions.
    pub conditions: Vec<Condition>,
}

/// A condition to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wait<K> {
    /// OperationKind of condition.
    #[serde(rename = "name")]
    pub kind: K,
    /// Batch of the plan that the wait belongs to, if any.
    pub batch: Option<usize>,
    /// The subject that the wait is for; `None` if the wait is for all subjects of its batch.
    pub subject: Option<String>,
    /// Description of the condition for people.
    #[serde(skip)]
    pub until: String,
}

/// A step that a person does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Manual {
    /// Name of the manual step, such as `flags`.
    pub name: String,
    /// What to do, for the operator.
    #[serde(skip)]
    pub what: String,
    /// Why the step must be done at this point.
    #[serde(skip)]
    pub why: String,
    /// What to do in a rollback; `None` if nothing has to be undone.
    #[serde(serialize_with = "is_there")]
    pub undo: Option<String>,
}

/// Serialises only whether the text exists. The text itself is for display only.
#[expect(clippy::ref_option, reason = "serde passes the field as it is")]
fn is_there<S: Serializer>(words: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(words.is_some())
}
