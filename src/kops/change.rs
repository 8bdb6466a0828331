//! Applies the table of rules to the source.

use std::ops::Range;

use super::field::{FieldNode, matched, rendered};
use super::field_values::{REMOVE, Settings};
use super::identity::{OldTexts, aws_ids};
use super::outcome::{Change, Finding, Missing, Refusal};
use super::rule::{Demand, Old, On, Rule, Treatment};
use super::rules::RULES;
use super::source::{Document, FilePosition, Kind, Sources};
use super::{Request, name};
use crate::wire::yaml::{Node, YamlError};
use crate::wire::yaml_edit::{YamlEdit, plain_or_quoted};

/// A part of a file in which texts of the source are accepted or not searched.
#[derive(Debug)]
pub(super) struct Exempt {
    pub file: usize,
    pub place: Range<usize>,
    /// Why the texts stay; none if the user must give the value first.
    pub reason: Option<String>,
}

/// The changes so far.
#[derive(Debug)]
pub(super) struct Changer<'s, 'f> {
    pub sources: &'s Sources<'f>,
    pub request: &'s Request,
    pub settings: Settings,
    /// One edit for each file.
    pub edits: Vec<YamlEdit<'s>>,
    pub changes: Vec<Change>,
    pub warnings: Vec<Finding>,
    pub refusal: Refusal,
    pub olds: OldTexts,
    pub exempt: Vec<Exempt>,
    /// Changed and removed fields: the file and the key.
    done: Vec<(usize, Node)>,
}

impl<'s, 'f> Changer<'s, 'f> {
    pub fn new(sources: &'s Sources<'f>, request: &'s Request) -> Self {
        let mut olds = OldTexts::of_name(&sources.cluster.name, &request.name);
        for parsed in &sources.files {
            olds.extend_ids(aws_ids(&parsed.file.text), request.same_vpc);
        }
        Self {
            sources,
            request,
            settings: Settings::new(&request.set),
            edits: sources.files.iter().map(|parsed| YamlEdit::new(&parsed.yaml)).collect(),
            changes: Vec::new(),
            warnings: Vec::new(),
            refusal: Refusal::default(),
            olds,
            exempt: Vec::new(),
            done: Vec::new(),
        }
    }

    pub fn check_request(&mut self) {
        let (old, new) = (&self.sources.cluster.name, &self.request.name);
        if let Some(fault) = name::fault(new) {
            self.refusal.arguments.push(format!("`--name`: {fault}"));
        }
        if old == new {
            let text = format!("`--name`: `{new}` is the name of the source; the mirror needs another name");
            self.refusal.arguments.push(text);
        }
        for field in self.settings.repeated() {
            self.refusal.arguments.push(format!("`--set`: `{field}` is given twice"));
        }
    }

    /// Returns the edit of a document's file.
    pub fn edit(&mut self, document: &Document<'_>) -> Option<&mut YamlEdit<'s>> {
        self.edits.get_mut(document.parsed.number)
    }

    /// Returns whether a field is changed or removed already, or is in a removed field.
    pub fn is_done(&self, document: &Document<'_>, field: &FieldNode) -> bool {
        self.done.contains(&(document.parsed.number, field.key)) || self.is_removed(document, field)
    }

    /// Returns whether a field is removed, or is in a removed field.
    pub fn is_removed(&self, document: &Document<'_>, field: &FieldNode) -> bool {
        let Some(edit) = self.edits.get(document.parsed.number) else { return false };
        document.fields.iter().any(|other| edit.is_removed(other.key) && field.is_within(other))
    }

    /// Applies the first row that matches a field.
    pub fn apply(&mut self, document: &Document<'f>, field: &FieldNode) {
        let is_of_kind = |rule: &&Rule| match rule.on {
            On::Cluster => document.kind == Kind::Cluster,
            On::Group => document.kind == Kind::Group,
            On::All => true,
        };
        let pattern_of = |rule: &'static Rule| {
            rule.paths.iter().find_map(|pattern| Some((rule, matched(pattern, &field.segments)?)))
        };
        let Some((rule, open)) = RULES.iter().filter(is_of_kind).find_map(pattern_of) else { return };
        if self.is_done(document, field) {
            self.note_old(document, field, rule);
            return;
        }
        let mut names = vec![field.path.clone()];
        names.extend(rule.paths.iter().map(|pattern| rendered(pattern, &open, &document.prefix)));
        let value = document.scalar(field);
        if let Some(given) = self.settings.take(&names).map(str::to_string) {
            self.note_old(document, field, rule);
            self.set(document, field, &given, rule.reason);
        } else if value.is_none() && document.parsed.yaml.scalar(field.node).is_some() {
            // Nothing is written there.
        } else if self.is_removal(rule, value) {
            self.note_old(document, field, rule);
            self.remove(document, field, rule.reason);
        } else {
            self.treat(document, field, rule);
        }
    }

    fn is_removal(&self, rule: &Rule, value: Option<&str>) -> bool {
        match rule.treatment {
            Treatment::Removed => true,
            Treatment::RemovedInNewVpc => !self.request.same_vpc,
            Treatment::RemovedIf(starts) => {
                value.is_some_and(|value| starts.iter().any(|start| value.starts_with(start)))
            }
            _ => false,
        }
    }

