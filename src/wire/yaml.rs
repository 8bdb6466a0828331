//! YAML text with the position of each value. A change replaces one value and keeps every other byte, including comments, order,
//! quotes and anchors.

use std::collections::BTreeMap;
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};

/// Maximum nesting depth of values. Files written by hand have about a dozen levels.
const DEEPEST: usize = 64;

/// Reason why a text cannot be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// The text is not YAML.
    #[error("it is not valid YAML: {0}")]
    Syntax(String),
    /// Values are nested too deeply.
    #[error("its values are nested more than {DEEPEST} levels deep")]
    Deep,
    /// The text to replace does not occur literally, occurs more than once, or its replacement would change other values.
    #[error("`{0}` cannot be replaced without changing other parts of the text")]
    Written(String),
}

/// Number of a value. An alias (`*name`) has the same number as its anchor (`&name`).
pub type Node = usize;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Scalar { value: String, place: Range<usize> },
    List(Vec<Node>),
    Map(Vec<Node>),
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// A scalar without quotes. A value that is not written at all is one as well.
    Plain,
    /// A scalar in single quotes.
    Single,
    /// A scalar in double quotes.
    Double,
    /// A scalar after `|` or `>`. Its place starts after the line of the indicator.
    Block,
    /// A list or a map in brackets.
    Flow,
    /// A list or a map without brackets.
    Indented,
}

/// A place in a text, as editors count: both numbers start with 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl Position {
    /// Returns the position of a byte of a text.
    pub fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..text.floor_char_boundary(offset)).unwrap_or(text);
        let line = before.matches('\n').count().saturating_add(1);
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count().saturating_add(1);
        Self { line, column }
    }
}

/// Result of replacing a part of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// The part was replaced. Contains the new text.
    Changed(String),
    /// The part was already replaced.
    There,
    /// Neither the old nor the new part is present. Contains the parts that were found.
    Other(Vec<String>),
}

/// A YAML text and its values.
#[derive(Debug, Clone)]
pub struct Yaml<'a> {
    text: &'a str,
    nodes: Vec<Content>,
    /// The place and the notation of each value.
    written: Vec<(Range<usize>, Notation)>,
    documents: Vec<Node>,
    comments: Vec<Range<usize>>,
    /// Where the first anchor, alias or tag is.
    reference: Option<usize>,
}

