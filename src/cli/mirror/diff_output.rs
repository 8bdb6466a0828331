//! The output of `mirror plan --diff`: what each change changes, with values.

use serde::Serialize;

use crate::mirror::Mirror;
use crate::mirror::content_diff::{ContentDiff, FieldDiff};
use crate::operation::Plan;

/// The document of `mirror plan --diff -o json`.
#[derive(Serialize)]
pub(super) struct DiffOutput {
    version: u8,
    /// Digest of the plan.
    digest: String,
    objects: Vec<ContentDiff>,
}

impl DiffOutput {
    pub(super) fn new(plan: &Plan<Mirror>, objects: Vec<ContentDiff>) -> Self {
        Self { version: 1, digest: plan.digest.clone(), objects }
    }

    /// Returns a block of lines for each object.
    pub(super) fn describe(&self) -> String {
        let blocks = self.objects.iter().map(|diff| {
            let parts = [("copy", &diff.copy), ("mirror", &diff.mirror), ("change", &diff.change)];
            let lines = parts.into_iter().flat_map(|(name, fields)| {
                fields.iter().map(move |field: &FieldDiff| format!("\n  {name:<6}  {field}"))
            });
            format!("{}: {}{}", diff.object, diff.action.name(), lines.collect::<String>())
        });
        let blocks: Vec<String> = blocks.collect();
        if blocks.is_empty() { "no change changes a field".to_string() } else { blocks.join("\n") }
    }
}
