//! Changes files on this host: shows the difference, asks for confirmation, replaces one file at a time, and keeps the old files.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::cli::file::at;
use crate::cli::output::{Output, Tone};
use crate::cli::{Context, Outcome, file_suffix};
use crate::host::replace::{BackupPlace, Replacement, replace};
use crate::session::Failure;

/// Whether to write the change, and whether to ask the user first.
#[derive(Debug, Clone, Args)]
pub struct ConsentArgs {
    /// Only show the difference
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

/// A file with one changed value.
#[derive(Serialize)]
pub(super) struct ChangedFile {
    pub(super) file: PathBuf,
    /// The component that the file configures.
    pub(super) component: &'static str,
    pub(super) before: String,
    pub(super) after: String,
    /// The file with the old content.
    pub(super) kept: Option<PathBuf>,
    #[serde(skip)]
    pub(super) old: String,
    #[serde(skip)]
    pub(super) new: String,
}

/// The output of `controlplane set-range -o json` and `controlplane set-dns -o json`.
#[derive(Serialize)]
struct Changed {
    version: u8,
    /// `unchanged`, `planned` or `changed`.
    status: &'static str,
    files: Vec<ChangedFile>,
}

/// The messages of a change.
pub(super) struct Words {
    /// Message if there is nothing to change.
    pub(super) already: String,
    /// Question before the change.
    pub(super) question: &'static str,
    /// Message after the change: the next step.
    pub(super) next: String,
}

/// Changes the files in the given order. Each change must be valid even if a later change fails. The old files are kept in
/// `folder`, which is created if it does not exist. Without `folder`, the old files are kept next to the new files.
pub(super) fn change(
    context: &Context,
    consent: &ConsentArgs,
    files: Vec<ChangedFile>,
    folder: Option<&Path>,
    words: &Words,
) -> Result<Outcome, Failure> {
    let mut changed = Changed { version: 1, status: "planned", files };
    if changed.files.is_empty() {
        changed.status = "unchanged";
        context.output.data(&changed, |_| String::new())?;
        context.output.progress(&words.already);
        return Ok(Outcome::Done);
    }
    if consent.dry_run {
        context.output.data(&changed, |output| changed.text(output))?;
        context.output.note("nothing was written (`--dry-run`)");
        return Ok(Outcome::Done);
    }
    context.output.progress(&changed.text(&context.output));
    context.output.ask(words.question, consent.yes)?;
    changed.write(folder)?;
    context.output.data(&changed, |_| String::new())?;
    let kept: Vec<String> =
        changed.files.iter().filter_map(|file| Some(file.kept.as_ref()?.display().to_string())).collect();
    let count = if kept.len() == 1 { "file is" } else { "files are" };
    context.output.progress(&format!("changed; the old {count} kept: {}\n{}", kept.join(", "), words.next));
    Ok(Outcome::Done)
}

impl Changed {
    fn text(&self, output: &Output) -> String {
        let mut lines = Vec::new();
        for file in &self.files {
            lines.push(output.paint(Tone::Strong, &file.file.display().to_string()));
            for (number, (old, new)) in (1..).zip(file.old.lines().zip(file.new.lines())) {
                if old != new {
                    lines.push(output.paint(Tone::Bad, &format!("- {number}: {}", old.trim())));
                    lines.push(output.paint(Tone::Good, &format!("+ {number}: {}", new.trim())));
                }
            }
        }
        lines.join("\n")
    }

    fn write(&mut self, folder: Option<&Path>) -> Result<(), Failure> {
        if let Some(folder) = folder {
            std::fs::create_dir_all(folder).map_err(at(folder))?;
        }
        let suffix = file_suffix();
        let keep = folder.map_or(BackupPlace::Beside(&suffix), |folder| BackupPlace::In(folder, &suffix));
        for file in &mut self.files {
            let new = Replacement { path: file.file.clone(), content: file.new.clone().into_bytes().into() };
            let old = replace(&[new], Some(keep)).map_err(|error| Failure::refused(error.to_string()))?;
            file.kept = old.into_iter().next();
        }
        self.status = "changed";
        Ok(())
    }
}
