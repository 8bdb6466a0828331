//! Checks before a renumbering.

mod advertised;
mod allocations;
mod api_flags;
mod api_gates;
mod backup;
mod certificates;
mod encryption;
pub mod etcd_leader;
mod etcd_overrides;
mod kube_proxy;
mod kubeadm_config;
mod overlaps;
mod pinned;
mod plan;
mod policies;
mod rights;
pub mod room;
mod versions_tested;
mod webhooks;
mod windows;

use std::collections::BTreeMap;
use std::path::PathBuf;

use tokio::sync::OnceCell;

use crate::controlplane::{API_SERVER, flags_in_pods};
use crate::inventory::{ClusterReader, Connections, unread_by};
use crate::ip::ServiceCidr;
use crate::operation::Plan;
use crate::preflight::{Check, Judged, Read, shared};
use crate::renumber::target::TargetError;
use crate::renumber::{self, PlanError, PlanOptions, Renumbering};
use crate::session::Failure;
use crate::survey::Survey;
use crate::words::counted;

/// Checks before a renumbering, in display order. Each check comes after the checks that it depends on.
pub const CHECKS: &[Check<Renumber>] = &[
    shared::api::check(),
    shared::etcd_members::check(
        "writes need a quorum of etcd members, and etcd must keep the quorum if one more member fails",
    ),
    shared::etcd_alarms::check("an etcd with an alarm rejects writes, or its data is corrupt"),
    shared::etcd_space::check(
        "a full etcd rejects writes, and a renumbering writes each Service several times",
    ),
    shared::etcd_versions::check("different minor versions mean that an upgrade of etcd is in progress"),
    etcd_leader::CHECK,
    shared::zones::check("if one zone fails, the members in the other zones must keep the quorum"),
    room::CHECK,
    encryption::CHECK,
    backup::CHECK,
    shared::api_servers::check(
        "before a Service moves, every API server must have observed the previous writes",
    ),
    shared::api_versions::check(
        "API servers of different minor versions may store and repair addresses differently",
    ),
    versions_tested::CHECK,
    api_flags::CHECK,
    api_gates::CHECK,
    etcd_overrides::CHECK,
    shared::clocks::check(
        "repair loops skip new IPAddresses for a time; with a fast clock, new IPAddresses look old",
    ),
    allocations::CHECK,
    plan::CHECK,
    kube_proxy::CHECK,
    windows::CHECK,
    overlaps::CHECK,
    advertised::CHECK,
    kubeadm_config::CHECK,
    pinned::CHECK,
    shared::gitops::check("a GitOps controller that reverts Services undoes moves and removes holds"),
    webhooks::CHECK,
    certificates::CHECK,
    policies::CHECK,
    rights::CHECK,
    shared::secrets_at_rest::check("a snapshot of etcd contains every Secret"),
    shared::authorization::check("a user with permission to change Services can undo a move"),
    shared::ssh::check(
        "an SSH login on a control-plane host gives access to the keys of etcd, without any RBAC role",
    ),
    shared::images::check("Pods restart to use the new addresses, and must be able to pull their images"),
];

/// Input of the checks.
pub struct Renumber {
    read: ClusterReader,
    options: PlanOptions,
    backup: Option<PathBuf>,
    server_flags: OnceCell<Read<Vec<ServerFlags>>>,
    survey: OnceCell<Read<Survey>>,
    plan: OnceCell<Read<Plan<Renumbering>>>,
}

impl AsRef<ClusterReader> for Renumber {
    fn as_ref(&self) -> &ClusterReader {
        &self.read
    }
}

/// The Pod and the node of an API server as text, and its flags from [`LOOKED_AT`] with their values.
type ServerFlags = (String, BTreeMap<&'static str, String>);

/// Flags of API servers that checks read.
const LOOKED_AT: [&str; 4] =
    ["etcd-servers-overrides", "etcd-prefix", "storage-media-type", "runtime-config"];
/// What to do if the flags of an API server cannot be read.
const CHECK_MANIFESTS: &str = "on each control-plane host, check the flags in the manifest of its API server";

/// Returns the result of a check that needs the flags of every API server, if only some of them are visible in Pods. Each of these
/// checks returns the same reason, so that one of them reports it, and the others depend on it. `of`: number of API servers.
fn unread_flags(count: usize, of: usize) -> Judged {
    Judged::unknown(
        format!("flags read from {count} of {}", counted(of, "API server", "API servers")),
        "on each control-plane host, `netsurgeon controlplane show` shows the range; check `--etcd-servers-overrides`, \
         `--etcd-prefix` and `--storage-media-type` there, too; then skip this check: `--skip api-flags`",
    )
}

fn failed(failure: &Failure) -> Judged {
    Judged::fail(format!("{:#}", failure.error), failure.hints.join("; "))
}

impl Renumber {
    /// Creates the input, with connections to etcd and the API. `backup`: file with an etcd snapshot.
    pub async fn new(reached: Connections, options: PlanOptions, backup: Option<PathBuf>) -> Self {
        Self {
            read: ClusterReader::begin(reached).await,
            options,
            backup,
            server_flags: OnceCell::new(),
            survey: OnceCell::new(),
            plan: OnceCell::new(),
        }
    }

    /// Reads the flags in [`LOOKED_AT`] from the Pods of the API servers.
    async fn server_flags(&self) -> Read<&Vec<ServerFlags>> {
        let read = async || {
            let found = flags_in_pods(&self.read.read_only()?, API_SERVER, &LOOKED_AT).await;
            found.map_err(|failure| unread_by(&failure).into())
        };
        self.server_flags.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    async fn survey(&self) -> Read<&Survey> {
        let read = async || {
            let survey = Survey::read(self.read.store()?, &self.read.layout, None).await;
            survey.map_err(|error| failed(&Failure::from(error)))
        };
        self.survey.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the ranges of the addresses that stop answering at the end of the renumbering. Without a plan, these are the parts of
    /// the old ranges that the new range does not have.
    async fn retired(&self) -> Read<Vec<ServiceCidr>> {
        if let Ok(plan) = self.plan().await {
            return Ok(plan.work.retired_ranges());
        }
        let to = self.options.to;
        let mut ranges = self.survey().await?.service_ranges();
        ranges.retain(|range| range.family() == to.family());
        Ok(ranges.iter().flat_map(|range| range.without(&to)).collect())
    }

    /// Returns the verdict of checks of the data plane if the range only grows: no old address is held then.
    async fn only_grows(&self) -> Option<Judged> {
        let work = &self.plan().await.ok()?.work;
        (work.is_growth() && work.moves.is_empty())
            .then(|| Judged::pass("no Service moves, so no old address is held"))
    }

    async fn plan(&self) -> Read<&Plan<Renumbering>> {
        let planned = async || {
            let survey = self.survey().await?;
            match renumber::plan(survey, &self.options) {
                Err(PlanError::Target(same @ TargetError::Same { .. })) => {
                    Err(Judged::pass(format!("no Service would move: {same}")))
                }
                planned => planned.map_err(|error| failed(&Failure::from(error))),
            }
        };
        self.plan.get_or_init(planned).await.as_ref().map_err(Clone::clone)
    }
}

#[cfg(test)]
mod testing {
    //! API servers for tests.

    use super::*;

    pub fn server(flags: &[(&'static str, &str)]) -> ServerFlags {
        let flags = flags.iter().map(|(name, value)| (*name, (*value).to_string())).collect();
        ("kube-apiserver-cp-0 on cp-0".into(), flags)
    }
}