impl<'a> Yaml<'a> {
    /// Parses a YAML text.
    pub fn parse(text: &'a str) -> Result<Self, YamlError> {
        let (nodes, written, documents, comments) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut yaml = Self { text, nodes, written, documents, comments, reference: None };
        let mut open: Vec<Node> = Vec::new();
        let mut anchors: BTreeMap<usize, Node> = BTreeMap::new();
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| YamlError::Syntax(error.to_string()))?;
            let place = span.byte_range().unwrap_or_default();
            let (content, notation, anchor) = match event {
                Event::Scalar(value, style, anchor, _) => {
                    let content = Content::Scalar { value: value.into_owned(), place: place.clone() };
                    (content, scalar_notation(style), anchor)
                }
                Event::SequenceStart(style, anchor, _) => {
                    (Content::List(Vec::new()), structure_notation(style), anchor)
                }
                Event::MappingStart(style, anchor, _) => {
                    (Content::Map(Vec::new()), structure_notation(style), anchor)
                }
                Event::SequenceEnd | Event::MappingEnd => {
                    yaml.close(open.pop(), place.end);
                    continue;
                }
                Event::Alias(anchor) => {
                    yaml.reference.get_or_insert(place.start);
                    if let Some(node) = anchors.get(&anchor) {
                        yaml.add(&open, *node);
                    }
                    continue;
                }
                Event::Comment(..) => {
                    yaml.comments.push(place);
                    continue;
                }
                _ => continue,
            };
            let opens = !matches!(content, Content::Scalar { .. });
            let node = yaml.nodes.len();
            yaml.note_reference(anchor, &span, &place);
            yaml.nodes.push(content);
            yaml.written.push((place, notation));
            yaml.add(&open, node);
            if anchor > 0 {
                anchors.insert(anchor, node);
            }
            if opens {
                open.push(node);
            }
            if open.len() > DEEPEST {
                return Err(YamlError::Deep);
            }
        }
        Ok(yaml)
    }

    /// Returns where and why a text is not YAML.
    pub fn fault(text: &str) -> Option<(Position, String)> {
        let error = Parser::new_from_str(text).find_map(Result::err)?;
        let at = Position { line: error.marker().line(), column: error.marker().col().saturating_add(1) };
        Some((at, error.info().clone()))
    }

    fn note_reference(&mut self, anchor: usize, span: &Span, place: &Range<usize>) {
        if anchor > 0 || span.tag_start().is_some() {
            self.reference.get_or_insert(place.start);
        }
    }

    /// Ends a list or a map. An indented one ends with its last value.
    fn close(&mut self, node: Option<Node>, end: usize) {
        let Some(node) = node else { return };
        let last = match self.nodes.get(node) {
            Some(Content::List(items) | Content::Map(items)) => items.last().copied(),
            _ => None,
        };
        let last = last.and_then(|last| Some(self.written.get(last)?.0.end));
        if let Some((place, notation)) = self.written.get_mut(node) {
            place.end = if *notation == Notation::Flow { end } else { last.unwrap_or(place.start) };
        }
    }

    fn add(&mut self, open: &[Node], node: Node) {
        match open.last().and_then(|parent| self.nodes.get_mut(*parent)) {
            Some(Content::List(items) | Content::Map(items)) => items.push(node),
            _ => self.documents.push(node),
        }
    }

    /// Returns the text.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// Returns the place of a value. The value of a block scalar ends before the next value.
    pub fn place(&self, node: Node) -> Range<usize> {
        self.written.get(node).map(|(place, _)| place.clone()).unwrap_or_default()
    }

    /// Returns how a value is written.
    pub fn notation(&self, node: Node) -> Notation {
        self.written.get(node).map_or(Notation::Plain, |(_, notation)| *notation)
    }

    /// Returns the places of the comments.
    pub fn comments(&self) -> &[Range<usize>] {
        &self.comments
    }

    /// Returns where the first anchor, alias or tag is.
    pub fn reference(&self) -> Option<usize> {
        self.reference
    }

    /// Returns the keys of a map, each with its value; an empty list for any other value.
    pub fn entries(&self, node: Node) -> Vec<(Node, Node)> {
        let Some(Content::Map(items)) = self.nodes.get(node) else { return Vec::new() };
        let pair = |pair: &[Node]| Some((*pair.first()?, *pair.last()?));
        items.chunks_exact(2).filter_map(pair).collect()
    }

    /// Returns whether a value is a map.
    pub fn is_map(&self, node: Node) -> bool {
        matches!(self.nodes.get(node), Some(Content::Map(_)))
    }

    /// Returns the outermost value of each document.
    pub fn documents(&self) -> &[Node] {
        &self.documents
    }

    /// Returns the value of a key in a map.
    pub fn get(&self, node: Node, key: &str) -> Option<Node> {
        let Some(Content::Map(items)) = self.nodes.get(node) else { return None };
        let mut pairs = items.chunks_exact(2);
        pairs.find_map(|pair| match pair {
            [found, value] if self.scalar(*found) == Some(key) => Some(*value),
            _ => None,
        })
    }

    /// Returns the items of a list; an empty list for any other value.
    pub fn items(&self, node: Node) -> &[Node] {
        match self.nodes.get(node) {
            Some(Content::List(items)) => items,
            _ => &[],
        }
    }

    /// Returns a scalar value as text; `None` for a list or a map.
    pub fn scalar(&self, node: Node) -> Option<&str> {
        match self.nodes.get(node) {
            Some(Content::Scalar { value, .. }) => Some(value),
            _ => None,
        }
    }

    /// Returns the value at a path of keys, in the first document that contains the path.
    pub fn at<T: AsRef<str>>(&self, path: &[T]) -> Option<Node> {
        let from =
            |document: &Node| path.iter().try_fold(*document, |node, key| self.get(node, key.as_ref()));
        self.documents.iter().find_map(from)
    }

    /// Returns the comma-separated parts of a scalar, or of each scalar in a list.
    pub fn parts(&self, node: Node) -> Vec<(Node, &str)> {
        let own = std::slice::from_ref(&node);
        let singles = if self.scalar(node).is_some() { own } else { self.items(node) };
        let split = |single: &Node| {
            let words = self.scalar(*single).unwrap_or_default().split(',').map(str::trim);
            words.filter(|word| !word.is_empty()).map(|word| (*single, word)).collect::<Vec<_>>()
        };
        singles.iter().flat_map(split).collect()
    }

    /// Replaces a part of the value at a path of keys. Returns the new text.
    pub fn with_part<T: AsRef<str>>(&self, path: &[T], before: &str, after: &str) -> Result<Part, YamlError> {
        let parts = self.at(path).map(|node| self.parts(node)).unwrap_or_default();
        if let Some((node, _)) = parts.iter().find(|(_, part)| *part == before) {
            return self.replaced(*node, before, after).map(Part::Changed);
        }
        let found: Vec<String> = parts.into_iter().map(|(_, part)| part.to_string()).collect();
        let is_there = found.iter().any(|part| part == after);
        Ok(if is_there { Part::There } else { Part::Other(found) })
    }

    /// Replaces a part of a scalar, and nothing else. Returns the new text. Parses the new text to check that all other values
    /// are the same. Adds quotes if the new value needs them.
    pub fn replaced(&self, node: Node, old: &str, new: &str) -> Result<String, YamlError> {
        let written = || YamlError::Written(old.to_string());
        let Some(Content::Scalar { value, place }) = self.nodes.get(node) else { return Err(written()) };
        let source = self.text.get(place.clone()).ok_or_else(written)?;
        if source.matches(old).count() != 1 {
            return Err(written());
        }
        let wanted = value.replacen(old, new, 1);
        let mut candidates = vec![source.replacen(old, new, 1)];
        if source == value {
            candidates.push(format!("'{}'", wanted.replace('\'', "''")));
        }
        let (before, after) = (self.text.get(..place.start), self.text.get(place.end..));
        let (before, after) = (before.ok_or_else(written)?, after.ok_or_else(written)?);
        let mut texts = candidates.into_iter().map(|candidate| format!("{before}{candidate}{after}"));
        texts.find(|text| self.differs_only_in(text, node, &wanted)).ok_or_else(written)
    }

    /// Returns whether another text has the same values, except for the one changed value.
    fn differs_only_in(&self, text: &str, node: Node, wanted: &str) -> bool {
        let Ok(other) = Yaml::parse(text) else { return false };
        let as_meant = |(number, pair): (Node, (&Content, &Content))| match pair {
            (Content::Scalar { value: before, .. }, Content::Scalar { value: after, .. }) => {
                after == if number == node { wanted } else { before }
            }
            (before, after) => before == after,
        };
        let mut pairs = self.nodes.iter().zip(&other.nodes).enumerate();
        self.nodes.len() == other.nodes.len() && self.documents == other.documents && pairs.all(as_meant)
    }
}

