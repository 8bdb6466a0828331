//! All checks in display order, and why each check matters.

/// A check before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named<I> {
    /// Identifier of the check.
    pub id: I,
    /// Name of the check, for people and programs.
    pub name: &'static str,
    /// Why the check matters.
    pub why: &'static str,
}

const fn named<I>(id: I, name: &'static str, why: &'static str) -> Named<I> {
    Named { id, name, why }
}

/// Name of the check on which the other checks of a cluster depend, and why it matters.
pub(super) const API: &str = "api";
const API_WHY: &str = "most checks ask the API server, as the user of the kubeconfig";

/// Checks that several `preflight` commands share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables below describe each")]
pub enum SharedCheck {
    Api,
    EtcdMembers,
    EtcdAlarms,
    EtcdSpace,
    EtcdVersions,
    Zones,
    ApiServers,
    ApiVersions,
    Clocks,
    Gitops,
    SecretsAtRest,
    Authorization,
    Ssh,
    Images,
}

/// Checks of `preflight renumber`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables below describe each")]
pub enum RenumberCheck {
    /// A shared check.
    Shared(SharedCheck),
    EtcdLeader,
    Room,
    Encryption,
    Backup,
    VersionsTested,
    ApiFlags,
    ApiGates,
    EtcdOverrides,
    Allocations,
    Plan,
    KubeProxy,
    Windows,
    Overlaps,
    Advertised,
    KubeadmConfig,
    Pinned,
    Webhooks,
    Certificates,
    Policies,
    Rights,
}

/// Checks of `preflight cni`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables below describe each")]
pub enum CniCheck {
    /// A shared check.
    Shared(SharedCheck),
    Nodes,
    Csrs,
    Network,
    PodRanges,
    Mtu,
    AgentPorts,
    HostPorts,
    NetworkPolicies,
    Budgets,
    DrainRoom,
    BarePods,
    LocalStorage,
    SinglePods,
    PodWebhooks,
    Autoscalers,
    DrainRights,
}

/// Checks of `preflight mirror`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables below describe each")]
pub enum MirrorCheck {
    /// A shared check.
    Shared(SharedCheck),
    TwoClusters,
    Namespaces,
    MirrorNodes,
    Kinds,
    Stateless,
    Classes,
    Issuers,
    PullSecrets,
    Placement,
    Capacity,
    FixedAddresses,
    MirrorWebhooks,
    SourceRights,
    MirrorRights,
}

/// Checks of `preflight dns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables below describe each")]
pub enum DnsCheck {
    /// A shared check.
    Shared(SharedCheck),
    ZoneServers,
    ZoneUpdates,
    ZoneTransfer,
    TwinZones,
    Names,
    Ttls,
    ZoneShare,
    ExternalDns,
    Owners,
    Targets,
    ServedCertificates,
    DnsRights,
}

