//! Things of other programs and of users whose names are like those of network plug-ins. None of them may be listed.

use std::collections::BTreeMap;

use super::Node;

/// The only Pod of the node.
pub const LIVE_POD: &str = "10.244.1.7";

const LINKS: &[(&str, &[&str])] = &[
    ("link add weave0 type bridge", &["weave0"]),
    ("link add cali-mine type bridge", &["cali-mine"]),
    ("link add calidaabbccddee type bridge", &["calidaabbccddee"]),
    ("link add flannel.x type bridge", &["flannel.x"]),
    ("link add flannel.9 type bridge", &["flannel.9"]),
    ("link add lxcbr0 type bridge", &["lxcbr0"]),
    ("link add eni-backup type veth peer name vlan100", &["eni-backup", "vlan100"]),
    ("link add cilium_mine type bridge", &["cilium_mine"]),
    ("link add kube-ipvs0 type bridge", &["kube-ipvs0"]),
    ("link add docker0 type bridge", &["docker0"]),
    ("tuntap add dev tun-office mode tun", &["tun-office"]),
    ("link add nodelocaldns type bridge", &["nodelocaldns"]),
    ("link add cni-podman0 type bridge", &["cni-podman0"]),
];

const IPSETS: &[&str] = &[
    "cali40-mine",
    "cali60-mine",
    "weave-shop",
    "weaver",
    "kube-router-mine",
    "KUBE-SRC-MINE",
    "KUBE-CLUSTER-IP",
    "KUBE-LOOP-BACK",
    "cilium_node_set_mine",
    "felix-mine",
];

const NFT_TABLES: &[(&str, &str)] = &[
    ("inet", "flannel-ipv4"),
    ("ip", "calico-shop"),
    ("inet", "calico"),
    ("ip", "kube-proxy"),
    ("ip6", "kube-proxy"),
    ("inet", "cni_hostport"),
    ("ip", "kindnet-network-policies"),
    ("inet", "firewalld"),
];

/// Chains of iptables with their tables.
const CHAINS: &[(&str, &[&str])] = &[
    (
        "filter",
        &[
            "WEAVE-SHOP",
            "WEAVE",
            "WEAVE-NPC-MINE",
            "CNI-ADMIN",
            "CNI-MINE",
            "KUBE-FORWARD",
            "KUBE-FIREWALL",
            "KUBE-EXTERNAL-SERVICES",
            "KUBE-POD-FW-ABCDEFGHIJKLMNOP",
            "KUBE-NWPLCY-MINE",
            "KUBE-ROUTER-SHOP",
            "cali-mine",
            "cali-pi-mine",
            "cali-tw-shop",
            "felix-mine",
            "FLANNEL-SHOP",
            "CILIUM_SHOP",
            "DOCKER-USER",
        ],
    ),
    (
        "nat",
        &[
            "KUBE-SERVICES",
            "KUBE-POSTROUTING",
            "KUBE-MARK-MASQ",
            "KUBE-SVC-ABCDEFGHIJKLMNOP",
            "KUBE-SEP-ABCDEFGHIJKLMNOP",
            "WEAVE-NPC",
            "AWS-SNAT-CHAIN-MINE",
            "KIND-MASQ",
            "CNI-DN-mine",
            "CNI-DN-aaaaaaaaaaaaaaaaaaaaa",
            "CNI-bbbbbbbbbbbbbbbbbbbbbbbb",
            "CNI-HOSTPORT-MINE",
        ],
    ),
];

/// Rules, with the part of their text that shows them in the state.
const RULES: &[(&str, &str, &str)] = &[
    (
        "filter",
        "-A FORWARD -o weave -p tcp -m tcp --dport 9999 -j DROP",
        "-A FORWARD -o weave -m port -j DROP",
    ),
    ("filter", "-A FORWARD -i weave -m comment --comment mine-of-weave -j ACCEPT", "mine-of-weave"),
    ("filter", "-A FORWARD -o weave -j NFLOG --nflog-group 87", "--nflog-group 87"),
    ("filter", "-A FORWARD -o weave0 -j DROP", "-o weave0"),
    ("filter", "-A INPUT -m comment --comment \"cali:short\" -j ACCEPT", "cali:short"),
    ("filter", "-A INPUT -m comment --comment \"rule to allow ssh\" -j ACCEPT", "rule to allow ssh"),
    ("filter", "-A INPUT -m comment --comment \"flanneld\" -j ACCEPT", "flanneld"),
    ("filter", "-A INPUT -m comment --comment \"AWS, mine\" -j ACCEPT", "AWS, mine"),
    (
        "filter",
        "-A INPUT -m comment --comment \"kube-router netpol - mine\" -j ACCEPT",
        "kube-router netpol - mine",
    ),
    ("filter", "-A FORWARD -m set --match-set cali40-mine src -j ACCEPT", "cali40-mine"),
    ("filter", "-A FORWARD -i kube-bridge -m comment --comment \"my own rule\" -j ACCEPT", "my own rule"),
    ("filter", "-A FORWARD -j CNI-ADMIN", "-j CNI-ADMIN"),
    ("filter", "-A WEAVE-SHOP -s 10.32.0.0/12 -j ACCEPT", "-s 10.32.0.0/12"),
    ("filter", "-A cali-pi-mine -m comment --comment \"my policy\" -j ACCEPT", "my policy"),
    (
        "nat",
        "-A POSTROUTING -s 172.31.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE",
        "-s 172.31.0.0/16 ! -d 224.0.0.0/4",
    ),
    ("nat", "-A POSTROUTING -s 10.5.0.0/16 -o weave -j ACCEPT", "-s 10.5.0.0/16 -o weave"),
    (
        "nat",
        "-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment \"dnat name: \\\"new\\\" id: \\\"live\\\"\" -m multiport --dports 9090 -j CNI-DN-aaaaaaaaaaaaaaaaaaaaa",
        "-j CNI-DN-aaaaaaaaaaaaaaaaaaaaa",
    ),
    (
        "nat",
        "-A CNI-DN-aaaaaaaaaaaaaaaaaaaaa -p tcp -m tcp --dport 9090 -j DNAT --to-destination 10.244.1.7:90",
        "--to-destination 10.244.1.7",
    ),
    (
        "nat",
        "-A POSTROUTING -s 10.244.1.7/32 -m comment --comment \"name: \\\"new\\\" id: \\\"live\\\"\" -j CNI-bbbbbbbbbbbbbbbbbbbbbbbb",
        "-s 10.244.1.7/32",
    ),
];

