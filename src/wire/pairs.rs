//! Labels and selectors: a few texts with their keys, in a list. A list needs much less memory than a map.

use serde::{Serialize, Serializer};

use super::protobuf::map_entry;
use super::{Text, WireError};

/// Texts sorted by key. Each key occurs only once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pairs(Vec<(Text, Text)>);

impl Pairs {
    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str())
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: &str, value: &str) {
        match self.0.binary_search_by(|(own, _)| own.as_str().cmp(key)) {
            Ok(place) => {
                if let Some((_, own)) = self.0.get_mut(place) {
                    *own = value.into();
                }
            }
            Err(place) => self.0.insert(place, (key.into(), value.into())),
        }
    }

    /// Adds the entry of a protobuf map.
    pub(super) fn take(&mut self, entry: &[u8]) -> Result<(), WireError> {
        let (key, value) = map_entry(entry)?;
        self.insert(key, value);
        Ok(())
    }
}

impl FromIterator<(String, String)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        let mut all = Self::default();
        for (key, value) in pairs {
            all.insert(&key, &value);
        }
        all
    }
}

/// Serializes the entries as a map.
impl Serialize for Pairs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}
