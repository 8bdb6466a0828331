//! The words for everything that goes wrong, and the exit status that it gets.
//!
//! The rooms below say what was found and expected; here is added what to do next. A text is written for
//! someone who reads it at three in the morning: what happened, then one thing to try.

use super::log::Kind as Said;
use super::output;
use crate::cluster::ClusterError;
use crate::ip::CidrError;
use crate::ip::remap::RemapError;
use crate::operation::{self, OperationError, PlanFileError};
use crate::renumber::ranges::RewriteError;
use crate::renumber::target::TargetError;
use crate::renumber::{PlanError, RehearsalError};
use crate::store::{Access, CommitError, StoreError};
use crate::survey::SurveyError;
use crate::wire::{EditError, WireError};

/// What kind of failure it is; decides the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The reader of stdout has gone: nothing to say, and nothing wrong.
    BrokenPipe,
    /// Refused, or failed before anything was changed.
    Refused,
    /// What was typed cannot be meant.
    Usage,
    /// Failed, and everything was rolled back.
    RolledBack,
    /// Stuck, or partly undone.
    Stuck,
    /// Stopped at a gate, to be resumed.
    Paused,
    /// A bug of ours.
    Bug,
}

impl Kind {
    /// Returns the exit status (`Cli`'s help lists them).
    pub fn code(self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            Self::Refused => 1,
            Self::Usage => 2,
            Self::RolledBack => 4,
            Self::Stuck => 5,
            Self::Paused => 6,
            // sysexits.h EX_SOFTWARE.
            Self::Bug => 70,
        }
    }
}

/// Why a command failed, and what to do about it.
#[derive(Debug)]
pub struct Failure {
    /// Decides the exit status.
    pub kind: Kind,
    /// What happened, with its causes.
    pub error: anyhow::Error,
    /// What to do next, one sentence each.
    pub hints: Vec<String>,
    /// The step of an operation at which it happened.
    pub step: Option<String>,
}

impl Failure {
    /// Returns a failure without hints.
    pub fn new(kind: Kind, error: impl Into<anyhow::Error>) -> Self {
        Self { kind, error: error.into(), hints: Vec::new(), step: None }
    }

    /// Refused, or failed before anything was changed.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(Kind::Refused, anyhow::Error::msg(message.into()))
    }

    /// What was typed cannot be meant.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, anyhow::Error::msg(message.into()))
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Changes the kind, for a caller who knows how far things went.
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
        if self.kind != Kind::BrokenPipe {
            self.kind = kind;
        }
        self
    }

    /// Puts what was being done before the error; the error becomes its cause.
    #[must_use]
    pub fn context(mut self, doing: impl Into<String>) -> Self {
        self.error = self.error.context(doing.into());
        self
    }

    /// Returns the lines to print. A cause that its effect spells out already is left out. A pause is no error.
    pub fn lines(&self) -> Vec<(Said, String)> {
        let first = if self.kind == Kind::Paused { Said::Paused } else { Said::Error };
        let mut lines: Vec<(Said, String)> = Vec::new();
        for cause in self.error.chain() {
            let text = cause.to_string();
            match lines.last() {
                None => lines.push((first, text)),
                Some((_, said)) if !said.contains(&text) => lines.push((Said::Cause, text)),
                Some(_) => {}
            }
        }
        lines.extend(self.hints.iter().map(|hint| (Said::Hint, hint.clone())));
        lines
    }
}

/// Makes a panic read as what it is. The exit status is set by `main`, which catches it.
pub(super) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let what = panic.payload_as_str().unwrap_or("no message");
        let (error, hint) = (
            format!("netsurgeon has a bug and stops here: {what} ({place})"),
            "an operation that was under way is safe to resume; its journal is in etcd",
        );
        for (kind, text) in [(Said::Error, error.as_str()), (Said::Hint, hint)] {
            output::plain(kind, text);
        }
    }));
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let broken = error.kind() == std::io::ErrorKind::BrokenPipe;
        Self::new(if broken { Kind::BrokenPipe } else { Kind::Refused }, error)
    }
}

