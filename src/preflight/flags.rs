//! Flags and feature gates of the API servers: where they store the edited objects, and whether all servers behave in the same
//! way.

use std::collections::{BTreeMap, BTreeSet};

use super::{Judged, first_few};
use crate::survey::Era;
use crate::words::counted;

/// Flags that are read.
pub const LOOKED_AT: [&str; 4] =
    ["etcd-servers-overrides", "etcd-prefix", "storage-media-type", "runtime-config"];

/// Flags of one API server by name, read from its Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerFlags {
    /// Pod and node of the API server.
    pub at: String,
    /// Flags of [`LOOKED_AT`] that are set.
    pub flags: BTreeMap<&'static str, String>,
}

/// Resources that netsurgeon edits, and the namespaces, which identify the cluster. If a resource is in another etcd, API servers
/// do not read the edits. RangeAllocations are stored with Services (`pkg/registry/core/rest/storage_core.go`, v1.36.3).
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

const LOOK: &str = "on each control-plane host, check the flags in the manifest of its API server";

impl ServerFlags {
    fn get(&self, name: &str) -> Option<&str> {
        self.flags.get(name).map(String::as_str)
    }

    /// Returns the resources that the server stores in a separate etcd: `GROUP/RESOURCE#SERVER;SERVER,...`
    /// (`apiserver/pkg/server/options/etcd.go`, v1.36.3).
    fn elsewhere(&self) -> Vec<&str> {
        let text = self.get("etcd-servers-overrides").unwrap_or_default();
        text.split(',').filter_map(|one| Some(one.split_once('#')?.0.trim())).collect()
    }
}

/// Checks whether all API servers store everything in the etcd that netsurgeon reads: under the same prefix, and in a format that
/// netsurgeon reads. `of`: number of API servers.
pub fn storage(servers: &[ServerFlags], of: usize, prefix: &str) -> Judged {
    let (mut wrong, mut odd) = (Vec::new(), Vec::new());
    for server in servers {
        for resource in server.elsewhere() {
            let words =
                format!("{} has `{resource}` in another etcd (`--etcd-servers-overrides`)", server.at);
            if EDITED.contains(&resource) {
                wrong.push(words);
            } else if READ.contains(&resource) {
                odd.push(words);
            }
        }
        let own = server.get("etcd-prefix").unwrap_or("/registry");
        if own.trim_matches('/') != prefix.trim_matches('/') {
            wrong.push(format!("{} has `--etcd-prefix={own}`, but netsurgeon reads `{prefix}`", server.at));
        }
        if server.get("storage-media-type").is_some_and(|media| media.contains("cbor")) {
            wrong.push(format!("{} stores CBOR (`--storage-media-type`)", server.at));
        }
    }
    if !wrong.is_empty() {
        return Judged::fail(
            first_few(&wrong),
            "store Services, IPAddresses and ServiceCIDRs in the etcd that is given here, as protobuf or JSON, under its \
             `--etcd-prefix`",
        );
    }
    if servers.len() < of {
        return Judged::unknown(
            format!("flags read from {} of {}", servers.len(), counted(of, "API server", "API servers")),
            LOOK,
        );
    }
    if !odd.is_empty() {
        let remedy = "the plan may miss parts of the data plane and webhooks: compare it with `kubectl`";
        return Judged::warn(first_few(&odd), remedy);
    }
    Judged::pass(format!("{} store everything in one etcd, under `{prefix}`", servers.len()))
}

/// Returns how an API server with these feature gates allocates addresses (`pkg/registry/core/rest/storage_core.go`, v1.36.3).
/// `None` if the gates do not show it.
fn era_of(gates: &BTreeMap<String, bool>) -> Option<Era> {
    match (gates.get("MultiCIDRServiceAllocator")?, gates.get("DisableAllocatorDualWrite")) {
        (false, _) => Some(Era::Bitmap),
        (true, Some(true)) => Some(Era::Objects),
        (true, Some(false)) => Some(Era::DualWrite),
        (true, None) => None,
    }
}

/// Returns a failure if an API server allocates in another way than etcd shows (`stored`).
pub fn as_stored(gates: &[(String, BTreeMap<String, bool>)], stored: Era) -> Option<Judged> {
    let others = gates.iter().filter_map(|(at, own)| Some((at, era_of(own).filter(|era| *era != stored)?)));
    let words: Vec<String> =
        others.map(|(at, era)| format!("API server {at} allocates as in the era {era}")).collect();
    (!words.is_empty()).then(|| {
        Judged::fail(
            format!("the data in etcd shows the era {stored}, but {}", first_few(&words)),
            "create a Service and delete it again: etcd then shows how the API servers allocate addresses; \
             if that changes nothing, compare the range of RangeAllocation `serviceips` (`netsurgeon \
             ranges show`) with the API servers' `--service-cluster-ip-range`",
        )
    })
}

