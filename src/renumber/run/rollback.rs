//! Rolls a renumbering back on a live cluster.

use std::net::IpAddr;
use std::time::Duration;

use super::manual_step_checks::carried_by_all;
use super::progress::Phases;
use super::{Ongoing, RenumberSession, kubelets};
use crate::operation::{Journal, Manual, Report, State, Status, Work as _};
use crate::renumber::{Action, Renumbering, Step};
use crate::session::{Failure, Taking, release};
use crate::survey::{Era, Layout, Survey};
use crate::words::counted;

impl RenumberSession {
    /// Reports what the rollback will do, asks for approval, and gives every Service its old address back.
    pub async fn undo(&self, ongoing: &mut Ongoing) -> Result<Report, Failure> {
        let operation = ongoing.operation.clone();
        let taking = Taking { operation: &operation, purpose: "roll the renumbering back" };
        let lock = self.lock(&taking).await?;
        let undone = async {
            self.read_again(ongoing).await?;
            refuse_past_no_return(ongoing)?;
            if ongoing.summary.has_ended() {
                return Ok(Report::default());
            }
            self.warn_of_kubelets(&ongoing.plan.work).await;
            for line in self.rollback_plan(ongoing) {
                self.ui.progress(&line);
            }
            self.ask(&format!("Roll `{operation}` back?"))?;
            self.give_up(ongoing, &lock, true).await?;
            self.roll_back(ongoing, &lock).await
        };
        let undone = undone.await;
        release(lock, undone).await
    }

    fn rollback_plan(&self, ongoing: &Ongoing) -> Vec<String> {
        let linger = self.cluster().map(|_| self.linger_of(&ongoing.plan.work));
        rollback_plan(ongoing, linger)
    }

    /// Before a rollback, warns if kubelets configure Pods with a DNS address that the rollback removes.
    async fn warn_of_kubelets(&self, work: &Renumbering) {
        let new: Vec<IpAddr> = work.dns().map(|candidate| candidate.new_address).collect();
        let Some(cluster) = self.cluster() else { return };
        if new.is_empty() {
            return;
        }
        let told = match kubelets::told(cluster, &new).await {
            Ok(told) => told,
            Err(error) => {
                self.ui.warn(&format!("the kubelets' `clusterDNS` is not checked: {error}"));
                return;
            }
        };
        if let Some(unseen) = told.unseen() {
            self.ui.warn(&format!(
                "the kubelets' `clusterDNS` is not checked on {} of {} nodes; {unseen}. Check it there: \
                 `grep -A2 clusterDNS /var/lib/kubelet/config.yaml`",
                told.unseen_count(),
                told.count,
            ));
        }
        if let Some(words) = told.words(&new) {
            let set = work.dns().map(|dns| {
                let (old, new) = (dns.old_address, dns.new_address);
                format!("`netsurgeon controlplane set-dns --from {new} --to {old}`")
            });
            self.ui.warn(&format!(
                "{words}; run {} on these nodes, and restart the kubelet, within {} s after the cluster's DNS moves back (`--linger`)",
                set.collect::<Vec<_>>().join(" and "),
                self.linger_of(work).as_secs()
            ));
        }
    }

    /// Reports what remains after a rollback: Services with an address in the new range, and certificates that contain the first
    /// address of the new range.
    pub async fn say_what_is_left(&self, work: &Renumbering) {
        self.report_new_range(work).await;
        let Some(cluster) = self.cluster() else { return };
        if let Some(address) = work.kubernetes().map(|candidate| candidate.new_address)
            && carried_by_all(cluster, address).await
        {
            self.ui.note(&format!(
                "the API servers' certificates still cover the new address `{address}`; this is harmless; to remove it: `netsurgeon certs reissue --drop-ip {address}`"
            ));
        }
    }

