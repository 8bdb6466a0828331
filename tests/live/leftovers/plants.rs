//! What is planted, and under which names the judge must find it. The names are written out here, and do not come from the tables of
//! the judge.

use std::collections::BTreeMap;

use netsurgeon::leftovers::{Kind, Plugin};

use super::{Node, TOOLS};

/// A leftover that must be found.
#[derive(Debug, Clone)]
pub struct Expected {
    pub plugin: Plugin,
    pub kind: Kind,
    /// Its name, or of a rule, parts of its text.
    pub fragments: Vec<String>,
    /// Part of the place.
    pub place: String,
}

/// Everything that is planted.
pub struct Planted {
    pub expected: Vec<Expected>,
}

/// Chains, with their table, and the numbers of the tools in `TOOLS` that create them.
const CHAINS: &[(Plugin, &[usize], &str, &[&str])] = &[
    (Plugin::Weave, &[0, 2], "nat", &["WEAVE", "WEAVE-CANARY"]),
    (
        Plugin::Weave,
        &[0, 2],
        "filter",
        &[
            "WEAVE-CANARY",
            "WEAVE-NPC",
            "WEAVE-NPC-DEFAULT",
            "WEAVE-NPC-INGRESS",
            "WEAVE-NPC-EGRESS",
            "WEAVE-NPC-EGRESS-DEFAULT",
            "WEAVE-NPC-EGRESS-CUSTOM",
            "WEAVE-NPC-EGRESS-ACCEPT",
            "WEAVE-EXPOSE",
            "WEAVE-KUBE-TEST",
            "WEAVE-IPSEC-IN",
        ],
    ),
    (
        Plugin::Weave,
        &[0],
        "mangle",
        &["WEAVE-CANARY", "WEAVE-IPSEC-IN", "WEAVE-IPSEC-IN-MARK", "WEAVE-IPSEC-OUT", "WEAVE-IPSEC-OUT-MARK"],
    ),
    (Plugin::Flannel, &[0, 1, 2, 3], "nat", &["FLANNEL-POSTRTG"]),
    (Plugin::Flannel, &[0, 1, 2, 3], "filter", &["FLANNEL-FWD"]),
    (
        Plugin::Calico,
        &[0, 1],
        "filter",
        &[
            "cali-INPUT",
            "cali-FORWARD",
            "cali-OUTPUT",
            "cali-wl-to-host",
            "cali-from-wl-dispatch",
            "cali-to-wl-dispatch",
            "cali-to-host-endpoint",
            "cali-from-host-endpoint",
            "cali-from-hep-forward",
            "cali-to-hep-forward",
            "cali-cidr-block",
            "cali-pri-kns.default",
            "cali-pro-kns.default",
            "cali-tw-cali0123456789a",
            "cali-fw-cali0123456789a",
        ],
    ),
    (
        Plugin::Calico,
        &[0, 1],
        "nat",
        &[
            "cali-PREROUTING",
            "cali-POSTROUTING",
            "cali-OUTPUT",
            "cali-nat-outgoing",
            "cali-fip-dnat",
            "cali-fip-snat",
        ],
    ),
    (Plugin::Calico, &[0, 3], "mangle", &["cali-PREROUTING", "cali-POSTROUTING", "cali-from-host-endpoint"]),
    (Plugin::Calico, &[0, 3], "raw", &["cali-PREROUTING", "cali-OUTPUT", "cali-rpf-skip"]),
    (Plugin::Calico, &[2], "filter", &["felix-INPUT", "felix-FORWARD"]),
    (
        Plugin::Cilium,
        &[0, 2],
        "filter",
        &["CILIUM_INPUT", "CILIUM_OUTPUT", "CILIUM_FORWARD", "CILIUM_TRANSIENT_FORWARD"],
    ),
    (Plugin::Cilium, &[0, 2], "nat", &["CILIUM_PRE_nat", "CILIUM_POST_nat", "CILIUM_OUTPUT_nat"]),
    (Plugin::Cilium, &[0, 1], "mangle", &["CILIUM_PRE_mangle", "CILIUM_POST_mangle"]),
    (Plugin::Cilium, &[0, 1], "raw", &["CILIUM_PRE_raw", "CILIUM_OUTPUT_raw"]),
    (Plugin::Cilium, &[0], "filter", &["OLD_CILIUM_INPUT", "OLD_CILIUM_OUTPUT", "OLD_CILIUM_FORWARD"]),
    (
        Plugin::KubeRouter,
        &[0, 1],
        "filter",
        &[
            "KUBE-ROUTER-INPUT",
            "KUBE-ROUTER-FORWARD",
            "KUBE-ROUTER-OUTPUT",
            "KUBE-ROUTER-SERVICES",
            "KUBE-NWPLCY-DEFAULT",
            "KUBE-NWPLCY-COMMON",
            "KUBE-NWPLCY-TAIL",
            "KUBE-POD-FW-ABCDEFGHIJKLMN23",
            "KUBE-NWPLCY-ABCDEFGHIJKLMN23",
        ],
    ),
    (Plugin::KubeRouter, &[0], "nat", &["KUBE-ROUTER-HAIRPIN"]),
    (Plugin::Kindnet, &[0, 1, 2], "nat", &["KIND-MASQ-AGENT"]),
    (Plugin::AwsVpc, &[0, 2], "nat", &["AWS-SNAT-CHAIN-0", "AWS-SNAT-CHAIN-1", "AWS-CONNMARK-CHAIN-0"]),
    (Plugin::Reference, &[0], "nat", &["CNI-DN-0123456789abcdef01234", "CNI-0123456789abcdef01234567"]),
    (Plugin::Reference, &[0], "filter", &["CNI-FORWARD", "CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2"]),
];

