//! Restores reserved addresses after an interruption of any length: repairs the IPAddress objects of Services, and sets reserved
//! bits again.

use std::collections::BTreeSet;

use super::RenumberSession;
use crate::operation::{Environment, Journal, Lock, OperationError, Repair, RepairOutcome, State, settle};
use crate::renumber::creation_times::kept;
use crate::renumber::reserved_bits::{reserve_again, reserved};
use crate::renumber::{Effect, Renumbering, environment};
use crate::session::Failure;
use crate::survey::{Era, Layout, Survey};
use crate::words::counted;

/// Maximum number of attempts to change a bitmap. An attempt fails if an API server changes the bitmap concurrently.
const MOST_LOOKS: u32 = 20;

impl RenumberSession {
    /// Restores reservations that API servers freed while the operation was interrupted. Does nothing if nothing was reserved.
    pub(super) async fn renew(
        &self,
        environment: &dyn Environment<Effect>,
        work: &Renumbering,
        journal: &mut Journal,
        lock: &Lock,
    ) -> Result<(), Failure> {
        if work.era == Era::Bitmap {
            return self.renew_bits(work, journal, lock).await;
        }
        self.renew_addresses(environment, work, journal, lock).await
    }

    async fn renew_bits(
        &self,
        work: &Renumbering,
        journal: &mut Journal,
        lock: &Lock,
    ) -> Result<(), Failure> {
        let store = self.store.as_ref();
        let moves = reserved(work, |step| journal.state(step));
        if moves.is_empty() {
            return Ok(());
        }
        // Clients create and delete Services at any time, so the bitmap may change between reading and writing.
        for _ in 0..MOST_LOOKS {
            let survey = Survey::read(store, &Layout::new(&work.prefix), None).await?;
            let again = reserve_again(work, &survey, &moves).map_err(|taken| {
                Failure::refused(taken.to_string())
                    .hint("recreate that Service at another address, then continue")
            })?;
            let Some(repair) = again else { return Ok(()) };
            if self.is_repaired(journal, lock, &repair).await? {
                self.ui.note(&format!(
                    "an API server has freed bits that were reserved before the interruption: {}",
                    repair.says
                ));
                return Ok(());
            }
        }
        let text = "the RangeAllocation changes continuously, so the bits cannot be reserved again";
        Err(Failure::refused(text)
            .hint("stop the clients that create and delete Services (`netsurgeon lock --reason TEXT`), then continue"))
    }

    /// Recreates missing IPAddress objects, and sets the creation timestamps of existing IPAddress objects to the future again.
    /// Then waits until every API server has observed the recreated objects. Warns about an address that another Service has. The
    /// step that needs this address will be refused.
    async fn renew_addresses(
        &self,
        environment: &dyn Environment<Effect>,
        work: &Renumbering,
        journal: &mut Journal,
        lock: &Lock,
    ) -> Result<(), Failure> {
        let store = self.store.as_ref();
        let survey = Survey::read(store, &Layout::new(&work.prefix), None).await?;
        let (wrong, taken) = kept(work, &survey, |step| journal.state(step), self.ambient().now());
        for taken in taken {
            self.ui.warn(&taken.to_string());
        }
        let (mut batches, mut recreated) = (BTreeSet::new(), 0_usize);
        for one in wrong {
            if self.is_repaired(journal, lock, &one.repair).await? && one.is_news {
                batches.insert(one.batch);
                recreated = recreated.saturating_add(1);
            }
        }
        if recreated > 0 {
            let count = counted(recreated, "IPAddress was", "IPAddresses were");
            self.ui.note(&format!("{count} lost during the interruption and recreated"));
        }
        for wait in batches.into_iter().map(environment::seen_again) {
            environment
                .wait(&wait, &|step| journal.find(step).cloned())
                .await
                .map_err(OperationError::from)?;
        }
        Ok(())
    }

    /// Makes a repair that does not change the state of any step. Returns whether the repair was made.
    async fn is_repaired(
        &self,
        journal: &mut Journal,
        lock: &Lock,
        repair: &Repair,
    ) -> Result<bool, OperationError> {
        let (ledger, no_steps) = (self.ledger(journal, lock), (&[][..], State::Done));
        let outcome = settle(&ledger, journal, no_steps, repair, self.ambient()).await?;
        Ok(outcome == RepairOutcome::Done)
    }
}
