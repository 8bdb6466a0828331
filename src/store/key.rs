//! Keys and key ranges. As in etcd, a key is a sequence of bytes, and keys are sorted in byte order (etcd API v3,
//! `RangeRequest`).

use std::fmt;

use serde::{Deserialize, Serialize};

/// A key. It can contain any bytes. Keys of a Kubernetes API server are UTF-8 paths such as
/// `/registry/services/specs/default/kubernetes`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Vec<u8>);

impl Key {
    /// Returns the bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.escape_ascii().to_string())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// Serializes a key as text. Bytes outside printable ASCII are escaped; keys of API servers need no escapes.
impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.contains('\\') {
            return Err(serde::de::Error::custom("a key with escaped bytes cannot be read back"));
        }
        Ok(Self::from(text))
    }
}

/// A range of keys from `start` (included) to `end` (excluded). If `end` is `None`, the range has no upper limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    start: Key,
    end: Option<Key>,
}

impl KeyRange {
    /// Returns the range of all keys.
    pub fn everything() -> Self {
        Self { start: Key(Vec::new()), end: None }
    }

    /// Returns the range that contains only one key.
    pub fn exact(key: &Key) -> Self {
        let mut end = key.0.clone();
        end.push(0);
        Self { start: key.clone(), end: Some(Key(end)) }
    }

    /// Returns the range of all keys that start with a prefix.
    pub fn prefix(prefix: impl Into<Key>) -> Self {
        let start = prefix.into();
        let mut end = start.0.clone();
        while let Some(last) = end.pop() {
            if let Some(next) = last.checked_add(1) {
                end.push(next);
                return Self { start, end: Some(Key(end)) };
            }
        }
        Self { start, end: None }
    }

    /// Returns the part of the range that starts at a key.
    #[must_use]
    pub fn from(&self, start: Key) -> Self {
        Self { start: start.max(self.start.clone()), end: self.end.clone() }
    }

    /// Returns the first key that can be in the range.
    pub fn start(&self) -> &Key {
        &self.start
    }

    /// Returns the first key after the range; `None` if the range has no upper limit.
    pub fn end(&self) -> Option<&Key> {
        self.end.as_ref()
    }

    /// Returns whether the range contains a key.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_bytes() && self.end.as_ref().is_none_or(|end| key < end.as_bytes())
    }
}