    /// Applies a row that does not remove the field.
    fn treat(&mut self, document: &Document<'f>, field: &FieldNode, rule: &Rule) {
        let value = document.scalar(field).filter(|value| !value.is_empty());
        match rule.treatment {
            Treatment::Name => self.rename(document, field, rule),
            Treatment::NameOrWarn(text) => {
                if let Some(value) = value.filter(|value| !self.is_named(value)) {
                    self.warn(document, field, format!("it stays `{value}`: {text}"));
                }
                self.rename(document, field, rule);
            }
            Treatment::NameOr(demand) => {
                if let Some(value) = value
                    && !self.is_named(value)
                {
                    self.note_old(document, field, rule);
                    self.require(document, field, rule, demand);
                } else {
                    self.note_old(document, field, rule);
                    self.rename(document, field, rule);
                }
            }
            Treatment::GivenInNewVpc(_) if self.request.same_vpc => self.exempt(document, field, rule.reason),
            Treatment::Given(_) if self.is_shared_subnet(document, field) => {}
            Treatment::Given(demand) | Treatment::GivenInNewVpc(demand) => {
                if value.is_some() {
                    self.note_old(document, field, rule);
                    self.require(document, field, rule, demand);
                }
            }
            Treatment::Removed | Treatment::RemovedInNewVpc | Treatment::RemovedIf(_) | Treatment::Kept => {
                self.exempt(document, field, rule.reason);
            }
            Treatment::Range => {
                let text = format!("it stays `{}`: {}", value.unwrap_or_default(), rule.reason);
                self.warn(document, field, text);
            }
            Treatment::Outdated(values) => {
                if let Some(value) = value
                    && (values.is_empty() || values.contains(&value))
                {
                    self.warn(document, field, format!("`{value}`: {}", rule.reason));
                }
            }
        }
    }

    /// Returns whether a field is the range of a subnet that both clusters share.
    fn is_shared_subnet(&self, document: &Document<'f>, field: &FieldNode) -> bool {
        let Some(subnet) = field.path.strip_suffix(".cidr") else { return false };
        let id = format!("{subnet}.id");
        let plain = id.strip_prefix("networking.").unwrap_or(&id);
        let given = self.settings.value(&[&id, plain]);
        let found = document.fields.iter().find(|other| other.path == id);
        self.request.same_vpc && given.is_some() && found.and_then(|field| document.scalar(field)) == given
    }

    fn is_named(&self, text: &str) -> bool {
        self.renamed(text) != text
    }

    fn renamed(&self, text: &str) -> String {
        name::renamed(text, &self.sources.cluster.name, &self.request.name)
    }

    /// Replaces the name of the source in a value, and in the key if the table leaves the key open.
    fn rename(&mut self, document: &Document<'f>, field: &FieldNode, rule: &Rule) {
        let (from, to) = (self.sources.cluster.name.clone(), self.request.name.clone());
        let change = move |text: &str| name::renamed(text, &from, &to);
        let is_open = rule.paths.iter().any(|pattern| pattern.ends_with('*'));
        let key = document.parsed.yaml.scalar(field.key).unwrap_or_default();
        if is_open && self.is_named(key) {
            let result = self.edit(document).map(|edit| edit.rewrite(field.key, &change));
            self.report(document, field, result);
            self.record(document, field, (Some(key.to_string()), Some(change(key))), rule.reason);
        }
        let Some(value) = document.scalar(field).filter(|value| self.is_named(value)) else { return };
        let result = self.edit(document).map(|edit| edit.rewrite(field.node, &change));
        self.report(document, field, result);
        self.record(document, field, (Some(value.to_string()), Some(change(value))), rule.reason);
    }

    /// Sets a field to the value that the user gives.
    pub fn set(&mut self, document: &Document<'f>, field: &FieldNode, value: &str, reason: &str) {
        if value == REMOVE {
            return self.remove(document, field, reason);
        }
        let from = document.scalar(field).map(str::to_string);
        if document.parsed.yaml.scalar(field.node).is_none() {
            let text = format!("`--set`: `{}` is a list or a map; name one of its values", field.path);
            return self.refusal.arguments.push(text);
        }
        self.exempt(document, field, "it is given with `--set`");
        let key = (field.key != field.node).then_some(field.key);
        let result = self.edit(document).map(|edit| edit.set(key, field.node, value));
        self.report(document, field, result);
        self.olds.note_new(value);
        if from.as_deref() != Some(value) {
            self.record(document, field, (from, Some(value.to_string())), reason);
        }
    }

    /// Removes a field.
    pub fn remove(&mut self, document: &Document<'f>, field: &FieldNode, reason: &str) {
        let from = document.scalar(field).map(str::to_string);
        if let Some(edit) = self.edit(document) {
            edit.remove(field.key);
        }
        self.record(document, field, (from, None), reason);
    }

    fn report(&mut self, document: &Document<'f>, field: &FieldNode, result: Option<Result<(), YamlError>>) {
        if let Some(Err(error)) = result {
            self.refuse(document, field, error.to_string());
        }
    }

