//! A plan is a value: it is printed, saved, reviewed, compared by digest, and executed. Making one cannot
//! write, because whoever makes it is given no store that could.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Step;
use crate::store::Revision;

/// Version of the saved form, and of how a plan's work compiles to steps: an older plan is refused rather
/// than carried out in another way than it was reviewed.
pub const FORMAT: u32 = 4;

/// The intention that a plan carries, in the terms of the room that compiles it to steps.
///
/// The steps are a pure function of it. They are compiled stage by stage, so that a plan for tens of
/// thousands of objects is never held as steps in memory.
pub trait Work: Send + Sync {
    /// Returns the stages, in the order in which they are carried out.
    fn stages(&self) -> Vec<Stage>;

    /// Returns the steps of a stage, in order.
    fn steps(&self, stage: &Stage) -> Vec<Step>;

    /// Returns the stages in the order in which they are undone, each last step first.
    fn way_back(&self) -> Vec<Stage> {
        let mut stages = self.stages();
        stages.reverse();
        stages
    }
}

/// A part of an operation: steps that are carried out one after the other, or side by side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Position in the plan, from 0.
    pub index: usize,
    /// Short name: `flip`.
    pub name: String,
    /// The batch that it is about, from 0, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// In words: `move the addresses of batch 2`.
    pub title: String,
}

/// What a plan says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// What kind of operation: `renumber`.
    pub kind: String,
    /// Version of netsurgeon that made it.
    pub tool: String,
    /// The cluster's identity: uid of the namespace `kube-system`.
    pub cluster: String,
    /// Revision of the survey that it was made from.
    pub base_revision: Revision,
}

/// A plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan<W> {
    /// [`FORMAT`].
    pub version: u32,
    /// What it says about itself.
    pub header: Header,
    /// SHA-256 of header and work, in hexadecimal: what an approval refers to.
    pub digest: String,
    /// The intention; its members stand beside header and digest.
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
        /// The operating system's words.
        source: std::io::Error,
    },
    /// The file is no plan.
    #[error("`{path}` is not a plan: {reason}", path = path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The parser's words.
        reason: String,
    },
    /// The file was made by a version with other steps.
    #[error("plan `{path}` has format {found} ({tool}); this netsurgeon carries out format {FORMAT}", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The tool that made it.
        tool: String,
    },
    /// The file was changed after it was made.
    #[error("plan `{path}` was changed: its content has digest {computed}, it says {stated}", path = path.display())]
    Digest {
        /// The file.
        path: PathBuf,
        /// Digest of the content.
        computed: String,
        /// Digest in the file.
        stated: String,
    },
}

impl<W: Serialize + DeserializeOwned> Plan<W> {
    /// Returns the plan with its digest.
    pub fn new(kind: &str, cluster: &str, base_revision: Revision, work: W) -> Self {
        let header = Header {
            kind: kind.to_string(),
            tool: concat!("netsurgeon ", env!("CARGO_PKG_VERSION")).to_string(),
            cluster: cluster.to_string(),
            base_revision,
        };
        let digest = digest(&header, &work);
        Self { version: FORMAT, header, digest, work }
    }

    /// Reads a saved plan and checks its format and digest.
    pub fn read(path: &Path) -> Result<Self, PlanFileError> {
        let text = std::fs::read(path).map_err(|source| PlanFileError::Io { path: path.into(), source })?;
        Self::parse(&text, path)
    }

    /// Reads a plan from JSON and checks its format and digest; `path` is for messages.
    pub fn parse(json: &[u8], path: &Path) -> Result<Self, PlanFileError> {
        let syntax =
            |e: serde_json::Error| PlanFileError::Syntax { path: path.into(), reason: e.to_string() };
        let outline: Outline = serde_json::from_slice(json).map_err(syntax)?;
        if outline.version != FORMAT {
            let (found, tool) = (outline.version, outline.header.tool);
            return Err(PlanFileError::Format { path: path.into(), found, tool });
        }
        let plan: Self = serde_json::from_slice(json).map_err(syntax)?;
        let computed = digest(&plan.header, &plan.work);
        if computed != plan.digest {
            return Err(PlanFileError::Digest { path: path.into(), computed, stated: plan.digest });
        }
        Ok(plan)
    }
}

#[derive(Deserialize)]
struct Outline {
    version: u32,
    header: OutlineHeader,
}

#[derive(Deserialize)]
struct OutlineHeader {
    tool: String,
}

fn digest<W: Serialize>(header: &Header, work: &W) -> String {
    let mut hasher = HashWriter(Sha256::new());
    // JSON is written a few bytes at a time, and hashed in blocks.
    let mut blocks = BufWriter::with_capacity(DIGEST_BLOCK, &mut hasher);
    // Serialising plain data into a hasher cannot fail; were it to, the digest would not match on reading.
    let _ = serde_json::to_writer(&mut blocks, &(FORMAT, header, work));
    let _ = blocks.flush();
    drop(blocks);
    HEXLOWER.encode(&hasher.0.finalize())
}

/// Bytes hashed at once: many blocks of SHA-256, which has 64 bytes, and well within the first cache.
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

    fn saved() -> String {
        let work = serde_json::json!({"to": "10.200.0.0/16"});
        serde_json::to_string(&Plan::new("test", "cluster", Revision(7), work)).unwrap()
    }

    fn parse(text: &str) -> Result<Plan<serde_json::Value>, PlanFileError> {
        Plan::parse(text.as_bytes(), Path::new("plan.json"))
    }

    #[test]
    fn a_plan_reads_back() {
        assert_eq!(parse(&saved()).unwrap().header.base_revision, Revision(7));
    }

    #[test]
    fn a_changed_plan_is_refused() {
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
    fn a_plan_of_another_format_is_refused_by_its_number() {
        let changed = saved().replace(&format!("\"version\":{FORMAT}"), "\"version\":99");
        assert!(matches!(parse(&changed), Err(PlanFileError::Format { found: 99, .. })), "{changed}");
        assert!(matches!(parse("{}"), Err(PlanFileError::Syntax { .. })));
        assert!(matches!(parse("no"), Err(PlanFileError::Syntax { .. })));
    }
}
