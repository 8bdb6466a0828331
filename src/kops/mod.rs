//! Creates the kOps specification of a mirror from the specification of its source. Text in, text out: this module connects to
//! nothing.
//!
//! ```text
//! files ─► source (documents, fields) ─► rules (a table) ─► change ─► new text ─► remnant (what is left of the source)
//! ```
//!
//! [`rules::RULES`] has a row for each field that identifies a cluster, with the reason. [`remnant`] then searches the whole new
//! text for the name, the ids and the stores of the source. A text that the table does not keep on purpose is refused, unless you
//! accept it. All other bytes stay as they are.

mod change;
mod decision;
mod features;
mod field;
mod identity;
mod name;
mod network;
pub mod outcome;
mod remnant;
mod replacement;
pub mod rule;
pub mod rules;
mod setting;
mod source;

#[cfg(test)]
mod tests;

pub use outcome::{Change, Decision, Finding, Missing, Refusal, Remnant, Specification};
pub use source::{InputError, Place, SourceFile};

/// What the mirror is.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Name of the mirror's cluster.
    pub name: String,
    /// Values of fields, by the names of the fields.
    pub set: Vec<(String, String)>,
    /// Whether the mirror is in the VPC of the source.
    pub same_vpc: bool,
    /// Texts of the source that the mirror is allowed to contain.
    pub allow: Vec<String>,
    /// Texts to replace in all values and comments, each with its replacement.
    pub replace: Vec<(String, String)>,
}

/// Why there is no specification.
#[derive(Debug)]
pub enum KopsError {
    /// A file cannot be used.
    Input(InputError),
    /// Something is missing or must not stay.
    Refused(Box<Refusal>),
}

impl From<InputError> for KopsError {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

/// Creates the specification of the mirror.
pub fn specification(files: &[SourceFile], request: &Request) -> Result<Specification, KopsError> {
    let sources = source::read(files)?;
    change::mirror(&sources, request)
}
