//! What the command knows after it has read the source: the specification of the mirror, or why there is none.

use serde::{Serialize, Serializer};

use super::source::FilePosition;

fn place<S: Serializer>(place: &FilePosition, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(place)
}

/// A changed field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Where the field is in the source.
    #[serde(serialize_with = "place")]
    pub at: FilePosition,
    /// The document, for example `InstanceGroup nodes`.
    pub document: String,
    /// The path of the field.
    pub field: String,
    /// The previous value; none if the field is new, or if its value is not printed.
    pub from: Option<String>,
    /// The new value; none if the field is removed.
    pub to: Option<String>,
    /// The reason.
    pub reason: String,
}

/// A field that the user should know of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Where the field is in the source.
    #[serde(serialize_with = "place")]
    pub at: FilePosition,
    /// The path of the field.
    pub field: String,
    /// What the finding is.
    pub reason: String,
}

/// Something that only a person can decide or do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// What it is about.
    pub subject: String,
    /// Why it must be decided.
    pub reason: String,
    /// Commands that help, if there are any.
    pub commands: Vec<String>,
}

/// A value that the user must give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The name of the field for `--set`.
    pub field: String,
    /// What the value is.
    pub what: String,
    /// An example.
    pub example: String,
    /// Why it must be given.
    pub reason: String,
    /// Where the field is in the source.
    pub at: Option<FilePosition>,
}

/// A text of the source that the specification of the mirror contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remnant {
    /// Where it is in the source.
    #[serde(serialize_with = "place")]
    pub at: FilePosition,
    /// The path of the field, or `a comment`.
    pub field: String,
    /// The text that was found.
    pub text: String,
    /// What the text is of the source.
    pub what: String,
    /// Why it is accepted, or how it is hidden.
    pub reason: Option<String>,
}

/// The specification of the mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Specification {
    /// Name of the source's cluster.
    pub source: String,
    /// Name of the mirror's cluster.
    pub name: String,
    /// The path of each file, with its new content.
    pub files: Vec<(String, String)>,
    /// The changes, in the order of the files.
    pub changes: Vec<Change>,
    /// Texts of the source that stay on purpose.
    pub kept: Vec<Remnant>,
    /// What the user should know of.
    pub warnings: Vec<Finding>,
    /// What only a person can decide or do.
    pub decisions: Vec<Decision>,
}

impl Specification {
    /// Returns all documents as one text.
    pub fn yaml(&self) -> String {
        let mut text = String::new();
        for (_, file) in &self.files {
            let starts_document = file.lines().any(|line| line.starts_with("---"))
                && file
                    .lines()
                    .find(|line| !line.trim().is_empty() && !line.starts_with('#'))
                    .is_some_and(|line| line.starts_with("---"));
            if !text.is_empty() {
                if !text.ends_with('\n') {
                    text.push('\n');
                }
                if !starts_document {
                    text.push_str("---\n");
                }
            }
            text.push_str(file);
        }
        text
    }
}

/// Why there is no specification: everything that is missing or must not stay, at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal {
    /// Values that the user must give.
    pub missing: Vec<Missing>,
    /// What cannot be as it is.
    pub refused: Vec<Finding>,
    /// Arguments that do not fit the source.
    pub arguments: Vec<String>,
    /// Texts of the source that are left.
    pub remnants: Vec<Remnant>,
}

impl Refusal {
    /// Returns whether there is no reason.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty()
            && self.refused.is_empty()
            && self.arguments.is_empty()
            && self.remnants.is_empty()
    }
}
