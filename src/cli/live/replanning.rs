//! Services that changed after they were planned: their moves are planned again, as an amendment in the journal.

use super::{LiveArgs, Ongoing, Session};
use crate::cli::Context;
use crate::cli::failure::Failure;
use crate::operation::Ambient as _;
use crate::operation::{Lock, Mended, Plan, State, SystemAmbient, settle};
use crate::renumber::replan::{Replanned, replan};
use crate::renumber::sweep::{KIND, Sweep};
use crate::store::Revision;
use crate::survey::Survey;

/// How often is looked again, because others go on changing Services.
const MOST_LOOKS: u32 = 5;

/// Moves in one amendment, which is one value in etcd: a shadow's specification with two hundred ports included.
const AT_ONCE: usize = 100;

impl Session {
    /// Plans again the moves of Services that have changed in a way that their steps do not expect, takes back what does
    /// not fit the new plan, and says which. Returns whether there was one.
    pub(super) async fn replan(
        &self,
        context: &Context,
        args: &LiveArgs,
        ongoing: &mut Ongoing,
        lock: &Lock,
    ) -> Result<bool, Failure> {
        let mut is_changed = false;
        for _ in 0..MOST_LOOKS {
            let survey = Survey::read(self.store.as_ref(), &args.etcd.layout(), None).await?;
            let again = match replan(&ongoing.plan.work, &survey, |step| ongoing.journal.state(step)) {
                Ok(again) => again,
                Err(error) => {
                    context
                        .output
                        .warn(&format!("Services that have changed cannot be planned again: {error}"));
                    return Ok(is_changed);
                }
            };
            if again.is_empty() {
                break;
            }
            let mut made = Vec::new();
            for replanned in again {
                if self.take_back(ongoing, lock, &replanned).await? {
                    context.output.note(&format!(
                        "{}: planned again, {}",
                        replanned.made.subject(),
                        replanned.why
                    ));
                    made.push(replanned.made);
                }
            }
            is_changed |= !made.is_empty();
            for some in made.chunks(AT_ONCE) {
                let again = Sweep { found: Vec::new(), again: some.to_vec() };
                self.amend(ongoing, lock, survey.revision, again).await?;
            }
        }
        Ok(is_changed)
    }

    /// Takes back what was done of a move, and has its steps count as never begun: until its amendment is written, the move
    /// before stands there as if nothing had been done of it. Returns false if the Service has changed once more.
    async fn take_back(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        replanned: &Replanned,
    ) -> Result<bool, Failure> {
        let (store, guards, steps) = (self.store.as_ref(), [lock.guard()], replanned.steps.as_slice());
        let (journal, to) = (&mut ongoing.journal, (steps, State::UndoDone));
        if settle(store, journal, to, &replanned.mend, &guards, &SystemAmbient).await? != Mended::Done {
            return Ok(false);
        }
        journal.reset(store, steps, SystemAmbient.now(), &guards).await?;
        Ok(true)
    }

    /// Adds something to the plan, in the journal first.
    pub(super) async fn amend(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        revision: Revision,
        amendment: Sweep,
    ) -> Result<(), Failure> {
        let number = ongoing.plan.work.amendments.saturating_add(1);
        let amendment = Plan::new(KIND, &self.id, revision, amendment);
        let text = serde_json::to_vec(&amendment).map_err(|error| Failure::refused(error.to_string()))?;
        ongoing.journal.amend(self.store.as_ref(), number, &text, &[lock.guard()]).await?;
        ongoing.plan.work.amend(amendment.work);
        Ok(())
    }
}
