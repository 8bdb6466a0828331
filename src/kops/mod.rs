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
mod field_values;
mod identity;
mod name;
mod network;
pub mod outcome;
mod remnant;
mod replacement;
pub mod rule;
pub mod rules;
mod source;

use change::Changer;

#[cfg(test)]
mod tests;

pub use outcome::{Change, Decision, Finding, Missing, Refusal, Remnant, Specification};
pub use source::{FilePosition, InputError, SourceFile};

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
    let mut changer = Changer::new(&sources, request);
    changer.check_request();
    features::change_network_plugin(&mut changer);
    features::change_dns(&mut changer);
    for document in sources.documents() {
        for field in &document.fields {
            changer.apply(document, field);
        }
    }
    changer.apply_other_settings();
    network::check(&mut changer);
    features::check_versions(&mut changer);
    replacement::apply(&mut changer);
    let Changer { edits, mut refusal, mut changes, mut warnings, olds, exempt, settings, .. } = changer;
    let mut files = Vec::new();
    for (edit, parsed) in edits.into_iter().zip(&sources.files) {
        match edit.finish() {
            Ok(edited) => files.push((edited, &**parsed)),
            Err(error) => {
                let reason = format!("{error}; write its value on one line, without escapes");
                let at = parsed.at(0);
                refusal.refused.push(Finding { at, field: "the file".to_string(), reason });
            }
        }
    }
    let search = remnant::Search { olds: &olds, exempt: &exempt, request };
    let (kept, left) = remnant::search(&sources, &files, &search);
    let (mut ranges, remnants) = remnant::split(left);
    refusal.remnants = remnants;
    if !refusal.is_empty() {
        return Err(KopsError::Refused(Box::new(refusal)));
    }
    warnings.append(&mut ranges);
    let files = files.into_iter().map(|(edited, parsed)| (parsed.file.name.clone(), edited.text)).collect();
    changes.sort_by_key(|change| {
        let file = sources.files.iter().position(|parsed| parsed.file.name == change.at.file);
        (file, change.at.position)
    });
    let decisions = decision::decisions(&sources, request, &settings);
    let (source, name) = (sources.cluster.name.clone(), request.name.clone());
    Ok(Specification { source, name, files, changes, kept, warnings, decisions })
}
