//! Checks that the API servers allocate addresses in the era that etcd shows. A plan for the era `objects` does not change the
//! RangeAllocation. So API servers that still use the RangeAllocation would keep the old range.

use super::RenumberSession;
use crate::renumber::Renumbering;
use crate::renumber::feature_gates::not_as_stored;
use crate::session::Failure;
use crate::survey::{Era, Survey};

impl RenumberSession {
    /// Refuses the plan if an API server allocates addresses in a different era than the era of the plan. Checks the feature
    /// gates of each API server only if etcd has a RangeAllocation that is probably unused.
    pub async fn refuse_other_allocation(&self, work: &Renumbering, survey: &Survey) -> Result<(), Failure> {
        let Some(cluster) = self.cluster() else { return Ok(()) };
        let is_there = survey.bitmaps.iter().any(|bitmap| bitmap.name == "serviceips");
        if work.era != Era::Objects || !is_there {
            return Ok(());
        }
        let mut all = Vec::new();
        for server in cluster.api_servers().await? {
            let gates = async { cluster.dial(server).await?.feature_gates().await };
            match gates.await {
                Ok(gates) => all.push((server.to_string(), gates)),
                Err(error) => self.ui.warn(&format!(
                    "cannot tell whether API server {server} still uses RangeAllocation `serviceips`, which looks like a \
                     leftover: {error}"
                )),
            }
        }
        not_as_stored(&all, work.era).map_or(Ok(()), |(observed, remedy)| {
            Err(Failure::refused(format!("{observed}; {}", survey.era.because)).hint(remedy))
        })
    }
}
