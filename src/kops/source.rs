//! The files of the source: kOps documents as `kops get NAME -o yaml` prints them.

use std::collections::BTreeSet;
use std::fmt::{Display, Formatter};
use std::ops::Range;
use std::rc::Rc;

use super::field::{FieldNode, fields};
use crate::wire::yaml::{Node, Position, Yaml};

/// A file of the user.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// The path, for messages.
    pub name: String,
    /// The content.
    pub text: String,
}

/// Why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{}:{}: {reason}", at.line, at.column)]
pub struct InputError {
    /// The file.
    pub file: String,
    /// Where the reason is.
    pub at: Position,
    /// The reason.
    pub reason: String,
}

/// Kinds of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Cluster,
    Group,
    SshKey,
}

/// Label of the documents of a cluster.
pub(super) const CLUSTER_LABEL: &str = "kops.k8s.io/cluster";

/// A document of a file.
#[derive(Debug)]
pub(super) struct Document<'f> {
    pub kind: Kind,
    pub name: String,
    pub parsed: Rc<Parsed<'f>>,
    pub root: Node,
    /// Whether the document is in the newer spelling, `v1alpha3`.
    pub is_newer: bool,
    /// Start of the paths of the fields: empty for the cluster.
    pub prefix: String,
    pub fields: Vec<FieldNode>,
}

impl Document<'_> {
    /// Returns the heading of the document for people.
    pub fn title(&self) -> String {
        match self.kind {
            Kind::Cluster => format!("Cluster {}", self.name),
            Kind::Group => format!("InstanceGroup {}", self.name),
            Kind::SshKey => format!("SSHCredential {}", self.name),
        }
    }

    /// Returns the field with this path below `spec`.
    pub fn spec(&self, path: &[&str]) -> Option<&FieldNode> {
        let is_it = |field: &&FieldNode| {
            let names = field.segments.iter().map(|segment| segment.text.as_str());
            names.eq(std::iter::once("spec").chain(path.iter().copied()))
        };
        self.fields.iter().find(is_it)
    }

    /// Returns the scalar of a field. A value that is not written is none.
    pub fn scalar(&self, field: &FieldNode) -> Option<&str> {
        self.parsed.yaml.scalar(field.node).filter(|_| !self.parsed.yaml.place(field.node).is_empty())
    }

    /// Returns where a field starts.
    pub fn at(&self, field: &FieldNode) -> FilePosition {
        self.parsed.at(self.parsed.yaml.place(field.key).start)
    }
}

/// A place in a file of the user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePosition {
    /// The file.
    pub file: String,
    /// The position in it.
    pub position: Position,
}

impl Display for FilePosition {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.position.line, self.position.column)
    }
}

/// A parsed file.
#[derive(Debug)]
pub(super) struct Parsed<'f> {
    /// Number of the file.
    pub number: usize,
    pub file: &'f SourceFile,
    pub yaml: Yaml<'f>,
}

impl Parsed<'_> {
    /// Returns the place of a byte.
    pub fn at(&self, offset: usize) -> FilePosition {
        FilePosition { file: self.file.name.clone(), position: Position::of(&self.file.text, offset) }
    }

    fn fault(&self, node: Node, reason: String) -> InputError {
        let at = self.at(self.yaml.place(node).start);
        InputError { file: at.file, at: at.position, reason }
    }

    /// Returns the place of a value. A value that is not written has the place of its key, with the colon.
    pub fn extent(&self, key: Node, node: Node) -> Range<usize> {
        let place = self.yaml.place(node);
        let start = if place.is_empty() { self.yaml.place(key).start } else { place.start };
        start..if place.is_empty() { place.end.saturating_add(2) } else { place.end }
    }

    fn is_empty(&self, root: Node) -> bool {
        self.yaml.scalar(root).is_some() && self.yaml.place(root).is_empty()
    }
}

/// All documents of the source.
#[derive(Debug)]
pub(super) struct Sources<'f> {
    pub files: Vec<Rc<Parsed<'f>>>,
    pub cluster: Document<'f>,
    /// Instance groups and SSH keys.
    pub others: Vec<Document<'f>>,
}

impl<'f> Sources<'f> {
    /// Returns all documents, the cluster first.
    pub fn documents(&self) -> impl Iterator<Item = &Document<'f>> {
        std::iter::once(&self.cluster).chain(&self.others)
    }

    /// Returns the scalar of a field of the cluster below `spec`.
    pub fn value(&self, path: &[&str]) -> Option<&str> {
        self.cluster.scalar(self.cluster.spec(path)?)
    }
}

/// Reads and checks the files.
pub(super) fn read(files: &[SourceFile]) -> Result<Sources<'_>, InputError> {
    let mut parsed = Vec::new();
    let mut clusters = Vec::new();
    let mut others: Vec<Document<'_>> = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let one = Rc::new(Parsed { number, yaml: parse(file)?, file });
        for root in one.yaml.documents().iter().copied().filter(|root| !one.is_empty(*root)) {
            let found = document(&one, root)?;
            if found.kind == Kind::Cluster {
                clusters.push(found);
            } else if others.iter().any(|other| other.kind == found.kind && other.name == found.name) {
                return Err(one.fault(root, format!("a second {}", found.title())));
            } else {
                others.push(found);
            }
        }
        parsed.push(one);
    }
    if let [one, other, ..] = clusters.as_slice() {
        let reason = format!("a second Cluster, `{}`, after `{}`", other.name, one.name);
        return Err(other.parsed.fault(other.root, reason));
    }
    let Some(cluster) = clusters.pop() else {
        let file = files.first().map(|file| file.name.clone()).unwrap_or_default();
        let reason = "no file has a document of the kind `Cluster`".to_string();
        return Err(InputError { file, at: Position { line: 1, column: 1 }, reason });
    };
    for document in &others {
        check_label(document, &cluster.name)?;
    }
    Ok(Sources { files: parsed, cluster, others })
}

