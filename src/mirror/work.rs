//! The plan of a mirror: every object of the source by reference, with its action. The plan has no content of any object.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::Config;
use super::copy::Shape;
use super::left_out::{Reason, is_default_account};
use super::order::{LEVELS, level};
use crate::kube_api::ObjectRef;
use crate::operation::{Action, Effect, NoWait, OperationKind, Stage, Step, StepId, Work};

/// The kind of operation.
pub const KIND: &str = "mirror";

/// A copy of the declared objects of some namespaces of a source cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mirror {
    /// Identity of the source: uid of its namespace `kube-system`.
    pub source: String,
    /// The namespaces.
    pub namespaces: Vec<String>,
    /// The objects, in the order of their creation.
    pub objects: Vec<Entry>,
    /// Kinds whose objects are not in the plan.
    pub kinds_left_out: Vec<KindLeftOut>,
    /// The rules that change copies. `apply` uses the same rules.
    #[serde(default, skip_serializing_if = "Config::is_empty")]
    pub config: Config,
    /// Rules that match nothing, and other findings about the rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A reference to an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reference {
    /// Kind of the object, as `GROUP/PLURAL`, for example `apps/deployments` or `/services`.
    pub resource: String,
    /// API group and version in which both clusters serve the object, for example `apps/v1`.
    pub api_version: String,
    /// Name of the kind, for example `Deployment`.
    pub kind: String,
    /// The namespace; `None` for a kind without namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl Reference {
    /// Returns the reference to a Secret.
    pub(super) fn to_secret(namespace: &str, name: &str) -> Self {
        Self {
            resource: "/secrets".to_string(),
            api_version: "v1".to_string(),
            kind: "Secret".to_string(),
            namespace: Some(namespace.to_string()),
            name: name.to_string(),
        }
    }

    /// Returns the reference for a request.
    pub fn object(&self) -> ObjectRef<'_> {
        ObjectRef::new(&self.api_version, &self.kind, self.namespace.as_deref(), &self.name)
    }

    /// Returns the reference to the copy of an object, which can be in a namespace of another name.
    pub(super) fn renamed(&self, config: &Config) -> Self {
        let mut target = self.clone();
        if target.resource == "/namespaces" {
            target.name = config.renamed(&self.name).to_string();
        }
        target.namespace = self.namespace.as_deref().map(|one| config.renamed(one).to_string());
        target
    }

    /// Returns whether the object is a Secret.
    pub(super) fn is_secret(&self) -> bool {
        self.resource == "/secrets"
    }

    /// Returns whether every namespace has the object: the Namespace itself, or its ServiceAccount `default`.
    pub(super) fn is_of_every_namespace(&self) -> bool {
        self.is_namespace() || is_default_account(&self.resource, &self.name)
    }

    /// Returns whether the object is a Namespace.
    pub(super) fn is_namespace(&self) -> bool {
        self.resource == "/namespaces"
    }

    /// Returns the subject of the object's step: plural, group, namespace and name, for example `deployments.apps/shop/web`.
    pub fn subject(&self) -> String {
        let (group, plural) = self.resource.split_once('/').unwrap_or_default();
        let kind = if group.is_empty() { plural.to_string() } else { format!("{plural}.{group}") };
        let namespace = self.namespace.iter().map(|namespace| format!("{namespace}/"));
        format!("{kind}/{}{}", namespace.collect::<String>(), self.name)
    }
}

/// Formats the object for people, for example `Deployment shop/web`.
impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// What happens to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Planned {
    /// The mirror gets a copy.
    Create,
    /// A copy that an earlier mirror operation created is changed.
    Update,
    /// The mirror has an object of another client. Only the fields that differ are changed, and a rollback restores them.
    Adopt,
    /// The source has deleted the object, so the copy that an earlier mirror operation created is deleted.
    Delete,
    /// The object of the mirror is equal to the copy.
    Same,
    /// The mirror has another object, or another client has changed the copy. Nothing is changed.
    Conflict,
    /// The object is not copied.
    LeftOut,
}

impl Planned {
    /// Every action.
    pub const ALL: [Self; 7] =
        [Self::Create, Self::Update, Self::Adopt, Self::Delete, Self::Same, Self::Conflict, Self::LeftOut];

    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Adopt => "adopt",
            Self::Delete => "delete",
            Self::Same => "same",
            Self::Conflict => "conflict",
            Self::LeftOut => "left out",
        }
    }

    /// Returns whether the mirror has, or gets, a copy.
    pub fn is_copied(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Adopt | Self::Same)
    }
}

/// Whether the mirror's API server has checked a change in a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DryRun {
    /// The API server accepts the change.
    Accepted,
    /// The API server refuses the change ([`Entry::detail`]).
    Refused,
    /// The change could not be checked, because its namespace, kind or role does not exist yet.
    Unchecked,
}

/// An object of the source, with its action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The object, with its namespace in the source.
    #[serde(flatten)]
    pub object: Reference,
    /// Its uid in the source; empty if the source has deleted it, and for a pull secret of the configuration.
    pub uid: String,
    /// Its `resourceVersion` in the source; empty if only its metadata was read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The action.
    pub action: Planned,
    /// Code of the reason for a conflict, or why the object is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason for people, or the answer to the dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Uid of the object of the mirror, if it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror_uid: Option<String>,
    /// Paths of the fields that differ in the mirror, without their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// What the source wants of an object that is passive in the mirror.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passive: Option<Value>,
    /// The result of the dry run of a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<DryRun>,
    /// Warnings of the mirror's API server about the change, for example that PodSecurity would reject the Pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What changes the copy.
    #[serde(flatten)]
    pub shape: Shape,
}