impl From<CidrError> for Failure {
    fn from(error: CidrError) -> Self {
        Self::new(Kind::Usage, error)
    }
}

impl From<RemapError> for Failure {
    fn from(error: RemapError) -> Self {
        let hint = match &error {
            RemapError::TooSmall { .. } => "choose a larger range: a shorter prefix, such as /16",
            RemapError::PinOutside { .. } => {
                "pin it to an address of the range, without its first and last one, or leave the pin out"
            }
            RemapError::Taken { .. } => "free that address first, or pin another one",
        };
        Self::new(Kind::Refused, error).hint(hint)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let hint = store_hint(&error);
        let failure = Self::new(Kind::Refused, error);
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// The command that grants what is missing. A long transaction is not listed: the documented roles have its keys.
pub(super) fn permission_hint(access: &Access) -> String {
    match access.grants().as_deref() {
        Some([grant]) => format!(
            "grant it to a role of the etcd user: `etcdctl role grant-permission ROLE {grant}`; docs/etcd-rights.md has a \
             role for each group of commands"
        ),
        Some(_) => "docs/etcd-rights.md has a role for each group of commands".to_string(),
        None => "only etcd users with the role `root` may do this: `etcdctl user grant-role USER root`"
            .to_string(),
    }
}

fn store_hint(error: &StoreError) -> Option<String> {
    let text = match error {
        StoreError::Unreachable { .. } => {
            "is etcd up, and is `--etcd-endpoints` its client URL? On a control-plane host of kubeadm's it \
             is `https://127.0.0.1:2379`"
        }
        StoreError::Unauthenticated { .. } => {
            "give a client certificate that etcd trusts with `--etcd-cert` and `--etcd-key`, or a name and \
             password in ETCDCTL_USER"
        }
        StoreError::PermissionDenied { access, .. } => return Some(permission_hint(access)),
        StoreError::Configuration { .. } => {
            "see `--etcd-endpoints`, `--etcd-cacert`, `--etcd-cert`, `--etcd-key`, and the ETCDCTL_* variables"
        }
        StoreError::Compacted { oldest, .. } => {
            return Some(format!("ask for revision {oldest} or later, or read a snapshot taken earlier"));
        }
        StoreError::FutureRevision { .. } => "leave `--at-revision` out to read the newest revision",
        StoreError::Server { .. } => "the log of that etcd member says more",
        StoreError::Sealed { .. } => {
            "give the file that the API servers have in `--encryption-provider-config` now, the same on each of them; \
             nothing was written"
        }
        StoreError::Io { source, .. } => match source.kind() {
            std::io::ErrorKind::NotFound => "check the path",
            std::io::ErrorKind::PermissionDenied => "etcd's files belong to root: run this as root",
            _ => return None,
        },
        StoreError::Write { source, .. } => match source.kind() {
            std::io::ErrorKind::AlreadyExists => "no file is overwritten: give another name",
            std::io::ErrorKind::StorageFull => "the file system is full: give a path on another one",
            std::io::ErrorKind::NotFound => "make the directory first",
            _ => return None,
        },
        StoreError::NotASnapshot { .. } => {
            "`etcdctl snapshot save FILE` makes one; the file `member/snap/db` of a stopped member will do, too"
        }
        StoreError::Truncated { .. } => "copy the file again, and compare its size with the original's",
        StoreError::Checksum { .. } | StoreError::Damaged { .. } => {
            "do not restore from this file: copy it again from where it was made, or take a new snapshot"
        }
    };
    Some(text.to_string())
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        let hint = error.hint();
        let failure = Self::new(Kind::Refused, error);
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Store(error) => error.into(),
            CommitError::Conflict { .. } => Self::new(Kind::Refused, error)
                .hint("nothing was written; run the command again to work on what is there now"),
            CommitError::Refused { .. } => Self::new(Kind::Refused, error).hint("nothing was written"),
            CommitError::OutcomeUnknown { .. } => {
                Self::new(Kind::Stuck, error).hint("run the command again: it reads first what has happened")
            }
        }
    }
}

