//! `netsurgeon inspect diff`: compares two stores, or two revisions of one store, key by key and field by field.
//!
//! Two threads read the two sides at the same time. If one thread is [`AHEAD`] records ahead of the comparison, it waits. The
//! program keeps only the differences in memory, not the stores.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use clap::Args;
use serde::Serialize;

use super::name;
use super::tree_diff::{self, FieldChange};
use super::view::{self, Items};
use crate::cli::output::{Output, Tone};
use crate::cli::source::{EtcdArgs, open_snapshot};
use crate::cli::{Context, Outcome};
use crate::session::Failure;
use crate::store::{Entry, Key, KeyRange, ReadStore, Record, Revision, StoreError};
use crate::wire::{WireError, objects};

/// Compare two stores, or two revisions of one store
///
/// Compares two snapshot files, a snapshot file and the live etcd, or two revisions of one store. Compares the values of the
/// keys, not their revisions. If a Secret differs, shows that the Secret differs, but not its content.
///
/// The exit status is 3 if the two sides differ; otherwise 0.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon inspect diff before.db after.db
  # against the live etcd
  netsurgeon inspect diff before.db
  # the live etcd: revision 12000 and now
  netsurgeon inspect diff --from-revision 12000
  netsurgeon inspect diff before.db after.db --under /registry/services/specs/")]
pub struct DiffArgs {
    /// The old snapshot file
    #[arg(value_name = "OLD")]
    old: Option<PathBuf>,
    /// The new snapshot file
    #[arg(value_name = "NEW")]
    new: Option<PathBuf>,
    /// The revision of the old side [default: the newest]
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(i64).range(1..))]
    from_revision: Option<i64>,
    /// The revision of the new side [default: the newest]
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(i64).range(1..))]
    to_revision: Option<i64>,
    /// Compare only the objects of this resource (`svc`), or keys with this prefix, as in `inspect list`
    #[arg(long, value_name = "RESOURCE|PREFIX")]
    under: Option<String>,
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// The output of `inspect diff -o json`.
#[derive(Serialize)]
struct Differences {
    version: u8,
    old: Side,
    new: Side,
    only_old: Vec<Key>,
    only_new: Vec<Key>,
    changed: Vec<Changed>,
    /// Number of keys that one of the sides has.
    #[serde(skip)]
    compared: usize,
}

#[derive(Serialize)]
struct Side {
    store: String,
    revision: Revision,
}

#[derive(Serialize)]
struct Changed {
    key: Key,
    kind: String,
    /// Why the difference is not shown in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    fields: Vec<FieldChange>,
}

/// Runs the command.
pub(super) async fn run(context: &Context, args: &DiffArgs) -> Result<Outcome, Failure> {
    let under = args.under.as_deref().map(|text| name::prefix(&args.etcd.layout(), text));
    let range = under.as_deref().map_or_else(KeyRange::everything, KeyRange::prefix);
    let (old, new) = open(context, args, &range).await?;
    let (old_reader, new_reader) = (
        Reader::start(old.clone(), range.clone(), args.from_revision),
        Reader::start(new.clone(), range, args.to_revision),
    );
    let mut found = Differences {
        version: 1,
        old: Side { store: old.describe(), revision: Revision(0) },
        new: Side { store: new.describe(), revision: Revision(0) },
        only_old: Vec::new(),
        only_new: Vec::new(),
        changed: Vec::new(),
        compared: 0,
    };
    let merged = tokio::task::block_in_place(|| {
        found.merge(&old_reader.entries, &new_reader.entries);
        (old_reader.finish(), new_reader.finish())
    });
    (found.old.revision, found.new.revision) = (merged.0?, merged.1?);
    context.output.data(&found, |output| found.text(output))?;
    let (only_old, only_new, changed) = (found.only_old.len(), found.only_new.len(), found.changed.len());
    context.output.progress(&format!(
        "old: {}, revision {}\nnew: {}, revision {}\nkeys only in old: {only_old}, \
         only in new: {only_new}, changed: {changed}",
        found.old.store, found.old.revision, found.new.store, found.new.revision
    ));
    if let Some(under) = under.filter(|_| found.compared == 0) {
        context.output.note(&format!("no key of either side starts with `{under}`"));
    }
    let same = only_old == 0 && only_new == 0 && changed == 0;
    Ok(if same { Outcome::Done } else { Outcome::Findings })
}

type Sides = (Arc<dyn ReadStore>, Arc<dyn ReadStore>);

