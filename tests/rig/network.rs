//! A network of namespaces: a hub, and nodes and their Pods around it.
//!
//! ```text
//! hub: etcd, API servers, controllers, the test's own thread and what it starts
//!  └ bridge `fabric` 192.0.2.0/24, 2001:db8::/64: the gateway .1, the API servers .10, .11, …
//!     ├ node-1 .101 ─ bridge `cni0` 10.244.1.0/24, fd00:10:244:1::/64: pods .2, .3, …
//!     └ node-2 .102 ─ bridge `cni0` 10.244.2.0/24, fd00:10:244:2::/64: pods .2, .3, …
//! ```
//!
//! Why a hub: the API servers must reach the nodes and the nodes the API servers; etcd, the test's clients and the netsurgeon
//! that it runs must reach all of them. So they share one namespace, and the test's thread enters it: loopback there is the
//! hub's, every thread and child that the test starts is in it too, and nothing needs to be forwarded. The machine and other runs
//! see no interface, address or rule of it, and because no other process is in there, all addresses and ports are fixed.
//!
//! A Pod has only its own address (/32, /128) and sends everything to its node. So packets between two Pods of one node pass the
//! node's rules in both directions, whether or not the kernel filters on bridges.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;

use tokio::runtime::{Handle, RuntimeFlavor};

use super::apiserver::advertised;
use super::namespace::Namespace;

/// The ranges of all Pods' addresses, as in kube-proxy's `--cluster-cidr`, by family.
pub const POD_CIDRS: [&str; 2] = ["10.244.0.0/16", "fd00:10:244::/48"];

/// The hub, which the thread that created it has entered. On drop that thread returns.
pub struct Network {
    hub: Namespace,
    home: Namespace,
}

impl Network {
    /// Creates a hub with the addresses of so many API servers, and moves the calling thread into it.
    ///
    /// Only this thread moves: the runtime that it drives must have no others.
    pub fn enter(api_servers: u8) -> Self {
        if let Ok(runtime) = Handle::try_current() {
            let flavor = runtime.runtime_flavor();
            assert_eq!(flavor, RuntimeFlavor::CurrentThread, "a test with nodes uses one thread");
        }
        let network = Self { hub: Namespace::create("hub"), home: Namespace::current() };
        let mut lines = vec![
            "link add fabric type bridge".to_owned(),
            "link set fabric up".to_owned(),
            format!("address add {}/24 dev fabric", gateway()),
            "address add 2001:db8::1/64 dev fabric nodad".to_owned(),
        ];
        for number in 0..api_servers {
            lines.push(format!("address add {}/24 dev fabric", advertised("10.0.0.0/8", number)));
            lines.push(format!("address add {}/64 dev fabric nodad", advertised("fd00::/8", number)));
        }
        network.hub.ip(&lines);
        network.hub.enter();
        network
    }

    /// Returns the hub's namespace.
    pub fn hub(&self) -> &Namespace {
        &self.hub
    }

    /// Adds one more node to the network, with a bridge for its Pods; `others` are the existing nodes.
    pub fn add_node(&self, others: &[Node]) -> Node {
        let node = self.add_host(others);
        let [bridge, bridge6] = node.pod_addresses(1);
        node.namespace.ip(&[
            "link add cni0 type bridge".to_owned(),
            "link set cni0 up".to_owned(),
            format!("address add {bridge}/24 dev cni0"),
            format!("address add {bridge6}/64 dev cni0 nodad"),
        ]);
        node.namespace.sysctl("ipv4/conf/cni0/send_redirects", "0");
        self.route_pods(&node, others);
        node
    }

    /// Adds the routes between the Pods of a node and the hub, and the Pods of the other nodes.
    pub fn route_pods(&self, node: &Node, others: &[Node]) {
        self.hub.ip(&node.routes());
        for other in others {
            other.namespace.ip(&node.routes());
            node.namespace.ip(&other.routes());
        }
    }

