//! Moves Services that were created in the old range while the planned Services moved.

use super::stop_reason::left_open;
use super::{Direction, Ongoing, RenumberSession};
use crate::operation::{Lock, Report};
use crate::renumber::sweep::sweep;
use crate::session::Failure;
use crate::survey::Survey;
use crate::words::counted;

/// Maximum number of sweeps. Several sweeps may be needed, because clients can create more Services concurrently.
const MOST_SWEEPS: u32 = 10;

impl RenumberSession {
    /// Runs every stage up to the soak, then sweeps until no new Service is found. A sweep finds Services that were created in
    /// the old range meanwhile. It adds them to the plan in the journal, moves them, and holds their old addresses.
    pub async fn move_all(&self, ongoing: &mut Ongoing, lock: &Lock) -> Result<Report, Failure> {
        let mut report = self.move_planned(ongoing, lock).await?;
        for _ in 0..MOST_SWEEPS {
            let found = self.found_more(ongoing, lock).await;
            let found = found.map_err(|failure| left_open(failure, ongoing, Direction::Forward))?;
            // A skipped Service can move after it is planned again.
            let is_again = !report.stuck.is_empty() && {
                let again = self.replan(ongoing, lock, false).await;
                again.map_err(|failure| left_open(failure, ongoing, Direction::Forward))?
            };
            if !found && !is_again {
                break;
            }
            let more = self.move_planned(ongoing, lock).await?;
            // Each run counts only the steps that it has completed itself, so the numbers are added.
            report.done = report.done.saturating_add(more.done);
            report.stuck = more.stuck;
        }
        Ok(report)
    }

    /// Finds Services that were created in the old range after the last sweep, and adds them to the plan. Does not move them yet.
    /// During `retire`, a Service that is not in the plan would prevent the deletion of the old range.
    pub async fn sweep(&self, ongoing: &mut Ongoing, lock: &Lock) -> Result<(), Failure> {
        for _ in 0..MOST_SWEEPS {
            if !self.found_more(ongoing, lock).await? {
                break;
            }
        }
        Ok(())
    }

    async fn move_planned(&self, ongoing: &mut Ongoing, lock: &Lock) -> Result<Report, Failure> {
        self.carry_out(ongoing, lock, Direction::Forward).await
    }

    /// Finds Services with an address in the old range that are not in the plan, and adds them to the plan. Returns whether any
    /// Service was added.
    async fn found_more(&self, ongoing: &mut Ongoing, lock: &Lock) -> Result<bool, Failure> {
        let store = self.store.as_ref();
        let survey = Survey::read(store, &self.layout, None).await?;
        let found = match sweep(&ongoing.plan.work, &survey) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(false),
            Err(error) => {
                let text = format!("Services were created in the old range and cannot be moved yet: {error}");
                self.ui.warn(&text);
                return Ok(false);
            }
        };
        let number = ongoing.plan.work.sweeps().saturating_add(1);
        let count = counted(found.found.len(), "Service that was created", "Services that were created");
        let first = found.found.first().map(crate::renumber::Move::subject).unwrap_or_default();
        self.ui.progress(&format!(
            "sweep {number} also moves {count} in the old range meanwhile, for example {first}"
        ));
        self.amend(ongoing, lock, survey.revision, found).await?;
        Ok(true)
    }
}