    async fn report_new_range(&self, work: &Renumbering) {
        let Ok(survey) = Survey::read(self.store.as_ref(), &Layout::new(&work.prefix), None).await else {
            return;
        };
        let is_old = |address: &IpAddr| work.from.iter().any(|range| range.is_usable(*address));
        let is_only_new = |address: &IpAddr| work.to.contains(*address) && !is_old(address);
        let mut there = survey.services.iter().filter(|service| service.addresses.iter().any(is_only_new));
        let Some(first) = there.next() else { return };
        let count = there.count().saturating_add(1);
        let what = match work.era {
            Era::Bitmap => {
                "No API server allocates from this range now: recreate these Services with an address of the old range"
            }
            _ => {
                "The ServiceCIDR of this range remains until each of these Services is deleted and recreated with an address of the \
                 old range"
            }
        };
        self.ui.warn(&format!(
            "{} an address of `{}`, allocated before the rollback; the first is `{}`. {what}",
            counted(count, "Service has", "Services have"),
            work.to,
            first.subject()
        ));
    }
}

/// Hint after the point of no return.
pub(super) const NEW_OPERATION: &str = "to go back, renumber to the old range with a new operation";

/// Fails if the renumbering has passed its point of no return, so that it cannot be rolled back.
pub fn refuse_past_no_return(ongoing: &Ongoing) -> Result<(), Failure> {
    let id = &ongoing.operation;
    let past = format!("operation `{id}` has passed its point of no return");
    match ongoing.summary.status {
        Status::RolledBack => Ok(()),
        Status::Done => Err(Failure::refused(format!("{past}, and is done")).hint(NEW_OPERATION)),
        _ if ongoing.has_begun_to_retire() => {
            Err(Failure::refused(format!("{past}: it retires the old addresses"))
                .hint(format!("to complete it: `netsurgeon operation resume {id}`"))
                .hint(NEW_OPERATION))
        }
        _ => Ok(()),
    }
}

/// Describes a rollback: how many Services move back, and which manual steps the rollback requires. `linger` is how long the new
/// addresses continue to answer. If `linger` is `None`, they answer until the rollback is completed with an API server.
fn rollback_plan(ongoing: &Ongoing, linger: Option<Duration>) -> Vec<String> {
    let (work, journal) = (&ongoing.plan.work, &ongoing.journal);
    let phases = Phases::of(&work.moves, journal);
    let from = work.from.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let moves = counted(phases.held, "Service moves", "Services move");
    let others = match phases.waiting {
        0 => String::new(),
        1 => ", 1 Service still has its old address".to_string(),
        count => format!(", {count} Services still have their old addresses"),
    };
    let what = if work.moves.is_empty() {
        format!("the Service range changes back from {} to {from}", work.to)
    } else {
        format!("{moves} back from {} to {from}{others}", work.to)
    };
    let mut lines = vec![format!("rollback of `{}`: {what}", ongoing.operation)];
    if phases.held > 0 && linger.is_none() {
        lines.push(
            "the new addresses continue to answer until the rollback is completed with an API server"
                .to_string(),
        );
    }
    if let Some(linger) = linger.filter(|linger| phases.held > 0 && !linger.is_zero()) {
        let seconds = linger.as_secs();
        lines.push(if work.era == Era::Bitmap {
            format!("the new addresses of each batch continue to answer for {seconds} s after its last move (`--linger`)")
        } else {
            format!("the new addresses continue to answer for {seconds} s after the last move (`--linger`)")
        });
        if work.sweeps() > 0 && work.era != Era::Bitmap {
            lines.push(
                "swept Services move back first; after the last one, their new addresses continue to answer for the same time"
                    .to_string(),
            );
        }
    }
    let manual = manual_steps_back(work, journal);
    lines.extend(
        manual.iter().map(|(name, what)| format!("the rollback requires manual step `{name}`: {what}")),
    );
    if manual.is_empty() {
        lines.push("the rollback requires no manual step".to_string());
    }
    lines
}

/// Returns the manual steps of a rollback. Each of them reverses a manual step that was completed or requested. Manual steps
/// without a reverse step are not included.
fn manual_steps_back(work: &Renumbering, journal: &Journal) -> Vec<(String, String)> {
    let steps = work.way_back().into_iter().flat_map(|stage| work.steps(&stage));
    let is_begun =
        |step: &Step| !matches!(journal.state(&step.id), None | Some(State::UndoDone | State::Failed));
    let manual = steps.filter(is_begun).filter_map(|step| match step.action {
        Action::Manual(Manual { name, undo: Some(undo), .. }) => Some((name, undo)),
        _ => None,
    });
    manual.collect()
}
