//! The plan of an operation. A plan is plain data that is printed, saved, reviewed, compared by digest, and executed. Planning
//! cannot write, because the planner gets no writable store.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Effect, State, Step, StepId};
use crate::store::Revision;

/// A kind of plan.
pub trait OperationKind: Serialize + DeserializeOwned {
    /// Name of the kind, such as `renumber`.
    const NAME: &'static str;
    /// Version of the saved format, the compilation to steps, and the execution of effects. netsurgeon rejects a plan with
    /// another version, because the execution would differ from the reviewed plan.
    const VERSION: u32;
}

/// The work of a plan: the changes that the operation makes. The module of the operation kind defines the format of the work, and
/// compiles the work to steps.
///
/// The steps are a pure function of the work. They are compiled stage by stage. So even if a plan changes tens of thousands of
/// objects, only the steps of a few stages are in memory at a time.
pub trait Work: Send + Sync {
    /// The effects of the steps on systems other than the store.
    type Effect: Effect;

    /// Returns the stages, in the order of their execution.
    fn stages(&self) -> Vec<Stage>;

    /// Returns the steps of a stage, in order.
    fn steps(&self, stage: &Stage) -> Vec<Step<Self::Effect>>;

    /// Returns whether a later stage can run forward while an earlier stage waits. The earlier stage contains only waits. The
    /// stages between the two also run during the wait. If the operation has gates, stages never overlap.
    fn may_be_beside(&self, _waiting: &Stage, _later: &Stage) -> bool {
        false
    }

    /// Returns the stage that takes each subject straight back in a rollback of the whole operation, with its steps in order.
    /// These steps are undone before the stages of [`Self::way_back`]. `state` returns the state of a step. By default, there is
    /// no such stage: a rollback undoes every step by itself.
    fn straight_back(
        &self,
        _state: &dyn Fn(&StepId) -> Option<State>,
    ) -> Option<(Stage, Vec<Shortcut<Self::Effect>>)> {
        None
    }

    /// Returns the stages in the order of a rollback. In each stage, the last step is undone first. Like
    /// [`Self::straight_back`], the order is not part of [`Plan::compiled`]: an operation that an older version started can go
    /// back in the order of this version.
    fn way_back(&self) -> Vec<Stage> {
        let mut stages = self.stages();
        stages.reverse();
        stages
    }
}

/// A step whose undo also undoes earlier steps of its subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortcut<E: Effect> {
    /// The last step of the subject that has started. Its action describes the whole rollback.
    pub step: Step<E>,
    /// The earlier steps that are undone with it.
    pub covers: Vec<StepId>,
}

/// A part of an operation: steps that run one after the other, or concurrently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// Position in the plan, from 0.
    pub index: usize,
    /// Short name, such as `flip`.
    pub name: String,
    /// Batch of the stage, from 0, if the stage belongs to a batch.
    pub batch: Option<usize>,
    /// Description for people, such as `move the addresses of batch 2`.
    #[serde(skip)]
    pub title: String,
}

/// The metadata of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// OperationKind of operation, such as `renumber`.
    pub kind: String,
    /// Version of netsurgeon that created the plan.
    pub tool: String,
    /// Identity of the cluster: uid of the namespace `kube-system`.
    pub cluster: String,
    /// Revision of the survey that the plan is based on.
    pub base_revision: Revision,
}

/// A plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan<W> {
    /// Version of the plan: [`OperationKind::VERSION`].
    pub version: u32,
    /// Metadata of the plan.
    pub header: Header,
    /// SHA-256 of version, header and work, in hexadecimal. An approval refers to this digest.
    pub digest: String,
    /// The work of the plan. Its fields are stored at the same level as header and digest.
    #[serde(flatten)]
    pub work: W,
}

/// Why a saved plan cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlanFileError {
    /// The file could not be read.
    #[error("cannot read plan `{path}`: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file is not a plan.
    #[error("`{path}` is not a plan: {reason}", path = path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The message of the parser.
        reason: String,
    },
    /// The file is a plan of another kind.
    #[error("`{path}` is a plan of kind `{found}`, not `{expected}`", path = path.display())]
    OperationKind {
        /// The file.
        path: PathBuf,
        /// The kind found.
        found: String,
        /// The kind expected.
        expected: &'static str,
    },
    /// A netsurgeon version with different steps created the file.
    #[error(
        "plan `{path}` has format {found} ({tool}); this netsurgeon executes format {expected}",
        path = path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The format of this program.
        expected: u32,
        /// Version of netsurgeon that created the file.
        tool: String,
    },
    /// A netsurgeon version with different steps started the operation.
    #[error(
        "operation `{operation}` was started by {tool}, but {this} has different steps ({difference})",
        this = TOOL
    )]
    Begun {
        /// The operation.
        operation: String,
        /// Version of netsurgeon that started the operation.
        tool: String,
        /// Description of the difference.
        difference: String,
    },
    /// The file was changed after it was created.
    #[error(
        "plan `{path}` was changed: its content has digest {computed}, but the file records digest {stated}",
        path = path.display()
    )]
    Digest {
        /// The file.
        path: PathBuf,
        /// Digest of the content.
        computed: String,
        /// Digest in the file.
        stated: String,
    },
}

