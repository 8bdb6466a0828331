//! `netsurgeon rehearse`: runs a renumbering and its rollback on a copy of a snapshot.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::output::{Output, Tone, counted, table};
use super::progress::Spinner;
use super::renumber::{duration, remarks};
use super::source::{StoredArgs, open_snapshot};
use super::target::TargetArgs;
use super::tiers::TierArgs;
use super::{Context, Outcome};
use crate::operation::{Plan, SystemAmbient};
use crate::renumber::estimate::{Estimate, estimate};
use crate::renumber::rehearse::{Rollback, scope};
use crate::renumber::run::reasons;
use crate::renumber::{Rehearsal, Renumbering, rehearse};
use crate::session::{ExitKind, Failure};
use crate::survey::{Era, Finding, Severity, Survey};

/// Maximum number of moves that the report shows as examples.
const SHOWN_MOVES: usize = 8;

/// Rehearse a renumbering and its rollback on a copy of a snapshot, in memory
///
/// Runs the steps of a renumbering on a copy of the snapshot in memory. First, the rehearsal moves every Service batch by batch,
/// retires the old addresses, and audits the result. Then the rehearsal starts again from the snapshot, stops in the middle, and
/// rolls back. After the rollback, it compares every changed key byte for byte with the snapshot. The snapshot file stays
/// unchanged.
///
/// The rehearsal does not simulate API server flags, controllers, finalizers or nodes. The output lists the steps that the
/// rehearsal cannot do, in the order of a live run.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon rehearse backup.db --to 10.200.0.0/16
  netsurgeon rehearse backup.db --to 10.200.0.0/24 --pin pins.txt
  netsurgeon rehearse backup.db --to 10.200.0.0/16 --tiers dev,web,core \\
      --tier-file tiers.txt --default-tier web
  netsurgeon rehearse backup.db --to 10.200.0.0/16 -o json | jq .rollback

Exit status:
  0   the rehearsal succeeds; findings from before the move do not count
  3   the audit after the move has new findings
  5   a Service has a wrong new address, or the rollback is not complete")]
pub struct RehearseArgs {
    /// A file from `etcdctl snapshot save`, or the file `member/snap/db` of a stopped etcd member
    #[arg(value_name = "SNAPSHOT")]
    snapshot: PathBuf,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    tiers: TierArgs,
    #[command(flatten)]
    stored: StoredArgs,
}

/// The output of `rehearse -o json`.
#[derive(Serialize)]
struct Rehearsed<'a> {
    version: u8,
    snapshot: String,
    era: Era,
    digest: &'a str,
    tiers: Vec<TierSize<'a>>,
    /// Minimum and maximum of the estimated duration of a live run, in seconds.
    estimated_seconds: [u64; 2],
    #[serde(flatten)]
    rehearsal: &'a Rehearsal,
}

/// A tier, and the number of Services in the tier that move.
#[derive(Serialize)]
struct TierSize<'a> {
    name: &'a str,
    services: usize,
}

/// Runs the command.
pub async fn run(context: &Context, args: &RehearseArgs) -> Result<Outcome, Failure> {
    let mut options = args.target.resolve(&args.tiers)?;
    let layout = args.stored.layout();
    let store = open_snapshot(context, &args.snapshot, &scope(&layout), &args.stored)?;
    if args.tiers.needs_survey() {
        let survey = Survey::read(store.as_ref(), &layout, None).await?;
        args.tiers.settle(context, &survey, &mut options).await?;
    }
    let mut progress = Spinner::new();
    let (plan, rehearsal) = rehearse(store, &layout, &options, &SystemAmbient, &mut progress).await?;
    drop(progress);
    let Estimate { least, most } = estimate(&plan.work, None);
    let value = Rehearsed {
        version: 1,
        estimated_seconds: [least.as_secs(), most.as_secs()],
        snapshot: args.snapshot.display().to_string(),
        era: plan.work.era,
        digest: &plan.digest,
        tiers: plan.work.tier_moves().iter().map(|(name, m)| TierSize { name, services: m.len() }).collect(),
        rehearsal: &rehearsal,
    };
    context.output.data(&value, |output| report(output, args, &plan, &rehearsal))?;
    conclude(&rehearsal)
}

fn conclude(rehearsal: &Rehearsal) -> Result<Outcome, Failure> {
    if rehearsal.rollback != Rollback::Identical || !rehearsal.rollback_stuck.is_empty() {
        return Err(Failure::of(ExitKind::Stuck, "the rollback did not restore everything").hint(
            "this is a bug in netsurgeon: do not apply the plan, and report the bug with the output above",
        ));
    }
    if let (Some(count), Some(first)) = (misplaced(rehearsal), rehearsal.misplaced.first()) {
        return Err(Failure::of(ExitKind::Stuck, format!("{count} after the move; the first is `{first}`")));
    }
    let new = new_findings(rehearsal).count();
    Ok(if new == 0 { Outcome::Done } else { Outcome::Findings })
}

/// Returns the findings that are new after the move.
fn new_findings(rehearsal: &Rehearsal) -> impl Iterator<Item = &Finding> {
    let is_known = |finding: &&Finding| {
        rehearsal
            .findings_before
            .iter()
            .any(|known| known.code == finding.code && known.subject == finding.subject)
    };
    rehearsal
        .findings_after
        .iter()
        .filter(|finding| finding.severity != Severity::Info)
        .filter(move |finding| !is_known(finding))
}

