//! `netsurgeon inspect list`: lists the stored objects, or counts them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use clap::Args;
use serde::Serialize;

use super::{name, view};
use crate::cli::output::{Format, Lines, table};
use crate::cli::source::SourceArgs;
use crate::cli::{Context, Outcome};
use crate::session::Failure;
use crate::store::{Key, KeyRange, Record, Revision, Visit};
use crate::wire::objects;

/// List the stored objects: kind, encoding, size, revision of the last change, key
///
/// Prints each key as soon as it is read, so that the list for a large cluster starts immediately.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon inspect list --summary
  netsurgeon inspect list services --snapshot backup.db
  netsurgeon inspect list svc/default
  netsurgeon inspect list ippools.crd.projectcalico.org
  netsurgeon inspect list /registry/ranges/ -o json")]
pub struct ListArgs {
    /// List only the objects of this resource, as for kubectl (`svc`, `deployments`, `svc/NAMESPACE`), or only keys with this
    /// prefix, which starts with `/` [default: the API server's prefix]
    #[arg(value_name = "RESOURCE|PREFIX")]
    prefix: Option<String>,
    /// List only objects of this kind, for example `Service` or `svc`
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Stop after this many objects
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print only the number of objects for each kind and encoding
    #[arg(long)]
    summary: bool,
    #[command(flatten)]
    source: SourceArgs,
}

/// One record of `inspect list -o json`.
#[derive(Serialize)]
struct Listed {
    key: Key,
    kind: String,
    encoding: &'static str,
    size: usize,
    mod_revision: Revision,
}

impl Listed {
    fn of(record: Record<'_>) -> Self {
        Self {
            key: Key::from(record.key),
            // Empty for encrypted values, and for values that the API server did not store.
            kind: objects::type_of(record.value).map(|meta| meta.kind.into_owned()).unwrap_or_default(),
            encoding: view::encoding(record.value),
            size: record.value.len(),
            mod_revision: record.mod_revision,
        }
    }

    fn line(&self) -> String {
        let kind = if self.kind.is_empty() { "-" } else { &self.kind };
        format!(
            "{kind:<26}  {:<9}  {:>8}  {:>10}  {}",
            self.encoding, self.size, self.mod_revision.0, self.key
        )
    }
}

/// The output of `inspect list --summary -o json`.
#[derive(Serialize)]
struct Summary {
    version: u8,
    store: String,
    revision: Revision,
    kinds: Vec<PerKind>,
}

#[derive(Serialize)]
struct PerKind {
    kind: String,
    encoding: &'static str,
    count: u64,
    size: u64,
}

/// Runs the command.
pub(super) async fn run(context: &Context, args: &ListArgs) -> Result<Outcome, Failure> {
    let layout = args.source.etcd.layout();
    let prefix = args.prefix.as_deref().map(|text| name::prefix(&layout, text));
    let range = prefix.as_deref().map_or_else(|| layout.everything(), KeyRange::prefix);
    let opened = args.source.open(context, std::slice::from_ref(&range)).await?;
    let mut list = List {
        args,
        printer: Printer::new(context.output.format(), args.summary),
        counts: BTreeMap::new(),
        count: 0,
        read: 0,
        failure: None,
    };
    list.printer.begin(&opened.store.describe())?;
    let mut visitor = |record: Record<'_>| list.take(record);
    let revision = opened.store.scan(&[range], opened.at, &mut visitor).await?;
    if let Some(failure) = list.failure {
        return Err(failure);
    }
    list.printer.end(revision)?;
    if args.summary {
        summary(context, opened.store.describe(), revision, list.counts)?;
    }
    if list.read == 0 {
        let prefix = prefix.unwrap_or_else(|| format!("{}/", layout.prefix()));
        let source = args.source.options();
        context.output.note(&format!(
            "no key starts with `{prefix}`; `netsurgeon inspect list / --summary{source}` lists the kinds of all keys"
        ));
    } else if let Some(kind) = args.kind.as_ref().filter(|_| list.count == 0) {
        context.output.note(&format!("no object has the kind `{kind}`; `--summary` lists the kinds"));
    }
    let noun = if list.count == 1 { "key" } else { "keys" };
    context.output.progress(&format!("{} {noun}, revision {revision}", list.count));
    Ok(Outcome::Done)
}