/// A kind whose objects are not in the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindLeftOut {
    /// The kind, as `GROUP/PLURAL`.
    pub resource: String,
    /// The reason.
    pub reason: String,
}

/// Creates, changes or deletes the copy of an object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Copy {
    /// The object in the mirror.
    pub object: Reference,
    /// The object in the source. Its namespace can have another name.
    pub source: Reference,
    /// Uid of the object in the source; empty for a pull secret of the configuration.
    pub uid: String,
    /// Whether the mirror gets the copy, or the copy is changed or deleted.
    pub action: Planned,
    /// Uid of the copy to change or delete.
    pub mirror_uid: Option<String>,
    /// What changes the copy.
    pub shape: Shape,
}

impl Effect for Copy {
    type Wait = NoWait;
}

impl OperationKind for Mirror {
    const NAME: &'static str = KIND;
    const VERSION: u32 = 1;
}

impl Entry {
    /// Notes that the object is not changed.
    pub(super) fn refuse(&mut self, action: Planned, reason: Reason) {
        self.action = action;
        (self.reason, self.detail) = (Some(reason.code.to_string()), Some(reason.text.to_string()));
    }

    /// Returns an entry of an object that is the same in both clusters.
    pub(super) fn new(object: Reference) -> Self {
        Self {
            object,
            uid: String::new(),
            resource_version: String::new(),
            action: Planned::Same,
            reason: None,
            detail: None,
            mirror_uid: None,
            fields: Vec::new(),
            passive: None,
            dry_run: None,
            warnings: Vec::new(),
            shape: Shape::default(),
        }
    }

    /// Returns the id of the step that creates, changes or deletes the copy.
    pub fn step(&self) -> StepId {
        let verb = if self.action == Planned::Delete { "delete" } else { "copy" };
        StepId(format!("{verb}/{}", self.object.subject()))
    }

    /// Returns whether the entry has a step.
    pub fn has_step(&self) -> bool {
        matches!(self.action, Planned::Create | Planned::Update | Planned::Adopt | Planned::Delete)
    }
}

impl Mirror {
    /// Returns the reference to an object in the mirror.
    pub fn target(&self, object: &Reference) -> Reference {
        object.renamed(&self.config)
    }

    /// Returns the number of objects with each action.
    pub fn counts(&self) -> BTreeMap<Planned, usize> {
        let mut counts = BTreeMap::new();
        for entry in &self.objects {
            let count: &mut usize = counts.entry(entry.action).or_default();
            *count = count.saturating_add(1);
        }
        counts
    }

    /// Returns the entries with a step.
    pub fn changes(&self) -> impl Iterator<Item = &Entry> {
        self.objects.iter().filter(|entry| entry.has_step())
    }

    /// Returns the warnings of the mirror's API server, each with the objects that it is about.
    pub fn warnings(&self) -> BTreeMap<&str, Vec<&Reference>> {
        let mut found: BTreeMap<&str, Vec<&Reference>> = BTreeMap::new();
        for entry in &self.objects {
            for text in &entry.warnings {
                found.entry(text).or_default().push(&entry.object);
            }
        }
        found
    }

    /// Returns the number of changes with this result of the dry run.
    pub fn dry_runs(&self, result: DryRun) -> usize {
        self.changes().filter(|entry| entry.dry_run == Some(result)).count()
    }
}

impl Work for Mirror {
    type Effect = Copy;

    fn stages(&self) -> Vec<Stage> {
        let names: BTreeSet<String> = self.changes().map(stage_of).collect();
        let copies = LEVELS.iter().map(|level| (level.name.to_string(), level.title.to_string()));
        // In reverse: custom objects before the operators that remove their finalizers.
        let deletions = LEVELS.iter().rev().map(|level| {
            let what = level.title.split_once(' ').map_or(level.title, |(_, what)| what);
            (format!("{DELETE}{}", level.name), format!("delete {what} that the source has deleted"))
        });
        let used = copies.chain(deletions).filter(|(name, _)| names.contains(name)).enumerate();
        used.map(|(index, (name, title))| Stage { index, name, batch: None, title }).collect()
    }

    fn steps(&self, stage: &Stage) -> Vec<Step<Copy>> {
        let step = |entry: &Entry| Step {
            id: entry.step(),
            subject: entry.object.subject(),
            action: Action::Do(Copy {
                object: self.target(&entry.object),
                source: entry.object.clone(),
                uid: entry.uid.clone(),
                action: entry.action,
                mirror_uid: entry.mirror_uid.clone(),
                shape: entry.shape,
            }),
            independent: false,
            back_of: Vec::new(),
        };
        self.changes().filter(|entry| stage_of(entry) == stage.name).map(step).collect()
    }
}

/// Prefix of the names of stages that delete copies.
const DELETE: &str = "delete-";

/// Returns the name of the stage of an entry.
fn stage_of(entry: &Entry) -> String {
    let level = LEVELS.get(level(&entry.object.resource)).map_or("", |level| level.name);
    let prefix = if entry.action == Planned::Delete { DELETE } else { "" };
    format!("{prefix}{level}")
}