fn report(output: &Output, args: &RehearseArgs, plan: &Plan<Renumbering>, rehearsal: &Rehearsal) -> String {
    let work = &plan.work;
    let from = work.from.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let strong = |text: &str| output.paint(Tone::Strong, text);
    let mut lines = vec![
        strong(&format!("Rehearsal: from {from} to {}", work.to)),
        String::new(),
        line("snapshot", &format!("{}, revision {}", args.snapshot.display(), plan.header.base_revision)),
        line(
            "cluster",
            &format!("{}, storage era {}", counted(rehearsal.services, "Service", "Services"), work.era),
        ),
        line("audit before", &count(output, &rehearsal.findings_before)),
        line(
            "plan",
            &format!(
                "{}, {}{}",
                moved(rehearsal),
                counted(rehearsal.skipped, "stays", "stay"),
                reasons(work)
            ),
        ),
    ];
    lines.extend((!work.moves.is_empty()).then(|| line("live run", &duration(work, None))));
    lines.extend(work.tiers_in_words().map(|tiers| line("tiers", &tiers)));
    lines.extend([
        line("forward", &forward(output, rehearsal)),
        line("audit after", &count(output, &rehearsal.findings_after)),
        line("rollback", &back(output, rehearsal)),
    ]);
    lines.extend(remarks(work).into_iter().map(|remark| format!("  {remark}")));
    if !work.moves.is_empty() {
        lines.extend([
            String::new(),
            strong(&format!(
                "Moves, the first {} of {} (`renumber plan` shows all)",
                work.moves.len().min(SHOWN_MOVES),
                rehearsal.moved
            )),
            moves(work),
        ]);
    }
    lines.extend([
        String::new(),
        strong(
            "Steps that a rehearsal cannot do, in the order of a live run. You do the steps that do not start with `netsurgeon` by hand",
        ),
    ]);
    for (index, outside) in rehearsal.external.iter().enumerate() {
        lines.push(format!("  {}. {}", index.saturating_add(1), outside.what));
        lines.push(output.paint(Tone::Faint, &format!("     why: {}", outside.why)));
    }
    lines.extend(problems(output, rehearsal));
    lines.push(String::new());
    lines.push("Nothing was changed: all steps ran on a copy of the snapshot in memory.".to_string());
    lines.join("\n")
}

/// Returns how many Services move, as text.
fn moved(rehearsal: &Rehearsal) -> String {
    if rehearsal.moved == 0 {
        return "no Service moves".to_string();
    }
    let batches = counted(rehearsal.batches, "batch", "batches");
    format!("{} in {batches}", counted(rehearsal.moved, "Service moves", "Services move"))
}

fn forward(output: &Output, rehearsal: &Rehearsal) -> String {
    if rehearsal.moved == 0 {
        return format!(
            "{}: the range is changed, {}",
            verdict(output, true),
            counted(rehearsal.steps, "step", "steps")
        );
    }
    format!(
        "{}: {}, all old addresses retired, {}, {} for the data plane",
        verdict(output, rehearsal.misplaced.is_empty()),
        misplaced(rehearsal).unwrap_or_else(|| "all moved".to_string()),
        counted(rehearsal.steps, "step", "steps"),
        counted(rehearsal.waits, "wait", "waits"),
    )
}

/// Returns how many Services are not at their new address after the move; `None` if there is none.
fn misplaced(rehearsal: &Rehearsal) -> Option<String> {
    let count = rehearsal.misplaced.len();
    let all = counted(count, "Service is not at its new address", "Services are not at their new addresses");
    (count > 0).then_some(all)
}

fn line(label: &str, text: &str) -> String {
    format!("  {label:<14}{text}")
}

fn verdict(output: &Output, good: bool) -> String {
    if good { output.paint(Tone::Good, "ok") } else { output.paint(Tone::Bad, "FAILED") }
}

fn count(output: &Output, findings: &[Finding]) -> String {
    let of = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let (errors, warnings) = (of(Severity::Error), of(Severity::Warning));
    let tone = if errors == 0 { Tone::Good } else { Tone::Bad };
    let errors = output.paint(tone, &counted(errors, "error", "errors"));
    format!("{errors}, {}", counted(warnings, "warning", "warnings"))
}

fn back(output: &Output, rehearsal: &Rehearsal) -> String {
    let good = rehearsal.rollback == Rollback::Identical && rehearsal.rollback_stuck.is_empty();
    let outcome = if good { "every key is byte-for-byte unchanged" } else { "not everything is restored" };
    let from = if rehearsal.moved == 0 { "before its last stage" } else { "from the middle of the move" };
    format!("{}: rolled back {from}, {outcome}", verdict(output, good))
}

fn moves(work: &Renumbering) -> String {
    let rows = work.moves.iter().take(SHOWN_MOVES).map(|candidate| {
        [
            format!("  {}", candidate.subject()),
            candidate.old.join(","),
            candidate.new.join(","),
            candidate.hold.to_string(),
        ]
    });
    table(["  SERVICE", "OLD", "NEW", "HOLD"], rows)
}

fn problems(output: &Output, rehearsal: &Rehearsal) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |title: &str, items: Vec<String>| {
        if !items.is_empty() {
            lines.extend([String::new(), output.paint(Tone::Bad, title)]);
            lines.extend(items.into_iter().map(|item| format!("  {item}")));
        }
    };
    let words = |finding: &Finding| format!("{} {}: {}", finding.code, finding.subject, finding.message);
    let before = rehearsal.findings_before.iter().filter(|finding| finding.severity != Severity::Info);
    add("Findings before", before.map(words).collect());
    add("New findings afterwards", new_findings(rehearsal).map(words).collect());
    add("Services not at their new address", rehearsal.misplaced.clone());
    add("Keys that differ after the rollback", rehearsal.rollback_differences.clone());
    add("Steps that could not be rolled back", rehearsal.rollback_stuck.clone());
    lines
}