/// Checks that a document belongs to the cluster.
fn check_label(document: &Document<'_>, name: &str) -> Result<(), InputError> {
    let yaml = &document.parsed.yaml;
    let metadata = yaml.get(document.root, "metadata");
    let labels = metadata.and_then(|node| yaml.get(node, "labels"));
    let label = labels.and_then(|node| yaml.get(node, CLUSTER_LABEL));
    let reason = match label.and_then(|node| yaml.scalar(node)) {
        Some(found) if found == name => return Ok(()),
        Some(found) => format!("{} belongs to the cluster `{found}`, not to `{name}`", document.title()),
        None => format!("{} has no label `{CLUSTER_LABEL}`, which kOps requires", document.title()),
    };
    Err(document.parsed.fault(label.or(metadata).unwrap_or(document.root), reason))
}

fn parse(file: &SourceFile) -> Result<Yaml<'_>, InputError> {
    let fault = |at: Position, reason: String| InputError { file: file.name.clone(), at, reason };
    let yaml = Yaml::parse(&file.text).map_err(|error| match Yaml::fault(&file.text) {
        Some((at, reason)) => match tab(&file.text, at.line) {
            Some(tab) => fault(tab, "it is not valid YAML: a tab in the indentation".to_string()),
            None => fault(at, format!("it is not valid YAML: {reason}")),
        },
        None => fault(Position { line: 1, column: 1 }, error.to_string()),
    })?;
    if let Some(offset) = yaml.reference() {
        let reason = "an anchor, an alias or a tag: kOps writes none, and a change here could change other values; \
                      write the value itself";
        return Err(fault(Position::of(&file.text, offset), reason.to_string()));
    }
    for document in yaml.documents() {
        if let Some((key, node)) = duplicate(&yaml, *document) {
            let at = Position::of(&file.text, yaml.place(node).start);
            return Err(fault(at, format!("the key `{key}` occurs twice in its map")));
        }
    }
    Ok(yaml)
}

/// Returns the first tab in the indentation of a line, from a line on.
fn tab(text: &str, from: usize) -> Option<Position> {
    let mut lines = text.lines().enumerate().skip(from.saturating_sub(1));
    lines.find_map(|(number, line)| {
        let indent = line.len().saturating_sub(line.trim_start().len());
        let column = line.get(..indent)?.find('\t')?.saturating_add(1);
        Some(Position { line: number.saturating_add(1), column })
    })
}

fn duplicate(yaml: &Yaml<'_>, node: Node) -> Option<(String, Node)> {
    let mut names = BTreeSet::new();
    for (key, value) in yaml.entries(node) {
        let name = yaml.scalar(key).unwrap_or_default();
        if !names.insert(name.to_string()) {
            return Some((name.to_string(), key));
        }
        if let Some(found) = duplicate(yaml, value) {
            return Some(found);
        }
    }
    yaml.items(node).iter().find_map(|item| duplicate(yaml, *item))
}

/// API versions that kOps reads.
const VERSIONS: [&str; 3] = ["kops.k8s.io/v1alpha2", "kops.k8s.io/v1alpha3", "kops/v1alpha2"];

fn document<'f>(parsed: &Rc<Parsed<'f>>, root: Node) -> Result<Document<'f>, InputError> {
    let yaml = &parsed.yaml;
    if !yaml.is_map(root) {
        return Err(parsed.fault(root, "expected a kOps document, found no map".to_string()));
    }
    let required = |parent: Node, key: &str, path: &str| {
        let node = yaml.get(parent, key);
        let value = node.and_then(|node| yaml.scalar(node)).filter(|value| !value.is_empty());
        let missing = || parsed.fault(parent, format!("the document has no `{path}`"));
        node.zip(value).ok_or_else(missing)
    };
    let (node, version) = required(root, "apiVersion", "apiVersion")?;
    if !VERSIONS.contains(&version) {
        let expected = "expected `kops.k8s.io/v1alpha2` or `kops.k8s.io/v1alpha3`";
        return Err(parsed.fault(node, format!("`{version}` is not known: {expected}")));
    }
    let is_newer = version.ends_with("v1alpha3");
    let (node, kind) = required(root, "kind", "kind")?;
    let kind = match kind {
        "Cluster" => Kind::Cluster,
        "InstanceGroup" => Kind::Group,
        "SSHCredential" => Kind::SshKey,
        other => {
            let expected = "expected `Cluster`, `InstanceGroup` or `SSHCredential`";
            return Err(parsed.fault(node, format!("the kind `{other}` is not known: {expected}")));
        }
    };
    let metadata = yaml.get(root, "metadata").unwrap_or(root);
    let (_, name) = required(metadata, "name", "metadata.name")?;
    if yaml.get(root, "spec").is_none_or(|spec| !yaml.is_map(spec)) {
        return Err(parsed.fault(root, "the document has no `spec`".to_string()));
    }
    let prefix = match kind {
        Kind::Cluster => String::new(),
        Kind::Group => format!("ig/{name}."),
        Kind::SshKey => format!("ssh/{name}."),
    };
    let fields = fields(yaml, root, &prefix);
    Ok(Document { kind, name: name.to_string(), parsed: Rc::clone(parsed), root, is_newer, prefix, fields })
}
