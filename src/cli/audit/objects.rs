//! Audits the stored objects. Reads every object once, and keeps only the findings.

use std::ops::ControlFlow;

use serde::Serialize;

use super::{AuditArgs, counts, moves, say_not_listed, text};
use crate::audit::{Audit, Counted, Expected, Finding, Old};
use crate::cli::log::MessageKind;
use crate::cli::output::counted;
use crate::cli::{Context, Outcome};
use crate::ip::ServiceCidr;
use crate::operation::Journal;
use crate::session::{Failure, failure};
use crate::store::{Record, Revision, StoreError, Visit};

/// The output of `audit -o json`.
#[derive(Serialize)]
struct ObjectAuditOutput<'a> {
    version: u8,
    old: &'a [ServiceCidr],
    store: &'a str,
    revision: Revision,
    objects: usize,
    skipped: usize,
    held: usize,
    pods_looked_at: bool,
    unread: Vec<UnreadOutput<'a>>,
    not_listed: &'a Counted,
    findings: &'a [Finding],
}

/// Values that could not be read.
#[derive(Serialize)]
struct UnreadOutput<'a> {
    reason: &'a str,
    count: usize,
    /// The first few keys.
    keys: &'a [String],
}

pub(super) async fn run(context: &Context, args: &AuditArgs, old: &Old) -> Result<Outcome, Failure> {
    let layout = args.source.etcd.layout();
    let scope = [layout.everything(), Journal::of_all_clusters()];
    let opened = args.source.lenient().open(context, &scope).await?;
    let store = opened.store.as_ref();
    let mut is_complete = true;
    let expected = match moves::expected(store, &layout, opened.at).await {
        Ok(expected) => expected,
        Err(failure) => {
            let (_, reason) =
                failure.lines().into_iter().next().unwrap_or((MessageKind::Error, String::new()));
            context.output.warn(&format!("the audit is not complete: the journals cannot be read: {reason}"));
            is_complete = false;
            Expected::default()
        }
    };
    let mut audit = Audit::new(&layout, old, &expected);
    let mut visitor = |record: Record<'_>| -> Visit {
        audit.take(record);
        ControlFlow::Continue(())
    };
    let read = store.scan(&[layout.everything()], opened.at, &mut visitor).await;
    let revision = read.map_err(|error| not_read(error, opened.at))?;
    audit.finish();
    audit.findings.sort_by_key(|finding| finding.severity);
    if audit.objects == 0 && audit.skipped == 0 {
        return Err(Failure::refused(format!("no keys under the prefix `{}`", layout.prefix()))
            .hint("give the API server's prefix: `--etcd-prefix PREFIX`"));
    }
    let unread = audit.unread.iter().map(|(reason, unread)| UnreadOutput {
        reason,
        count: unread.count,
        keys: &unread.keys,
    });
    let told = ObjectAuditOutput {
        version: 1,
        old: old.ranges(),
        store: &store.describe(),
        revision,
        objects: audit.objects,
        skipped: audit.skipped,
        held: audit.held,
        pods_looked_at: expected.given_up.is_some(),
        unread: unread.collect(),
        not_listed: &audit.not_listed,
        findings: &audit.findings,
    };
    context.output.data(&told, |output| text(output, told.findings))?;
    say(context, &told);
    let is_clean = is_complete && told.findings.is_empty() && told.unread.is_empty();
    Ok(if is_clean { Outcome::Done } else { Outcome::Findings })
}

/// Returns the failure for a failed read. If etcd compacted the revision during the read, a retry can fail for the same reason.
/// API servers request a compaction every 5 minutes (`--etcd-compaction-interval`, `DefaultCompactInterval` of
/// `k8s.io/apiserver/pkg/storage/storagebackend`, v1.36.3).
fn not_read(error: StoreError, at: Option<Revision>) -> Failure {
    if at.is_none() && matches!(error, StoreError::Compacted { .. }) {
        return Failure::new(failure::ExitKind::Refused, error)
            .context("etcd compacted the revision before the audit had read all objects")
            .hint(
                "audit a snapshot instead: `etcdctl snapshot save FILE`, then run this command with `--snapshot FILE`",
            );
    }
    error.into()
}

/// Reports on stderr how many objects the audit has checked, and which objects it has not checked.
fn say(context: &Context, told: &ObjectAuditOutput<'_>) {
    for unread in &told.unread {
        let how = match unread.reason {
            "broken" => "damaged, or not a Kubernetes object",
            reason => reason,
        };
        let first = unread.keys.first().map(String::as_str).unwrap_or_default();
        context.output.warn(&format!(
            "the audit is not complete: {} could not be read ({how}); the first is `{first}`",
            counted(unread.count, "value", "values")
        ));
    }
    if !told.pods_looked_at {
        context.output.note(
            "Pods that started before their Services moved were not checked: no journal of a renumbering could be used",
        );
    }
    say_not_listed(context, told.not_listed);
    if told.held > 0 {
        let held = counted(
            told.held,
            "place that belongs to an unfinished operation is",
            "places that belong to an unfinished operation are",
        );
        context.output.note(&format!("{held} not listed"));
    }
    context.output.progress(&format!(
        "{}, revision {}: {} read, {} skipped; {}",
        told.store,
        told.revision,
        counted(told.objects, "object", "objects"),
        counted(told.skipped, "event or lease", "events and leases"),
        counts(told.findings)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compacted_revision_hints_at_a_snapshot() {
        let compacted = || StoreError::Compacted { asked: Revision(7), oldest: Revision(9) };
        let hint = |at| not_read(compacted(), at).lines().pop().unwrap().1;
        assert!(hint(None).contains("`--snapshot FILE`"), "{}", hint(None));
        assert!(hint(Some(Revision(7))).contains("use revision 9 or later"), "{}", hint(Some(Revision(7))));
    }
}