/// Checks whether all API servers report the same feature gates and have the same `--runtime-config`.
pub fn alike(gates: &[(String, BTreeMap<String, bool>)], servers: &[ServerFlags]) -> Judged {
    let configs: BTreeSet<&str> =
        servers.iter().map(|server| server.get("runtime-config").unwrap_or_default()).collect();
    let mut wrong = Vec::new();
    if let Some(((first, own), others)) = gates.split_first() {
        for (at, other) in others {
            let differ = own.iter().filter(|(gate, on)| other.get(*gate).is_some_and(|there| there != *on));
            wrong.extend(differ.map(|(gate, on)| {
                let (yes, no) = if *on { (first, at) } else { (at, first) };
                format!("`{gate}` is on at {yes} and off at {no}")
            }));
        }
    }
    if configs.len() > 1 {
        let each = servers.iter().map(|server| {
            format!("{}: `--runtime-config={}`", server.at, server.get("runtime-config").unwrap_or_default())
        });
        wrong.push(each.collect::<Vec<_>>().join(", "));
    }
    if !wrong.is_empty() {
        return Judged::fail(
            first_few(&wrong),
            "give all API servers the same `--feature-gates` and `--runtime-config`: finish the change in progress first",
        );
    }
    match gates.first() {
        Some((_, own)) if !own.is_empty() => Judged::pass(format!(
            "{} with the same {} feature gates",
            counted(gates.len(), "API server", "API servers"),
            own.len()
        )),
        _ => Judged::unknown("no API server reports its feature gates (`/metrics`)", LOOK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    fn server(flags: &[(&'static str, &str)]) -> ServerFlags {
        let flags = flags.iter().map(|(name, value)| (*name, (*value).to_string())).collect();
        ServerFlags { at: "kube-apiserver-cp-0 on cp-0".into(), flags }
    }

    #[test]
    fn edited_resources_must_be_in_one_etcd() {
        let judged = |flags: &[(&'static str, &str)]| storage(&[server(flags)], 1, "/registry").verdict;
        let overrides = |text| judged(&[("etcd-servers-overrides", text)]);
        assert_eq!(judged(&[]), Verdict::Pass);
        assert_eq!(overrides("/events#https://a:2379;https://b:2379"), Verdict::Pass);
        assert_eq!(overrides("/events#https://a:2379,/services#https://a:2379"), Verdict::Fail);
        assert_eq!(overrides("networking.k8s.io/ipaddresses#https://a:2379"), Verdict::Fail);
        assert_eq!(overrides("/pods#https://a:2379"), Verdict::Warn);
        assert_eq!(judged(&[("etcd-prefix", "/kubernetes.io")]), Verdict::Fail);
        assert_eq!(judged(&[("etcd-prefix", "registry/")]), Verdict::Pass);
        assert_eq!(judged(&[("storage-media-type", "application/cbor")]), Verdict::Fail);
        assert_eq!(storage(&[server(&[])], 2, "/registry").verdict, Verdict::Unknown);
    }

    #[test]
    fn era_follows_from_the_gates() {
        let gates = |multi: bool, alone: bool| {
            BTreeMap::from([
                ("MultiCIDRServiceAllocator".to_string(), multi),
                ("DisableAllocatorDualWrite".to_string(), alone),
            ])
        };
        let all = [gates(true, true), gates(true, false), gates(false, false), BTreeMap::new()];
        let eras = [Some(Era::Objects), Some(Era::DualWrite), Some(Era::Bitmap), None];
        assert_eq!(all.each_ref().map(era_of), eras);
        let servers = [("a".to_string(), gates(true, true)), ("b".to_string(), gates(true, false))];
        assert!(as_stored(&servers[..1], Era::Objects).is_none());
        let judged = as_stored(&servers, Era::Objects).expect("b differs");
        assert!(judged.verdict == Verdict::Fail && judged.observed.contains("b allocates"), "{judged:?}");
    }

    #[test]
    fn servers_must_have_the_same_gates() {
        let gates = |at: &str, on: bool| (at.to_string(), BTreeMap::from([("WatchList".to_string(), on)]));
        assert_eq!(alike(&[gates("a", true), gates("b", true)], &[]).verdict, Verdict::Pass);
        let differ = alike(&[gates("a", false), gates("b", true)], &[]);
        assert_eq!(differ.observed, "`WatchList` is on at b and off at a");
        assert_eq!(differ.verdict, Verdict::Fail);
        let newer = ("b".to_string(), BTreeMap::from([("Newer".to_string(), true)]));
        assert_eq!(
            alike(&[gates("a", true), newer], &[]).verdict,
            Verdict::Pass,
            "a patch level may have more"
        );
        let configs = [server(&[("runtime-config", "api/all=true")]), server(&[])];
        assert_eq!(alike(&[gates("a", true)], &configs).verdict, Verdict::Fail);
        assert_eq!(alike(&[], &[]).verdict, Verdict::Unknown);
    }
}
