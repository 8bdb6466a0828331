//! The values that the user gives for fields.

use std::cell::Cell;

/// The value that removes a field.
pub(super) const REMOVE: &str = "none";

/// The values of `--set`.
#[derive(Debug)]
pub(super) struct Settings(Vec<Setting>);

/// A value for a field.
#[derive(Debug)]
struct Setting {
    field: String,
    value: String,
    is_used: Cell<bool>,
}

impl Settings {
    pub fn new(given: &[(String, String)]) -> Self {
        let setting = |(field, value): &(String, String)| {
            let field = field.strip_prefix("spec.").unwrap_or(field).to_string();
            Setting { field, value: value.clone(), is_used: Cell::new(false) }
        };
        Self(given.iter().map(setting).collect())
    }

    /// Returns the value for a field, by one of its names.
    pub fn take<T: AsRef<str>>(&self, names: &[T]) -> Option<&str> {
        let found = self.0.iter().find(|one| names.iter().any(|name| name.as_ref() == one.field))?;
        found.is_used.set(true);
        Some(&found.value)
    }

    /// Returns the value for a field, without marking it as used.
    pub fn value(&self, names: &[&str]) -> Option<&str> {
        self.0.iter().find(|one| names.contains(&one.field.as_str())).map(|one| one.value.as_str())
    }

    /// Returns the fields and values that no field has taken.
    pub fn unused(&self) -> Vec<(String, String)> {
        let unused = self.0.iter().filter(|one| !one.is_used.get());
        unused.map(|one| (one.field.clone(), one.value.clone())).collect()
    }

    /// Returns the fields that are given twice.
    pub fn repeated(&self) -> Vec<&str> {
        let fields = || self.0.iter().map(|one| one.field.as_str());
        fields()
            .enumerate()
            .filter(|(at, field)| fields().take(*at).any(|other| other == *field))
            .map(|(_, field)| field)
            .collect()
    }
}
