//! The checks there are, and why each matters: in the order in which they are shown.

/// A check, before it is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named<I> {
    /// Which one it is.
    pub id: I,
    /// Its name, for people and programs.
    pub name: &'static str,
    /// Why it matters.
    pub why: &'static str,
}

const fn named<I>(id: I, name: &'static str, why: &'static str) -> Named<I> {
    Named { id, name, why }
}

/// The name of the check that the others of a cluster depend on, and why it matters.
pub(super) const API: &str = "api";
const API_WHY: &str = "most checks ask the API server, as the user of the kubeconfig";

/// Checks that are the same whatever is about to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables below say what each is")]
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

/// The checks of a renumbering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables below say what each is")]
pub enum RenumberCheck {
    /// One that others have, too.
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

/// The checks of another CNI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables below say what each is")]
pub enum CniCheck {
    /// One that others have, too.
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

/// The checks of a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables below say what each is")]
pub enum MirrorCheck {
    /// One that others have, too.
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

/// The checks of a change of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables below say what each is")]
pub enum DnsCheck {
    /// One that others have, too.
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

/// What is looked at before a renumbering, in the order in which it is shown: first what everything else stands on.
pub const RENUMBER: &[Named<RenumberCheck>] = &[
    named(RenumberCheck::Shared(SharedCheck::Api), "api", API_WHY),
    named(
        RenumberCheck::Shared(SharedCheck::EtcdMembers),
        "etcd-members",
        "every write needs a quorum, and who loses one member more must not lose it",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::EtcdAlarms),
        "etcd-alarms",
        "an etcd that has raised an alarm takes no writes, or cannot be trusted with them",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::EtcdSpace),
        "etcd-space",
        "a renumbering writes each Service and its records several times over, and a full etcd stops",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::EtcdVersions),
        "etcd-versions",
        "members of different minor versions are in the middle of an upgrade",
    ),
    named(
        RenumberCheck::EtcdLeader,
        "etcd-leader",
        "a leader that moves by itself will move again while Services are written",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::Zones),
        "zones",
        "a zone that fails takes its members along, and without a quorum nothing is written",
    ),
    named(
        RenumberCheck::Room,
        "room",
        "etcd stops when it is full, and a host that tracks no more connections drops new ones",
    ),
    named(
        RenumberCheck::Encryption,
        "encryption",
        "Services are edited in etcd as they are stored there, which must be readable",
    ),
    named(
        RenumberCheck::Backup,
        "backup",
        "a snapshot is the last way back, where it is of this cluster, whole and recent",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::ApiServers),
        "api-servers",
        "each must be ready: a flip waits until every one of them has seen what was written",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::ApiVersions),
        "api-versions",
        "API servers of different minor versions may store and repair addresses in different ways",
    ),
    named(
        RenumberCheck::VersionsTested,
        "versions-tested",
        "API servers repair addresses in ways that changed between versions",
    ),
    named(
        RenumberCheck::ApiFlags,
        "api-flags",
        "API servers with different Service ranges overwrite each other's allocations",
    ),
    named(
        RenumberCheck::ApiGates,
        "api-gates",
        "API servers with different gates keep, repair and validate Services in different ways",
    ),
    named(
        RenumberCheck::EtcdOverrides,
        "etcd-overrides",
        "what is kept in another etcd, or under another prefix, is not where netsurgeon writes",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::Clocks),
        "clocks",
        "addresses are dated ahead of now, and an API server whose clock is ahead takes them for old",
    ),
    named(
        RenumberCheck::Allocations,
        "allocations",
        "what is wrong now is wrong afterwards, and harder to tell apart from what a move did",
    ),
    named(RenumberCheck::Plan, "plan", "a move that cannot be planned cannot be carried out"),
    named(
        RenumberCheck::KubeProxy,
        "kube-proxy",
        "every batch waits until every kube-proxy has applied it, and they hold the old addresses",
    ),
    named(RenumberCheck::Windows, "windows", "kube-proxy on Windows was never measured with this protocol"),
    named(
        RenumberCheck::Overlaps,
        "overlaps",
        "whoever has addresses of the new range already cannot be reached any more",
    ),
    named(
        RenumberCheck::Advertised,
        "advertised",
        "routers outside that know the old range alone lead nobody to the new one",
    ),
    named(
        RenumberCheck::KubeadmConfig,
        "kubeadm-config",
        "`kubeadm upgrade` writes the API servers' flag from it",
    ),
    named(
        RenumberCheck::Pinned,
        "pinned",
        "what is applied again with the old address is refused, or deletes the Service",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::Gitops),
        "gitops",
        "what puts Services back as they were works against a move, and takes holds away",
    ),
    named(
        RenumberCheck::Webhooks,
        "webhooks",
        "a webhook that does not answer has changes of Services refused in the middle of a move",
    ),
    named(
        RenumberCheck::Certificates,
        "certificates",
        "clients reach the API servers at the first address of the new range, and verify it",
    ),
    named(
        RenumberCheck::Policies,
        "policies",
        "what admission refuses now it refuses in the middle of a move",
    ),
    named(
        RenumberCheck::Rights,
        "rights",
        "a right that is missing is found missing in the middle of a move",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::SecretsAtRest),
        "secrets-at-rest",
        "a renumbering takes snapshots of etcd, and they have every Secret in them",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::Authorization),
        "authorization",
        "whoever may change Services can undo a move while it is made",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::Ssh),
        "ssh",
        "who logs in to a control-plane host has the keys of etcd, past every role",
    ),
    named(
        RenumberCheck::Shared(SharedCheck::Images),
        "images",
        "a Pod that is started again, to take the new addresses, needs its images",
    ),
];

