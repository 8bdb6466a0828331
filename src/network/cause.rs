//! The likely cause of the failed paths, and what to do about it.
//!
//! The rules come from failures that were reported in the field or measured on real nodes. A rule says what usually is the reason,
//! so the text says "likely". The pattern of the failures is a rule of its own: faults that stick to a node are repaired on that
//! node; a kind of path that fails everywhere is a setting.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::cell::{Cell, CellKey, FaultClass, Verdict};
use super::consequence::UnreachablePods;
use super::isolation::ForeignPolicy;
use super::path::Path;
use super::result::Result;
use crate::words::first_few;

/// Where the failures of one kind are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "pattern", rename_all = "kebab-case")]
pub enum Pattern {
    /// Every tested path of the kind.
    Everywhere,
    /// Only paths that start at a node.
    From {
        /// The node.
        node: String,
    },
    /// Only paths that end at a node.
    To {
        /// The node.
        node: String,
    },
    /// Only paths that start or end at a node.
    At {
        /// The node.
        node: String,
    },
    /// Several nodes.
    Scattered,
}

/// Failed paths of one kind and their likely cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The kind of path.
    pub path: Path,
    /// The kind of fault.
    pub fault: FaultClass,
    /// Where the failures are.
    #[serde(flatten)]
    pub pattern: Pattern,
    /// The number of failed paths.
    pub paths: usize,
    /// The likely cause.
    pub likely: String,
    /// What to do.
    pub remedy: String,
}

impl Pattern {
    fn of(failed: &[&CellKey], tested: usize) -> Self {
        let from: BTreeSet<&str> = failed.iter().map(|key| key.from.as_str()).collect();
        let ends = failed.iter().filter(|key| key.path.is_pair() || key.path == Path::StandingConnection);
        let to: BTreeSet<&str> = ends.map(|key| key.to.as_str()).collect();
        let only =
            |set: &BTreeSet<&str>| set.iter().next().filter(|_| set.len() == 1).map(ToString::to_string);
        if failed.len() >= tested && tested > 1 {
            return Self::Everywhere;
        }
        if let Some(node) = only(&from) {
            return Self::From { node };
        }
        if let Some(node) = only(&to) {
            return Self::To { node };
        }
        let is_at = |key: &&&CellKey, node: &str| key.from.as_str() == node || key.to.as_str() == node;
        let mut common = to.iter().filter(|node| failed.iter().all(|key| is_at(&key, node)));
        common.next().map_or(Self::Scattered, |node| Self::At { node: (*node).to_string() })
    }
}

impl Pattern {
    /// Returns the node of the failures, in words that follow a noun; empty for several nodes.
    fn place(&self) -> String {
        match self {
            Self::From { node } | Self::To { node } | Self::At { node } => format!(" on `{node}`"),
            Self::Everywhere | Self::Scattered => String::new(),
        }
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Everywhere => f.write_str("everywhere"),
            Self::From { node } => write!(f, "only from `{node}`"),
            Self::To { node } => write!(f, "only to `{node}`"),
            Self::At { node } => write!(f, "only from and to `{node}`"),
            Self::Scattered => f.write_str("on several nodes"),
        }
    }
}

/// Returns the likely causes of all failed paths, the most basic path first.
pub fn causes(result: &Result) -> Vec<Cause> {
    let mut groups: BTreeMap<(Path, FaultClass), Vec<(&CellKey, &Cell)>> = BTreeMap::new();
    for (key, cell) in result.cells() {
        if let (Verdict::Failed, Some(fault)) = (cell.verdict(), cell.fault()) {
            groups.entry((key.path, fault)).or_default().push((key, cell));
        }
    }
    let tested = |path| {
        result.cells().filter(|(key, cell)| key.path == path && cell.verdict() != Verdict::NotTested).count()
    };
    let failed_paths: BTreeSet<Path> = groups.keys().map(|(path, _)| *path).collect();
    let unreachable = UnreachablePods::of(result);
    let judged = groups.iter().map(|((path, fault), cells)| {
        let keys: Vec<&CellKey> = cells.iter().map(|(key, _)| *key).collect();
        let pattern = Pattern::of(&keys, tested(*path));
        let seen =
            cells.first().and_then(|(_, cell)| cell.last.as_ref()).map_or("", |last| last.seen.as_str());
        let blocked = isolation((*path, *fault), &pattern, &result.policies, &failed_paths);
        let follows = || unreachable.explain(*path, *fault, &keys).then(unreachable_pods);
        let (likely, remedy) =
            blocked.or_else(follows).unwrap_or_else(|| likely(*path, *fault, &pattern, seen, &failed_paths));
        Cause { path: *path, fault: *fault, pattern, paths: cells.len(), likely, remedy }
    });
    judged.collect()
}

