//! `api`: whether the API server of the kubeconfig answers. The check lists the permissions that other checks lack.

use crate::preflight::reading::Reading;
use crate::preflight::{Check, Judged};

/// Name of the check.
pub const NAME: &str = "api";

/// Returns the check.
pub const fn check<C: AsRef<Reading>>() -> Check<C> {
    Check {
        name: NAME,
        why: "most checks query the API server as the user of the kubeconfig",
        judge: |input| {
            Box::pin(async move {
                input.as_ref().cluster().map(|cluster| Judged::pass(format!("{} answers", cluster.server())))
            })
        },
    }
}
