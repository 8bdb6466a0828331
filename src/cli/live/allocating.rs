//! Whether the API servers allocate addresses as etcd shows: a plan of the objects era leaves a RangeAllocation as it is, and one
//! that they still go by would have the wrong range from then on.

use super::Session;
use crate::cli::Context;
use crate::cli::failure::Failure;
use crate::preflight::flags::era_of;
use crate::renumber::Renumbering;
use crate::survey::{Era, Survey};

impl Session {
    /// Asks each API server for its gates, where etcd has a RangeAllocation that looks left over.
    pub async fn refuse_other_allocation(
        &self,
        context: &Context,
        work: &Renumbering,
        survey: &Survey,
    ) -> Result<(), Failure> {
        let Some(cluster) = self.cluster() else { return Ok(()) };
        let is_there = survey.bitmaps.iter().any(|bitmap| bitmap.name == "serviceips");
        if work.era != Era::Objects || !is_there {
            return Ok(());
        }
        for server in cluster.api_servers().await? {
            let asked = async { cluster.dial(server).await?.feature_gates().await };
            match asked.await.map(|gates| era_of(&gates)) {
                Ok(Some(era)) if era != work.era => {
                    let text = format!(
                        "API server {server} allocates addresses as in the era {era}, by its feature gates, but etcd looks like the era \
                         {}: {}",
                        work.era, survey.era.because
                    );
                    return Err(Failure::refused(text)
                        .hint("create a Service and delete it again, which shows in etcd; then plan anew")
                        .hint(
                            "if that changes nothing: is the range of RangeAllocation `serviceips` (`netsurgeon ranges show`) that of \
                             the API servers' `--service-cluster-ip-range`?",
                        ));
                }
                Ok(_) => {}
                Err(error) => context.output.warn(&format!(
                    "RangeAllocation `serviceips` looks left over, and whether API server {server} goes by it is not known: {error}"
                )),
            }
        }
        Ok(())
    }
}