/// Name and version of this program, for the header of a plan.
const TOOL: &str = concat!("netsurgeon ", env!("CARGO_PKG_VERSION"));

impl<W: OperationKind> Plan<W> {
    /// Returns the plan with its digest.
    pub fn new(cluster: &str, base_revision: Revision, work: W) -> Self {
        let header = Header {
            kind: W::NAME.to_string(),
            tool: TOOL.to_string(),
            cluster: cluster.to_string(),
            base_revision,
        };
        let digest = digest(W::VERSION, &header, &work);
        Self { version: W::VERSION, header, digest, work }
    }

    /// Reads a saved plan and checks its kind, format and digest.
    pub fn read(path: &Path) -> Result<Self, PlanFileError> {
        let text = std::fs::read(path).map_err(|source| PlanFileError::Io { path: path.into(), source })?;
        Self::parse(&text, path)
    }

    /// Reads the plan of an operation from the JSON in its journal, like [`Self::parse`]. If another version started the
    /// operation, the error names that version.
    pub fn of_operation(json: &[u8], operation: &str) -> Result<Self, PlanFileError> {
        Self::parse(json, Path::new(operation)).map_err(|error| match error {
            PlanFileError::Format { found, expected, tool, .. } => PlanFileError::Begun {
                operation: operation.to_string(),
                tool,
                difference: format!("its plan has format {found}, not {expected}"),
            },
            other => other,
        })
    }

    /// Reads a plan from JSON and checks its kind, format and digest; `path` is for messages.
    pub fn parse(json: &[u8], path: &Path) -> Result<Self, PlanFileError> {
        let syntax =
            |e: serde_json::Error| PlanFileError::Syntax { path: path.into(), reason: e.to_string() };
        let outline: Outline = serde_json::from_slice(json).map_err(syntax)?;
        let (found, expected) = (outline.header.kind, W::NAME);
        if found != expected {
            return Err(PlanFileError::OperationKind { path: path.into(), found, expected });
        }
        let (found, expected, tool) = (outline.version, W::VERSION, outline.header.tool);
        if found != expected {
            return Err(PlanFileError::Format { path: path.into(), found, expected, tool });
        }
        let plan: Self = serde_json::from_slice(json).map_err(syntax)?;
        let computed = digest(W::VERSION, &plan.header, &plan.work);
        if computed != plan.digest {
            return Err(PlanFileError::Digest { path: path.into(), computed, stated: plan.digest });
        }
        Ok(plan)
    }
}

impl<W: Work> Plan<W> {
    /// Returns the digest of all stages and steps that the plan compiles to: SHA-256, in hexadecimal. Text that is only displayed
    /// is not included. This function compiles every step.
    pub fn compiled(&self) -> String {
        hashed(|blocks| {
            for stage in self.work.stages() {
                serde_json::to_writer(&mut *blocks, &(&stage, self.work.steps(&stage)))?;
            }
            Ok(())
        })
    }

    /// Fails if the plan compiles to different steps now than when the operation started. `compiled` is the digest that was
    /// recorded at the start. It is empty if the version that started the operation did not record a digest.
    pub fn compiles_as(&self, compiled: &str, operation: &str) -> Result<(), PlanFileError> {
        if compiled.is_empty() || compiled == self.compiled() {
            return Ok(());
        }
        let (operation, tool) = (operation.to_string(), self.header.tool.clone());
        let difference = "this version compiles its plan to different steps".to_string();
        Err(PlanFileError::Begun { operation, tool, difference })
    }
}

#[derive(Deserialize)]
struct Outline {
    version: u32,
    header: OutlineHeader,
}

#[derive(Deserialize)]
struct OutlineHeader {
    kind: String,
    tool: String,
}

fn digest<W: Serialize>(version: u32, header: &Header, work: &W) -> String {
    hashed(|blocks| serde_json::to_writer(blocks, &(version, header, work)))
}

