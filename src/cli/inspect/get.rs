//! `netsurgeon inspect get`: shows one object.

use std::ops::ControlFlow;

use clap::Args;
use serde::Serialize;

use super::{name, view};
use crate::cli::output::{Format, counted};
use crate::cli::source::{Opened, SourceArgs};
use crate::cli::{Context, Outcome};
use crate::session::Failure;
use crate::store::{Entry, Key, KeyRange, Record, Revision};
use crate::wire::objects;

/// Show one stored object as YAML or JSON
///
/// Give the resource and the name of the object, as for kubectl, or the object's key in etcd. The command shows known fields by
/// name, and other fields by protobuf number. For a RangeAllocation, it lists the allocated addresses or ports. It never shows
/// the content of a Secret.
///
/// The command prints the metadata of the record (revisions, encoding, size, lease) on stderr. With `-o json` and `-o yaml`, the
/// output contains this metadata and the object.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon inspect get service default/kubernetes
  netsurgeon inspect get ipaddress 10.96.0.1 -o json
  netsurgeon inspect get range serviceips --snapshot backup.db
  netsurgeon inspect get node n1 --at-revision 12345
  netsurgeon inspect get /registry/services/specs/default/kubernetes \\
      --raw > value.bin")]
pub struct GetArgs {
    /// A key, or a resource: service, ipaddress, servicecidr, range, node, pod, ...
    #[arg(value_name = "KEY|RESOURCE")]
    resource: String,
    /// The object's name, with its namespace if it has one
    #[arg(value_name = "[NAMESPACE/]NAME")]
    name: Option<String>,
    /// Write the stored bytes to stdout unchanged
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    source: SourceArgs,
}

/// The output of `inspect get -o json`.
#[derive(Serialize)]
struct ObjectOutput {
    version: u8,
    store: String,
    record: RecordData,
    object: serde_json::Value,
}

/// The metadata of a value in the store, such as its revisions and its size.
#[derive(Serialize)]
struct RecordData {
    key: Key,
    create_revision: Revision,
    mod_revision: Revision,
    version: i64,
    lease: i64,
    encoding: &'static str,
    size: usize,
}

impl RecordData {
    fn of(entry: &Entry) -> Self {
        Self {
            key: entry.key.clone(),
            create_revision: entry.create_revision,
            mod_revision: entry.mod_revision,
            version: entry.version,
            lease: entry.lease,
            encoding: view::encoding(&entry.value),
            size: entry.value.len(),
        }
    }

    fn text(&self) -> String {
        let lease = if self.lease == 0 { String::new() } else { format!(", lease {:x}", self.lease) };
        let writes = counted(usize::try_from(self.version).unwrap_or_default(), "time", "times");
        format!(
            "{}\n{}, {} bytes, created at revision {}, last changed at {}, written {writes}{lease}",
            self.key, self.encoding, self.size, self.create_revision, self.mod_revision
        )
    }
}

/// Runs the command.
pub(super) async fn run(context: &Context, args: &GetArgs) -> Result<Outcome, Failure> {
    let layout = args.source.etcd.layout();
    let key = name::key(&layout, &args.resource, args.name.as_deref()).ok_or_else(|| {
        Failure::usage(format!("`{}` is neither a key nor a resource with a name", args.resource))
            .hint("give a resource and a name, as in `inspect get service default/web`, or a key that starts with `/`")
    })?;
    let opened = args.source.open(context, &[]).await?;
    let Some(entry) = read(&opened, &key).await? else { return Err(not_there(&opened, args, &key).await?) };
    if args.raw {
        refuse_secret(&opened, &entry)?;
        context.output.bytes(&entry.value)?;
        return Ok(Outcome::Done);
    }
    let object = view::of(&entry.value, view::Items::Together)
        .map_err(|error| Failure::from(error).context(format!("cannot read `{key}`")))?;
    let record = RecordData::of(&entry);
    if context.output.format() == Format::Table {
        context.output.progress(&record.text());
        context.output.yaml(&object)?;
    } else {
        let shown = ObjectOutput { version: 1, store: opened.store.describe(), record, object };
        context.output.data(&shown, |_| String::new())?;
    }
    Ok(Outcome::Done)
}

async fn read(opened: &Opened, key: &Key) -> Result<Option<Entry>, Failure> {
    let (_, mut entries) = opened.store.entries(&[KeyRange::exact(key)], opened.at).await?;
    Ok(entries.pop())
}

fn refuse_secret(opened: &Opened, entry: &Entry) -> Result<(), Failure> {
    let kind = objects::type_of(&entry.value).map(|type_meta| type_meta.kind).unwrap_or_default();
    if kind == "Secret" || name::is_secret(&opened.layout, entry.key.as_bytes()) {
        return Err(Failure::refused(format!("`{}` is a Secret: its bytes are not printed", entry.key))
            .hint("without `--raw` it is shown without its content"));
    }
    Ok(())
}

/// Returns the failure for a missing key, with a hint about similar keys that exist.
async fn not_there(opened: &Opened, args: &GetArgs, key: &Key) -> Result<Failure, Failure> {
    let failure = Failure::refused(format!("`{key}` does not exist in {}", opened.store.describe()));
    let (prefix, source) = (opened.layout.prefix(), args.source.options());
    let wanted = key.to_string();
    let last = wanted.rsplit('/').next().unwrap_or_default().to_string();
    let folder = match &args.name {
        Some(_) => name::folder(&opened.layout, &args.resource),
        None => wanted.strip_suffix(&last).unwrap_or_default().to_string(),
    };
    let similar =
        find(opened, KeyRange::prefix(folder.as_str()), |key| key.rsplit('/').next() == Some(last.as_str()));
    if let Some(similar) = similar.await? {
        let name = similar.strip_prefix(&folder).unwrap_or(&similar);
        return Ok(failure.hint(match &args.name {
            Some(_) => format!("there is `{} {name}`", args.resource),
            None => format!("there is `{similar}`"),
        }));
    }
    if find(opened, KeyRange::prefix(folder.as_str()), |_| true).await?.is_some() {
        return Ok(
            failure.hint(format!("`netsurgeon inspect list {folder}{source}` lists the existing keys"))
        );
    }
    if find(opened, opened.layout.everything(), |_| true).await?.is_some() {
        let hint =
            format!("no keys under `{folder}`; `netsurgeon inspect list --summary{source}` lists the kinds");
        return Ok(failure.hint(hint));
    }
    let other = find(opened, KeyRange::everything(), |key| key.contains("/services/specs/")).await?;
    Ok(match other.as_deref().and_then(|key| key.split_once("/services/specs/")) {
        Some((found, _)) => failure.hint(format!(
            "no keys under `{prefix}`, but Services under `{found}`: give `--etcd-prefix {found}`"
        )),
        None => failure
            .hint(format!("no keys under the prefix `{prefix}`: check that this is the etcd of a cluster")),
    })
}

async fn find(
    opened: &Opened,
    range: KeyRange,
    wanted: impl Fn(&str) -> bool + Send + Sync,
) -> Result<Option<String>, Failure> {
    let mut found = None;
    let mut visitor = |record: Record<'_>| {
        let key = String::from_utf8_lossy(record.key);
        if wanted(&key) {
            found = Some(key.into_owned());
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    };
    opened.store.scan(&[range], opened.at, &mut visitor).await?;
    Ok(found)
}
