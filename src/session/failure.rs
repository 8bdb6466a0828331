//! Why a command failed, and what to do about it. Lower-level modules report what they found and what they expected. This module
//! adds what to do next. Hints for one kind of operation are in the module of that kind.

use super::message_kind::MessageKind;
use crate::ip::CidrError;
use crate::kube_api::ClusterError;
use crate::operation::{self, OperationError, PlanFileError};
use crate::store::{Access, CommitError, MAKE_ROOM, NO_SPACE, StoreError};
use crate::survey::SurveyError;
use crate::wire::{EditError, WireError};

/// The kind of failure; it decides the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitKind {
    /// The reader of stdout has closed the pipe. This is not an error, and nothing is reported.
    BrokenPipe,
    /// The command was refused, or failed before it changed anything.
    Refused,
    /// The arguments are not valid.
    Usage,
    /// The operation failed, and everything was rolled back.
    RolledBack,
    /// The operation is stuck, or only partly rolled back.
    Stuck,
    /// The operation is paused and can be resumed.
    Paused,
    /// A bug in netsurgeon.
    Bug,
}

impl ExitKind {
    /// Returns the exit status. The help of `Cli` lists all exit statuses.
    pub fn code(self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            Self::Refused => 1,
            Self::Usage => 2,
            Self::RolledBack => 4,
            Self::Stuck => 5,
            Self::Paused => 6,
            // `EX_SOFTWARE` in `sysexits.h`.
            Self::Bug => 70,
        }
    }
}

/// Why a command failed, and what to do about it.
#[derive(Debug)]
pub struct Failure {
    /// ExitKind of failure; it decides the exit status.
    pub kind: ExitKind,
    /// What happened, with its causes.
    pub error: anyhow::Error,
    /// What to do next. Each hint is one sentence.
    pub hints: Vec<String>,
    /// Step of the operation at which the failure happened.
    pub step: Option<String>,
}

impl Failure {
    /// Returns a failure without hints.
    pub fn new(kind: ExitKind, error: impl Into<anyhow::Error>) -> Self {
        Self { kind, error: error.into(), hints: Vec::new(), step: None }
    }

    /// Returns a failure with a message and without hints.
    pub fn of(kind: ExitKind, message: impl Into<String>) -> Self {
        Self::new(kind, anyhow::Error::msg(message.into()))
    }

    /// Returns a failure of kind [`ExitKind::Refused`]: nothing was changed.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::of(ExitKind::Refused, message)
    }

    /// Returns a failure of kind [`ExitKind::Usage`]: the arguments are not valid.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::of(ExitKind::Usage, message)
    }

    /// Adds a hint about what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds any number of hints, for example an optional hint.
    #[must_use]
    pub fn hints(mut self, hints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hints.extend(hints.into_iter().map(Into::into));
        self
    }

    /// Changes the kind, except for [`ExitKind::BrokenPipe`]. Callers use this if they know how far the operation has progressed.
    #[must_use]
    pub fn kind(mut self, kind: ExitKind) -> Self {
        if self.kind != ExitKind::BrokenPipe {
            self.kind = kind;
        }
        self
    }

    /// Adds a description of the failed action; the error becomes its cause.
    #[must_use]
    pub fn context(mut self, doing: impl Into<String>) -> Self {
        self.error = self.error.context(doing.into());
        self
    }

    /// Returns the lines to print. Omits a cause that the line before it already contains. If the command paused, the first line
    /// has the kind [`MessageKind::Paused`].
    pub fn lines(&self) -> Vec<(MessageKind, String)> {
        let first = if self.kind == ExitKind::Paused { MessageKind::Paused } else { MessageKind::Error };
        let mut lines: Vec<(MessageKind, String)> = Vec::new();
        for cause in self.error.chain() {
            let text = cause.to_string();
            match lines.last() {
                None => lines.push((first, text)),
                Some((_, said)) if !said.contains(&text) => lines.push((MessageKind::Cause, text)),
                Some(_) => {}
            }
        }
        lines.extend(self.hints.iter().map(|hint| (MessageKind::Hint, hint.clone())));
        lines
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let broken = error.kind() == std::io::ErrorKind::BrokenPipe;
        Self::new(if broken { ExitKind::BrokenPipe } else { ExitKind::Refused }, error)
    }
}

