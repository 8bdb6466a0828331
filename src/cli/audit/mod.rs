//! `netsurgeon audit`: finds addresses of an old Service range, and the range itself.

pub(super) mod evidence;
pub(super) mod flows;
mod host;
mod moves;
mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;

use super::api::KubeArgs;
use super::output::{Output, Tone, counted, table};
use super::source::SourceArgs;
use super::{Context, Outcome};
use crate::audit::{Counted, Finding, KEPT, Old, Severity};
use crate::ip::ServiceCidr;
use crate::session::Failure;

/// Maximum number of findings for each kind of place in a table. The limit is needed because, before a renumbering, every Service
/// has an address of the range.
const SHOWN: usize = 20;

/// Find references to an old Service range: its addresses, or the range itself
///
/// Searches all stored objects of any kind, including custom resources. Also finds addresses in JSON and YAML texts, arguments,
/// environment variables and annotations. For a Secret, the audit prints only the name of the key. During a renumbering, the
/// audit does not list the addresses that netsurgeon holds, but only counts them. The audit also lists Pods that started before a
/// Service moved and still have its old address.
///
/// With `--host`, the audit searches this machine instead: configuration files, the environments of processes, and the
/// resolv.conf of each process. The audit writes nothing, except ConfigMaps with `--publish`. docs/audit.md explains each kind of
/// finding, and what to do.
///
/// The exit status is 3 if the audit finds an address or range, or if it cannot read everything; otherwise it is 0.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # on a kubeadm control-plane host
  netsurgeon audit --old 10.96.0.0/16
  netsurgeon audit --old 10.96.0.0/16 --old fd00:10:96::/112 \\
      --snapshot backup.db
  netsurgeon audit --old 10.96.0.0/16 -o json \\
      | jq -r '.findings[] | select(.severity == \"breaks-at-retirement\").key'
  # on each node, as root
  netsurgeon audit --old 10.96.0.0/16 --host
  # from a Pod with the host's / and PID namespace
  netsurgeon audit --old 10.96.0.0/16 --host --root /host
  # evidence for `renumber retire`: clients that use old addresses
  netsurgeon audit --old 10.96.0.0/16 --host --flows --for 600 \\
      -o json > node-1.json
  # the evidence of all nodes that run deploy/evidence.yaml
  netsurgeon audit --old 10.96.0.0/16 --gather")]
pub struct AuditArgs {
    /// An old Service range; can be repeated
    #[arg(long, value_name = "CIDR", required = true)]
    old: Vec<ServiceCidr>,
    /// Search this machine instead of the objects of a cluster
    #[arg(long, conflicts_with_all = ["snapshot", "at_revision"])]
    host: bool,
    /// Root directory of the machine
    #[arg(long, value_name = "DIR", default_value = "/", requires = "host")]
    root: PathBuf,
    #[command(flatten)]
    flows: flows::FlowArgs,
    #[command(flatten)]
    gather: evidence::GatherArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    kube: KubeArgs,
}

/// Runs the command.
pub async fn run(context: &Context, args: &AuditArgs) -> Result<Outcome, Failure> {
    let old = Old::new(args.old.clone());
    if args.gather.gather {
        return evidence::run(context, args).await;
    }
    if args.flows.flows {
        return flows::run(context, args, old).await;
    }
    if args.host { host::run(context, args, old).await } else { objects::run(context, args, &old).await }
}

/// Returns the findings as one table for each severity. After each table, the text explains the kinds of places in the table. The
/// places that a renumbering changes itself are in a short table at the end, with a row for each kind of place.
fn text(output: &Output, findings: &[Finding]) -> String {
    let mut parts = Vec::new();
    for severity in Severity::ALL {
        let is_own = |finding: &&Finding| finding.severity == severity && !finding.changed_by_move;
        let those: Vec<&Finding> = findings.iter().filter(is_own).collect();
        if those.is_empty() {
            continue;
        }
        let tone = match severity {
            Severity::BreaksAtRetirement => Tone::Bad,
            Severity::BreaksAtNextRestart => Tone::Careful,
            Severity::Cosmetic => Tone::Faint,
        };
        let count = counted(those.len(), "finding", "findings");
        parts.push(format!("{} ({count})", output.paint(tone, &severity.to_string())));
        let (shown, left_out) = first_of_each_place(&those);
        parts.push(table(["PLACE", "IN", "WHERE", "FOUND"], shown.into_iter().map(row)));
        if !left_out.is_empty() {
            parts.push(format!("not shown: {}; `-o json` includes them", left_out.join(", ")));
        }
        parts.push(meanings(&those));
    }
    parts.extend(by_the_move(output, findings));
    parts.join("\n\n")
}