/// Rules in the planted chains. Some chains are recognized only by the comments of their rules.
const INNER_RULES: &[(&[usize], &str, &str)] = &[
    (
        &[0, 1],
        "filter",
        r#"-A cali-pri-kns.default -m comment --comment "cali:WlZoYzEIs1mtc1Tx" -j MARK --set-xmark 0x10000/0x10000"#,
    ),
    (&[0, 1], "filter", r#"-A cali-pro-kns.default -m comment --comment "cali:Ag7ZL_TG8Tz0aY0b" -j RETURN"#),
    (&[0, 1], "filter", r#"-A cali-tw-cali0123456789a -m comment --comment "cali:2n5Mx-0dRnqmV8rL" -j DROP"#),
    (
        &[0, 1],
        "filter",
        r#"-A cali-from-wl-dispatch -i cali0123456789a -m comment --comment "cali:o0gQkuhuNd1Gs8Gr" -g cali-fw-cali0123456789a"#,
    ),
    (
        &[0, 1],
        "filter",
        r#"-A KUBE-ROUTER-FORWARD -m comment --comment "rule to jump traffic destined to POD name:web namespace: default to chain KUBE-POD-FW-ABCDEFGHIJKLMN23" -j KUBE-POD-FW-ABCDEFGHIJKLMN23"#,
    ),
    (
        &[0, 1],
        "filter",
        r#"-A KUBE-POD-FW-ABCDEFGHIJKLMN23 -m comment --comment "run through nw policy web" -j KUBE-NWPLCY-ABCDEFGHIJKLMN23"#,
    ),
    (&[0], "nat", "-A WEAVE -s 10.32.0.0/12 -d 224.0.0.0/4 -j RETURN"),
    (&[0], "nat", "-A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE"),
    (
        &[0],
        "nat",
        "-A CNI-DN-0123456789abcdef01234 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.244.1.99:80",
    ),
];

/// A plug-in, numbers in `TOOLS`, a table, a rule, and the parts of its text that the judge must print.
type PlantedRule = (Plugin, &'static [usize], &'static str, &'static str, &'static [&'static str]);

/// Rules in other chains.
const RULES: &[PlantedRule] = &[
    (Plugin::Weave, &[0, 2], "nat", "-A POSTROUTING -j WEAVE", &["-A POSTROUTING", "-j WEAVE"]),
    (
        Plugin::Weave,
        &[0, 2],
        "nat",
        "-A POSTROUTING -o weave -j ACCEPT",
        &["-A POSTROUTING", "-o weave", "-j ACCEPT"],
    ),
    (
        Plugin::Weave,
        &[0, 2],
        "filter",
        "-A FORWARD -i weave -m comment --comment \"NOTE: this must go before '-j KUBE-FORWARD'\" -j WEAVE-NPC-EGRESS",
        &["-A FORWARD", "-i weave", "-j WEAVE-NPC-EGRESS"],
    ),
    (
        Plugin::Weave,
        &[0, 2],
        "filter",
        "-A FORWARD -o weave -m comment --comment \"NOTE: this must go before '-j KUBE-FORWARD'\" -j WEAVE-NPC",
        &["-A FORWARD", "-o weave", "KUBE-FORWARD", "-j WEAVE-NPC"],
    ),
    (
        Plugin::Weave,
        &[0, 2],
        "filter",
        "-A FORWARD -o weave -m state --state NEW -j NFLOG --nflog-group 86",
        &["-A FORWARD", "-o weave", "--nflog-group 86"],
    ),
    (Plugin::Weave, &[0, 2], "filter", "-A FORWARD -o weave -j DROP", &["-A FORWARD", "-o weave", "-j DROP"]),
    (
        Plugin::Weave,
        &[0, 2],
        "filter",
        "-A FORWARD -i weave ! -o weave -j ACCEPT",
        &["-A FORWARD", "-i weave", "! -o weave", "-j ACCEPT"],
    ),
    (
        Plugin::Weave,
        &[0, 2],
        "filter",
        "-A FORWARD -o weave -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        &["-A FORWARD", "-o weave", "-m conntrack", "-j ACCEPT"],
    ),
    (
        Plugin::Weave,
        &[0, 2],
        "filter",
        "-A INPUT -d 127.0.0.1/32 -p tcp -m tcp --dport 6784 -m comment --comment \"Block non-local access to Weave Net control port\" -j DROP",
        &["-A INPUT", "127.0.0.1/32", "control port", "-j DROP"],
    ),
    (Plugin::Weave, &[0], "mangle", "-A OUTPUT -j WEAVE-IPSEC-OUT", &["-A OUTPUT", "-j WEAVE-IPSEC-OUT"]),
    (
        Plugin::Flannel,
        &[0, 1, 2, 3],
        "nat",
        "-A POSTROUTING -m comment --comment \"flanneld masq\" -j FLANNEL-POSTRTG",
        &["-A POSTROUTING", "flanneld masq", "-j FLANNEL-POSTRTG"],
    ),
    (
        Plugin::Flannel,
        &[0, 1, 2, 3],
        "filter",
        "-A FORWARD -m comment --comment \"flanneld forward\" -j FLANNEL-FWD",
        &["-A FORWARD", "flanneld forward", "-j FLANNEL-FWD"],
    ),
    (
        Plugin::Flannel,
        &[0],
        "filter",
        "-A FORWARD -s 10.244.0.0/16 -m comment --comment \"flanneld forward\" -j ACCEPT",
        &["-A FORWARD -s 10.244.0.0/16", "flanneld forward", "-j ACCEPT"],
    ),
    (
        Plugin::Flannel,
        &[0, 2],
        "nat",
        "-A POSTROUTING -s 10.244.0.0/16 -d 10.244.0.0/16 -j RETURN",
        &["-A POSTROUTING -s 10.244.0.0/16 -d 10.244.0.0/16", "-j RETURN"],
    ),
    (
        Plugin::Flannel,
        &[0, 2],
        "nat",
        "-A POSTROUTING -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE",
        &["-A POSTROUTING -s 10.244.0.0/16 ! -d 224.0.0.0/4", "-j MASQUERADE"],
    ),
    (
        Plugin::Flannel,
        &[0, 2],
        "nat",
        "-A POSTROUTING ! -s 10.244.0.0/16 -d 10.244.1.0/24 -j RETURN",
        &["-A POSTROUTING ! -s 10.244.0.0/16 -d 10.244.1.0/24", "-j RETURN"],
    ),
    (
        Plugin::Flannel,
        &[0, 2],
        "nat",
        "-A POSTROUTING ! -s 10.244.0.0/16 -d 10.244.0.0/16 -j MASQUERADE",
        &["-A POSTROUTING ! -s 10.244.0.0/16 -d 10.244.0.0/16", "-j MASQUERADE"],
    ),
    (
        Plugin::Calico,
        &[0, 1],
        "filter",
        "-A INPUT -m comment --comment \"cali:Cz_u1IQiXIMmKD4c\" -j cali-INPUT",
        &["-A INPUT", "cali:Cz_u1IQiXIMmKD4c", "-j cali-INPUT"],
    ),
    (
        Plugin::Calico,
        &[0, 1],
        "filter",
        "-A FORWARD -m comment --comment \"cali:wUHhoiAYhphO9Mso\" -j cali-FORWARD",
        &["-A FORWARD", "cali:wUHhoiAYhphO9Mso", "-j cali-FORWARD"],
    ),
    (
        Plugin::Calico,
        &[0, 1],
        "filter",
        "-A FORWARD -m comment --comment \"cali:S93hcgKJrXEqnTfs\" -m mark --mark 0x10000/0x10000 -j ACCEPT",
        &["-A FORWARD", "cali:S93hcgKJrXEqnTfs", "-j ACCEPT"],
    ),
    (
        Plugin::Calico,
        &[0, 1],
        "nat",
        "-A POSTROUTING -m comment --comment \"cali:O3lYWMrLQYEMJtB5\" -j cali-POSTROUTING",
        &["-A POSTROUTING", "cali:O3lYWMrLQYEMJtB5", "-j cali-POSTROUTING"],
    ),
    (
        Plugin::Cilium,
        &[0, 2],
        "filter",
        "-A INPUT -m comment --comment \"cilium-feeder: CILIUM_INPUT\" -j CILIUM_INPUT",
        &["-A INPUT", "cilium-feeder: CILIUM_INPUT", "-j CILIUM_INPUT"],
    ),
    (
        Plugin::Cilium,
        &[0, 2],
        "nat",
        "-A POSTROUTING -m comment --comment \"cilium-feeder: CILIUM_POST_nat\" -j CILIUM_POST_nat",
        &["-A POSTROUTING", "-j CILIUM_POST_nat"],
    ),
    (
        Plugin::KubeRouter,
        &[0, 1],
        "filter",
        "-A INPUT -m comment --comment \"kube-router netpol - 4IA2OSFRMVNDXBVV\" -j KUBE-ROUTER-INPUT",
        &["-A INPUT", "4IA2OSFRMVNDXBVV", "-j KUBE-ROUTER-INPUT"],
    ),
    (
        Plugin::KubeRouter,
        &[0],
        "filter",
        "-A FORWARD -o kube-bridge -m comment --comment \"allow inbound traffic to pods\" -j ACCEPT",
        &["-A FORWARD -o kube-bridge", "inbound", "-j ACCEPT"],
    ),
    (
        Plugin::KubeRouter,
        &[0, 2],
        "nat",
        "-A POSTROUTING -m set --match-set kube-router-pod-subnets src -m set ! --match-set kube-router-node-ips dst -j MASQUERADE",
        &["-A POSTROUTING", "-m set", "-j MASQUERADE"],
    ),
    (
        Plugin::Kindnet,
        &[0, 1, 2],
        "nat",
        "-A POSTROUTING -m addrtype ! --dst-type LOCAL -j KIND-MASQ-AGENT",
        &["-A POSTROUTING", "-j KIND-MASQ-AGENT"],
    ),
    (
        Plugin::AwsVpc,
        &[0, 2],
        "nat",
        "-A POSTROUTING -m comment --comment \"AWS SNAT CHAIN\" -j AWS-SNAT-CHAIN-0",
        &["-A POSTROUTING", "-j AWS-SNAT-CHAIN-0"],
    ),
    (
        Plugin::AwsVpc,
        &[0, 2],
        "mangle",
        "-A PREROUTING -i eth0 -m comment --comment \"AWS, primary ENI\" -m addrtype --dst-type LOCAL --limit-iface-in -j CONNMARK --set-xmark 0x80/0x80",
        &["-A PREROUTING", "-i eth0", "AWS, primary ENI", "-j CONNMARK"],
    ),
    (
        Plugin::AwsVpc,
        &[0, 2],
        "nat",
        "-A PREROUTING -i eni+ -m comment --comment \"AWS, outbound connections\" -j AWS-CONNMARK-CHAIN-0",
        &["-A PREROUTING", "-i eni+", "-j AWS-CONNMARK-CHAIN-0"],
    ),
    (
        Plugin::Reference,
        &[0],
        "nat",
        "-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment \"dnat name: \\\"cbr0\\\" id: \\\"dead\\\"\" -m multiport --dports 8080 -j CNI-DN-0123456789abcdef01234",
        &["-A CNI-HOSTPORT-DNAT", "-j CNI-DN-0123456789abcdef01234"],
    ),
    (
        Plugin::Reference,
        &[0],
        "nat",
        "-A POSTROUTING -s 10.244.1.99/32 -m comment --comment \"name: \\\"cbr0\\\" id: \\\"dead\\\"\" -j CNI-0123456789abcdef01234567",
        &["-A POSTROUTING -s 10.244.1.99/32", "-j CNI-0123456789abcdef01234567"],
    ),
    (
        Plugin::Reference,
        &[0],
        "filter",
        "-A FORWARD -m comment --comment \"CNI firewall plugin rules\" -j CNI-FORWARD",
        &["-A FORWARD", "-j CNI-FORWARD"],
    ),
];

/// Links: how they are created, and which of their names are leftovers.
const LINKS: &[(Plugin, &str, &[&str])] = &[
    (Plugin::Weave, "link add weave type bridge mcast_snooping 0", &["weave"]),
    (
        Plugin::Weave,
        "link add vethwe-bridge type veth peer name vethwe-datapath",
        &["vethwe-bridge", "vethwe-datapath"],
    ),
    (Plugin::Weave, "link add vethwedu type bridge", &["vethwedu"]),
    (Plugin::Weave, "link add vethwe-pcap type bridge", &["vethwe-pcap"]),
    (Plugin::Weave, "link add vxlan-6784 type vxlan external dstport 6784", &["vxlan-6784"]),
    (
        Plugin::Weave,
        "link add vethwepl0123abc type veth peer name vethwepl4567def",
        &["vethwepl0123abc", "vethwepl4567def"],
    ),
    (Plugin::Flannel, "link add flannel.1 type vxlan id 1 dstport 8472 local 127.0.0.1", &["flannel.1"]),
    (Plugin::Flannel, "link add flannel-v6.1 type vxlan id 1 dstport 8473 local ::1", &["flannel-v6.1"]),
    (Plugin::Flannel, "link add flannel-wg type bridge", &["flannel-wg"]),
    (Plugin::Flannel, "link add flannel-wg-v6 type bridge", &["flannel-wg-v6"]),
    (Plugin::Flannel, "link add flannel.ipip type bridge", &["flannel.ipip"]),
    (
        Plugin::Calico,
        "link add cali0123456789a type veth peer name cali9876543210f",
        &["cali0123456789a", "cali9876543210f"],
    ),
    (
        Plugin::Calico,
        "link add vxlan.calico type vxlan id 4096 dstport 4789 local 127.0.0.1",
        &["vxlan.calico"],
    ),
    (
        Plugin::Calico,
        "link add vxlan-v6.calico type vxlan id 4096 dstport 4790 local ::1",
        &["vxlan-v6.calico"],
    ),
    (Plugin::Calico, "link add wireguard.cali type bridge", &["wireguard.cali"]),
    (Plugin::Calico, "link add wg-v6.cali type bridge", &["wg-v6.cali"]),
    (Plugin::Calico, "link add bpfin.cali type veth peer name bpfout.cali", &["bpfin.cali", "bpfout.cali"]),
    (Plugin::Calico, "link add egress.calico type bridge", &["egress.calico"]),
    (Plugin::Cilium, "link add cilium_host type veth peer name cilium_net", &["cilium_host", "cilium_net"]),
    (Plugin::Cilium, "link add cilium_vxlan type vxlan external dstport 8474", &["cilium_vxlan"]),
    (Plugin::Cilium, "link add cilium_geneve type bridge", &["cilium_geneve"]),
    (Plugin::Cilium, "link add cilium_wg0 type bridge", &["cilium_wg0"]),
    (
        Plugin::Cilium,
        "link add lxc_health type veth peer name lxc0123456789ab",
        &["lxc_health", "lxc0123456789ab"],
    ),
    (Plugin::KubeRouter, "link add kube-bridge type bridge", &["kube-bridge"]),
    (Plugin::KubeRouter, "link add kube-dummy-if type bridge", &["kube-dummy-if"]),
    (Plugin::KubeRouter, "link add kube-tunnel-if type bridge", &["kube-tunnel-if"]),
    (Plugin::KubeRouter, "link add kube-tunnel-v6 type bridge", &["kube-tunnel-v6"]),
    (Plugin::KubeRouter, "tuntap add dev tun-0123456789a mode tun", &["tun-0123456789a"]),
    (
        Plugin::AwsVpc,
        "link add eni0123456789a type veth peer name vlan0123456789a",
        &["eni0123456789a", "vlan0123456789a"],
    ),
    (Plugin::Reference, "link add cni0 type bridge", &["cni0"]),
];

const IPSETS: &[(Plugin, &str)] = &[
    (Plugin::Weave, "weave-local-pods"),
    (Plugin::Weave, "weaver-no-masq-local"),
    (Plugin::Weave, "weave-iuZcey(5DeXbzgRFs8Szo]+@p"),
    (Plugin::Weave, "weave-E.1.0W^NGSp]0_t5WwH/]gX@L"),
    (Plugin::Calico, "cali40s:jWVL9GX1FBJvTs4fJkCRd6l"),
    (Plugin::Calico, "cali60s:jWVL9GX1FBJvTs4fJkCRd6l"),
    (Plugin::Calico, "cali40n:jWVL9GX1FBJvTs4fJkCRd6l"),
    (Plugin::Calico, "cali40all-ipam-pools"),
    (Plugin::Calico, "cali40masq-ipam-pools"),
    (Plugin::Calico, "cali40this-host"),
    (Plugin::Calico, "cali60all-hosts-net"),
    (Plugin::Cilium, "cilium_node_set_v4"),
    (Plugin::Cilium, "cilium_node_set_v6"),
    (Plugin::KubeRouter, "kube-router-local-ips"),
    (Plugin::KubeRouter, "kube-router-svip"),
    (Plugin::KubeRouter, "kube-router-svip-prt"),
    (Plugin::KubeRouter, "kube-router-pod-subnets"),
    (Plugin::KubeRouter, "kube-router-node-ips"),
    (Plugin::KubeRouter, "kube-router-local-pods"),
    (Plugin::KubeRouter, "inet6:kube-router-pod-subnets"),
    (Plugin::KubeRouter, "KUBE-SRC-ABCDEFGHIJKLMN23"),
    (Plugin::KubeRouter, "KUBE-DST-ABCDEFGHIJKLMN23"),
];

const NFT_TABLES: &[(Plugin, &str, &str)] = &[
    (Plugin::Flannel, "ip", "flannel-ipv4"),
    (Plugin::Flannel, "ip6", "flannel-ipv6"),
    (Plugin::Calico, "ip", "calico"),
    (Plugin::Calico, "ip6", "calico"),
    (Plugin::KubeRouter, "ip", "kube-router-filter-ipv4"),
    (Plugin::KubeRouter, "ip6", "kube-router-filter-ipv6"),
    (Plugin::Kindnet, "inet", "kindnet-network-policies"),
    (Plugin::AwsVpc, "ip", "aws-cni"),
    (Plugin::Reference, "inet", "cni_plugins_masquerade"),
];

/// Routes: the arguments of `ip route add`, and the text of the judge.
const ROUTES: &[(Plugin, &str, &str)] = &[
    (Plugin::Weave, "10.32.0.0/12 dev weave", "10.32.0.0/12 dev weave proto 3"),
    (Plugin::Flannel, "blackhole 10.244.1.0/24", "blackhole 10.244.1.0/24 proto 3"),
    (Plugin::Flannel, "10.244.2.0/24 via 192.168.50.2", "10.244.2.0/24 via 192.168.50.2 dev up0 proto 3"),
    (Plugin::Calico, "blackhole 10.244.64.0/26 proto 80", "blackhole 10.244.64.0/26 proto 80"),
    (Plugin::Calico, "blackhole 10.244.64.64/26 proto bird", "blackhole 10.244.64.64/26 proto 12"),
    (
        Plugin::Calico,
        "10.244.64.128/26 via 192.168.50.3 proto bird",
        "10.244.64.128/26 via 192.168.50.3 dev up0 proto 12",
    ),
    (Plugin::Cilium, "local default dev lo table 2004", "local 0.0.0.0/0 dev lo proto 3"),
    (
        Plugin::Cilium,
        "default via 192.168.50.2 dev up0 table 2005",
        "0.0.0.0/0 via 192.168.50.2 dev up0 proto 3",
    ),
    (
        Plugin::KubeRouter,
        "10.244.4.0/24 via 192.168.50.2 proto 17",
        "10.244.4.0/24 via 192.168.50.2 dev up0 proto 17",
    ),
    (Plugin::KubeRouter, "10.244.5.0/24 dev up0 table 77", "10.244.5.0/24 dev up0 proto 3"),
    (Plugin::Kindnet, "10.244.3.0/24 via 192.168.50.3", "10.244.3.0/24 via 192.168.50.3 dev up0 proto 3"),
];

/// Rules of routing: the arguments of `ip rule add`, and the text of the judge.
const POLICY_RULES: &[(Plugin, &str, &str)] = &[
    (
        Plugin::Calico,
        "not from all fwmark 0x100000/0x100000 lookup 1 pref 99",
        "99: not from all fwmark 0x100000/0x100000 lookup 1",
    ),
    (Plugin::Cilium, "fwmark 0xd00/0xf00 lookup 200 pref 1", "1: from all fwmark 0xd00/0xf00 lookup 200"),
    (Plugin::Cilium, "fwmark 0x200/0xf00 lookup 2004 pref 9", "9: from all fwmark 0x200/0xf00 lookup 2004"),
    (Plugin::Cilium, "fwmark 0xa00/0xf00 lookup 2005 pref 10", "10: from all fwmark 0xa00/0xf00 lookup 2005"),
    (Plugin::Cilium, "lookup local pref 100", "100: from all lookup 255"),
    (Plugin::Cilium, "from 10.244.1.99 lookup 12 pref 111", "111: from 10.244.1.99/32 lookup 12"),
    (Plugin::KubeRouter, "from 10.244.1.0/24 lookup 77 pref 32763", "32763: from 10.244.1.0/24 lookup 77"),
    (
        Plugin::KubeRouter,
        "fwmark 0x1d lookup 78 pref 32764",
        "32764: from all fwmark 0x1d/0xffffffff lookup 78",
    ),
    (Plugin::KubeRouter, "lookup 79 pref 32765", "32765: from all lookup 79"),
    (Plugin::AwsVpc, "lookup local pref 20", "20: from all lookup 255"),
    (Plugin::AwsVpc, "to 10.244.1.98 lookup main pref 512", "512: from all to 10.244.1.98/32 lookup 254"),
    (Plugin::AwsVpc, "fwmark 0x80/0x80 lookup main pref 1024", "1024: from all fwmark 0x80/0x80 lookup 254"),
    (Plugin::AwsVpc, "from 10.244.1.98 lookup 2 pref 1536", "1536: from 10.244.1.98/32 lookup 2"),
];

const XFRM_POLICIES: &[(Plugin, &str, &str)] = &[
    (
        Plugin::Weave,
        "src 10.0.0.1/32 dst 10.0.0.2/32 dir out mark 0x20000 mask 0x20000 tmpl src 10.0.0.1 dst 10.0.0.2 proto esp mode transport",
        "src 10.0.0.1/32 dst 10.0.0.2/32 dir out mark 0x20000/0x20000",
    ),
    (
        Plugin::Cilium,
        "src 0.0.0.0/0 dst 0.0.0.0/0 dir out action block mark 0xe00 mask 0xf00",
        "src 0.0.0.0/0 dst 0.0.0.0/0 dir out action block mark 0xe00/0xf00",
    ),
    (
        Plugin::Cilium,
        "src 10.244.1.0/24 dst 10.244.2.0/24 dir in mark 0xd00 mask 0xf00",
        "src 10.244.1.0/24 dst 10.244.2.0/24 dir in mark 0xd00/0xf00",
    ),
];

/// Files. A path that ends with `/` is a folder.
const FILES: &[(Plugin, &str)] = &[
    (Plugin::Weave, "/var/lib/weave/"),
    (Plugin::Weave, "/var/lib/weave/weave-netdata.db"),
    (Plugin::Weave, "/etc/cni/net.d/10-weave.conflist"),
    (Plugin::Weave, "/opt/cni/bin/weave-net"),
    (Plugin::Weave, "/opt/cni/bin/weave-ipam"),
    (Plugin::Weave, "/opt/cni/bin/weave-plugin-2.8.1"),
    (Plugin::Flannel, "/run/flannel/"),
    (Plugin::Flannel, "/run/flannel/subnet.env"),
    (Plugin::Flannel, "/run/flannel/wgkey"),
    (Plugin::Flannel, "/var/lib/cni/flannel/"),
    (Plugin::Flannel, "/etc/cni/net.d/10-flannel.conflist"),
    (Plugin::Flannel, "/opt/cni/bin/flannel"),
    (Plugin::Calico, "/etc/cni/net.d/10-calico.conflist"),
    (Plugin::Calico, "/etc/cni/net.d/calico-kubeconfig"),
    (Plugin::Calico, "/opt/cni/bin/calico"),
    (Plugin::Calico, "/opt/cni/bin/calico-ipam"),
    (Plugin::Calico, "/var/lib/calico/"),
    (Plugin::Calico, "/var/lib/calico/bpf_ct_map_size"),
    (Plugin::Calico, "/run/calico/"),
    (Plugin::Calico, "/var/log/calico/"),
    (Plugin::Canal, "/etc/cni/net.d/10-canal.conflist"),
    (Plugin::Cilium, "/etc/cni/net.d/05-cilium.conflist"),
    (Plugin::Cilium, "/etc/cni/net.d/10-bridge.conf.cilium_bak"),
    (Plugin::Cilium, "/opt/cni/bin/cilium-cni"),
    (Plugin::Cilium, "/run/cilium/"),
    (Plugin::Cilium, "/var/lib/cilium/"),
    (Plugin::Cilium, "/etc/sysctl.d/99-zzz-override_cilium.conf"),
    (Plugin::Cilium, "/run/netns/cilium-health"),
    (Plugin::KubeRouter, "/etc/cni/net.d/10-kuberouter.conflist"),
    (Plugin::KubeRouter, "/var/lib/kube-router/"),
    (Plugin::Kindnet, "/etc/cni/net.d/10-kindnet.conflist"),
    (Plugin::Kindnet, "/run/cni-ipam-state/"),
    (Plugin::AwsVpc, "/etc/cni/net.d/10-aws.conflist"),
    (Plugin::AwsVpc, "/opt/cni/bin/aws-cni"),
    (Plugin::AwsVpc, "/run/aws-node/"),
    (Plugin::AwsVpc, "/var/log/aws-routed-eni/"),
];

const PINS: &[(Plugin, &str)] = &[
    (Plugin::Calico, "/sys/fs/bpf/tc/globals/cali_v4_nat_fe3"),
    (Plugin::Calico, "/sys/fs/bpf/tc/globals/cali_jump3"),
    (Plugin::Calico, "/sys/fs/bpf/calico"),
    (Plugin::Cilium, "/sys/fs/bpf/tc/globals/cilium_lxc"),
    (Plugin::Cilium, "/sys/fs/bpf/tc/globals/cilium_lb4_services_v2"),
    (Plugin::Cilium, "/sys/fs/bpf/cilium"),
];

const TABLE_NAMES: [&str; 3] = ["77 kube-router", "78 kube-router-dsr", "79 external_ip"];

impl Planted {
    pub fn plant(node: &Node) -> Self {
        let mut planted = Self { expected: Vec::new() };
        planted.links(node);
        planted.sets(node);
        planted.filters(node);
        planted.routing(node);
        planted.files(node);
        planted
    }

    fn expect(&mut self, plugin: Plugin, kind: Kind, name: &str, place: &str) {
        self.expected.push(Expected {
            plugin,
            kind,
            fragments: vec![name.to_string()],
            place: place.to_string(),
        });
    }

    fn links(&mut self, node: &Node) {
        for (plugin, line, names) in LINKS {
            node.namespace.ip(&[line]);
            names.iter().for_each(|name| self.expect(*plugin, Kind::Link, name, ""));
        }
        node.namespace.ip(&["link add up0 type bridge mcast_snooping 0"]);
        // Without IPv6 and multicast snooping, the links send no packets, which rules would count.
        for link in ["up0", "weave"] {
            node.namespace.sysctl(&format!("ipv6/conf/{link}/disable_ipv6"), "1");
        }
        node.namespace.ip(&["addr add 192.168.50.1/24 dev up0", "link set up0 up", "link set weave up"]);
    }

    fn sets(&mut self, node: &Node) {
        for (plugin, name) in IPSETS {
            node.namespace.run("ipset", &["create", name, "hash:ip"]);
            self.expect(*plugin, Kind::IpSet, name, "");
        }
        for (plugin, family, name) in NFT_TABLES {
            node.nft(&format!("add table {family} {name}\nadd chain {family} {name} own"));
            self.expect(*plugin, Kind::NftTable, name, family);
        }
    }

    fn filters(&mut self, node: &Node) {
        for (number, (tool, family, program)) in TOOLS.iter().enumerate() {
            let mut tables: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for (plugin, tools, table, chains) in
                CHAINS.iter().filter(|(_, tools, ..)| tools.contains(&number))
            {
                assert!(!tools.is_empty());
                for chain in *chains {
                    tables.entry(table).or_default().push(format!(":{chain} - [0:0]"));
                    self.expect(*plugin, Kind::Chain, chain, &format!("{family} {table}, {program}"));
                }
            }
            if number == 0 {
                tables.entry("nat").or_default().push(":CNI-HOSTPORT-DNAT - [0:0]".to_string());
            }
            for (_, table, rule) in INNER_RULES.iter().filter(|(tools, ..)| tools.contains(&number)) {
                tables.entry(table).or_default().push((*rule).to_string());
            }
            for (plugin, _, table, rule, parts) in
                RULES.iter().filter(|(_, tools, ..)| tools.contains(&number))
            {
                tables.entry(table).or_default().push((*rule).to_string());
                self.expected.push(Expected {
                    plugin: *plugin,
                    kind: Kind::FilterRule,
                    fragments: parts.iter().map(|part| (*part).to_string()).collect(),
                    place: format!("{family} {table}, {program}"),
                });
            }
            let tables: Vec<_> =
                tables.into_iter().map(|(table, lines)| (table.to_string(), lines)).collect();
            node.restore(tool, &tables);
        }
    }

    fn routing(&mut self, node: &Node) {
        for (plugin, arguments, text) in ROUTES {
            node.namespace.ip(&[format!("route add {arguments}")]);
            self.expect(*plugin, Kind::Route, text, "");
        }
        for (plugin, arguments, text) in POLICY_RULES {
            node.namespace.ip(&[format!("rule add {arguments}")]);
            self.expect(*plugin, Kind::PolicyRule, text, "IPv4");
        }
        node.namespace.ip(&["rule del pref 0"]);
        for (plugin, arguments, text) in XFRM_POLICIES {
            node.namespace.ip(&[format!("xfrm policy add {arguments}")]);
            self.expect(*plugin, Kind::XfrmPolicy, text, "");
        }
        node.write(
            "/etc/iproute2/rt_tables",
            &format!("255 local\n100 office\n{}\n", TABLE_NAMES.join("\n")),
        );
        for name in TABLE_NAMES {
            self.expect(Plugin::KubeRouter, Kind::TableName, name, "rt_tables");
        }
    }

    fn files(&mut self, node: &Node) {
        for (plugin, path) in FILES {
            match path.strip_suffix('/') {
                Some(folder) => std::fs::create_dir_all(node.root.path().join(&folder[1..])).unwrap(),
                None => node.write(path, r#"{"name": "old", "plugins": [{"type": "old"}]}"#),
            }
            self.expect(*plugin, Kind::File, path.trim_end_matches('/'), "");
        }
        node.write("/etc/cni/net.d/50-other-name.conf", r#"{"name": "w", "type": "weave-net"}"#);
        self.expect(Plugin::Weave, Kind::File, "/etc/cni/net.d/50-other-name.conf", "");
        for (plugin, path) in PINS {
            node.write(path, "");
            self.expect(*plugin, Kind::BpfPin, path, "");
        }
        node.write("/var/lib/cni/networks/cbr0/10.244.1.98", "dead\r\neth0");
        node.write("/var/lib/cni/networks/cbr0/10.244.1.99", "dead2\r\neth0");
        for address in ["10.244.1.98", "10.244.1.99"] {
            self.expect(
                Plugin::Reference,
                Kind::Lease,
                &format!("/var/lib/cni/networks/cbr0/{address}"),
                "cbr0",
            );
        }
        let result = r#"{"kind": "cniCacheV1", "containerId": "dead3", "networkName": "cbr0", "result": {"ips": [{"address": "10.244.1.97/24"}]}}"#;
        node.write("/var/lib/cni/results/cbr0-dead3-eth0", result);
        self.expect(Plugin::Reference, Kind::CachedResult, "/var/lib/cni/results/cbr0-dead3-eth0", "cbr0");
    }
}