/// What is looked at before the network of Pods is changed: every node is drained once, and every Pod made anew.
pub const CNI: &[Named<CniCheck>] = &[
    named(CniCheck::Shared(SharedCheck::Api), "api", API_WHY),
    named(
        CniCheck::Shared(SharedCheck::EtcdMembers),
        "etcd-members",
        "a control-plane host that is drained and restarted takes its member of etcd along",
    ),
    named(
        CniCheck::Shared(SharedCheck::ApiServers),
        "api-servers",
        "while one is restarted with its host, the others must answer",
    ),
    named(CniCheck::Nodes, "nodes", "what is drained from one node must go to others"),
    named(CniCheck::Csrs, "csrs", "a node that joins waits until its certificate is approved"),
    named(
        CniCheck::Network,
        "network",
        "a network that is not whole cannot be told from one that the change has broken",
    ),
    named(
        CniCheck::PodRanges,
        "pod-ranges",
        "during the change both networks are there, and each address must be in one of them",
    ),
    named(
        CniCheck::Mtu,
        "mtu",
        "packets that are too large for what is beneath are lost, and only large answers hang",
    ),
    named(
        CniCheck::AgentPorts,
        "agent-ports",
        "an agent that does not get its port does not start, and two tunnels on one mix their packets",
    ),
    named(CniCheck::HostPorts, "host-ports", "a port of a node leads to a Pod only where the CNI maps it"),
    named(
        CniCheck::NetworkPolicies,
        "network-policies",
        "a policy that the new network does not know protects nobody",
    ),
    named(CniCheck::Budgets, "budgets", "a drain waits for ever for a Pod that may not go"),
    named(
        CniCheck::DrainRoom,
        "drain-room",
        "a Pod that finds no room elsewhere is away until its node is back",
    ),
    named(CniCheck::BarePods, "bare-pods", "a Pod that nobody makes anew is gone with its node"),
    named(
        CniCheck::LocalStorage,
        "local-storage",
        "what is kept on a node is lost, or out of reach, when it is drained",
    ),
    named(CniCheck::SinglePods, "single-pods", "what runs once is away while its Pod moves"),
    named(
        CniCheck::PodWebhooks,
        "pod-webhooks",
        "while there is no network, a webhook that must answer over it has every Pod refused",
    ),
    named(
        CniCheck::Autoscalers,
        "autoscalers",
        "what adds and removes nodes by itself works against whoever does so in order",
    ),
    named(
        CniCheck::Shared(SharedCheck::Gitops),
        "gitops",
        "what applies manifests by itself brings the old network back",
    ),
    named(
        CniCheck::Shared(SharedCheck::Images),
        "images",
        "every Pod is started again, and needs its images",
    ),
    named(
        CniCheck::DrainRights,
        "drain-rights",
        "a right that is missing is found missing in the middle of the change",
    ),
];