/// Nobody but the plug-in has the key, so the objects are stored under another one for the time of the work.
const WITHOUT_KMS: &str = "only the KMS plug-in opens it. For the time of a move, have these resources stored under a key in \
     the file, or in the clear: docs/encryption.md, \"A KMS\"";

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        let hint = match &error {
            WireError::Encrypted { provider, .. } if provider == "kms" => Some(WITHOUT_KMS),
            WireError::Encrypted { .. } => Some(
                "the cluster encrypts this resource at rest: commands that read etcd or a snapshot open it with the API \
                 server's own file (`--encryption-provider-config` there): `--encryption-config FILE`",
            ),
            WireError::CborUnchanged => Some("change it through the API server"),
            WireError::Unrecognised { .. } => {
                Some("is the value complete, and is its input form right (`--input raw|base64|hex`)?")
            }
            WireError::Protobuf { .. } | WireError::Json { .. } | WireError::Cbor { .. } => {
                Some("the value is damaged: compare it with the same key in an older snapshot")
            }
            WireError::Yaml { .. } | WireError::WrongKind { .. } | WireError::BitmapTooLong { .. } => None,
        };
        let failure = Self::new(Kind::Refused, error);
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<EditError> for Failure {
    fn from(error: EditError) -> Self {
        match error {
            EditError::Wire(error) => error.into(),
            EditError::Differs { .. } | EditError::Yaml { .. } => Self::new(Kind::Refused, error),
        }
    }
}

impl From<SurveyError> for Failure {
    fn from(error: SurveyError) -> Self {
        match error {
            SurveyError::Store(error) => error.into(),
            SurveyError::Object { key, source } => Self::from(source).context(format!("cannot read `{key}`")),
            SurveyError::NoServices { ref hint, .. } => {
                let known = !hint.is_empty();
                let failure = Self::new(Kind::Refused, error);
                if known {
                    return failure;
                }
                failure.hint(
                    "is this the etcd of a Kubernetes cluster, and does its API server use another \
                     `--etcd-prefix`?",
                )
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
                Self::new(Kind::Refused, error).hint("stop what keeps changing it, then resume")
            }
            OperationError::LockLost { .. } => Self::new(Kind::Refused, error).hint(
                "what was done until then is in the journal; the process that holds the operation lease now may continue it",
            ),
            // What is next is said where the operation is known.
            OperationError::Stopped
            | OperationError::Paused { .. }
            | OperationError::GateClosed { .. }
            | OperationError::BatchRolledBack { .. } => Self::new(Kind::Paused, error),
            OperationError::BatchStuck { .. } => {
                Self::new(Kind::Stuck, error).hint("repair that object")
            }
            OperationError::BeingUndone => Self::new(Kind::Refused, error).hint("roll it back to its end: `netsurgeon renumber rollback`"),
            OperationError::PointOfNoReturn { .. } => Self::new(Kind::Refused, error)
                .hint("to go back, renumber to the old range: that is an operation of its own"),
            OperationError::IllegalTransition { .. } => Self::new(Kind::Bug, error),
            // What to do is said where the operation is known.
            OperationError::Changed { .. }
            | OperationError::Gone { .. }
            | OperationError::Exists { .. }
            | OperationError::Environment(_)
            | OperationError::Journal { .. }
            | OperationError::Locked(_) => Self::new(Kind::Refused, error),
        }
    }
}

