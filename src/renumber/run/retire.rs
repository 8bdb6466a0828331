//! Retires the old addresses of a live cluster, which completes a renumbering.

use super::evidence::Evidence;
use super::flows::{users_of, words};
use super::range_evidence::contradiction;
use super::{Direction, Ongoing, RenumberSession, half_removed};
use crate::controlplane::flags;
use crate::ip::as_flag;
use crate::operation::{Journal, Lock, Report, Stuck};
use crate::renumber::guard::watch;
use crate::renumber::{Renumbering, verify};
use crate::session::{ExitKind, Failure, Taking, refuse_ended, release};
use crate::survey::{Finding, Severity, Survey};
use crate::words::{and_more, counted};

/// What `retire` requires before the first address, and what it does at the end.
pub struct RetireTerms {
    /// The evidence of the nodes that no client uses an old address.
    pub evidence: Evidence,
    /// Whether the operator accepts API servers whose flags cannot be read.
    pub accepts_unverified_flags: bool,
    /// Whether to remove the journal at the end.
    pub forgets: bool,
}

impl RenumberSession {
    /// Retires the old addresses, if no check fails and no client uses an old address. Then removes the journal, if this run or an
    /// earlier run had `forgets` set, and no old address can still be held.
    pub async fn retire(&self, ongoing: &mut Ongoing, terms: &RetireTerms) -> Result<Report, Failure> {
        let operation = ongoing.operation.clone();
        let taking = Taking { operation: &operation, purpose: "retire the old addresses" };
        let lock = self.lock(&taking).await?;
        let ended = async {
            self.read_again(ongoing).await?;
            refuse_ended(&operation, &ongoing.summary)?;
            refuse_going_back(ongoing)?;
            self.give_up(ongoing, &lock, false).await?;
            // This choice is stored even if this run is refused later. So the operator does not need to repeat the option.
            if terms.forgets {
                ongoing.journal.set_removed_at_end(&self.ledger(&ongoing.journal, &lock)).await?;
                ongoing.summary.removes_journal = true;
            }
            is_permitted(self, terms, ongoing, &lock).await?;
            end(self, ongoing, &lock).await
        };
        let ended = ended.await;
        release(lock, ended).await
    }

    /// Completes interrupted removals of journals, for one operation or for all operations. All other steps of these operations
    /// are already done. Returns the id of the last of these operations.
    pub async fn remove_rest(&self, wanted: Option<&str>) -> Result<Option<String>, Failure> {
        let (store, mut last) = (self.store.as_ref(), None);
        for operation in half_removed(store, &self.id).await? {
            if wanted.is_some_and(|wanted| *wanted != operation) {
                continue;
            }
            let taking = Taking { operation: &operation, purpose: "remove its journal" };
            let lock = self.lock(&taking).await?;
            let removed = Journal::remove_all(store, &self.id, &operation, &[lock.guard()]).await;
            release(lock, removed.map_err(Failure::from)).await?;
            self.ui.progress(&format!(
                "`{operation}` was already retired; the remaining part of its journal was removed"
            ));
            last = Some(operation);
        }
        Ok(last)
    }
}

/// Refuses to retire the old addresses of a renumbering whose rollback has started.
pub fn refuse_going_back(ongoing: &Ongoing) -> Result<(), Failure> {
    let situation = ongoing.situation();
    if !situation.back {
        return Ok(());
    }
    let next = situation.next().map(|next| format!("to complete the rollback: `{next}`"));
    Err(Failure::refused(format!("the rollback of `{}` has started", ongoing.operation)).hints(next))
}

/// Refuses the first step if a check fails, a client uses an old address, or the operator does not agree.
async fn is_permitted(
    session: &RenumberSession,
    terms: &RetireTerms,
    ongoing: &mut Ongoing,
    lock: &Lock,
) -> Result<(), Failure> {
    if ongoing.has_begun_to_retire() {
        return Ok(());
    }
    // Owners may have changed Services since the last check.
    session.replan(ongoing, lock, false).await?;
    check(session, ongoing, terms.accepts_unverified_flags).await?;
    if !terms.evidence.waived {
        is_unused(ongoing).await?;
        terms.evidence.check(session, &ongoing.plan.work).await?;
    }
    let count = counted(ongoing.plan.work.moves.len(), "old address", "old addresses");
    session.ask(&if ongoing.plan.work.moves.is_empty() {
        format!("Complete the change to {}? This cannot be rolled back.", ongoing.plan.work.to)
    } else {
        format!("Stop holding {count}? This cannot be rolled back.")
    })
}

async fn end(session: &RenumberSession, ongoing: &mut Ongoing, lock: &Lock) -> Result<Report, Failure> {
    if ongoing.has_begun_to_retire() {
        session.sweep(ongoing, lock).await?;
    }
    session.retire_strays(ongoing, lock).await?;
    let report = session.carry_out(ongoing, lock, Direction::Retire).await?;
    if ongoing.still_held(&report).is_empty() && ongoing.summary.removes_journal {
        let (store, guards) = (session.store.as_ref(), [lock.guard()]);
        let removed = Journal::remove_all(store, &session.id, &ongoing.operation, &guards).await;
        removed.map_err(|error| {
            let text =
                format!("the old addresses are retired, but the journal is not completely removed: {error}");
            Failure::of(ExitKind::Stuck, text)
                .hint("`netsurgeon renumber retire` removes the remaining part of the journal")
        })?;
    }
    Ok(report)
}