fn hashed(write: impl FnOnce(&mut BufWriter<&mut HashWriter>) -> serde_json::Result<()>) -> String {
    let mut hasher = HashWriter(Sha256::new());
    // The JSON writer writes a few bytes at a time. The buffer collects them, so that they are hashed in blocks.
    let mut blocks = BufWriter::with_capacity(DIGEST_BLOCK, &mut hasher);
    // Serialising plain data into a hasher cannot fail. If it failed, the digest would not match when the plan is read.
    let _ = write(&mut blocks);
    let _ = blocks.flush();
    drop(blocks);
    HEXLOWER.encode(&hasher.0.finalize())
}

/// Number of bytes that are hashed in one call. A block of this size contains many blocks of SHA-256 (64 bytes), and fits in the
/// L1 cache.
const DIGEST_BLOCK: usize = 16 * 1024;

struct HashWriter(Sha256);

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Action, NoEffect};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Test {
        to: String,
    }

    impl OperationKind for Test {
        const NAME: &'static str = "test";
        const VERSION: u32 = 7;
    }

    impl Work for Test {
        type Effect = NoEffect;

        fn stages(&self) -> Vec<Stage> {
            vec![Stage { index: 0, name: "only".into(), batch: None, title: String::new() }]
        }

        fn steps(&self, _stage: &Stage) -> Vec<Step<NoEffect>> {
            let (id, action) = (StepId(self.to.clone()), Action::PointOfNoReturn);
            vec![Step { id, subject: String::new(), action, independent: false, back_of: Vec::new() }]
        }
    }

    fn plan() -> Plan<Test> {
        Plan::new("cluster", Revision(7), Test { to: "10.200.0.0/16".into() })
    }

    fn saved() -> String {
        serde_json::to_string(&plan()).unwrap()
    }

    fn parse(text: &str) -> Result<Plan<Test>, PlanFileError> {
        Plan::parse(text.as_bytes(), Path::new("plan.json"))
    }

    #[test]
    fn saved_plan_is_read_back() {
        assert_eq!(parse(&saved()).unwrap().header.base_revision, Revision(7));
    }

    #[test]
    fn changed_plan_is_refused() {
        for (from, to) in [
            ("10.200.0.0/16", "10.201.0.0/16"),
            ("\"cluster\":\"cluster\"", "\"cluster\":\"other\""),
            ("\"base_revision\":7", "\"base_revision\":8"),
        ] {
            let changed = saved().replace(from, to);
            assert_ne!(changed, saved(), "{from}");
            assert!(matches!(parse(&changed), Err(PlanFileError::Digest { .. })), "{changed}");
        }
    }

    #[test]
    fn plan_of_another_format_is_refused() {
        let changed = saved().replace("\"version\":7", "\"version\":99");
        let refused = parse(&changed).unwrap_err();
        assert!(matches!(refused, PlanFileError::Format { found: 99, expected: 7, .. }), "{refused}");
        assert!(matches!(parse("{}"), Err(PlanFileError::Syntax { .. })));
        assert!(matches!(parse("no"), Err(PlanFileError::Syntax { .. })));
    }

    #[test]
    fn plan_of_another_kind_is_refused() {
        let refused = parse(&saved().replace("\"kind\":\"test\"", "\"kind\":\"renumber\"")).unwrap_err();
        assert_eq!(refused.to_string(), "`plan.json` is a plan of kind `renumber`, not `test`");
    }

    #[test]
    fn refusal_names_the_version_that_started_the_operation() {
        let older = saved().replace("\"version\":7", "\"version\":6").replace(TOOL, "netsurgeon 0.0.9");
        let refused = Plan::<Test>::of_operation(older.as_bytes(), "op-1").unwrap_err().to_string();
        let expected = format!(
            "operation `op-1` was started by netsurgeon 0.0.9, but {TOOL} has different steps \
             (its plan has format 6, not 7)"
        );
        assert_eq!(refused, expected);
    }

    #[test]
    fn operation_that_compiles_to_other_steps_is_refused() {
        let compiled = plan().compiled();
        assert!(plan().compiles_as(&compiled, "op-1").is_ok());
        assert!(plan().compiles_as("", "op-1").is_ok(), "started by a version that did not record it");
        let other = Plan::new("cluster", Revision(7), Test { to: "10.201.0.0/16".into() });
        let refused = other.compiles_as(&compiled, "op-1").unwrap_err().to_string();
        assert!(refused.contains("compiles its plan to different steps"), "{refused}");
    }
}
