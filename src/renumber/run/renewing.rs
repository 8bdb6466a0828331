//! Resuming after an interruption that may have lasted: addresses that are kept for Services are put right, and bits that
//! were reserved are set again.

use std::collections::BTreeSet;

use super::RenumberSession;
use crate::operation::{
    Ambient as _, Environment, Journal, Lock, Mend, Mended, OperationError, State, SystemAmbient, settle,
};
use crate::renumber::dates::kept;
use crate::renumber::reserved::{reserve_again, reserved};
use crate::renumber::{Effect, Renumbering, live};
use crate::session::{Failure, LiveEtcd, counted};
use crate::survey::{Era, Layout, Survey};

/// How often is tried to change a bitmap that others change, too.
const MOST_LOOKS: u32 = 20;

impl RenumberSession {
    /// Brings back what API servers have taken back meanwhile. Does nothing where nothing was under way.
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
        // Others make and delete Services all the time: the bitmap may change between reading and writing.
        for _ in 0..MOST_LOOKS {
            let survey = Survey::read(store, &Layout::new(&work.prefix), None).await?;
            let again = reserve_again(work, &survey, &moves).map_err(|taken| {
                Failure::refused(taken.to_string())
                    .hint("make that Service anew, at another address, then go on")
            })?;
            let Some(mend) = again else { return Ok(()) };
            if is_mended(store, journal, lock, &mend).await? {
                self.voice.note(&format!(
                    "an API server has freed what was reserved before the interruption: {}",
                    mend.says
                ));
                return Ok(());
            }
        }
        let text = "the RangeAllocation changes all the time, so that no bits can be reserved again";
        Err(Failure::refused(text)
            .hint("stop what makes and deletes Services, `netsurgeon lock` can, then go on"))
    }

    /// Recreates IPAddress objects that are missing, dates others ahead again, and waits until every API server has seen what
    /// was recreated. An address that another Service has is named; the step that needs it refuses.
    async fn renew_addresses(
        &self,
        environment: &dyn Environment<Effect>,
        work: &Renumbering,
        journal: &mut Journal,
        lock: &Lock,
    ) -> Result<(), Failure> {
        let store = self.store.as_ref();
        let survey = Survey::read(store, &Layout::new(&work.prefix), None).await?;
        let (wrong, taken) = kept(work, &survey, |step| journal.state(step), SystemAmbient.now());
        for taken in taken {
            self.voice.warn(&taken.to_string());
        }
        let (mut batches, mut recreated) = (BTreeSet::new(), 0_usize);
        for one in wrong {
            if is_mended(store, journal, lock, &one.mend).await? && one.is_news {
                batches.insert(one.batch);
                recreated = recreated.saturating_add(1);
            }
        }
        if recreated > 0 {
            let count = counted(recreated, "IPAddress was", "IPAddresses were");
            self.voice.note(&format!("{count} lost during the interruption; recreated"));
        }
        for wait in batches.into_iter().map(live::seen_again) {
            environment.wait(&wait).await.map_err(OperationError::from)?;
        }
        Ok(())
    }
}

/// Puts something right that no step's state depends on; says whether that was done.
async fn is_mended(
    store: &LiveEtcd,
    journal: &mut Journal,
    lock: &Lock,
    mend: &Mend,
) -> Result<bool, OperationError> {
    let (ledger, no_steps) = (journal.in_store(store, &[lock.guard()]), (&[][..], State::Done));
    let outcome = settle(&ledger, journal, no_steps, mend, &SystemAmbient).await?;
    Ok(outcome == Mended::Done)
}