/// Checks before a renumbering, in display order. Checks on which others depend come first.
pub const RENUMBER: &[Named<RenumberCheck>] = &[
    named(RenumberCheck::Shared(SharedCheck::Api), "api", API_WHY),
    named(
        RenumberCheck::Shared(SharedCheck::EtcdMembers),
        "etcd-members",
        "writes need a quorum, and etcd must keep it if one more member fails",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::EtcdAlarms),
        "etcd-alarms",
        "an etcd with an alarm rejects writes, or its data is corrupt",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::EtcdSpace),
        "etcd-space",
        "a renumbering writes each Service several times, and a full etcd rejects writes",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::EtcdVersions),
        "etcd-versions",
        "different minor versions mean that an upgrade of etcd is in progress",
    ),
    named(
        RenumberCheck::EtcdLeader,
        "etcd-leader",
        "an unstable leader interrupts writes during the renumbering",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::Zones),
        "zones",
        "if one zone fails, the members in the others must still have a quorum",
    ),
    named(
        RenumberCheck::Room,
        "room",
        "a full etcd rejects writes, and a host with a full conntrack table drops new connections",
    ),
    named(
        RenumberCheck::Encryption,
        "encryption",
        "netsurgeon edits Services as etcd stores them, so it must be able to decrypt them",
    ),
    named(
        RenumberCheck::Backup,
        "backup",
        "a complete, recent snapshot of this cluster is the last resort for a rollback",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::ApiServers),
        "api-servers",
        "before a Service moves, every API server must have read what was written",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::ApiVersions),
        "api-versions",
        "API servers of different minor versions may store and repair addresses differently",
    ),
    named(
        RenumberCheck::VersionsTested,
        "versions-tested",
        "how API servers repair addresses differs between versions",
    ),
    named(
        RenumberCheck::ApiFlags,
        "api-flags",
        "API servers with different Service ranges overwrite each other's allocations",
    ),
    named(
        RenumberCheck::ApiGates,
        "api-gates",
        "API servers with different feature gates store, repair and validate Services differently",
    ),
    named(
        RenumberCheck::EtcdOverrides,
        "etcd-overrides",
        "netsurgeon writes to one etcd and one prefix, and an override stores Services elsewhere",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::Clocks),
        "clocks",
        "repair loops skip new IPAddresses for a time, and a fast clock makes them look old",
    ),
    named(
        RenumberCheck::Allocations,
        "allocations",
        "existing errors remain after the renumbering, and are then harder to find",
    ),
    named(RenumberCheck::Plan, "plan", "without a valid plan, `renumber apply` refuses to start"),
    named(
        RenumberCheck::KubeProxy,
        "kube-proxy",
        "kube-proxies keep the old addresses working, and every batch waits until all have applied it",
    ),
    named(RenumberCheck::Windows, "windows", "renumbering is not tested with kube-proxy on Windows"),
    named(
        RenumberCheck::Overlaps,
        "overlaps",
        "hosts that use addresses of the new range become unreachable",
    ),
    named(
        RenumberCheck::Advertised,
        "advertised",
        "external routers without a route to the new range drop its traffic",
    ),
    named(
        RenumberCheck::KubeadmConfig,
        "kubeadm-config",
        "`kubeadm upgrade` sets the API servers' Service range from this ConfigMap",
    ),
    named(
        RenumberCheck::Pinned,
        "pinned",
        "applying a manifest with the old address fails, or deletes the Service",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::Gitops),
        "gitops",
        "a GitOps controller that reverts Services undoes moves and removes holds",
    ),
    named(
        RenumberCheck::Webhooks,
        "webhooks",
        "an unavailable webhook rejects changes of Services during the renumbering",
    ),
    named(
        RenumberCheck::Certificates,
        "certificates",
        "clients in Pods connect to the first address of the new range, and the certificate must cover it",
    ),
    named(
        RenumberCheck::Policies,
        "policies",
        "an admission policy that rejects a change stops the renumbering half way",
    ),
    named(RenumberCheck::Rights, "rights", "a missing permission stops the renumbering half way"),
    named(
        RenumberCheck::Shared(SharedCheck::SecretsAtRest),
        "secrets-at-rest",
        "a snapshot of etcd contains every Secret",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::Authorization),
        "authorization",
        "users who are allowed to change Services can undo a move",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::Ssh),
        "ssh",
        "a login on a control-plane host gives access to the keys of etcd, without any role",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::Images),
        "images",
        "Pods that restart to use the new addresses must be able to pull their images",
    ),
];

/// Checks before a change of the Pod network: every node is drained once, and every Pod recreated.
pub const CNI: &[Named<CniCheck>] = &[
    named(CniCheck::Shared(SharedCheck::Api), "api", API_WHY),
    named(
        CniCheck::Shared(SharedCheck::EtcdMembers),
        "etcd-members",
        "restarting a control-plane host also stops its etcd member",
    ),
    named(
        CniCheck::Shared(SharedCheck::ApiServers),
        "api-servers",
        "while one API server restarts with its host, the others must serve",
    ),
    named(CniCheck::Nodes, "nodes", "Pods of a drained node must be able to run on other nodes"),
    named(CniCheck::Csrs, "csrs", "a node cannot join before its certificate is approved"),
    named(CniCheck::Network, "network", "existing network faults look like faults of the change"),
    named(
        CniCheck::PodRanges,
        "pod-ranges",
        "both networks exist during the change, so their ranges must not overlap",
    ),
    named(CniCheck::Mtu, "mtu", "packets larger than the path MTU are dropped, so that large responses hang"),
    named(
        CniCheck::AgentPorts,
        "agent-ports",
        "an agent does not start if its port is in use, and two tunnels cannot share a port",
    ),
    named(CniCheck::HostPorts, "host-ports", "`hostPort` works only if the CNI plug-in implements it"),
    named(
        CniCheck::NetworkPolicies,
        "network-policies",
        "the new network does not enforce policies of a kind that it does not support",
    ),
    named(CniCheck::Budgets, "budgets", "a drain never ends if a PodDisruptionBudget allows no eviction"),
    named(
        CniCheck::DrainRoom,
        "drain-room",
        "a Pod that no other node can run is unavailable until its node returns",
    ),
    named(CniCheck::BarePods, "bare-pods", "a Pod without a controller is not recreated"),
    named(
        CniCheck::LocalStorage,
        "local-storage",
        "data on a node is lost, or unreachable, when the node is drained",
    ),
    named(
        CniCheck::SinglePods,
        "single-pods",
        "a workload with one replica is unavailable while its Pod moves",
    ),
    named(
        CniCheck::PodWebhooks,
        "pod-webhooks",
        "while the network is down, a webhook that is reached over it rejects every Pod",
    ),
    named(
        CniCheck::Autoscalers,
        "autoscalers",
        "an autoscaler that adds and removes nodes disturbs a rolling change",
    ),
    named(CniCheck::Shared(SharedCheck::Gitops), "gitops", "a GitOps controller restores the old network"),
    named(
        CniCheck::Shared(SharedCheck::Images),
        "images",
        "every Pod restarts and must be able to pull its images",
    ),
    named(CniCheck::DrainRights, "drain-rights", "a missing permission stops the change half way"),
];