    /// Adds a change to the list. Scripts and secrets are not shown.
    pub fn record(
        &mut self,
        document: &Document<'f>,
        field: &FieldNode,
        (from, to): (Option<String>, Option<String>),
        reason: &str,
    ) {
        self.done.push((document.parsed.number, field.key));
        let is_hidden = |text: &str| field.is_secret() || text.contains('\n');
        let hidden = |text: String| if is_hidden(&text) { "(not shown)".to_string() } else { text };
        self.changes.push(Change {
            at: document.at(field),
            document: document.title(),
            field: field.path.clone(),
            from: from.map(hidden),
            to: to.map(hidden),
            reason: reason.to_string(),
        });
    }

    pub fn warn(&mut self, document: &Document<'f>, field: &FieldNode, reason: String) {
        self.warnings.push(Finding { at: document.at(field), field: field.path.clone(), reason });
    }

    pub fn refuse(&mut self, document: &Document<'f>, field: &FieldNode, reason: String) {
        self.refusal.refused.push(Finding { at: document.at(field), field: field.path.clone(), reason });
    }

    /// Accepts texts of the source in a field.
    fn exempt(&mut self, document: &Document<'f>, field: &FieldNode, reason: &str) {
        let (file, place) = (document.parsed.number, document.parsed.extent(field.key, field.node));
        self.exempt.push(Exempt { file, place, reason: Some(reason.to_string()) });
    }

    fn require(&mut self, document: &Document<'f>, field: &FieldNode, rule: &Rule, demand: Demand) {
        let (file, place) = (document.parsed.number, document.parsed.extent(field.key, field.node));
        self.exempt.push(Exempt { file, place, reason: None });
        self.missing(&field.path, demand, rule.reason, Some(document.at(field)));
    }

    /// Adds a value that the user must give.
    pub fn missing(&mut self, field: &str, demand: Demand, reason: &str, at: Option<FilePosition>) {
        self.refusal.missing.push(Missing {
            field: field.to_string(),
            what: demand.what.to_string(),
            example: demand.example.replace("{name}", &self.request.name),
            reason: reason.to_string(),
            at,
        });
    }

    /// Notes the value of a field, and the values below it, as texts that must not be in the output.
    fn note_old(&mut self, document: &Document<'f>, field: &FieldNode, rule: &Rule) {
        for one in document.fields.iter().filter(|one| one.is_within(field)) {
            if let Some(value) = document.scalar(one).filter(|_| rule.old != Old::Plain) {
                self.olds.note(value, rule.old, &one.path);
            }
        }
    }

    /// Applies the values for fields without a row, and adds fields that have a row.
    pub fn apply_other_settings(&mut self) {
        let sources = self.sources;
        for (name, value) in self.settings.unused() {
            let mut all = sources
                .documents()
                .flat_map(|document| document.fields.iter().map(move |field| (document, field)));
            if let Some((document, field)) = all.find(|(_, field)| field.path == name) {
                if !self.is_done(document, field) {
                    self.set(document, field, &value, "it is given with `--set`");
                }
            } else if !sources.documents().any(|document| self.add(document, &name, &value)) {
                let text = format!(
                    "`--set`: the source has no field `{name}`, and no row of the table allows to add it"
                );
                self.refusal.arguments.push(text);
            }
        }
    }

    /// Adds a field that has a row in the table. Returns whether that was possible.
    fn add(&mut self, document: &Document<'f>, name: &str, value: &str) -> bool {
        let parents = document.fields.iter().filter(|field| document.parsed.yaml.is_map(field.node));
        for parent in parents.collect::<Vec<_>>() {
            for rule in RULES {
                let Some(pattern) = rule.paths.get(usize::from(document.is_newer && rule.paths.len() > 1))
                else {
                    continue;
                };
                let Some((above, key)) = pattern.rsplit_once('.') else { continue };
                let Some(open) = matched(above, &parent.segments) else { continue };
                let names = rule.paths.iter().map(|pattern| rendered(pattern, &open, &document.prefix));
                if key.contains(['*', '[']) || !names.into_iter().any(|known| known == name) {
                    continue;
                }
                if value != REMOVE {
                    self.add_entry(document, parent, (key, &plain_or_quoted(value)), rule.reason);
                }
                return true;
            }
        }
        false
    }

    /// Adds an entry to a map. `value` is YAML on one line.
    pub fn add_entry(
        &mut self,
        document: &Document<'f>,
        parent: &FieldNode,
        entry: (&str, &str),
        reason: &str,
    ) {
        if let Some(edit) = self.edit(document) {
            edit.add(parent.node, entry.0, entry.1);
        }
        self.olds.note_new(entry.1);
        let path = match parent.path.strip_suffix("spec") {
            Some(prefix) if parent.segments.len() == 1 => format!("{prefix}{}", entry.0),
            _ => format!("{}.{}", parent.path, entry.0),
        };
        self.changes.push(Change {
            at: document.at(parent),
            document: document.title(),
            field: path,
            from: None,
            to: Some(entry.1.to_string()),
            reason: reason.to_string(),
        });
    }
}
