//! `netsurgeon renumber retire`: releases the old addresses, which ends a renumbering.

use clap::Args;

use super::end_output::{EndOutput, print, say_given_up};
use super::evidence::EvidenceArgs;
use crate::cli::output::counted;
use crate::cli::run_args::LiveArgs;
use crate::cli::{Context, Outcome};
use crate::ip::ServiceCidr;
use crate::operation::Status;
use crate::renumber::Renumbering;
use crate::renumber::run::{RetireTerms, again, left_alone, refuse_going_back};
use crate::session::{Failure, refuse_ended};

/// Retire the old addresses (they stop answering), and end the renumbering
///
/// Before the first step, `retire` checks that `renumber verify` finds no error, that every API server has the new range, and
/// that no Service outside the plan has an address of the old range. It also checks that no client uses an old address. Every
/// node must provide recent evidence that no client used an old address (docs/audit.md explains how to collect evidence with
/// deploy/evidence.yaml). The kernel of this host must not track a connection to an old address. If a check fails, the command
/// retires no address.
///
/// After the first step, you cannot roll back. At the end, only the new addresses remain. `retire` removes all holds, shadows and
/// temporary objects. The journal stays, for `operation report` and `operation show`, until you remove it with `operation forget`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon renumber retire                      # the renumbering under way
  # require an hour without clients of old addresses, on every node
  netsurgeon renumber retire --quiet-for 3600
  # evidence from a file, not from the nodes' ConfigMaps
  netsurgeon renumber retire --evidence nodes.log
  netsurgeon renumber retire --yes --confirm cluster-dns --confirm soak \\
      --confirm certificates-after")]
pub struct RetireArgs {
    /// Id of the renumbering [default: the renumbering under way]
    #[arg(long, value_name = "ID")]
    pub(in crate::cli) operation: Option<String>,
    /// Retire even if the flags of an API server cannot be read from this host. First check on each control-plane host that its API
    /// server has the new range: otherwise the old range opens again, and other Services get the old addresses
    #[arg(long)]
    pub(in crate::cli) accept_unverified_flags: bool,
    /// Remove the journal at the end. Then there is no report. The journal records this option, so you need not repeat it
    #[arg(long)]
    pub(in crate::cli) forget: bool,
    /// Accepted for scripts of older versions: `retire` keeps the journal unless you give `--forget`
    #[arg(long, hide = true, conflicts_with = "forget")]
    pub(in crate::cli) keep_journal: bool,
    #[command(flatten)]
    pub(in crate::cli) evidence: EvidenceArgs,
    #[command(flatten)]
    pub(in crate::cli) live: LiveArgs,
}

impl RetireArgs {
    /// Returns the options that the user must repeat in the next command for this renumbering.
    fn options(&self) -> String {
        let yes = if self.live.run.yes { " --yes" } else { "" };
        let flags = if self.accept_unverified_flags { " --accept-unverified-flags" } else { "" };
        self.evidence.wanted().options() + flags + &self.live.max_failures_option() + yes
    }

    fn terms(&self) -> RetireTerms {
        RetireTerms {
            evidence: self.evidence.wanted(),
            accepts_unverified_flags: self.accept_unverified_flags,
            forgets: self.forget,
        }
    }
}

/// Runs `retire`. `give_up`: the subjects to give up.
pub async fn retire(
    context: &Context,
    (args, give_up): (&RetireArgs, &[String]),
) -> Result<Outcome, Failure> {
    let mut session = args.live.open(context).await?;
    session.choices.give_up = give_up.to_vec();
    if let Some(operation) = session.remove_rest(args.operation.as_deref()).await?
        && (args.operation.is_some() || session.unfinished().await?.is_empty())
    {
        return removed(context, &operation);
    }
    let mut ongoing = session.find(args.operation.as_deref()).await?;
    refuse_ended(&ongoing.operation, &ongoing.summary)?;
    refuse_going_back(&ongoing)?;
    session.confirm_only_known(&ongoing, false)?;
    ongoing.options = args.options();
    let report = session.retire(&mut ongoing, &args.terms()).await?;
    print(context, &ongoing, &report)?;
    if let Some(failure) = left_alone(&ongoing, &ongoing.still_held(&report), "retired") {
        return Err(again(failure, &ongoing));
    }
    say_given_up(context, &ongoing);
    let work = &ongoing.plan.work;
    let retired = counted(work.moves.len(), "old address", "old addresses");
    let retired = if work.moves.is_empty() { String::new() } else { format!("{retired} retired; ") };
    context.output.progress(&format!("{retired}the cluster's Service range is {}", work.to));
    if let Some(note) = afterlife(work) {
        context.output.note(&note);
    }
    if work.kubernetes().is_none() {
        context.output.note("if the deploy lock is set: `netsurgeon unlock`");
    }
    if !ongoing.summary.removes_journal {
        context.output.note(&format!(
            "the journal stays in etcd; for a report: `netsurgeon operation report {id} --html report.html`; to remove the \
             journal: `netsurgeon operation forget {id}`",
            id = ongoing.operation
        ));
    }
    Ok(Outcome::Done)
}

/// Reports that the remaining part of a journal was removed.
fn removed(context: &Context, operation: &str) -> Result<Outcome, Failure> {
    let output = EndOutput {
        version: 1,
        operation,
        status: Status::Done,
        steps: 0,
        stuck: Vec::new(),
        given_up: Vec::new(),
    };
    context.output.data(&output, |_| String::new())?;
    Ok(Outcome::Done)
}

/// Returns a note about open connections. They continue because kube-proxy does not delete conntrack entries for an address that
/// no Service has (`CleanStaleEntries`, `pkg/proxy/conntrack/cleanup.go`, v1.36.3).
fn afterlife(work: &Renumbering) -> Option<String> {
    let family = work.family.to_string().to_lowercase();
    let end = |range: &ServiceCidr| format!("`conntrack -D -p udp -f {family} -d {range}`");
    // Only addresses that were retired: a Service can still have the other addresses of the old range.
    let was_left = |range: &ServiceCidr| work.moves.iter().any(|moved| range.contains(moved.old_address));
    let retired = work.retired_ranges();
    let ends = if work.searched_ranges() == retired {
        retired.iter().filter(|range| was_left(range)).map(end).collect::<Vec<_>>()
    } else {
        vec![format!("`conntrack -D -p udp -f {family} -d ADDRESS`, for each old address,")]
    };
    (!ends.is_empty()).then(|| format!(
        "open connections to old addresses continue until they close, and a UDP client that keeps its port can continue forever; run {} on each node to end the UDP connections",
        ends.join(" and ")
    ))
}
