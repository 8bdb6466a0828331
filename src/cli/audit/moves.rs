//! Reads from the journals of renumberings which Services moved, when they moved, and which old addresses are held.

use crate::audit::Expected;
use crate::audit::pods::Given;
use crate::cli::output;
use crate::operation::{Journal, Status};
use crate::renumber::old_address_clients::given_up_when;
use crate::renumber::plan::KIND;
use crate::renumber::run::{Ongoing, is_of_another_version, open_operation};
use crate::renumber::{Hold, Turn};
use crate::session::Failure;
use crate::store::{ReadStore, Revision};
use crate::survey::{Layout, Survey};

/// Reads all journals of this cluster.
pub(super) async fn expected(
    store: &dyn ReadStore,
    layout: &Layout,
    at: Option<Revision>,
) -> Result<Expected, Failure> {
    let mut expected = Expected::default();
    let Some(cluster) = Survey::identity(store, layout).await? else { return Ok(expected) };
    for listed in Journal::list(store, Some(&cluster)).await? {
        // If a journal is being removed, its operation holds no addresses, and the journal can be incomplete.
        if listed.summary.kind == KIND && listed.summary.status != Status::Removing {
            let opened = open_operation(store, &cluster, Some(&listed.operation), at).await;
            let ongoing = match opened {
                Err(failure) if !listed.summary.is_under_way() && is_of_another_version(&failure) => {
                    output::warn(&format!(
                        "cannot tell which old addresses `{}` replaced: {:#}; `netsurgeon operation forget {}` removes its journal",
                        listed.operation, failure.error, listed.operation
                    ));
                    continue;
                }
                opened => opened?,
            };
            if listed.summary.is_under_way() {
                expected.ours.add(ongoing.plan.work.ours());
            }
            add(&mut expected, &ongoing);
        }
    }
    Ok(expected)
}

fn add(expected: &mut Expected, ongoing: &Ongoing) {
    let work = &ongoing.plan.work;
    let is_dns = |name: &str| work.dns().any(|candidate| candidate.name == name);
    let given_up = expected.given_up.get_or_insert_default();
    for (candidate, at) in given_up_when(work, |step| ongoing.journal.find(step)) {
        if candidate.hold == Hold::ExternalIp {
            expected.held.insert((candidate.old_address, candidate.subject()));
        }
        given_up.push(Given {
            namespace: candidate.namespace.to_string(),
            name: candidate.name.to_string(),
            address: candidate.old_address,
            at,
            is_kubernetes: candidate.turn == Turn::Kubernetes,
            is_dns: candidate.turn == Turn::ClusterDns && is_dns(&candidate.name),
        });
    }
}
