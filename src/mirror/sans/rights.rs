//! Checks before the first change that the user has every permission. If one were missing after a change, the names could not be removed
//! again.

use std::collections::BTreeSet;

use super::work::Sans;
use crate::kube_api::Cluster;
use crate::session::Failure;

/// A verb, an API group, and a resource.
type Need = (&'static str, &'static str, &'static str);

/// The permissions in each namespace.
const NEEDS: [Need; 4] = [
    ("get", "cert-manager.io", "certificates"),
    ("patch", "cert-manager.io", "certificates"),
    ("list", "cert-manager.io", "certificaterequests"),
    // Whether the certificate in the Secret has the names.
    ("get", "", "secrets"),
];
/// The same for an ACME issuer.
const NEED_OF_ACME: Need = ("list", "acme.cert-manager.io", "orders");

/// Returns the permissions that a plan needs, each with its namespace.
fn needs(work: &Sans) -> BTreeSet<(String, Need)> {
    let mut found = BTreeSet::new();
    for entry in work.additions() {
        let namespace = entry.object.namespace.clone().unwrap_or_default();
        found.extend(NEEDS.iter().map(|need| (namespace.clone(), *need)));
        if entry.is_acme {
            found.insert((namespace, NEED_OF_ACME));
        }
    }
    found
}

/// Fails if the user lacks a permission.
pub(super) async fn refuse_lacking(source: &Cluster, work: &Sans) -> Result<(), Failure> {
    let (mut lacking, mut is_of_secrets) = (Vec::new(), false);
    for (namespace, (verb, group, resource)) in &needs(work) {
        if !source.may(verb, (group, resource), Some(namespace)).await? {
            lacking.push(format!("{verb} {resource} in `{namespace}`"));
            is_of_secrets = is_of_secrets || *resource == "secrets";
        }
    }
    if lacking.is_empty() {
        return Ok(());
    }
    let failure = Failure::refused(format!("the user lacks permissions: {}", lacking.join(", "))).hint(
        "bind the ClusterRole `netsurgeon-mirror-sans` of deploy/rbac.yaml to this user, in these namespaces",
    );
    Err(if is_of_secrets {
        failure.hint("the certificates are in Secrets: bind `netsurgeon-mirror-secrets` too")
    } else {
        failure
    })
}