/// What is looked at before the resources of some namespaces are copied from one cluster, the source, into another, the mirror.
pub const MIRROR: &[Named<MirrorCheck>] = &[
    named(
        MirrorCheck::Shared(SharedCheck::ApiServers),
        "api-servers",
        "what is copied is read from them while they serve",
    ),
    named(
        MirrorCheck::TwoClusters,
        "two-clusters",
        "a copy onto itself overwrites what serves, and an older version does not know every field",
    ),
    named(
        MirrorCheck::Namespaces,
        "namespaces",
        "what is not there is not copied, and what is there already would be overwritten",
    ),
    named(MirrorCheck::MirrorNodes, "mirror-nodes", "what is copied runs on them"),
    named(
        MirrorCheck::Kinds,
        "kinds",
        "an object of a kind that the mirror does not serve cannot be made there",
    ),
    named(MirrorCheck::Stateless, "stateless", "what has data is not copied, and neither is its data"),
    named(
        MirrorCheck::Classes,
        "classes",
        "classes belong to the cluster: what names one that is not there waits for ever, or is refused",
    ),
    named(
        MirrorCheck::Issuers,
        "issuers",
        "without a certificate the mirror answers, and no client trusts it",
    ),
    named(
        MirrorCheck::PullSecrets,
        "pull-secrets",
        "on the mirror every image is pulled anew, with the credentials that are copied",
    ),
    named(MirrorCheck::Placement, "placement", "a Pod that no node takes stays Pending"),
    named(MirrorCheck::Capacity, "capacity", "what has no room stays Pending"),
    named(
        MirrorCheck::FixedAddresses,
        "fixed-addresses",
        "two clusters cannot have the same address or the same port",
    ),
    named(
        MirrorCheck::Shared(SharedCheck::Gitops),
        "gitops",
        "what applies manifests by itself changes the source while it is copied",
    ),
    named(
        MirrorCheck::MirrorWebhooks,
        "mirror-webhooks",
        "a webhook that does not answer has what is copied refused",
    ),
    named(MirrorCheck::SourceRights, "source-rights", "what may not be read is not copied"),
    named(
        MirrorCheck::MirrorRights,
        "mirror-rights",
        "a right that is missing is found missing in the middle of the copying",
    ),
];

/// What is looked at before names are led from a cluster to its mirror.
pub const DNS: &[Named<DnsCheck>] = &[
    named(
        DnsCheck::ZoneServers,
        "zone-servers",
        "whoever asks a server that is behind, or gone, does not see the change",
    ),
    named(
        DnsCheck::ZoneUpdates,
        "zone-updates",
        "a zone that cannot be changed is found so in the middle of the change, or of its way back",
    ),
    named(DnsCheck::ZoneTransfer, "zone-transfer", "what else is in a zone is seen by who reads all of it"),
    named(
        DnsCheck::TwinZones,
        "twin-zones",
        "of two zones of one name, each for other clients, one alone would be changed",
    ),
    named(DnsCheck::Names, "names", "what nobody reaches now cannot be seen to go on working"),
    named(
        DnsCheck::Ttls,
        "ttls",
        "who has asked keeps the old answer for so long, after the change and after its way back",
    ),
    named(DnsCheck::ZoneShare, "zone-share", "a change of much of a zone is more often a mistake than meant"),
    named(
        DnsCheck::ExternalDns,
        "external-dns",
        "what keeps names as a cluster says changes them back, or deletes them",
    ),
    named(DnsCheck::Owners, "owners", "a name that another cluster keeps is not this one's to change"),
    named(DnsCheck::Targets, "targets", "a name leads nowhere until the mirror has an address for it"),
    named(
        DnsCheck::ServedCertificates,
        "served-certificates",
        "clients that come to a certificate for another name turn away",
    ),
    named(
        DnsCheck::Shared(SharedCheck::Gitops),
        "gitops",
        "what applies manifests by itself brings the old hosts and annotations back",
    ),
    named(
        DnsCheck::DnsRights,
        "dns-rights",
        "a right that is missing is found missing in the middle of the change",
    ),
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
    fn each_check_has_its_own_name() {
        names(RENUMBER);
        names(CNI);
        names(MIRROR);
        names(DNS);
    }
}