impl From<CidrError> for Failure {
    fn from(error: CidrError) -> Self {
        Self::new(ExitKind::Usage, error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let hint = store_hint(&error);
        Self::new(ExitKind::Refused, error).hints(hint)
    }
}

/// Returns a hint with the command that grants the missing permission. For several keys, the hint refers to the documented roles.
pub fn permission_hint(access: &Access) -> String {
    match access.grants().as_deref() {
        Some([grant]) => format!(
            "grant it to a role of the etcd user: `etcdctl role grant-permission ROLE {grant}`; docs/etcd-rights.md has a \
             role for each group of commands"
        ),
        Some(_) => "docs/etcd-rights.md has a role for each group of commands".to_string(),
        None => {
            "only etcd users with the role `root` are allowed to do this: `etcdctl user grant-role USER root`"
                .to_string()
        }
    }
}

fn store_hint(error: &StoreError) -> Option<String> {
    let text = match error {
        StoreError::Unreachable { .. } => {
            "check that etcd runs and that `--etcd-endpoints` is its client URL; on a kubeadm control-plane host \
             it is `https://127.0.0.1:2379`"
        }
        StoreError::Unauthenticated { .. } => {
            "give a client certificate that etcd trusts (`--etcd-cert` and `--etcd-key`), or a name and a \
             password in ETCDCTL_USER"
        }
        StoreError::PermissionDenied { access, .. } => return Some(permission_hint(access)),
        StoreError::Configuration { .. } => {
            "see `--etcd-endpoints`, `--etcd-cacert`, `--etcd-cert`, `--etcd-key`, and the ETCDCTL_* variables"
        }
        StoreError::Compacted { oldest, .. } => {
            return Some(format!("use revision {oldest} or later, or read an older snapshot"));
        }
        StoreError::FutureRevision { .. } => {
            "give the number of an existing revision, or omit the option to read the newest revision"
        }
        StoreError::Server { reason, .. } if reason.contains(NO_SPACE) => MAKE_ROOM,
        StoreError::Server { .. } => "see the log of that etcd member",
        StoreError::Sealed { .. } => {
            "nothing was written; give the current `--encryption-provider-config` file, which must be the same for all API \
             servers"
        }
        StoreError::Io { source, .. } => match source.kind() {
            std::io::ErrorKind::NotFound => "check the path",
            std::io::ErrorKind::PermissionDenied => "etcd's files belong to root: run this as root",
            _ => return None,
        },
        StoreError::Write { source, .. } => match source.kind() {
            std::io::ErrorKind::AlreadyExists => "existing files are not overwritten: give another name",
            std::io::ErrorKind::StorageFull => "the file system is full: give a path on another file system",
            std::io::ErrorKind::NotFound => "create the directory first",
            _ => return None,
        },
        StoreError::NotASnapshot { .. } => {
            "create one with `etcdctl snapshot save FILE`, or give the file `member/snap/db` of a stopped member"
        }
        StoreError::Truncated { .. } => "copy the file again, and compare its size with the original",
        StoreError::Checksum { .. } | StoreError::Damaged { .. } => {
            "do not restore from this file: copy it again from its source, or take a new snapshot"
        }
    };
    Some(text.to_string())
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        let hint = error.hint();
        Self::new(ExitKind::Refused, error).hints(hint)
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Store(error) => error.into(),
            CommitError::Conflict { .. } => Self::new(ExitKind::Refused, error)
                .hint("nothing was written; run the command again: it reads the current state"),
            CommitError::Refused { ref reason } => {
                let room = reason.contains(NO_SPACE).then_some(MAKE_ROOM);
                Self::new(ExitKind::Refused, error).hint("nothing was written").hints(room)
            }
            CommitError::OutcomeUnknown { .. } => Self::new(ExitKind::Stuck, error)
                .hint("run the command again: it first checks what was written"),
        }
    }
}

