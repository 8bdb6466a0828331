//! `netsurgeon dns`: points DNS names to the mirror of a cluster in stages, and back to the cluster.

mod cutover;
mod plan;
mod status;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

pub(super) use cutover::{resume_on, roll_back_on};

use super::api::KubeArgs;
use super::output::{Output, Tone, table};
use super::run_args::RunArgs;
use super::{Context, Outcome};
use crate::certs;
use crate::dns::run::CutoverSession;
use crate::dns::{Cutover, Name, ShareQuery};
use crate::inventory::{ZoneService, read_key};
use crate::nameserver::{Key, RecordSet};
use crate::operation::Plan;
use crate::session::{ClusterSession, Failure};
use crate::words::{counted, first_few, in_words, pasted};

#[derive(Debug, Subcommand)]
pub enum DnsCommand {
    Plan(Box<plan::PlanArgs>),
    Cutover(Box<cutover::CutoverArgs>),
    Status(status::StatusArgs),
    Rollback(cutover::RollbackArgs),
}

/// How to run a cutover.
#[derive(Debug, Clone, Args)]
pub struct CutoverRunArgs {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    kube: KubeArgs,
}

/// The names to give up.
#[derive(Debug, Clone, Args)]
pub struct GiveUpArgs {
    /// Give this name up: its records stay as they are now, and the cutover or its rollback continues and ends without the name.
    /// Use this option for a name that another client changed or deleted; can be repeated
    #[arg(long, value_name = "NAME")]
    give_up: Vec<String>,
}

/// What a cutover uses on this machine and the plan only names. netsurgeon reads no file and opens no URL that only a journal
/// names, because any client that can write the journal could name them.
#[derive(Debug, Clone, Default, Args)]
pub struct KeyArgs {
    /// File with the key that signs the updates of a cutover, in the format of `tsig-keygen`. netsurgeon never prints the key
    /// [default: with `--plan`, the file that the plan names]
    #[arg(long, value_name = "FILE", env = KEY_FILE, hide_env_values = true)]
    tsig_key_file: Option<PathBuf>,
    /// The Prometheus for the query of the plan, which returns the mirror's share of the requests [default: with `--plan`, the
    /// Prometheus that the plan names]
    #[arg(long, value_name = "URL")]
    share_prometheus: Option<String>,
}

/// Environment variable that names the key file.
const KEY_FILE: &str = "NETSURGEON_TSIG_KEY_FILE";

/// Where the plan of a cutover comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A file on the command line, so its content is the operator's own.
    File,
    /// The journal.
    Journal,
}

/// Runs the command.
pub async fn run(context: &Context, command: &DnsCommand) -> Result<Outcome, Failure> {
    match command {
        DnsCommand::Plan(args) => plan::run(context, args).await,
        DnsCommand::Cutover(args) => cutover::run(context, args).await,
        DnsCommand::Status(args) => status::run(context, args).await,
        DnsCommand::Rollback(args) => cutover::roll_back(context, args).await,
    }
}

impl CutoverRunArgs {
    /// Connects to the API of the cluster.
    async fn open(&self, context: &Context) -> Result<ClusterSession, Failure> {
        // One name never stops the others.
        let settings = self.run.settings(usize::MAX);
        ClusterSession::open(context.ui(), self.kube.connect().await?, settings).await
    }
}

impl KeyArgs {
    /// Returns the session that runs this cutover, with the key for updates and the CA certificates for probes.
    fn session(
        &self,
        session: ClusterSession,
        work: &Cutover,
        origin: Origin,
    ) -> Result<CutoverSession, Failure> {
        let key = self.key(work, origin)?;
        if let (Some(planned), Some(key)) = (work.service.key(), &key)
            && planned.name != key.name()
        {
            let (planned, given) = (&planned.name, key.name());
            return Err(Failure::refused(format!(
                "the plan names the key `{planned}`, but the key in the file is `{given}`"
            ))
            .hint("give the file of the planned key: `--tsig-key-file FILE`"));
        }
        let trusted = work.trusted.iter().map(|text| certificates(text, "the plan"));
        let trusted = trusted.collect::<Result<Vec<_>, _>>()?.concat();
        let (seen, note) = self.seen(work, origin)?;
        if let Some(note) = note {
            session.ui.note(&note);
        }
        Ok(CutoverSession::new(session, key, trusted)?.measuring(seen).repeating(self.repeated(work)))
    }

