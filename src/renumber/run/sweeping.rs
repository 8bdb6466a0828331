//! Moving what was born in the old range while everything else moved.

use super::stopping::left_open;
use super::{Ongoing, RenumberSession, Way};
use crate::operation::{Lock, Report};
use crate::renumber::sweep::sweep;
use crate::session::Failure;
use crate::session::counted;
use crate::survey::Survey;

/// How often is looked for Services again, because others go on making them.
const MOST_SWEEPS: u32 = 10;

impl RenumberSession {
    /// Carries everything out up to where the old addresses are held, then sweeps: what was born in the old range
    /// meanwhile is added to the plan, in the journal, and moved and held like the rest, until there is none.
    pub async fn move_all(&self, ongoing: &mut Ongoing, lock: &Lock) -> Result<Report, Failure> {
        let mut report = self.move_planned(ongoing, lock).await?;
        for _ in 0..MOST_SWEEPS {
            let found = self.found_more(ongoing, lock).await;
            let found = found.map_err(|failure| left_open(failure, ongoing, Way::Forward))?;
            // What was left alone may go on once it is planned again.
            let is_again = !report.stuck.is_empty() && {
                let again = self.replan(ongoing, lock, false).await;
                again.map_err(|failure| left_open(failure, ongoing, Way::Forward))?
            };
            if !found && !is_again {
                break;
            }
            let more = self.move_planned(ongoing, lock).await?;
            // What was done a moment ago is no news.
            report.done = report.done.saturating_add(more.done);
            report.stuck = more.stuck;
        }
        Ok(report)
    }

    /// Adds the Services that were created in the old range since to the plan, without moving them yet: while old addresses
    /// are retired, one that someone created there all the same keeps the range from its end.
    pub async fn sweep(&self, ongoing: &mut Ongoing, lock: &Lock) -> Result<(), Failure> {
        for _ in 0..MOST_SWEEPS {
            if !self.found_more(ongoing, lock).await? {
                break;
            }
        }
        Ok(())
    }

    async fn move_planned(&self, ongoing: &mut Ongoing, lock: &Lock) -> Result<Report, Failure> {
        self.carry_out(ongoing, lock, Way::Forward).await
    }

    /// Looks for Services of the old range of which the plan knows nothing, and adds them.
    async fn found_more(&self, ongoing: &mut Ongoing, lock: &Lock) -> Result<bool, Failure> {
        let store = self.store.as_ref();
        let survey = Survey::read(store, &self.layout, None).await?;
        let found = match sweep(&ongoing.plan.work, &survey) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(false),
            Err(error) => {
                let text = format!("Services were born in the old range and stay there for now: {error}");
                self.voice.warn(&text);
                return Ok(false);
            }
        };
        let number = ongoing.plan.work.sweeps().saturating_add(1);
        let count = counted(found.found.len(), "Service was born", "Services were born");
        let first = found.found.first().map(crate::renumber::Move::subject).unwrap_or_default();
        self.voice.progress(&format!(
            "sweep {number}: {count} in the old range meanwhile, the first is {first}; now to be moved, too"
        ));
        self.amend(ongoing, lock, survey.revision, found).await?;
        Ok(true)
    }
}
