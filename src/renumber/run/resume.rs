//! Continues a renumbering where its journal ends.

use super::{Ongoing, RenumberSession};
use crate::operation::{Lock, Report};
use crate::session::gates::GateSettings;
use crate::session::{Failure, Taking, refuse_ended, release};

impl RenumberSession {
    /// Continues an operation in its direction: moves the Services, or rolls back.
    pub async fn resume(&self, operation: &str, gates: &GateSettings) -> Result<(Ongoing, Report), Failure> {
        let taking = Taking { operation, purpose: "resume the operation" };
        let lock = self.lock(&taking).await?;
        let resumed = go_on(self, operation, gates, &lock).await;
        release(lock, resumed).await
    }
}

/// Continues an operation after this process has acquired the lease. First reads the journal again, because another process may
/// have just written to it.
async fn go_on(
    session: &RenumberSession,
    operation: &str,
    gates: &GateSettings,
    lock: &Lock,
) -> Result<(Ongoing, Report), Failure> {
    let mut ongoing = session.find(Some(operation)).await?;
    refuse_ended(&ongoing.operation, &ongoing.summary)?;
    if ongoing.has_begun_to_retire() {
        return Err(Failure::refused("another process has started to retire the old addresses")
            .hint(format!("to continue the retirement: `netsurgeon operation resume {operation}`")));
    }
    let back = ongoing.situation().back;
    session.give_up(&mut ongoing, lock, back).await?;
    let report = if back {
        session.roll_back(&mut ongoing, lock).await?
    } else {
        gates.report(&session.ui, &ongoing.summary.gates);
        let (ledger, record) = (session.ledger(&ongoing.journal, lock), gates.record()?);
        ongoing.journal.set_gates(&ledger, &record).await?;
        session.move_all(&mut ongoing, lock).await?
    };
    Ok((ongoing, report))
}