    /// Reads the key that signs updates.
    fn key(&self, work: &Cutover, origin: Origin) -> Result<Option<Key>, Failure> {
        let planned = work.service.key().map(|key| key.file.as_path());
        match (&self.tsig_key_file, planned, origin) {
            (Some(file), ..) => Ok(Some(read_key(file)?)),
            (None, None, _) => Ok(None),
            (None, Some(file), Origin::File) => {
                let path = file.display();
                let read = read_key(file).map_err(|failure| {
                    failure.hint(format!(
                        "the plan names the key file `{path}`; on another machine, give the path of the key file there: `--tsig-key-file FILE`"
                    ))
                });
                Ok(Some(read?))
            }
            (None, Some(file), Origin::Journal) => Err(Failure::usage(format!(
                "give the key file: the journal names `{}`, but netsurgeon reads no file that only a journal names",
                file.display()
            ))
            .hint(format!(
                "add `--tsig-key-file {}` to the command, or set {KEY_FILE}",
                pasted(file)
            ))),
        }
    }

    /// Returns the key that selects a view of the name servers, if a key file is given and contains the planned key.
    fn of_views(&self, work: &Cutover) -> Result<Option<Key>, Failure> {
        let Some(file) = self.tsig_key_file.as_deref() else { return Ok(None) };
        let is_planned = |key: &Key| work.service.key().is_some_and(|planned| planned.name == key.name());
        Ok(Some(read_key(file)?).filter(is_planned))
    }

    /// Returns the query for the mirror's share of the requests. If only the journal names its Prometheus, returns no query and a
    /// note.
    fn seen(&self, work: &Cutover, origin: Origin) -> Result<(Option<ShareQuery>, Option<String>), Failure> {
        let Some(planned) = &work.seen else { return Ok((None, None)) };
        match (&self.share_prometheus, origin) {
            (Some(url), _) => {
                let query = ShareQuery { prometheus: url.clone(), ..planned.clone() };
                let checked = query.check();
                checked.map_err(|reason| Failure::usage(format!("`--share-prometheus`: {reason}")))?;
                Ok((Some(query), None))
            }
            (None, Origin::File) => Ok((Some(planned.clone()), None)),
            (None, Origin::Journal) => {
                let note = format!(
                    "the mirror's share of the requests is not measured, because only the journal names the Prometheus; to measure it, add `--share-prometheus {}`",
                    pasted(Path::new(&planned.prometheus))
                );
                Ok((None, Some(note)))
            }
        }
    }

    /// Returns the options that the next command must repeat, each with a leading space.
    pub(super) fn repeated(&self, work: &Cutover) -> String {
        let planned = work.service.key().map(|key| &key.file);
        // The environment stays the same for the next command.
        let is_set = std::env::var_os(KEY_FILE).is_some_and(|file| !file.is_empty());
        let file = match &self.tsig_key_file {
            Some(file) => Some(file).filter(|_| !is_set || self.is_file_given()),
            None => planned.filter(|_| !is_set),
        };
        let file = file.map(|file| format!(" --tsig-key-file {}", pasted(file)));
        let url = self.share_prometheus.as_ref();
        let url = url.map(|url| format!(" --share-prometheus {}", pasted(Path::new(url))));
        file.into_iter().chain(url).collect()
    }

    /// Returns whether the command line gives the key file.
    fn is_file_given(&self) -> bool {
        let set = std::env::var_os(KEY_FILE).map(PathBuf::from);
        self.tsig_key_file.is_some() && self.tsig_key_file != set
    }

    /// Refuses these options for an operation of another kind.
    pub(super) fn refuse_of_another_kind(&self) -> Result<(), Failure> {
        if !self.is_file_given() && self.share_prometheus.is_none() {
            return Ok(());
        }
        Err(Failure::usage("`--tsig-key-file` and `--share-prometheus` are only for a cutover")
            .hint("omit these options"))
    }
}