type Texts = (String, String);

fn texts(likely: impl Into<String>, remedy: impl Into<String>) -> Texts {
    (likely.into(), remedy.into())
}

/// Returns the likely cause and the remedy of the failures of one kind.
fn likely(path: Path, fault: FaultClass, pattern: &Pattern, seen: &str, failed: &BTreeSet<Path>) -> Texts {
    match (path, fault) {
        (_, FaultClass::SourceOfSender | FaultClass::SourceOfReceiver | FaultClass::SourceOther) => {
            source(path, fault, pattern)
        }
        (Path::NewPod | Path::Agent, FaultClass::NotStarted) => start(seen),
        (Path::NodeObject, _) => condition(seen),
        (Path::FullSize, FaultClass::TooLarge) => texts(
            "the MTU of the Pods' links is larger than what a link or tunnel on the way carries",
            "lower the MTU in the settings of the network plug-in to the size that passes, and recreate the Pods; or raise the MTU \
             of the link on the way",
        ),
        (Path::Transfer, FaultClass::Silent | FaultClass::Broken) if failed.contains(&Path::FullSize) => {
            texts("large packets do not arrive: see `full-size`", "repair the MTU first, then test again")
        }
        (Path::Loss, FaultClass::Duplicate)
        | (_, FaultClass::WrongServer)
        | (Path::PodToPod | Path::PodToPodSameNode | Path::NodeToPod, FaultClass::Refused) => duplicate(path),
        (Path::Loss, _) => loss(fault),
        (Path::PolicyDeny, FaultClass::NotDenied) => texts(
            "no component enforces NetworkPolicies: the network plug-in has no policy engine (Flannel alone has none), or its agent \
             does not run on these nodes",
            "install a policy engine, or check the agent that enforces policies on these nodes; until then NetworkPolicies have no effect",
        ),
        (Path::PolicyAllow, _) => texts(
            "the policy engine blocks what the policy allows: it sees another source address (a masquerade rule), or its rules are out \
             of date",
            "if `pod-to-pod` shows a wrong source address, repair that first; then restart the policy agent on these nodes",
        ),
        (Path::DnsTcp, FaultClass::Broken) if !failed.contains(&Path::DnsUdp) => texts(
            "TCP port 53 is blocked on the way to the DNS Pods; names with large answers fail",
            "allow TCP port 53 as well as UDP in NetworkPolicies, security groups and host firewalls",
        ),
        (Path::DnsUdp | Path::DnsTcp, _) => texts(
            "the DNS Service or the way to its Pods does not work",
            "if `pod-to-service` fails, too, repair that first; otherwise check the DNS Pods: \
             `kubectl -n kube-system get pods -l k8s-app=kube-dns -o wide`",
        ),
        (Path::HostPort, _) => host_port(fault),
        _ => further(path, pattern, failed),
    }
}

