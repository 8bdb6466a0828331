//! Plans moves again if their Services changed after planning. The journal stores the new plan of a move as an amendment.

use super::{Ongoing, RenumberSession};
use crate::operation::{self, Journal, Lock, Plan, RepairOutcome, State};
use crate::renumber::replan::{Replanned, replan};
use crate::renumber::sweep::Sweep;
use crate::session::Failure;
use crate::store::Revision;
use crate::survey::Survey;

/// Maximum number of checks of the Services. Several checks may be needed, because clients can change Services concurrently.
const MOST_LOOKS: u32 = 5;

impl RenumberSession {
    /// Plans a move again if its Service has changed so that the steps of the move no longer match. Undoes the changes that do
    /// not match the new plan, and reports each Service. In a rollback, plans a move again only if the move cannot be undone
    /// otherwise. Returns whether a move was planned again.
    pub async fn replan(&self, ongoing: &mut Ongoing, lock: &Lock, back: bool) -> Result<bool, Failure> {
        let mut is_changed = false;
        for _ in 0..MOST_LOOKS {
            let survey = Survey::read(self.store.as_ref(), &self.layout, None).await?;
            let (again, refused) =
                replan(&ongoing.plan.work, &survey, back, |step| ongoing.journal.state(step));
            let mut is_again = false;
            for replanned in &again {
                if self.replace(ongoing, lock, (survey.revision, back), replanned).await? {
                    let (subject, why) = (replanned.made.subject(), &replanned.why);
                    self.ui.note(&format!("{subject}: planned again: {why}"));
                    is_again = true;
                }
            }
            is_changed |= is_again;
            if again.is_empty() {
                for (subject, error) in refused {
                    self.ui.warn(&format!("{subject} has changed and cannot be planned again: {error}"));
                }
                break;
            }
        }
        Ok(is_changed)
    }

    /// In one transaction, writes the new plan of a move and undoes the changes that do not match this plan. Returns false if the
    /// Service has changed again.
    async fn replace(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        (revision, back): (Revision, bool),
        replanned: &Replanned,
    ) -> Result<bool, Failure> {
        let number = ongoing.plan.work.amendments.saturating_add(1);
        let again = Sweep { found: Vec::new(), again: vec![replanned.made.clone()] };
        let amendment = Plan::new(&self.id, revision, again);
        let (ledger, journal) = (self.ledger(&ongoing.journal, lock), &mut ongoing.journal);
        let text = json(&amendment)?;
        let to = if back { State::UndoDone } else { State::Reset };
        let (steps, repair) = ((replanned.steps.as_slice(), to), &replanned.repair);
        if operation::replace(&ledger, journal, steps, repair, (number, text), self.ambient()).await?
            != RepairOutcome::Done
        {
            return Ok(false);
        }
        ongoing.plan.work.amend(amendment.work);
        Ok(true)
    }

    /// Adds moves to the plan: first in the journal, then in memory.
    pub(super) async fn amend(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        revision: Revision,
        amendment: Sweep,
    ) -> Result<(), Failure> {
        let number = ongoing.plan.work.amendments.saturating_add(1);
        let amendment = Plan::new(&self.id, revision, amendment);
        let ledger = self.ledger(&ongoing.journal, lock);
        Journal::amend(&ledger, number, &json(&amendment)?).await?;
        ongoing.plan.work.amend(amendment.work);
        Ok(())
    }
}

fn json(amendment: &Plan<Sweep>) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(amendment).map_err(|error| Failure::refused(error.to_string()))
}
