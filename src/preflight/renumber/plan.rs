//! `plan`: whether the renumbering can be planned.

use super::Renumber;
use crate::operation::Plan;
use crate::preflight::{Check, Judged, Source};
use crate::renumber::Renumbering;
use crate::renumber::hold::Hold;
use crate::words::counted;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "plan",
    why: "without a valid plan, `renumber apply` refuses to start",
    needs: &[Source::Etcd],
    judge: |input| Box::pin(async { input.plan().await.map(judge) }),
};

fn judge(plan: &Plan<Renumbering>) -> Judged {
    let work = &plan.work;
    let shadows = work.moves.iter().filter(|candidate| candidate.hold == Hold::Shadow).count();
    let copied = work.moves.iter().filter(|candidate| candidate.has_copies());
    let seen = if work.moves.is_empty() {
        format!("no Service moves; the Service range becomes {}", work.to)
    } else {
        format!(
            "{} to {}; shadows hold {}",
            counted(work.moves.len(), "Service moves", "Services move"),
            work.to,
            counted(shadows, "old address", "old addresses"),
        )
    };
    if let Some(gap) = &work.gap {
        let remedy =
            "if kube-proxy routes Services on every node, give its configuration: `--kube-proxy-config FILE`";
        let seen = format!("{seen}; cannot tell whether every node can hold old addresses: {gap}");
        return if work.gap_accepted { Judged::warn(seen, remedy) } else { Judged::unknown(seen, remedy) };
    }
    if let Some(unread) = work.unread.first() {
        return Judged::warn(
            format!("{seen}; not read: {unread}"),
            "update this object by hand if it contains the old range",
        );
    }
    match copied.count() {
        0 => Judged::pass(seen),
        copied => Judged::warn(
            format!(
                "{seen}; the shadows of {} have copied EndpointSlices",
                counted(copied, "Service", "Services")
            ),
            "start `netsurgeon renumber guard --stay` before the first batch, and keep it running until the end: it keeps the copies up to date",
        ),
    }
}