/// Checks before objects of some namespaces are copied from one cluster, the source, to another, the mirror.
pub const MIRROR: &[Named<MirrorCheck>] = &[
    named(
        MirrorCheck::Shared(SharedCheck::ApiServers),
        "api-servers",
        "the copy is read from these API servers while they serve",
    ),
    named(
        MirrorCheck::TwoClusters,
        "two-clusters",
        "copying a cluster onto itself overwrites it, and an older version drops unknown fields",
    ),
    named(
        MirrorCheck::Namespaces,
        "namespaces",
        "a missing namespace is not copied, and existing objects would be overwritten",
    ),
    named(MirrorCheck::MirrorNodes, "mirror-nodes", "the copied workloads run on these nodes"),
    named(
        MirrorCheck::Kinds,
        "kinds",
        "objects of a kind that the mirror does not serve cannot be created there",
    ),
    named(MirrorCheck::Stateless, "stateless", "stateful workloads and their data are not copied"),
    named(
        MirrorCheck::Classes,
        "classes",
        "an object that names a missing class is rejected, or never becomes ready",
    ),
    named(MirrorCheck::Issuers, "issuers", "without a certificate, clients do not trust the mirror"),
    named(
        MirrorCheck::PullSecrets,
        "pull-secrets",
        "the mirror pulls every image with the copied credentials",
    ),
    named(MirrorCheck::Placement, "placement", "an unschedulable Pod stays Pending"),
    named(MirrorCheck::Capacity, "capacity", "Pods without enough resources stay Pending"),
    named(
        MirrorCheck::FixedAddresses,
        "fixed-addresses",
        "two clusters cannot use the same address or the same port",
    ),
    named(
        MirrorCheck::Shared(SharedCheck::Gitops),
        "gitops",
        "a GitOps controller changes the source while it is copied",
    ),
    named(
        MirrorCheck::MirrorWebhooks,
        "mirror-webhooks",
        "an unavailable webhook rejects the copied objects",
    ),
    named(MirrorCheck::SourceRights, "source-rights", "objects that cannot be read are not copied"),
    named(MirrorCheck::MirrorRights, "mirror-rights", "a missing permission stops the copy half way"),
];

/// Checks before DNS names are pointed from a cluster to its mirror.
pub const DNS: &[Named<DnsCheck>] = &[
    named(
        DnsCheck::ZoneServers,
        "zone-servers",
        "resolvers that ask an outdated or unavailable server do not get the change",
    ),
    named(
        DnsCheck::ZoneUpdates,
        "zone-updates",
        "a zone that rejects updates stops the cutover, or its rollback, half way",
    ),
    named(DnsCheck::ZoneTransfer, "zone-transfer", "only a zone transfer shows all records of a zone"),
    named(
        DnsCheck::TwinZones,
        "twin-zones",
        "with split-horizon DNS only one of the two zones would be updated",
    ),
    named(DnsCheck::Names, "names", "a name that does not answer now cannot be verified later"),
    named(
        DnsCheck::Ttls,
        "ttls",
        "resolvers cache the old record for its TTL, after a cutover and after a rollback",
    ),
    named(DnsCheck::ZoneShare, "zone-share", "a change of a large part of a zone is often a mistake"),
    named(DnsCheck::ExternalDns, "external-dns", "ExternalDNS reverts or deletes records that it manages"),
    named(DnsCheck::Owners, "owners", "another cluster's ExternalDNS owns this name"),
    named(
        DnsCheck::Targets,
        "targets",
        "a name cannot point to the mirror before the mirror has an address for it",
    ),
    named(
        DnsCheck::ServedCertificates,
        "served-certificates",
        "clients reject a certificate that does not cover the host name",
    ),
    named(
        DnsCheck::Shared(SharedCheck::Gitops),
        "gitops",
        "a GitOps controller restores the old hosts and annotations",
    ),
    named(DnsCheck::DnsRights, "dns-rights", "a missing permission stops the change half way"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn names<I: std::fmt::Debug>(all: &[Named<I>]) {
        for check in all {
            let variant = format!("{:?}", check.id);
            let variant = variant.trim_start_matches("Shared(").trim_end_matches(')');
            assert_eq!(variant.to_lowercase(), check.name.replace('-', ""), "{check:?}");
        }
    }

    #[test]
    fn check_name_matches_its_identifier() {
        names(RENUMBER);
        names(CNI);
        names(MIRROR);
        names(DNS);
    }
}