fn scalar_notation(style: ScalarStyle) -> Notation {
    match style {
        ScalarStyle::Plain => Notation::Plain,
        ScalarStyle::SingleQuoted => Notation::Single,
        ScalarStyle::DoubleQuoted => Notation::Double,
        ScalarStyle::Literal | ScalarStyle::Folded => Notation::Block,
    }
}

fn structure_notation(style: StructureStyle) -> Notation {
    match style {
        StructureStyle::Flow => Notation::Flow,
        StructureStyle::Block => Notation::Indented,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_value_is_replaced_and_every_other_byte_is_kept() {
        let text =
            "# a comment\na: &x 'one two'   # why\nb: [*x, \"one\", {c: one}]\n---\nd: >-\n  one\n  two\n";
        let yaml = Yaml::parse(text).unwrap();
        let [first, second] = yaml.documents() else { panic!("two documents") };
        let (a, b) = (yaml.get(*first, "a").unwrap(), yaml.get(*first, "b").unwrap());
        assert_eq!(yaml.items(b)[0], a, "an alias equals its anchor");
        assert_eq!(yaml.replaced(a, "two", "three").unwrap(), text.replacen("one two", "one three", 1));
        let inner = yaml.get(yaml.items(b)[2], "c").unwrap();
        assert_eq!(yaml.replaced(inner, "one", "four").unwrap(), text.replace("c: one", "c: four"));
        let folded = yaml.get(*second, "d").unwrap();
        assert_eq!(yaml.scalar(folded), Some("one two"));
        assert_eq!(yaml.replaced(folded, "two", "2").unwrap(), text.replace("  two", "  2"));
    }

    #[test]
    fn parts_are_found_in_every_notation() {
        let text = "a: {b: '10.96.0.0/16,fd00::/112'}\nc:\n- 10.96.0.10 # DNS\n- fd00::a\nd: [[x]]\n";
        let yaml = Yaml::parse(text).unwrap();
        let parts = |path: &[&str]| -> Vec<String> {
            let found = yaml.at(path).map(|node| yaml.parts(node)).unwrap_or_default();
            found.into_iter().map(|(_, part)| part.to_string()).collect()
        };
        assert_eq!(parts(&["a", "b"]), ["10.96.0.0/16", "fd00::/112"]);
        assert_eq!(parts(&["c"]), ["10.96.0.10", "fd00::a"]);
        assert_eq!((parts(&["d"]), parts(&["a", "x"]), parts(&["c", "b"])), (vec![], vec![], vec![]));
    }

    #[test]
    fn replacement_that_changes_other_values_is_refused() {
        let yaml = Yaml::parse("a: one one\nb: \"\\u006fne\"\nc: two\n").unwrap();
        let of = |key: &str| yaml.get(yaml.documents()[0], key).unwrap();
        let written = |old: &str| Err(YamlError::Written(old.to_string()));
        assert_eq!(yaml.replaced(of("a"), "one", "two"), written("one"), "twice");
        assert_eq!(yaml.replaced(of("b"), "one", "two"), written("one"), "escaped");
        for new in ["x: y", "1 # 2", "it's: x", "- a", ""] {
            let after = yaml.replaced(of("c"), "two", new).unwrap();
            let quoted = format!("c: '{}'\n", new.replace('\'', "''"));
            assert!(after.ends_with(&quoted), "without quotes it has another meaning: {after}");
        }
        assert!(matches!(Yaml::parse("a: [1"), Err(YamlError::Syntax(_))));
        assert_eq!(Yaml::parse(&("[".repeat(100) + &"]".repeat(100))).unwrap_err(), YamlError::Deep);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[-a-c:\\[\\]{}&*#'\"\\\\> |\n]{0,60}", old in "[a-c]", new in "[d-f]{1,3}") {
            if let Ok(yaml) = Yaml::parse(&text) {
                for node in 0..yaml.nodes.len() {
                    if let Ok(after) = yaml.replaced(node, &old, &new) {
                        let quotes = after.len() + 1 - text.len() - new.len();
                        prop_assert!(matches!(quotes, 0 | 2));
                    }
                }
            }
        }
    }
}