/// Refuses to retire the old addresses if there is a problem that retiring would make worse.
async fn check(session: &RenumberSession, ongoing: &Ongoing, accepts_unread: bool) -> Result<(), Failure> {
    let work = &ongoing.plan.work;
    has_every_flag(session, work, accepts_unread).await?;
    let survey = Survey::read(session.store.as_ref(), &session.layout, None).await?;
    if let Some(text) = contradiction(work, &survey) {
        return Err(Failure::refused(text).hint(set_the_flag(&as_flag(&work.flag))));
    }
    let verified = verify::verify(work, &survey, |step| ongoing.journal.state(step));
    let [waiting, ..] = verified.counts;
    let go_on = format!("continue with `netsurgeon operation resume {}`", ongoing.operation);
    if waiting > 0 {
        let count = counted(waiting, "Service has", "Services have");
        return Err(Failure::refused(format!("{count} not moved yet")).hint(go_on));
    }
    let mut errors: Vec<Finding> = verified.findings;
    errors.retain(|finding| finding.severity == Severity::Error);
    // If the owner of a Service has removed the hold of the old address, the guard does not restore the hold, and the hold is not
    // needed.
    let watched = watch(work, &survey, |step| ongoing.journal.state(step), session.ambient().now());
    let is_given_up = |finding: &Finding| {
        finding.code == "hold-missing" && watched.findings.iter().any(|it| it.subject == finding.subject)
    };
    let (given_up, errors): (Vec<Finding>, Vec<Finding>) = errors.into_iter().partition(is_given_up);
    for finding in &given_up {
        session.ui.warn(&format!("{} {}", finding.subject, finding.message));
    }
    if let Some(wrong) = errors.first().filter(|_| errors.len() > session.settings.max_failures) {
        let more = and_more(errors.len().saturating_sub(1));
        return Err(Failure::refused(format!("{} {}{more}", wrong.subject, wrong.message))
            .hint("`netsurgeon renumber guard --once` restores lost holds and reservations")
            .hint("`netsurgeon renumber verify` lists all findings, and docs/findings.md explains what to do")
            .hint(format!("to retire the other addresses: `--max-failures {}`", errors.len())));
    }
    let newcomers = ongoing.newcomers(&survey);
    if let Some(first) = newcomers.first() {
        let count = counted(newcomers.len(), "Service has", "Services have");
        return Err(Failure::refused(format!(
            "{count} an address in the old range, but no move in the plan; the first is `{first}`"
        ))
        .hint(format!("to move them: `netsurgeon operation resume {}`", ongoing.operation)));
    }
    Ok(())
}

/// Refuses to retire the old addresses while the flags of an API server have a range other than the new range, or cannot be read.
/// An API server with the old range would recreate the old ServiceCIDR, so the old range could not be closed, and the old addresses
/// would be allocated to other Services.
async fn has_every_flag(
    session: &RenumberSession,
    work: &Renumbering,
    accepts_unread: bool,
) -> Result<(), Failure> {
    let Some(cluster) = session.cluster() else { return Ok(()) };
    let range = as_flag(&work.flag);
    let found = flags(cluster, &range).await?;
    if let Some(first) = found.others.first() {
        let text = format!("{}: {}, but every API server must have `{range}`", first.subject, first.message);
        return Err(Failure::refused(text).hint(set_the_flag(&range)));
    }
    let Some(unread) = found.unread() else { return Ok(()) };
    if accepts_unread {
        session.ui.warn(&format!("{unread}; continuing because of `--accept-unverified-flags`"));
        return Ok(());
    }
    let text = format!(
        "{unread}; every API server must have `{range}`, because an API server with another range would allocate old addresses again"
    );
    Err(Failure::refused(text)
        .hint(format!("check each control-plane host: `netsurgeon controlplane wait --range {range} --host`"))
        .hint("when every API server has the new range: retire again with `--accept-unverified-flags`"))
}

fn set_the_flag(range: &str) -> String {
    format!(
        "on its host: `netsurgeon controlplane set-range --to {range}`, then `netsurgeon controlplane wait --range {range} --host`; \
         then retire again"
    )
}

/// Refuses to retire the old addresses while this host tracks a connection to an old address. If connection tracking cannot be
/// read on this host, only the evidence of the nodes is checked.
async fn is_unused(ongoing: &Ongoing) -> Result<(), Failure> {
    let users = users_of(ongoing).await.unwrap_or_default();
    let Some(first) = users.first() else { return Ok(()) };
    let count = counted(
        users.len(),
        "port of an old address is in use from this host, or was recently",
        "ports of old addresses are in use from this host, or were recently",
    );
    Err(Failure::refused(format!("{count}; {}", words(first)))
        .hint("`netsurgeon renumber status --flows` lists them; restart those clients, and check every node")
        .hint("to retire the old addresses anyway: `--without-evidence` instead of options for evidence"))
}

/// Returns the message about steps that were skipped because of concurrent changes; `None` if no step was skipped.
pub fn left_alone(ongoing: &Ongoing, stuck: &[&Stuck], what: &str) -> Option<Failure> {
    let first = stuck.first()?;
    let text = format!(
        "{} skipped and not {what}; the first is `{}`: {}",
        counted(stuck.len(), "step was", "steps were"),
        first.step,
        first.reason
    );
    let failure = Failure::of(ExitKind::Stuck, text);
    Some(failure.hint(format!("`netsurgeon operation show {}` lists them", ongoing.operation)))
}

/// Adds a hint for steps that could not be done or undone. The hint is to repair the objects of these steps, and then to
/// continue.
pub fn again(failure: Failure, ongoing: &Ongoing) -> Failure {
    let situation = ongoing.situation();
    let next = situation.next().map(|next| format!("repair the objects of these steps, then: `{next}`"));
    failure.hints(next).hints(situation.without_skipped())
}
