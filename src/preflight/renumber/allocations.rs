//! `allocations`: whether the addresses of Services match their allocations.

use super::Renumber;
use crate::preflight::{Check, Judged, Source};
use crate::survey::audit::audit;
use crate::survey::{Severity, Survey};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "allocations",
    why: "existing errors remain after the renumbering, and are then harder to find",
    needs: &[Source::Etcd],
    judge: |input| Box::pin(async { input.survey().await.map(judge) }),
};

fn judge(survey: &Survey) -> Judged {
    let found = audit(survey);
    let worst = found
        .iter()
        .filter(|finding| finding.severity != Severity::Info)
        .max_by_key(|finding| finding.severity);
    let remedy =
        "`netsurgeon ranges check` lists all findings, and docs/findings.md describes how to repair them";
    match worst {
        None => Judged::pass(format!(
            "the addresses of {} match their allocations (allocator era: {})",
            counted(survey.services.len(), "Service", "Services"),
            survey.era.era
        )),
        Some(worst) => {
            let count = found.iter().filter(|finding| finding.severity == worst.severity).count();
            let seen = format!(
                "{} of severity {}, for example {} {}: {}",
                counted(count, "finding", "findings"),
                worst.severity,
                worst.code,
                worst.subject,
                worst.message
            );
            if worst.severity == Severity::Error {
                Judged::fail(seen, remedy)
            } else {
                Judged::warn(seen, remedy)
            }
        }
    }
}