const ROUTES: &[(&str, &str)] = &[
    ("10.99.0.0/16 via 192.168.50.2 proto static", "10.99.0.0/16"),
    ("blackhole 10.98.0.0/16", "10.98.0.0/16"),
    ("172.30.0.0/26 via 192.168.50.9 proto bird", "172.30.0.0/26"),
    ("10.97.0.0/24 via 192.168.50.2 proto 17", "10.97.0.0/24"),
];

const POLICY_RULES: &[&str] = &[
    "from 10.9.9.9 lookup 100 pref 100",
    "to 10.244.1.7 lookup main pref 512",
    "from 10.244.1.7 lookup 3 pref 1536",
    "fwmark 0x1 lookup 98 pref 99",
    "fwmark 0x1/0x1 lookup 2004 pref 9",
    "fwmark 0x80/0x80 lookup 80 pref 1024",
    "from 10.8.0.0/16 lookup 77 pref 700",
];

const FILES: &[&str] = &[
    "/opt/cni/bin/bridge",
    "/opt/cni/bin/portmap",
    "/opt/cni/bin/loopback",
    "/opt/cni/bin/weave-shop",
    "/opt/cni/bin/weave-plugin-mine",
    "/var/lib/weave-shop",
    "/var/lib/calico-backup",
    "/run/flannel-mine",
    "/run/netns/cni-0123",
    "/etc/sysctl.d/99-mine.conf",
    "/etc/cni/net.d/calico-kubeconfig.bak",
    "/etc/cni/net.d/99-loopback.conf.bak",
    "/sys/fs/bpf/tc/globals/mine",
    "/sys/fs/bpf/cilium-mine",
    "/var/lib/cni/networks/new/10.244.1.7",
    "/var/lib/cni/networks/new/10.244.1.8",
];

/// Plants everything, and returns the names.
pub fn plant(node: &Node) -> Vec<String> {
    let mut names = Vec::new();
    for (line, own) in LINKS {
        node.namespace.ip(&[line]);
        names.extend(own.iter().map(|name| (*name).to_string()));
    }
    for name in IPSETS {
        node.namespace.run("ipset", &["create", name, "hash:ip"]);
        names.push((*name).to_string());
    }
    for (family, name) in NFT_TABLES {
        node.nft(&format!("add table {family} {name}\nadd chain {family} {name} WEAVE-NPC"));
        names.push((*name).to_string());
    }
    let mut tables: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (table, chains) in CHAINS {
        for chain in *chains {
            tables.entry(table).or_default().push(format!(":{chain} - [0:0]"));
            names.push((*chain).to_string());
        }
    }
    for (table, rule, text) in RULES {
        tables.entry(table).or_default().push((*rule).to_string());
        names.push(text.split_once("-A FORWARD ").map_or(*text, |(_, rest)| rest).to_string());
    }
    let tables: Vec<_> = tables.into_iter().map(|(table, lines)| (table.to_string(), lines)).collect();
    node.restore("iptables-nft", &tables);
    for (arguments, text) in ROUTES {
        node.namespace.ip(&[format!("route add {arguments}")]);
        names.push((*text).to_string());
    }
    for arguments in POLICY_RULES {
        node.namespace.ip(&[format!("rule add {arguments}")]);
    }
    node.namespace.ip(&["xfrm policy add src 10.7.0.1/32 dst 10.7.0.2/32 dir out mark 0x1 mask 0x1"]);
    names.extend(["10.9.9.9/32", "10.8.0.0/16", "10.7.0.1/32", "office"].map(ToString::to_string));
    files(node, &mut names);
    names
}

fn files(node: &Node, names: &mut Vec<String>) {
    for path in FILES {
        node.write(path, "live\r\neth0");
        names.push((*path).to_string());
    }
    // The configuration of the new plug-in, which also calls `portmap`.
    node.write(
        "/etc/cni/net.d/00-new.conflist",
        r#"{"name": "new", "plugins": [{"type": "newnet", "ipam": {"type": "host-local"}}, {"type": "portmap"}]}"#,
    );
    names.push("00-new.conflist".to_string());
    // A sandbox that starts: its address is not in the API yet.
    let result = |id: &str, address: &str| {
        format!(
            r#"{{"kind": "cniCacheV1", "containerId": "{id}", "networkName": "new", "result": {{"ips": [{{"address": "{address}/24"}}]}}}}"#
        )
    };
    node.write("/var/lib/cni/results/new-live-eth0", &result("live", "10.244.1.8"));
    names.push("/var/lib/cni/results/new-live-eth0".to_string());
}