impl From<operation::Failure> for Failure {
    fn from(failure: operation::Failure) -> Self {
        if matches!(failure.source, OperationError::BatchRolledBack { .. }) {
            return failure.source.into();
        }
        let how = match &failure.source {
            OperationError::Paused { .. } => "is open",
            OperationError::Stopped | OperationError::GateClosed { .. } => "was not begun",
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
                "end it with {tool}: `netsurgeon operation resume {operation}`, or `netsurgeon operation rollback {operation}`"
            ),
            _ => "make the plan anew and review it again".to_string(),
        };
        Self::new(Kind::Refused, error).hint(hint)
    }
}

/// Says when a ServiceCIDR goes that is being deleted; `kept_by`: the Services that have an address of it.
fn goes_when(kept_by: &[String]) -> String {
    let [first, rest @ ..] = kept_by else {
        return "it goes within seconds, once the controller manager has looked; then try again".to_string();
    };
    let (count, them) = (kept_by.len(), if rest.is_empty() { "create it" } else { "create them" });
    let have = super::output::counted(count, "Service has", "Services have");
    format!(
        "it goes once no Service has an address of it: {have}, the first is `{first}`; {them} again without an address"
    )
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        let hint = match error {
            PlanError::Remap(error) => return error.into(),
            PlanError::Target(TargetError::WrongFamily { .. }) => {
                "give a range of a family that the cluster has; each family is renumbered by itself"
            }
            PlanError::Target(TargetError::Leaving { ref kept_by, .. }) => {
                let hint = goes_when(kept_by);
                return Self::new(Kind::Refused, error).hint(hint);
            }
            PlanError::Target(_) => {
                "choose a private range that nothing else uses, with room for every Service"
            }
            PlanError::UnknownPin { .. } => "`renumber plan` without the pin lists the Services that move",
            PlanError::KubernetesPin { .. } => "leave that pin out",
            PlanError::CannotHold { .. } => {
                "leave out `--hold external-ip`, and a shadow Service holds it; where the reason is not the Service itself, \
                 `--accept-gap` goes on all the same, and connections to old addresses may then fail"
            }
            PlanError::DataPlane { .. } => {
                "`--accept-gap` goes on all the same; connections to old addresses may then fail"
            }
            PlanError::UnknownTier { .. } => "name that tier in `--tiers`, or give the Service another one",
            PlanError::NoTier { .. } => "give them one, or name one for all of them: `--default-tier NAME`",
            PlanError::NoRoomForShadows { .. } => {
                "choose a larger range, or smaller batches with `--batch-size`"
            }
            PlanError::NoIdentity => "is this the whole etcd of a cluster, and is `--etcd-prefix` right?",
            PlanError::Broken { .. } | PlanError::Bitmap { .. } => {
                "`netsurgeon ranges check` says what is wrong"
            }
        };
        Self::new(Kind::Refused, error).hint(hint)
    }
}

impl From<RehearsalError> for Failure {
    fn from(error: RehearsalError) -> Self {
        match error {
            RehearsalError::Store(error) => error.into(),
            RehearsalError::Survey(error) => error.into(),
            RehearsalError::Plan(error) => error.into(),
            RehearsalError::Journal(error) => error.into(),
            RehearsalError::Step { phase, failure } => {
                Self::from(failure).context(format!("the rehearsal stopped on the way {phase}"))
            }
        }
    }
}

impl From<RewriteError> for Failure {
    fn from(error: RewriteError) -> Self {
        let hint = match &error {
            RewriteError::Missing { .. } | RewriteError::Leftover { .. } => {
                "`netsurgeon ranges show` says how this cluster keeps its allocations"
            }
            RewriteError::Range { .. } => "see `netsurgeon ranges rewrite --help`",
            RewriteError::NoIdentity => "is this the whole etcd of a cluster, and is `--etcd-prefix` right?",
            RewriteError::Unchanged { .. } => "`netsurgeon ranges check` looks at everything else",
        };
        Self::new(Kind::Refused, error).hint(hint)
    }
}
