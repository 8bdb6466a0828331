//! `etcd-overrides`: whether all API servers store everything in the etcd that netsurgeon reads.

use std::collections::BTreeMap;

use super::{Renumber, ServerFlags, unread_flags};
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "etcd-overrides",
    why: "netsurgeon writes to one etcd and one prefix, and an override stores Services elsewhere",
    needs: &[Source::Api],
    judge: |input| Box::pin(read(input)),
};

/// Resources that netsurgeon edits, and the namespaces, which identify the cluster. If such a resource is stored in another etcd,
/// API servers do not read the edits. RangeAllocations are stored in the same etcd as Services
/// (`pkg/registry/core/rest/storage_core.go`, v1.36.3).
const EDITED: [&str; 4] =
    ["/services", "/namespaces", "networking.k8s.io/ipaddresses", "networking.k8s.io/servicecidrs"];
/// Other resources that netsurgeon reads.
const READ: [&str; 9] = [
    "/nodes",
    "/pods",
    "/configmaps",
    "/secrets",
    "apps/daemonsets",
    "admissionregistration.k8s.io/mutatingwebhookconfigurations",
    "admissionregistration.k8s.io/validatingwebhookconfigurations",
    "apiregistration.k8s.io/apiservices",
    "apiextensions.k8s.io/customresourcedefinitions",
];

async fn read(input: &Renumber) -> Read<Judged> {
    let servers = input.read.servers().await?.len();
    judge(input.server_flags().await?, servers, input.read.layout.prefix())
}

/// Checks whether all API servers store everything in the etcd that netsurgeon reads: under the same prefix, and in a format that
/// netsurgeon reads. `of`: number of API servers.
fn judge(servers: &[ServerFlags], of: usize, prefix: &str) -> Read<Judged> {
    let (mut wrong, mut odd) = (Vec::new(), Vec::new());
    for (at, flags) in servers {
        for resource in elsewhere(flags) {
            let words = format!("{at} stores `{resource}` in another etcd (`--etcd-servers-overrides`)");
            if EDITED.contains(&resource) {
                wrong.push(words);
            } else if READ.contains(&resource) {
                odd.push(words);
            }
        }
        let own = flags.get("etcd-prefix").map_or("/registry", String::as_str);
        if own.trim_matches('/') != prefix.trim_matches('/') {
            wrong.push(format!("{at} has `--etcd-prefix={own}`, but netsurgeon reads `{prefix}`"));
        }
        if flags.get("storage-media-type").is_some_and(|media| media.contains("cbor")) {
            wrong.push(format!("{at} stores CBOR (`--storage-media-type`)"));
        }
    }
    if !wrong.is_empty() {
        return Ok(Judged::fail(
            first_few(&wrong),
            "store Services, IPAddresses and ServiceCIDRs in the etcd that netsurgeon uses, as protobuf or JSON, under its \
             `--etcd-prefix`",
        ));
    }
    if servers.len() < of {
        return Err(unread_flags(servers.len(), of));
    }
    if !odd.is_empty() {
        let remedy = "the plan may miss parts of the data plane and webhooks: compare it with `kubectl`";
        return Ok(Judged::warn(first_few(&odd), remedy));
    }
    Ok(Judged::pass(format!(
        "{} every resource that netsurgeon uses in one etcd, under `{prefix}`",
        counted(servers.len(), "API server stores", "API servers store")
    )))
}

/// Returns the resources that a server with these flags stores in a separate etcd. The format of the flag is
/// `GROUP/RESOURCE#SERVER;SERVER,...` (`apiserver/pkg/server/options/etcd.go`, v1.36.3).
fn elsewhere<'f>(flags: &'f BTreeMap<&'static str, String>) -> impl Iterator<Item = &'f str> {
    let text = flags.get("etcd-servers-overrides").map(String::as_str).unwrap_or_default();
    text.split(',').filter_map(|one| Some(one.split_once('#')?.0.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;
    use crate::preflight::renumber::testing::server;

    #[test]
    fn edited_resources_must_be_in_one_etcd() {
        let judged =
            |flags: &[(&'static str, &str)]| judge(&[server(flags)], 1, "/registry").unwrap().verdict;
        let overrides = |text| judged(&[("etcd-servers-overrides", text)]);
        assert_eq!(judged(&[]), Verdict::Pass);
        assert_eq!(overrides("/events#https://a:2379;https://b:2379"), Verdict::Pass);
        assert_eq!(overrides("/events#https://a:2379,/services#https://a:2379"), Verdict::Fail);
        assert_eq!(overrides("networking.k8s.io/ipaddresses#https://a:2379"), Verdict::Fail);
        assert_eq!(overrides("/pods#https://a:2379"), Verdict::Warn);
        assert_eq!(judged(&[("etcd-prefix", "/kubernetes.io")]), Verdict::Fail);
        assert_eq!(judged(&[("etcd-prefix", "registry/")]), Verdict::Pass);
        assert_eq!(judged(&[("storage-media-type", "application/cbor")]), Verdict::Fail);
        assert_eq!(judge(&[server(&[])], 2, "/registry").unwrap_err().verdict, Verdict::Unknown);
    }
}