    /// Adds one more node to the network, without anything for its Pods.
    pub fn add_host(&self, others: &[Node]) -> Node {
        let number = u8::try_from(others.len() + 1).expect("few nodes");
        let name = format!("node-{number}");
        let node = Node { namespace: Namespace::create(&name), name, number, pods: Mutex::new(1) };
        self.hub.ip(&[
            format!("link add {} type veth peer name eth0 netns {}", node.name, node.namespace.path()),
            format!("link set {} master fabric up", node.name),
        ]);
        for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            node.namespace.sysctl(setting, "1");
        }
        // A Pod that gets a redirect would bypass the node's rules.
        node.namespace.sysctl("ipv4/conf/all/send_redirects", "0");
        let [address, address6] = node.addresses();
        node.namespace.ip(&[
            "link set eth0 up".to_owned(),
            format!("address add {address}/24 dev eth0"),
            format!("address add {address6}/64 dev eth0 nodad"),
            format!("route add default via {}", gateway()),
            "route add default via 2001:db8::1".to_owned(),
        ]);
        node
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if Namespace::current().is(&self.hub) {
            self.home.enter();
        }
    }
}

/// Returns the hub's own address on the fabric, where only the servers of a test listen.
pub fn gateway() -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 1)
}

/// A node: a namespace with an address on the fabric and a bridge for its Pods.
pub struct Node {
    /// Also the name of the Node object.
    pub name: String,
    namespace: Namespace,
    number: u8,
    /// The last part of the address that was assigned last.
    pods: Mutex<u8>,
}

impl Node {
    /// Returns the namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns the IPv4 address, the node's first InternalIP.
    pub fn address(&self) -> IpAddr {
        self.addresses()[0]
    }

    /// Returns the addresses, by family.
    pub fn addresses(&self) -> [IpAddr; 2] {
        let last = 100 + self.number;
        let six = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last));
        [Ipv4Addr::new(192, 0, 2, last).into(), six.into()]
    }

    /// Returns the ranges of the node's Pods, by family.
    pub fn pod_cidrs(&self) -> [String; 2] {
        let [four, six] = self.pod_addresses(0);
        [format!("{four}/24"), format!("{six}/64")]
    }

    /// Creates the namespace of one more Pod, with its addresses by family.
    pub fn attach(&self, purpose: &str) -> (Namespace, [IpAddr; 2]) {
        let last = {
            let mut last = self.pods.lock().expect("the lock");
            *last += 1;
            *last
        };
        let pod = Namespace::create(purpose);
        let link = format!("pod{last}");
        self.namespace.ip(&[
            format!("link add {link} type veth peer name eth0 netns {}", pod.path()),
            format!("link set {link} master cni0 up"),
            format!("link set {link} type bridge_slave hairpin on"),
        ]);
        let addresses = self.pod_addresses(last);
        let ([bridge, bridge6], [address, address6]) = (self.pod_addresses(1), addresses);
        pod.ip(&[
            "link set eth0 up".to_owned(),
            format!("address add {address}/32 dev eth0"),
            format!("address add {address6}/128 dev eth0 nodad"),
            format!("route add default via {bridge} dev eth0 onlink"),
            format!("route add default via {bridge6} dev eth0 onlink"),
        ]);
        // Probes take their ports from the rest.
        pod.sysctl("ipv4/ip_local_port_range", "60001 65535");
        (pod, addresses)
    }

    fn pod_addresses(&self, last: u8) -> [IpAddr; 2] {
        let six = Ipv6Addr::new(0xfd00, 0x10, 0x244, u16::from(self.number), 0, 0, 0, u16::from(last));
        [Ipv4Addr::new(10, 244, self.number, last).into(), six.into()]
    }

    fn routes(&self) -> [String; 2] {
        let ([four, six], [address, address6]) = (self.pod_cidrs(), self.addresses());
        [format!("route add {four} via {address}"), format!("route add {six} via {address6}")]
    }
}