/// Returns the cause of traffic that policies of others block.
fn isolation(
    (path, fault): (Path, FaultClass),
    pattern: &Pattern,
    policies: &[ForeignPolicy],
    failed: &BTreeSet<Path>,
) -> Option<Texts> {
    let is_block = match fault {
        FaultClass::Silent
        | FaultClass::Refused
        | FaultClass::Unreachable
        | FaultClass::Broken
        | FaultClass::Endpoints
        | FaultClass::NotAllowed => true,
        FaultClass::Lost | FaultClass::LostThere | FaultClass::LostBack => failed.contains(&Path::PodToPod),
        _ => false,
    };
    let names = |selects: bool| {
        let of = policies.iter().filter(|one| one.selects == selects && one.concerns(path));
        of.map(|one| one.name.clone()).collect::<Vec<_>>()
    };
    let (certain, possible) = (names(true), names(false));
    let likely = match (certain.is_empty(), possible.is_empty()) {
        _ if !is_block => return None,
        (true, true) => return None,
        // All agents of a role have the same labels, so a policy does not tell their nodes apart.
        (true, false) if *pattern != Pattern::Everywhere => return None,
        (false, _) => format!(
            "policies of the namespace select the Pods of the test, and block what they do not allow: {}",
            first_few(&certain)
        ),
        (true, false) => {
            format!(
                "policies exist that block traffic, and that may select the Pods of the test: {}",
                first_few(&possible)
            )
        }
    };
    Some(texts(
        likely,
        "test in a namespace that no policy selects (`--namespace`), or exempt the Pods with the label \
         `app.kubernetes.io/component=network-test` from these policies; then test again",
    ))
}

/// Returns the cause of what is built on Pods that do not reach each other.
fn unreachable_pods() -> Texts {
    texts(
        "Pods of these nodes do not reach each other at all: see `pod-to-pod`",
        "repair `pod-to-pod` first, then test again",
    )
}

fn source(path: Path, fault: FaultClass, pattern: &Pattern) -> Texts {
    if matches!(path, Path::PodToService) {
        return texts(
            "kube-proxy masquerades the traffic because it does not count these Pods as local: `clusterCIDR` or `detectLocalMode` \
             does not match the addresses of the Pods",
            "set `clusterCIDR` (or `detectLocal`) in the configuration of kube-proxy to the Pod range in use, and restart kube-proxy \
             on every node",
        );
    }
    if path == Path::NodePortLocal {
        return texts(
            "node ports with `externalTrafficPolicy: Local` must keep the source address, but a rule rewrites it",
            "look for masquerade rules on the node that receives: `iptables-save -t nat | grep -i masquerade`, `nft list ruleset`",
        );
    }
    let side = match fault {
        FaultClass::SourceOfSender => "the sender's node",
        FaultClass::SourceOfReceiver => "the receiver's node",
        _ => "a node on the way",
    };
    let place = match pattern {
        Pattern::Everywhere | Pattern::Scattered => String::new(),
        Pattern::From { node } | Pattern::To { node } | Pattern::At { node } => {
            format!(" (failures: {pattern}; check `{node}` first)")
        }
    };
    texts(
        format!(
            "a masquerade rule on {side} rewrites the source address{place}. Usually an earlier network plug-in left it behind \
             (`FLANNEL-POSTRTG`, `WEAVE`, `cali-nat-outgoing`, `AWS-SNAT-CHAIN-0`). Everything answers, but NetworkPolicies will \
             block this traffic"
        ),
        format!(
            "on {side}: `iptables-save -t nat; iptables-legacy-save -t nat; nft list ruleset`; remove the jump and the chain of the \
             absent plug-in by their names"
        ),
    )
}

