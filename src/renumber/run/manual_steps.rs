//! Checks the names of manual steps that the operator confirms, and lists the open manual steps.

use super::{Ongoing, RenumberSession};
use crate::operation::{Manual, State, StepId, Work};
use crate::renumber::environment::MANUAL_STEPS;
use crate::renumber::{Action, Renumbering};
use crate::session::{Failure, confirm_only};

/// Returns the manual steps of a renumbering. Batches have no manual steps.
fn manual_steps(work: &Renumbering) -> Vec<(StepId, Manual)> {
    let stages = work.stages().into_iter().filter(|stage| stage.batch.is_none());
    let steps = stages.flat_map(|stage| work.steps(&stage));
    let manual = steps.filter_map(|step| match step.action {
        Action::Manual(manual) => Some((step.id, manual)),
        _ => None,
    });
    manual.collect()
}

impl RenumberSession {
    /// Refuses to confirm a name that is not a manual step of any renumbering. The message lists the manual steps of this plan,
    /// which has not started.
    pub fn confirm_only_planned(&self, work: &Renumbering) -> Result<(), Failure> {
        let names: Vec<String> = manual_steps(work).into_iter().map(|(_, manual)| manual.name).collect();
        confirm_only(&self.settings.confirm, &MANUAL_STEPS, &names)
    }

    /// Refuses to confirm a name that is not a manual step of any renumbering. The message lists the open manual steps. Accepts
    /// steps that were already confirmed, and steps that this plan does not have, because scripts give the same names in every
    /// run.
    pub fn confirm_only_known(&self, ongoing: &Ongoing, back: bool) -> Result<(), Failure> {
        let is_open = |(step, manual): &(StepId, Manual)| match ongoing.journal.state(step) {
            Some(State::Done) => back && manual.undo.is_some(),
            None | Some(State::Failed) => !back,
            Some(State::UndoDone) => false,
            Some(_) => !back || manual.undo.is_some(),
        };
        let open = manual_steps(&ongoing.plan.work).into_iter().filter(|step| is_open(step));
        let open: Vec<String> = open.map(|(_, manual)| manual.name).collect();
        confirm_only(&self.settings.confirm, &MANUAL_STEPS, &open)
    }
}
