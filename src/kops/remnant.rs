//! Searches the new text for texts of the source: in values, keys and comments, and in values that quotes, line breaks or base64
//! hide.

use std::ops::Range;

use super::Request;
use super::change::Exempt;
use super::field::{FieldNode, fields};
use super::identity::{OldText, OldTexts, occurrences};
use super::outcome::{Finding, Remnant};
use super::source::{Parsed, Sources};
use crate::wire::yaml::Yaml;
use crate::wire::yaml_edit::EditedText;

/// What to search, and what is accepted.
pub(super) struct Search<'a> {
    pub olds: &'a OldTexts,
    pub exempt: &'a [Exempt],
    pub request: &'a Request,
}

/// A text of the source that is left, and whether it is only a range of addresses.
pub(super) type Left = (Remnant, bool);

/// A text of the source in a new text.
struct Hit<'a> {
    /// The place in the new text.
    place: Range<usize>,
    old: &'a OldText,
    /// How the text is hidden, if it is.
    hidden: Option<&'static str>,
}

/// Returns the texts of the source that are accepted, and the others.
pub(super) fn search(
    sources: &Sources<'_>,
    files: &[(EditedText, &Parsed<'_>)],
    search: &Search<'_>,
) -> (Vec<Remnant>, Vec<Left>) {
    let (mut kept, mut left) = (Vec::new(), Vec::new());
    for (edited, parsed) in files {
        for hit in hits(&edited.text, search.olds) {
            let origin = edited.origin(hit.place.start);
            let is_here = |one: &&Exempt| {
                one.file == parsed.number && one.place.start <= origin && origin < one.place.end
            };
            let mut remnant = Remnant {
                at: parsed.at(origin),
                field: field_at(sources, parsed, origin),
                text: hit.old.text.clone(),
                what: hit.old.what.clone(),
                reason: hit.hidden.map(str::to_string),
            };
            if let Some(exempt) = search.exempt.iter().find(is_here) {
                if exempt.reason.is_some() {
                    remnant.reason.clone_from(&exempt.reason);
                    kept.push(remnant);
                }
            } else if is_allowed(&edited.text, &hit, &search.request.allow) {
                remnant.reason = Some("accepted with `--allow-old`".to_string());
                kept.push(remnant);
            } else {
                left.push((remnant, hit.old.is_range));
            }
        }
    }
    (kept, left)
}

/// Returns the ranges as findings, and the other texts.
pub(super) fn split(left: Vec<Left>) -> (Vec<Finding>, Vec<Remnant>) {
    let (ranges, others): (Vec<Left>, Vec<Left>) = left.into_iter().partition(|(_, is_range)| *is_range);
    let finding = |remnant: Remnant| Finding {
        at: remnant.at,
        field: remnant.field,
        reason: format!("it contains `{}`, {}", remnant.text, remnant.what),
    };
    let ranges = ranges.into_iter().map(|(remnant, _)| finding(remnant)).collect();
    (ranges, others.into_iter().map(|(remnant, _)| remnant).collect())
}

fn is_allowed(text: &str, hit: &Hit<'_>, allowed: &[String]) -> bool {
    allowed.iter().any(|allowed| {
        allowed.eq_ignore_ascii_case(&hit.old.text)
            || occurrences(text, allowed)
                .iter()
                .any(|one| one.start <= hit.place.start && hit.place.end <= one.end)
    })
}

fn hits<'a>(text: &str, olds: &'a OldTexts) -> Vec<Hit<'a>> {
    let mut found: Vec<Hit<'a>> =
        olds.hits(text).into_iter().map(|(place, old)| Hit { place, old, hidden: None }).collect();
    let Ok(yaml) = Yaml::parse(text) else { return found };
    for root in yaml.documents() {
        let all = fields(&yaml, *root, "");
        for field in &all {
            let nodes = if field.key == field.node { vec![field.node] } else { vec![field.key, field.node] };
            for node in nodes {
                let place = yaml.place(node);
                let value = yaml.scalar(node).unwrap_or_default();
                let source = text.get(place.clone()).unwrap_or_default();
                hidden(olds, (source, value), &place, "quotes or line breaks hide it", &mut found);
            }
            if let Some(decoded) = decoded(&yaml, field) {
                hidden(olds, ("", &decoded), &yaml.place(field.node), "in base64", &mut found);
            }
        }
    }
    found.sort_by_key(|hit| hit.place.start);
    found
}

/// Adds the texts that a value contains more often than its source.
fn hidden<'a>(
    olds: &'a OldTexts,
    (source, value): (&str, &str),
    place: &Range<usize>,
    how: &'static str,
    found: &mut Vec<Hit<'a>>,
) {
    let mut written: Vec<&OldText> = olds.hits(source).into_iter().map(|(_, old)| old).collect();
    for (_, old) in olds.hits(value) {
        match written.iter().position(|one| *one == old) {
            Some(at) => drop(written.swap_remove(at)),
            None => found.push(Hit { place: place.clone(), old, hidden: Some(how) }),
        }
    }
}

/// Returns the content of a file asset in base64.
fn decoded(yaml: &Yaml<'_>, field: &FieldNode) -> Option<String> {
    use base64::Engine as _;
    field.segments.last().filter(|last| last.text == "content")?;
    let is_base64 = yaml.get(field.parent, "isBase64").and_then(|node| yaml.scalar(node)) == Some("true");
    let text: String = yaml.scalar(field.node)?.split_whitespace().collect();
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok().filter(|_| is_base64)?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the path of the innermost field at a byte of the source.
fn field_at(sources: &Sources<'_>, parsed: &Parsed<'_>, offset: usize) -> String {
    if parsed.yaml.comments().iter().any(|comment| comment.start <= offset && offset < comment.end) {
        return "a comment".to_string();
    }
    let documents = sources.documents().filter(|document| document.parsed.number == parsed.number);
    let is_there = |field: &&FieldNode| {
        let key = parsed.yaml.place(field.key);
        let value = parsed.extent(field.key, field.node);
        (key.start <= offset && offset < key.end) || (value.start <= offset && offset < value.end)
    };
    let fields = documents.flat_map(|document| document.fields.iter());
    fields.filter(is_there).last().map_or_else(|| "a document".to_string(), |field| field.path.clone())
}