struct List<'a> {
    args: &'a ListArgs,
    printer: Printer,
    counts: BTreeMap<(String, &'static str), (u64, u64)>,
    count: u64,
    /// Number of keys with the prefix, of any kind.
    read: u64,
    failure: Option<Failure>,
}

impl List<'_> {
    fn take(&mut self, record: Record<'_>) -> Visit {
        if self.args.limit.is_some_and(|limit| self.count >= limit) {
            return ControlFlow::Break(());
        }
        self.read = self.read.saturating_add(1);
        let listed = Listed::of(record);
        if self.args.kind.as_ref().is_some_and(|kind| !name::is_kind(&listed.kind, kind)) {
            return ControlFlow::Continue(());
        }
        if let Err(failure) = self.printer.record(&listed, self.count == 0) {
            self.failure = Some(failure);
            return ControlFlow::Break(());
        }
        self.count = self.count.saturating_add(1);
        let (count, size) = self.counts.entry((listed.kind, listed.encoding)).or_default();
        *count = count.saturating_add(1);
        *size = size.saturating_add(listed.size as u64);
        ControlFlow::Continue(())
    }
}

/// A printer for records. Prints each record as one line, or as one element of a JSON or YAML document.
struct Printer {
    lines: Lines,
    format: Format,
    quiet: bool,
}

impl Printer {
    fn new(format: Format, quiet: bool) -> Self {
        Self { lines: Lines::default(), format, quiet }
    }

    fn begin(&mut self, store: &str) -> Result<(), Failure> {
        match self.format {
            _ if self.quiet => Ok(()),
            Format::Table => {
                let heading =
                    format!("{:<26}  {:<9}  {:>8}  {:>10}  KEY", "KIND", "ENCODING", "SIZE", "REVISION");
                self.lines.line(&heading)
            }
            Format::Json => {
                self.lines.line(&format!("{{\"version\": 1, \"store\": {}, \"records\": [", quoted(store)))
            }
            Format::Yaml => self.lines.line(&format!("version: 1\nstore: {}\nrecords:", quoted(store))),
        }
    }

    fn record(&mut self, listed: &Listed, first: bool) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        let json = || serde_json::to_string(listed).unwrap_or_default();
        match self.format {
            Format::Table => self.lines.line(&listed.line()),
            Format::Json if first => self.lines.part(&format!("  {}", json())),
            Format::Json => self.lines.part(&format!(",\n  {}", json())),
            Format::Yaml => self.lines.line(&format!("- {}", json())),
        }
    }

    fn end(&mut self, revision: Revision) -> Result<(), Failure> {
        match self.format {
            Format::Json if !self.quiet => self.lines.line(&format!("\n], \"revision\": {revision}}}"))?,
            Format::Yaml if !self.quiet => self.lines.line(&format!("revision: {revision}"))?,
            _ => {}
        }
        self.lines.finish()
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn summary(
    context: &Context,
    store: String,
    revision: Revision,
    counts: BTreeMap<(String, &'static str), (u64, u64)>,
) -> Result<(), Failure> {
    let count = |((kind, encoding), (count, size))| PerKind { kind, encoding, count, size };
    let value = Summary { version: 1, store, revision, kinds: counts.into_iter().map(count).collect() };
    context.output.data(&value, |_| {
        let rows = value.kinds.iter().map(|count| {
            let kind = if count.kind.is_empty() { "-" } else { &count.kind };
            [kind.to_string(), count.encoding.to_string(), count.count.to_string(), count.size.to_string()]
        });
        table(["KIND", "ENCODING", "COUNT", "BYTES"], rows)
    })
}
