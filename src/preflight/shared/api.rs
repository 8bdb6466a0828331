//! `api`: whether the API server of the kubeconfig answers. If the user lacks permissions that other checks need, this check
//! lists the permissions.

use crate::inventory::ClusterReader;
use crate::preflight::{Check, Judged, Source};

/// Name of the check.
pub const NAME: &str = "api";

/// Returns the check.
pub const fn check<C: AsRef<ClusterReader>>() -> Check<C> {
    Check {
        name: NAME,
        why: "most checks query the API server as the user of the kubeconfig",
        needs: &[Source::Api],
        judge: |input| {
            Box::pin(
                async move { Ok(Judged::pass(format!("{} answers", input.as_ref().cluster()?.server()))) },
            )
        },
    }
}