fn start(seen: &str) -> Texts {
    let has = |text: &str| seen.contains(text);
    if has("cni config")
        || has("cni plugin not initialized")
        || has("error parsing configuration")
        || has("network is not ready")
    {
        return texts(
            "the container runtime has no valid network configuration: the first file in `/etc/cni/net.d` is missing or not valid",
            "on the node: `ls /etc/cni/net.d`; the first file by name wins. Repair or remove it, and check the agent of the network \
             plug-in on this node",
        );
    }
    if has("failed to find plugin") {
        return texts(
            "the network configuration names a plug-in whose program is missing on the node",
            "on the node: compare `type` in the first file of `/etc/cni/net.d` with `/opt/cni/bin`",
        );
    }
    if has("no IP addresses available") || has("no more IPs") {
        return texts(
            "the range of the node is used up, often by leases of Pods that no longer exist",
            "on the node: compare the files in `/var/lib/cni/networks/` with the running Pods, and remove leases without a Pod",
        );
    }
    if has("already has an IP address different from") {
        return texts(
            "the bridge of an earlier network still exists with its old address",
            "on the node, when no Pod uses the bridge: `ip link delete cni0`",
        );
    }
    if has("Pull") || has("pull") {
        return texts(
            "the node cannot pull the image of the test",
            "give an image that the nodes can pull (`--image`, `--pull-secret`)",
        );
    }
    if has("port conflict") || has("NodePorts") || has("free ports") {
        return texts("another Pod has the host port of the test", "choose another one with `--host-port`");
    }
    texts(
        "the kubelet or the container runtime of the node could not start the Pod",
        "the reason is above; on the node: `journalctl -u kubelet -u containerd`",
    )
}

fn condition(seen: &str) -> Texts {
    if seen.contains("NetworkUnavailable") {
        return texts(
            "a network plug-in or a route controller set the condition. If that component is no longer installed, nothing clears it, and \
             no new Pod is scheduled on the node",
            "if the component named in the reason is gone: `kubectl patch node NODE --subresource=status --type=strategic -p \
             '{\"status\":{\"conditions\":[{\"type\":\"NetworkUnavailable\",\"status\":\"False\",\"reason\":\"Cleared\"}]}}'`; the taint \
             goes with it",
        );
    }
    texts(
        "the node is not ready for Pods, or a network plug-in has not released it",
        "`kubectl describe node NODE` shows which component set it and why",
    )
}

fn loss(fault: FaultClass) -> Texts {
    let way = match fault {
        FaultClass::LostThere => "on the way there: the receiver counted fewer datagrams than were sent",
        FaultClass::LostBack => "on the return path: the receiver counted all datagrams",
        FaultClass::Silent => "in both directions, or nothing arrives at all",
        _ => "on the way there or back",
    };
    texts(
        format!("packets are lost {way}"),
        "check the counters of the links and of connection tracking on both nodes (`ip -s link`, `conntrack -S`), the load of the nodes, \
         and rate limits of the cloud's network",
    )
}

fn duplicate(path: Path) -> Texts {
    if path == Path::HostPort {
        return host_port(FaultClass::WrongServer);
    }
    texts(
        "two Pods or hosts have one address, or an old rule redirects the address: something else answers for it",
        "compare the addresses: `kubectl get pods -A -o wide`, and on both nodes `ip neigh`; look for the bridge and the leases of an \
         earlier network plug-in",
    )
}

fn host_port(fault: FaultClass) -> Texts {
    if fault == FaultClass::WrongServer || fault == FaultClass::Silent {
        return texts(
            "an old host port rule comes first and leads to a Pod that no longer exists, or a firewall drops the port",
            "on the node: `iptables-save -t nat | grep -e CNI-HOSTPORT -e CNI-DN`; rules whose address no Pod has are left over",
        );
    }
    texts(
        "the network configuration has no `portmap` plug-in, so `hostPort` has no effect",
        "add `portmap` to the first file of `/etc/cni/net.d` (or to the settings of the network plug-in), and recreate the Pods with \
         host ports",
    )
}

fn further(path: Path, pattern: &Pattern, failed: &BTreeSet<Path>) -> Texts {
    let is_service = matches!(
        path,
        Path::PodToService | Path::NodeToService | Path::Hairpin | Path::NodePort | Path::NodePortLocal
    );
    let is_node_port = matches!(path, Path::NodePort | Path::NodePortLocal);
    if is_node_port && !failed.contains(&Path::PodToService) && !failed.contains(&Path::NodeToService) {
        return texts(
            "a firewall or a security group blocks the port between nodes, or kube-proxy serves node ports only at other addresses \
             (`nodePortAddresses`)",
            "allow the range of node ports (30000-32767) between nodes, and check `nodePortAddresses` in the configuration of kube-proxy",
        );
    }
    if is_service && !failed.contains(&Path::PodToPod) {
        return texts(
            format!(
                "kube-proxy{} does not run or its rules are out of date: Pods reach each other directly, but not through a Service",
                pattern.place()
            ),
            "check kube-proxy (or its replacement) on the node: `kubectl -n kube-system get pods -o wide -l k8s-app=kube-proxy`, and its \
             health: `curl http://localhost:10256/healthz` on the node",
        );
    }
    basic(path, pattern, failed)
}

