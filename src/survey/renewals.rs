//! The time of a cluster, as its own components have written it to etcd. A process that does not use the API reads the time here,
//! because the clock of its own host can be wrong.
//!
//! The components of a control plane renew their Leases every 2 s to 10 s, by their own clocks: API servers since Kubernetes 1.26
//! (`IdentityLeaseRenewIntervalPeriod`, `pkg/controlplane/apiserver/server.go`, v1.36.3), controller managers and schedulers in
//! every supported version (`--leader-elect-retry-period`).

use std::ops::ControlFlow;

use super::{Layout, Survey, SurveyError};
use crate::store::{KeyRange, ReadStore, Record};
use crate::wire::objects::{self, Lease};

/// Beginnings of the names of the Leases that the control plane renews. Other clients can create other Leases in this namespace.
const CONTROL_PLANE: [&str; 3] = ["apiserver-", "kube-controller-manager", "kube-scheduler"];

impl Survey {
    /// Returns the time of the newest renewal of a Lease by the control plane, in seconds since 1970. While an API server runs,
    /// this is the current time of the cluster, up to about ten seconds. Returns `None` if there is no readable Lease.
    pub async fn last_renewal(store: &dyn ReadStore, layout: &Layout) -> Result<Option<i64>, SurveyError> {
        let prefix = layout.system_leases();
        let mut newest = None;
        let mut visit = |record: Record<'_>| {
            newest = newest.max(renewal(&prefix, &record));
            ControlFlow::Continue(())
        };
        store.scan(&[KeyRange::prefix(prefix.clone())], None, &mut visit).await?;
        Ok(newest)
    }
}

fn renewal(prefix: &str, record: &Record<'_>) -> Option<i64> {
    let name = record.key.strip_prefix(prefix.as_bytes())?;
    if !CONTROL_PLANE.iter().any(|beginning| name.starts_with(beginning.as_bytes())) {
        return None;
    }
    let lease: Lease = objects::decode(record.value).ok()?;
    lease.spec?.renew_time?.seconds
}