/// Returns the certificates in a PEM text, as DER. `what`: where the text comes from.
pub(super) fn certificates(text: &str, what: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let unusable =
        |reason: String| Failure::refused(format!("cannot use the CA certificates of {what}: {reason}"));
    let found = certs::certificates(text).map_err(|error| unusable(error.to_string()))?;
    Ok(found.into_iter().map(|certificate| certificate.der).collect())
}

/// Returns a table of the changes of every name.
fn describe(output: &Output, work: &Cutover) -> String {
    let rows = work.names.iter().flat_map(|name| rows(output, work, name));
    table(["NAME", "TYPE", "OLD", "NEW", "SHARE", "TTL", "PROBE", "OBJECTS"], rows)
}

/// Returns the objects that contain a name, with their namespaces. If the objects of the mirror differ, also returns these.
fn objects(name: &Name) -> String {
    let here = first_few(&name.by);
    if name.on_mirror.is_empty() || name.on_mirror == name.by {
        return here;
    }
    format!("{here} -> {}", first_few(&name.on_mirror))
}

fn rows(output: &Output, work: &Cutover, name: &Name) -> Vec<[String; 8]> {
    let mut kinds: Vec<_> = name.before.iter().chain(&name.after).map(|set| set.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let row = |kind| {
        let of = |sets: &[RecordSet]| {
            sets.iter()
                .find(|set| set.kind == kind)
                .map_or_else(|| "-".to_string(), |set| set.data.join(", "))
        };
        let mut shares: Vec<String> = Vec::new();
        for sets in &name.stages {
            let share = name.shares_of(sets).get(&kind).copied().unwrap_or_default().to_string();
            if shares.last() != Some(&share) {
                shares.push(share);
            }
        }
        let set = name.before.iter().chain(&name.after).find(|set| set.kind == kind);
        let (ttl, while_it_runs) = set.map_or((0, 0), |set| (set.ttl, set.lowered(work.ttl).ttl));
        let lowered =
            if ttl == while_it_runs { ttl.to_string() } else { format!("{ttl} -> {while_it_runs}") };
        [
            name.name.clone(),
            kind.to_string(),
            of(&name.before),
            output.paint(Tone::Good, &of(&name.after)),
            format!("{} %", shares.join(" -> ")),
            lowered,
            name.probe.to_string(),
            objects(name),
        ]
    };
    kinds.into_iter().map(row).collect()
}

/// Returns a summary of a plan: what the cutover does, and how long it takes.
fn summary(plan: &Plan<Cutover>) -> String {
    let work = &plan.work;
    let shares: Vec<String> = work.shares.iter().map(ToString::to_string).collect();
    let stages = counted(work.shares.len(), "stage", "stages");
    let mut lines = vec![
        format!(
            "zone {} at {}: {} in {stages} ({} %)",
            work.zone,
            work.service,
            counted(work.names.len(), "name changes", "names change"),
            shares.join(", ")
        ),
        format!("estimated duration: {}, without gates", in_words(work.duration())),
        format!("digest {}", plan.digest),
    ];
    let owned = work.names.iter().filter(|name| name.ownership.is_some()).count();
    if owned > 0 {
        let after = match &work.heir {
            Some(heir) => format!("then `{heir}`, the mirror's ExternalDNS"),
            None => {
                "and stays the owner: the mirror has no ExternalDNS with TXT records that could manage them"
                    .to_string()
            }
        };
        let names = counted(owned, "name belongs", "names belong");
        lines.push(format!(
            "{names} to ExternalDNS: netsurgeon becomes the owner during the cutover, {after}"
        ));
    }
    let by_annotations = work.names.iter().filter(|name| name.published.is_some()).count();
    if by_annotations > 0 {
        let objects = counted(by_annotations, "object", "objects");
        lines.push(format!(
            "netsurgeon changes annotations of {objects}, and ExternalDNS changes the records"
        ));
    }
    if work.shares.iter().any(|share| *share < 100) && !matches!(work.service, ZoneService::Route53 { .. }) {
        lines.push(
            "a stage sets the proportion of mirror addresses in an answer; the share of clients is the same only if they choose an address at random".to_string(),
        );
    }
    lines.join("\n")
}
