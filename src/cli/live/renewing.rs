//! Going on after an interruption that may have lasted: what was handed to the allocator is handed over anew.

use std::collections::BTreeSet;

use crate::cli::failure::Failure;
use crate::cli::output::{Output, counted};
use crate::operation::{Journal, Lock, Mended, OperationError, State, SystemAmbient, World as _, settle};
use crate::renumber::handed::{handed, seen};
use crate::renumber::live::LiveWorld;
use crate::store::ReadStore as _;
use crate::store::etcd::EtcdStore;

/// Makes IPAddress objects anew that a repair loop has deleted meanwhile, dates the others ahead again, and waits until
/// every API server has seen it. Does nothing where nothing was under way.
pub(super) async fn renew(
    output: &Output,
    store: &EtcdStore,
    world: &LiveWorld<'_>,
    journal: &mut Journal,
    lock: &Lock,
) -> Result<(), Failure> {
    let handed = handed(world.work, |step| journal.state(step));
    if handed.is_empty() {
        return Ok(());
    }
    let keys: Vec<_> = handed.iter().map(|one| one.key.clone()).collect();
    let found = store.get_many(&keys).await?;
    let (mut batches, mut gone) = (BTreeSet::new(), 0_usize);
    for (one, entry) in handed.iter().zip(found) {
        let mend = if entry.is_none() { &one.again } else { &one.longer };
        let steps = (&[][..], State::Done);
        // What is somebody else's by now stays as it is: the step that needs it says so.
        if settle(store, journal, steps, mend, &[lock.guard()], &SystemAmbient).await? == Mended::Done {
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
    for wait in batches.into_iter().filter_map(seen) {
        world.wait(&wait).await.map_err(OperationError::from)?;
    }
    Ok(())
}