/// Returns the likely cause of failures that are not those of Services.
fn basic(path: Path, pattern: &Pattern, failed: &BTreeSet<Path>) -> Texts {
    match path {
        Path::Agent => texts(
            "the API server cannot reach the kubelet of the node, or the agent was killed",
            "`kubectl get --raw /api/v1/nodes/NODE/proxy/healthz` with the name of the node must answer `ok`; if not: the way from the API \
             server to port 10250 of the node, and the kubelet",
        ),
        Path::Counters => texts(
            "the kernel drops connections: the table of tracked connections is full, or two flows collide",
            "on the node: `conntrack -S` and `sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max`; raise the limit \
             (`conntrack.maxPerCore` of kube-proxy)",
        ),
        Path::StandingConnection => texts(
            "the path was interrupted while the connection was open, or an idle timer or a rule change ended it",
            "compare the time with changes on these two nodes; connections that end during a change are what clients notice",
        ),
        Path::NodeToNode => texts(
            "a firewall or security group blocks the port of the test between nodes, or the nodes have no route to each other",
            "allow the port (`--port`) between nodes, or choose one that is allowed. Tunnels of network plug-ins need their own ports",
        ),
        Path::PodToPod | Path::NodeToPod | Path::PodToNode if failed.contains(&Path::NodeToNode) => texts(
            "the nodes do not reach each other: see `node-to-node`",
            "repair the path between the nodes first",
        ),
        Path::PodToPod | Path::NodeToPod => texts(
            format!(
                "there is no route{} to the other node's Pods: the agent of the network plug-in does not run, its tunnel is blocked, or \
                 its routes or annotations are out of date",
                pattern.place()
            ),
            "on both nodes: `ip route` must have the other node's Pod range, and the tunnel's UDP port must be open between nodes; \
             restart the network plug-in's agent on that node",
        ),
        Path::PodToPodSameNode => texts(
            format!(
                "the bridge or the links of Pods{} are broken, or a rule of the node drops their traffic",
                pattern.place()
            ),
            "on the node: `bridge link`, `ip route`, and FORWARD in `iptables-save` (policy DROP without a rule for Pods)",
        ),
        Path::PodToNode => texts(
            "the host firewall of the node drops traffic from Pods",
            "allow the Pod ranges in the host firewall (INPUT), and check `rp_filter` of the Pods' links",
        ),
        _ => texts("no rule of netsurgeon matches this failure", "start with the most basic path that fails"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(from: &str, to: &str) -> CellKey {
        CellKey { path: Path::PodToPod, from: from.into(), to: to.into(), variant: "TCP".into() }
    }

    #[test]
    fn pattern_names_the_node() {
        let pattern = |pairs: &[(&str, &str)], tested| {
            let keys: Vec<CellKey> = pairs.iter().map(|(from, to)| key(from, to)).collect();
            Pattern::of(&keys.iter().collect::<Vec<_>>(), tested).to_string()
        };
        assert_eq!(pattern(&[("a", "b"), ("a", "c")], 6), "only from `a`");
        assert_eq!(pattern(&[("b", "a"), ("c", "a")], 6), "only to `a`");
        assert_eq!(pattern(&[("b", "a"), ("a", "c")], 6), "only from and to `a`");
        assert_eq!(pattern(&[("b", "a"), ("c", "d")], 6), "on several nodes");
        assert_eq!(pattern(&[("b", "a"), ("a", "b")], 2), "everywhere");
    }
}