/// Returns a table of the places that a renumbering changes itself, with a row for each kind of place.
fn by_the_move(output: &Output, findings: &[Finding]) -> Option<String> {
    let mut rows: Vec<(&str, BTreeSet<String>, usize)> = Vec::new();
    for finding in findings.iter().filter(|finding| finding.changed_by_move) {
        let subject = finding.subject.to_string();
        match rows.iter_mut().find(|(place, ..)| *place == finding.place) {
            Some((_, subjects, places)) => {
                subjects.insert(subject);
                *places = places.saturating_add(1);
            }
            None => rows.push((finding.place, BTreeSet::from([subject]), 1)),
        }
    }
    let row = |(place, subjects, places): &(&str, BTreeSet<String>, usize)| {
        let first = subjects.first().cloned().unwrap_or_default();
        [(*place).to_string(), places.to_string(), subjects.len().to_string(), first]
    };
    let heading = output
        .paint(Tone::Faint, "changed by the renumbering itself (nothing to do; `-o json` lists each place)");
    let table = table(["PLACE", "PLACES", "OBJECTS", "FIRST OBJECT"], rows.iter().map(row));
    (!rows.is_empty()).then(|| format!("{heading}\n\n{table}"))
}

/// Returns the first findings for each kind of place, and the number of further findings for each kind as text.
fn first_of_each_place<'f>(findings: &[&'f Finding]) -> (Vec<&'f Finding>, Vec<String>) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut shown = Vec::new();
    for finding in findings {
        let count = counts.entry(finding.place).or_default();
        *count = count.saturating_add(1);
        if *count <= SHOWN {
            shown.push(*finding);
        }
    }
    let more = counts.into_iter().filter_map(|(place, count)| {
        count.checked_sub(SHOWN).filter(|more| *more > 0).map(|more| format!("{more} more {place}"))
    });
    (shown, more.collect())
}

fn row(finding: &Finding) -> [String; 4] {
    let line = finding.line.map(|line| format!("line {line}"));
    let place: Vec<String> =
        [Some(finding.path.clone()).filter(|path| !path.is_empty()), line].into_iter().flatten().collect();
    let found = finding.found.clone().unwrap_or_else(|| "(not shown)".into());
    [finding.place.to_string(), finding.subject.to_string(), place.join(", "), found]
}

/// Returns the meaning of each kind of place, and the remedy.
fn meanings(findings: &[&Finding]) -> String {
    let mut told: Vec<&str> = Vec::new();
    let mut lines = Vec::new();
    for finding in findings {
        if !told.contains(&finding.place) {
            told.push(finding.place);
            lines.push(format!("{}: {}\n  remedy: {}", finding.place, finding.meaning, finding.remedy));
        }
    }
    lines.join("\n")
}

/// Warns if some places are not listed, and prints their number.
fn say_not_listed(context: &Context, more: &Counted) {
    let Some(first) = more.keys.first() else { return };
    context.output.warn(&format!(
        "{} not listed (at most {KEPT} of each kind are listed for an object or file); the first one not listed is `{first}`",
        counted(more.count, "more place is", "more places are"),
    ));
}

/// Returns the number of findings of each severity, as text. Places that a renumbering changes itself are counted separately.
fn counts(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "nothing found".into();
    }
    let own = || findings.iter().filter(|finding| !finding.changed_by_move);
    let count = |severity: Severity| {
        let count = own().filter(|finding| finding.severity == severity).count();
        (count > 0).then(|| format!("{count} {severity}"))
    };
    let by_move = findings.len().saturating_sub(own().count());
    let by_move = (by_move > 0).then(|| {
        let places = counted(by_move, "place", "places");
        format!("{places} that the renumbering changes itself")
    });
    let parts: Vec<String> = Severity::ALL.into_iter().filter_map(count).collect();
    let own = (!parts.is_empty())
        .then(|| format!("{}: {}", counted(own().count(), "finding", "findings"), parts.join(", ")));
    own.into_iter().chain(by_move).collect::<Vec<_>>().join("; ")
}
