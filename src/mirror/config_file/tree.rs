//! A YAML document as a tree in which each value has its position.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

/// A position in a text. Lines and columns start at 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub line: u64,
    pub column: u64,
}

/// A value, with its position.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Located {
    pub at: Position,
    pub content: Content,
}

/// What a value contains.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    /// Text, a number, a boolean or `null`.
    Scalar(Value),
    /// A list.
    List(Vec<Located>),
    /// A map. Each key has its own position.
    Map(Vec<(String, Position, Located)>),
}

/// A value without its own position, for the deserializer.
struct Node(Content);

impl Located {
    /// Reads a document.
    pub fn parse(text: &str) -> Result<Self, serde_saphyr::Error> {
        serde_saphyr::from_str::<Spanned<Node>>(text).map(Self::of)
    }

    fn of(found: Spanned<Node>) -> Self {
        Self { at: Position::of(&found), content: found.value.0 }
    }

    /// Returns the value without positions.
    pub fn value(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(items) => items.iter().map(Self::value).collect(),
            Content::Map(pairs) => {
                let pairs = pairs.iter().map(|(key, _, value)| (key.clone(), value.value()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }

    /// Returns the position of the value at a path of keys and indexes; if there is none, of the last value before it.
    pub fn position(&self, path: &[&str]) -> Position {
        let mut place = self;
        for step in path {
            let next = match &place.content {
                Content::Map(pairs) => {
                    pairs.iter().find(|(key, _, _)| key == step).map(|(_, _, value)| value)
                }
                Content::List(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
                Content::Scalar(_) => None,
            };
            let Some(next) = next else { break };
            place = next;
        }
        place.at
    }
}

impl Position {
    fn of<T>(found: &Spanned<T>) -> Self {
        Self { line: found.referenced.line(), column: found.referenced.column() }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor).map(Node)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Content, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number must be finite"))?;
        Ok(Content::Scalar(Value::Number(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
        let mut found = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Node>>()? {
            found.push(Located::of(item));
        }
        Ok(Content::List(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Content, A::Error> {
        let mut found = Vec::new();
        while let Some((key, value)) = pairs.next_entry::<Spanned<String>, Spanned<Node>>()? {
            let at = Position::of(&key);
            found.push((key.value, at, Located::of(value)));
        }
        Ok(Content::Map(found))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_their_positions() {
        let text = "a: 1\nb:\n- {c: \"x\", d: [true, null]}\n- 1.5\n";
        let found = Located::parse(text).unwrap();
        assert_eq!(found.value(), json!({"a": 1, "b": [{"c": "x", "d": [true, null]}, 1.5]}));
        for (path, line, column) in [
            (&["a"][..], 1, 4),
            (&["b", "0", "c"], 3, 7),
            (&["b", "0", "d", "0"], 3, 16),
            (&["b", "1"], 4, 3),
        ] {
            assert_eq!(found.position(path), Position { line, column }, "{path:?}");
        }
        let Content::Map(pairs) = &found.content else { panic!("a map") };
        assert_eq!(pairs[1].1, Position { line: 2, column: 1 });
        assert!(Located::parse("a: [").is_err() && Located::parse("a: 1\na: 2\n").is_err());
    }
}
