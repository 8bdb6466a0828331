//! Going on after an interruption that may have lasted: what was handed to the allocator is handed over anew, and bits
//! that were reserved are set again.

use std::collections::BTreeSet;

use crate::cli::failure::Failure;
use crate::cli::output::{Output, counted};
use crate::cli::source::LiveEtcd;
use crate::operation::{Journal, Lock, Mend, Mended, OperationError, State, SystemAmbient, World, settle};
use crate::renumber::Renumbering;
use crate::renumber::handed::{handed, seen};
use crate::renumber::reserved::{reserve_again, reserved};
use crate::store::ReadStore as _;
use crate::survey::{Layout, Survey};

/// How often is tried to change a bitmap that others change, too.
const MOST_LOOKS: u32 = 20;

/// Brings back what API servers have taken back meanwhile. Does nothing where nothing was under way.
pub(super) async fn renew(
    output: &Output,
    store: &LiveEtcd,
    world: &dyn World,
    work: &Renumbering,
    journal: &mut Journal,
    lock: &Lock,
) -> Result<(), Failure> {
    renew_bits(output, store, work, journal, lock).await?;
    renew_addresses(output, store, world, work, journal, lock).await
}

async fn renew_bits(
    output: &Output,
    store: &LiveEtcd,
    work: &Renumbering,
    journal: &mut Journal,
    lock: &Lock,
) -> Result<(), Failure> {
    let moves = reserved(work, |step| journal.state(step));
    if moves.is_empty() {
        return Ok(());
    }
    // Others make and delete Services all the time: the bitmap may change between reading and writing.
    for _ in 0..MOST_LOOKS {
        let survey = Survey::read(store, &Layout::new(&work.prefix), None).await?;
        let again = reserve_again(work, &survey, &moves).map_err(|taken| {
            Failure::refused(taken.to_string()).hint("make that Service anew, at another address, then go on")
        })?;
        let Some(mend) = again else { return Ok(()) };
        if is_mended(store, journal, lock, &mend).await? {
            output.note(&format!(
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

/// Makes IPAddress objects anew that a repair loop has deleted meanwhile, dates the others ahead again, and waits until
/// every API server has seen it.
async fn renew_addresses(
    output: &Output,
    store: &LiveEtcd,
    world: &dyn World,
    work: &Renumbering,
    journal: &mut Journal,
    lock: &Lock,
) -> Result<(), Failure> {
    let handed = handed(work, |step| journal.state(step));
    if handed.is_empty() {
        return Ok(());
    }
    let keys: Vec<_> = handed.iter().map(|one| one.key.clone()).collect();
    let found = store.get_many(&keys).await?;
    let (mut batches, mut gone) = (BTreeSet::new(), 0_usize);
    for (one, entry) in handed.iter().zip(found) {
        let mend = if entry.is_none() { &one.again } else { &one.longer };
        // What is somebody else's by now stays as it is: the step that needs it says so.
        if is_mended(store, journal, lock, mend).await? {
            batches.insert(one.batch);
            gone = gone.saturating_add(usize::from(entry.is_none()));
        }
    }
    if gone > 0 {
        let count = counted(gone, "address was", "addresses were");
        output.note(&format!(
            "{count} handed over before the interruption, and gone by now: handed over again"
        ));
    }
    for wait in batches.into_iter().map(seen) {
        world.wait(&wait).await.map_err(OperationError::from)?;
    }
    Ok(())
}

/// Puts something right that no step's state depends on; says whether that was done.
async fn is_mended(
    store: &LiveEtcd,
    journal: &mut Journal,
    lock: &Lock,
    mend: &Mend,
) -> Result<bool, OperationError> {
    let no_steps = (&[][..], State::Done);
    let outcome = settle(store, journal, no_steps, mend, &[lock.guard()], &SystemAmbient).await?;
    Ok(outcome == Mended::Done)
}