async fn open(context: &Context, args: &DiffArgs, range: &KeyRange) -> Result<Sides, Failure> {
    let scope = std::slice::from_ref(range);
    let (revisions, stored) = (args.from_revision.is_some(), &args.etcd.stored);
    match (&args.old, &args.new) {
        (Some(old), Some(new)) => {
            Ok((open_snapshot(context, old, scope, stored)?, open_snapshot(context, new, scope, stored)?))
        }
        (Some(file), _) if revisions => {
            let store = open_snapshot(context, file, scope, stored)?;
            Ok((store.clone(), store))
        }
        (Some(file), _) => Ok((open_snapshot(context, file, scope, stored)?, args.etcd.connect().await?)),
        _ if revisions => {
            let store = args.etcd.connect().await?;
            Ok((store.clone(), store))
        }
        _ => Err(Failure::usage("there is only one side to compare: the live etcd as it is now")
            .hint("name a snapshot file, or the revision to compare with: `--from-revision N`")),
    }
}

/// Maximum number of records that a thread reads ahead of the comparison.
const AHEAD: usize = 256;

/// The reader of one side.
struct Reader {
    entries: Receiver<Entry>,
    thread: std::thread::JoinHandle<Result<Revision, StoreError>>,
}

impl Reader {
    fn start(store: Arc<dyn ReadStore>, range: KeyRange, at: Option<i64>) -> Self {
        let (sender, entries) = sync_channel(AHEAD);
        let runtime = tokio::runtime::Handle::current();
        let thread = std::thread::spawn(move || {
            let mut visitor = |record: Record<'_>| match sender.send(record.to_entry()) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            runtime.block_on(store.scan(&[range], at.map(Revision), &mut visitor))
        });
        Self { entries, thread }
    }

    fn finish(self) -> Result<Revision, Failure> {
        drop(self.entries);
        let outcome = self.thread.join();
        Ok(outcome.map_err(|_| Failure::refused("the thread that reads a store has failed"))??)
    }
}

impl Differences {
    fn merge(&mut self, old: &Receiver<Entry>, new: &Receiver<Entry>) {
        let (mut left, mut right) = (old.recv().ok(), new.recv().ok());
        loop {
            let order = match (&left, &right) {
                (None, None) => return,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(before), Some(after)) => before.key.cmp(&after.key),
            };
            // The side with the smaller key advances. If both keys are equal, both sides advance.
            let before = order.is_le().then(|| left.take()).flatten();
            let after = order.is_ge().then(|| right.take()).flatten();
            if order.is_le() {
                left = old.recv().ok();
            }
            if order.is_ge() {
                right = new.recv().ok();
            }
            self.note(before, after);
        }
    }

    fn note(&mut self, before: Option<Entry>, after: Option<Entry>) {
        self.compared = self.compared.saturating_add(1);
        match (before, after) {
            (Some(gone), None) => self.only_old.push(gone.key),
            (None, Some(came)) => self.only_new.push(came.key),
            (Some(before), Some(after)) if before.value != after.value => {
                self.changed.push(changed(&before, &after));
            }
            _ => {}
        }
    }

    fn text(&self, output: &Output) -> String {
        let mut text = String::new();
        let mut line = |tone, line: String| {
            text.push_str(&output.paint(tone, &line));
            text.push('\n');
        };
        for key in &self.only_old {
            line(Tone::Bad, format!("- {key}"));
        }
        for key in &self.only_new {
            line(Tone::Good, format!("+ {key}"));
        }
        for changed in &self.changed {
            line(Tone::Careful, format!("~ {}", changed.key));
            for field in &changed.fields {
                line(Tone::Faint, format!("    {}", field_text(field)));
            }
            if let Some(note) = changed.note {
                line(Tone::Faint, format!("    ({note})"));
            }
        }
        text
    }
}

fn field_text(field: &FieldChange) -> String {
    let shown = |value: &Option<serde_json::Value>| value.as_ref().map(ToString::to_string);
    match (shown(&field.old), shown(&field.new)) {
        (None, None) => format!("{} differs", field.path),
        (Some(old), Some(new)) => format!("{}: {old} -> {new}", field.path),
        (Some(old), None) => format!("{}: {old} -> (none)", field.path),
        (None, Some(new)) => format!("{}: (none) -> {new}", field.path),
    }
}

fn changed(before: &Entry, after: &Entry) -> Changed {
    let kind = objects::type_of(&after.value).map(|meta| meta.kind.into_owned()).unwrap_or_default();
    let (fields, note) = match (view::of(&before.value, Items::Each), view::of(&after.value, Items::Each)) {
        (Ok(old), Ok(new)) => {
            let fields = tree_diff::compare(&old, &new);
            let secret = [&old, &new].iter().any(|tree| tree.get("kind") == Some(&"Secret".into()));
            let note = match (secret, fields.is_empty()) {
                (true, _) => Some("a Secret: its content is not shown"),
                (false, true) => Some("the encoding differs, the fields do not"),
                (false, false) => None,
            };
            (fields, note)
        }
        (Err(WireError::Encrypted { .. }), _) | (_, Err(WireError::Encrypted { .. })) => {
            (Vec::new(), Some("encrypted: the difference cannot be shown"))
        }
        _ => (Vec::new(), Some("not a Kubernetes object: the difference is not shown")),
    };
    Changed { key: after.key.clone(), kind, note, fields }
}