/// Hint for values that a KMS plug-in encrypted. Only the plug-in has the key. So during the operation, the objects must be
/// encrypted with a local key or stored unencrypted.
const WITHOUT_KMS: &str = "only the KMS plug-in can decrypt it: for the duration of an operation, encrypt these resources \
                           with a local key, or store them unencrypted (docs/encryption.md, \"A KMS\")";

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        let hint = match &error {
            WireError::Encrypted { provider, .. } if provider == "kms" => Some(WITHOUT_KMS),
            WireError::Encrypted { .. } => Some(
                "the cluster encrypts this resource at rest: give the API server's `--encryption-provider-config` file as \
                 `--encryption-config FILE`; commands that read etcd or a snapshot accept it",
            ),
            WireError::CborUnchanged => Some("change it through the API server"),
            WireError::Unrecognised { .. } => Some(
                "check that the value is complete, and for `inspect decode` that the input format is right (`--input raw|base64|hex`)",
            ),
            WireError::Protobuf { .. } | WireError::Json { .. } | WireError::Cbor { .. } => {
                Some("the value is damaged: compare it with the same key in an older snapshot")
            }
            WireError::Yaml { .. } | WireError::WrongKind { .. } | WireError::BitmapTooLong { .. } => None,
        };
        Self::new(ExitKind::Refused, error).hints(hint)
    }
}

impl From<EditError> for Failure {
    fn from(error: EditError) -> Self {
        match error {
            EditError::Wire(error) => error.into(),
            EditError::Differs { .. } | EditError::Yaml { .. } => Self::new(ExitKind::Refused, error),
        }
    }
}

impl From<SurveyError> for Failure {
    fn from(error: SurveyError) -> Self {
        match error {
            SurveyError::Store(error) => error.into(),
            SurveyError::Object { key, source } => Self::from(source).context(format!("cannot read `{key}`")),
            SurveyError::NoServices { ref hint, .. } => {
                let general = hint.is_empty().then_some(
                    "check that this is the etcd of a Kubernetes cluster, and that `--etcd-prefix` is the same as for its \
                     API server",
                );
                Self::new(ExitKind::Refused, error).hints(general)
            }
        }
    }
}

impl From<OperationError> for Failure {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Store(error) => error.into(),
            OperationError::Cluster(error) => (*error).into(),
            OperationError::Commit(error) => error.into(),
            OperationError::Contended { .. } => {
                Self::new(ExitKind::Refused, error).hint("stop the client that keeps changing it, then resume")
            }
            OperationError::LockLost { .. } => Self::new(ExitKind::Refused, error).hint(
                "the journal has every completed step; the process that holds the lease now may already be running the operation",
            ),
            // The caller adds the hint, because the hint depends on the kind of operation.
            OperationError::Stopped
            | OperationError::Paused { .. }
            | OperationError::GateClosed { .. }
            | OperationError::BatchRolledBack { .. } => Self::new(ExitKind::Paused, error),
            OperationError::NoNamespace { .. } => Self::new(ExitKind::Refused, error).hint(
                "an administrator creates the namespace with its roles: `kubectl apply -f deploy/rbac.yaml`",
            ),
            OperationError::BatchStuck { .. } => {
                Self::new(ExitKind::Stuck, error).hint("repair the object that the message names")
            }
            OperationError::IllegalTransition { .. } => Self::new(ExitKind::Bug, error),
            // The caller adds the hint, because the hint depends on the kind of operation.
            OperationError::PointOfNoReturn { .. }
            | OperationError::Changed { .. }
            | OperationError::Gone { .. }
            | OperationError::Exists { .. }
            | OperationError::Environment(_)
            | OperationError::Journal { .. }
            | OperationError::BeingUndone
            | OperationError::Locked(_) => Self::new(ExitKind::Refused, error),
        }
    }
}

impl From<operation::RunFailure> for Failure {
    fn from(failure: operation::RunFailure) -> Self {
        if matches!(failure.source, OperationError::BatchRolledBack { .. }) {
            return failure.source.into();
        }
        let how = match &failure.source {
            OperationError::Paused { .. } => "is open",
            OperationError::Stopped | OperationError::GateClosed { .. } => "was not started",
            _ => "failed",
        };
        let context = format!("step `{}` {how}", failure.step);
        let step = Some(failure.step.to_string());
        Self { step, ..Self::from(failure.source).context(context) }
    }
}

impl From<PlanFileError> for Failure {
    fn from(error: PlanFileError) -> Self {
        let hint = match &error {
            PlanFileError::Begun { operation, tool, .. } => format!(
                "complete it with {tool}: `netsurgeon operation resume {operation}`, or `netsurgeon operation rollback {operation}`"
            ),
            _ => "create the plan again and review it".to_string(),
        };
        Self::new(ExitKind::Refused, error).hint(hint)
    }
}
