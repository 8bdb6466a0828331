//! What CNIs keep in objects of their own: the ranges that Pods get, the MTU where somebody has set it, and the ports of their tunnels.
//!
//! Sources: Cilium's ConfigMap (`install/kubernetes/cilium/templates/cilium-configmap.yaml`), Flannel's `net-conf.json`
//! (`Documentation/configuration.md` and `backends.md`), Calico's IPPool and FelixConfiguration (`libcalico-go/lib/apis/v3`), its
//! operator's Installation (`api/v1/installation_types.go`), Antrea's `antrea-agent.conf`, Kube-OVN's Subnet (`pkg/apis/kubeovn/v1`), and
//! the environment of Weave Net.

use serde_json::Value;

use super::Taken;
use crate::preflight::{Judged, first_few, list, text};
use crate::wire::yaml::Yaml;

/// ConfigMaps of CNIs, by namespace and name, as their own manifests have them.
pub const CONFIG_MAPS: [(&str, &str); 7] = [
    ("kube-system", "cilium-config"),
    ("cilium", "cilium-config"),
    ("kube-flannel", "kube-flannel-cfg"),
    ("kube-system", "kube-flannel-cfg"),
    ("kube-system", "canal-config"),
    ("kube-system", "calico-config"),
    ("kube-system", "antrea-config"),
];

/// Other kinds that have something to say, by API version.
pub const KINDS: [(&str, &str); 5] = [
    ("crd.projectcalico.org/v1", "IPPool"),
    ("crd.projectcalico.org/v1", "FelixConfiguration"),
    ("operator.tigera.io/v1", "Installation"),
    ("cilium.io/v2alpha1", "CiliumPodIPPool"),
    ("kubeovn.io/v1", "Subnet"),
];

/// The Linux kernel's own port for VXLAN, which Flannel and Cilium keep.
pub(super) const VXLAN_OF_LINUX: u16 = 8472;
/// RFC 7348, section 5.
pub(super) const VXLAN: u16 = 4789;
/// RFC 8926, section 3.3.
pub(super) const GENEVE: u16 = 6081;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Ranges that Pods get, and who says so.
    pub pools: Taken,
    /// MTUs that somebody has set, and where.
    pub mtus: Vec<(String, u64)>,
    /// UDP ports of tunnels, and whose they are.
    pub tunnels: Vec<(&'static str, u16)>,
}

/// Reads objects, each with its kind.
pub fn read(objects: &[(&str, Value)]) -> Settings {
    let (mut found, mut calicos) = (Settings::default(), Calico::default());
    for (kind, object) in objects {
        match *kind {
            "ConfigMap" => found.config_map(object),
            "DaemonSet" => found.weave(object),
            "IPPool" => {
                found.pool(&of("Calico's IPPool", object), text(object, "/spec/cidr"));
                calicos.has_vxlan |= !matches!(text(object, "/spec/vxlanMode"), "" | "Never");
            }
            "FelixConfiguration" => {
                let port = object.pointer("/spec/vxlanPort").and_then(Value::as_u64);
                calicos.port = port.and_then(|port| u16::try_from(port).ok()).or(calicos.port);
                for name in ["vxlanMTU", "ipipMTU", "wireguardMTU"] {
                    let mtu = object.pointer(&format!("/spec/{name}"));
                    found.mtu(&of(&format!("`{name}` of FelixConfiguration"), object), mtu);
                }
            }
            "Installation" => {
                found.mtu(&of("Installation", object), object.pointer("/spec/calicoNetwork/mtu"));
            }
            "CiliumPodIPPool" => {
                let ranges = ["ipv4", "ipv6"]
                    .into_iter()
                    .flat_map(|family| list(object, &format!("/spec/{family}/cidrs")));
                let who = of("CiliumPodIPPool", object);
                ranges.filter_map(Value::as_str).for_each(|range| found.pool(&who, range));
            }
            "Subnet" => found.pool(&of("Kube-OVN's Subnet", object), text(object, "/spec/cidrBlock")),
            _ => {}
        }
    }
    if calicos.has_vxlan {
        found.tunnels.push(("Calico", calicos.port.unwrap_or(VXLAN)));
    }
    found
}

/// What several objects of Calico say together.
#[derive(Default)]
struct Calico {
    has_vxlan: bool,
    port: Option<u16>,
}

fn of(what: &str, object: &Value) -> String {
    format!("{what} `{}`", text(object, "/metadata/name"))
}

impl Settings {
    /// Adds ranges that are separated by commas or spaces.
    fn pool(&mut self, who: &str, ranges: &str) {
        let ranges = ranges.split([',', ' ']).filter_map(|text| text.trim().parse().ok());
        self.pools.extend(ranges.map(|range| (format!("Pods: {who}"), range)));
    }

    /// Adds an MTU, as a number or a text; 0 has the CNI find it out.
    fn mtu(&mut self, at: &str, told: Option<&Value>) {
        let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.trim().parse().ok());
        let mtu = told.and_then(number).filter(|mtu| *mtu > 0);
        self.mtus.extend(mtu.map(|mtu| (at.to_string(), mtu)));
    }

    fn config_map(&mut self, object: &Value) {
        let at = format!("ConfigMap `{}`", text(object, "/metadata/name"));
        let data = object.get("data").unwrap_or(&Value::Null);
        match text(object, "/metadata/name") {
            "cilium-config" => self.cilium(&at, data),
            "antrea-config" => self.antrea(&at, text(data, "/antrea-agent.conf")),
            _ => {
                self.mtu(&format!("`veth_mtu` of {at}"), data.get("veth_mtu"));
                self.flannel(&at, text(data, "/net-conf.json"));
            }
        }
    }

    fn cilium(&mut self, at: &str, data: &Value) {
        self.mtu(&format!("`mtu` of {at}"), data.get("mtu"));
        for family in ["ipv4", "ipv6"] {
            self.pool(at, text(data, &format!("/cluster-pool-{family}-cidr")));
        }
        let is_off = text(data, "/routing-mode") == "native" || text(data, "/tunnel") == "disabled";
        // As versions before 1.14 had it, `tunnel` says the protocol.
        let is_geneve = [text(data, "/tunnel-protocol"), text(data, "/tunnel")].contains(&"geneve");
        let usual = if is_geneve { GENEVE } else { VXLAN_OF_LINUX };
        if !is_off {
            self.tunnels.push(("Cilium", text(data, "/tunnel-port").parse().unwrap_or(usual)));
        }
    }

    fn flannel(&mut self, at: &str, conf: &str) {
        let Ok(conf) = serde_json::from_str::<Value>(conf) else { return };
        for name in ["Network", "IPv6Network"] {
            self.pool(at, text(&conf, &format!("/{name}")));
        }
        self.mtu(&format!("`Backend.MTU` of {at}"), conf.pointer("/Backend/MTU"));
        if text(&conf, "/Backend/Type") == "vxlan" {
            let port = conf.pointer("/Backend/Port").and_then(Value::as_u64);
            let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
            self.tunnels.push(("Flannel", port.unwrap_or(VXLAN_OF_LINUX)));
        }
    }

    fn antrea(&mut self, at: &str, conf: &str) {
        let Ok(yaml) = Yaml::parse(conf) else { return };
        let told = |name: &str| yaml.at(&[name]).and_then(|node| yaml.scalar(node)).unwrap_or_default();
        self.mtu(&format!("`defaultMTU` of {at}"), Some(&Value::from(told("defaultMTU"))));
        let usual = match told("tunnelType") {
            "" | "geneve" => GENEVE,
            "vxlan" => VXLAN,
            // Neither uses UDP.
            _ => return,
        };
        if matches!(told("trafficEncapMode"), "" | "encap" | "hybrid") {
            let port = told("tunnelPort").parse().ok().filter(|port| *port > 0);
            self.tunnels.push(("Antrea", port.unwrap_or(usual)));
        }
    }

    fn weave(&mut self, object: &Value) {
        let containers = list(object, "/spec/template/spec/containers").iter();
        for container in containers.filter(|container| text(container, "/name") == "weave") {
            self.tunnels.extend([("Weave Net", 6783), ("Weave Net", 6784)]);
            for one in list(container, "/env") {
                match text(one, "/name") {
                    "IPALLOC_RANGE" => self.pool("`IPALLOC_RANGE` of Weave Net", text(one, "/value")),
                    "WEAVE_MTU" => self.mtu("`WEAVE_MTU` of Weave Net", one.get("value")),
                    _ => {}
                }
            }
        }
    }
}

/// Judges whether somebody has set an MTU. What a tunnel adds: RFC 7348, section 4, over IPv4; Geneve's options and encryption come on
/// top.
pub fn mtu(settings: &Settings) -> Judged {
    if settings.mtus.is_empty() {
        return Judged::pass("nobody has set one: CNIs find it out by the interfaces of the nodes");
    }
    let told: Vec<String> = settings.mtus.iter().map(|(at, mtu)| format!("{mtu} ({at})")).collect();
    Judged::warn(
        format!("set by hand: {}", first_few(&told)),
        "find out why (a tunnel or VPN beneath, jumbo frames), and tell the new CNI: the nodes' own, less 50 for VXLAN and Geneve, 20 for \
         IP-in-IP, 60 for WireGuard, over IPv6 20 more; what is too large is lost on its way, and only large answers hang",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config_map(name: &str, data: &Value) -> (&'static str, Value) {
        ("ConfigMap", json!({"metadata": {"name": name, "namespace": "kube-system"}, "data": data}))
    }

    fn pools(settings: &Settings) -> Vec<String> {
        settings.pools.iter().map(|(who, range)| format!("{range} {who}")).collect()
    }

    #[test]
    fn flannel_and_canal() {
        let conf =
            r#"{"Network": "10.244.0.0/16", "IPv6Network": "fd00:244::/56", "Backend": {"Type": "vxlan"}}"#;
        let found = read(&[config_map("kube-flannel-cfg", &json!({"net-conf.json": conf}))]);
        assert_eq!(
            pools(&found),
            [
                "10.244.0.0/16 Pods: ConfigMap `kube-flannel-cfg`",
                "fd00:244::/56 Pods: ConfigMap `kube-flannel-cfg`"
            ]
        );
        assert_eq!(
            (found.mtus.as_slice(), found.tunnels.as_slice()),
            ([].as_slice(), [("Flannel", 8472)].as_slice())
        );
        let conf = r#"{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan", "Port": 4789, "MTU": 1400}}"#;
        let found = read(&[config_map("canal-config", &json!({"net-conf.json": conf, "veth_mtu": "1450"}))]);
        assert_eq!(found.mtus.iter().map(|(_, mtu)| *mtu).collect::<Vec<_>>(), [1450, 1400]);
        assert_eq!(found.tunnels, [("Flannel", 4789)]);
        let routed = r#"{"Network": "10.244.0.0/16", "Backend": {"Type": "host-gw"}}"#;
        assert_eq!(read(&[config_map("kube-flannel-cfg", &json!({"net-conf.json": routed}))]).tunnels, []);
        assert_eq!(
            read(&[config_map("kube-flannel-cfg", &json!({"net-conf.json": "{"}))]),
            Settings::default()
        );
    }

    #[test]
    fn cilium() {
        let of = |data: Value| read(&[config_map("cilium-config", &data)]);
        let found = of(json!({"cluster-pool-ipv4-cidr": "10.0.0.0/9 10.192.0.0/10", "mtu": "0"}));
        assert_eq!(found.pools.len(), 2);
        assert_eq!((found.mtus.len(), found.tunnels.as_slice()), (0, [("Cilium", 8472)].as_slice()));
        assert_eq!(of(json!({"tunnel-protocol": "geneve"})).tunnels, [("Cilium", 6081)]);
        assert_eq!(of(json!({"tunnel": "geneve"})).tunnels, [("Cilium", 6081)]);
        assert_eq!(of(json!({"tunnel-port": "8473"})).tunnels, [("Cilium", 8473)]);
        assert_eq!(of(json!({"routing-mode": "native", "tunnel-port": "8473"})).tunnels, []);
        assert_eq!(
            of(json!({"mtu": "9000"})).mtus,
            [("`mtu` of ConfigMap `cilium-config`".to_string(), 9000)]
        );
        let cidrs = json!({"cidrs": ["10.7.0.0/16"], "maskSize": 24});
        let pool = json!({"metadata": {"name": "blue"}, "spec": {"ipv4": cidrs}});
        assert_eq!(pools(&read(&[("CiliumPodIPPool", pool)])), ["10.7.0.0/16 Pods: CiliumPodIPPool `blue`"]);
    }

    #[test]
    fn calico() {
        let pool = |mode: &str| {
            let spec = json!({"cidr": "192.168.0.0/16", "vxlanMode": mode, "ipipMode": "Never"});
            ("IPPool", json!({"metadata": {"name": "default"}, "spec": spec}))
        };
        let felix =
            |spec: Value| ("FelixConfiguration", json!({"metadata": {"name": "default"}, "spec": spec}));
        let found = read(&[pool("CrossSubnet")]);
        assert_eq!(pools(&found), ["192.168.0.0/16 Pods: Calico's IPPool `default`"]);
        assert_eq!(found.tunnels, [("Calico", 4789)]);
        assert_eq!(read(&[pool("Never")]).tunnels, []);
        let found = read(&[felix(json!({"vxlanPort": 8472, "vxlanMTU": 1400})), pool("Always")]);
        assert_eq!(found.tunnels, [("Calico", 8472)]);
        assert_eq!(found.mtus, [("`vxlanMTU` of FelixConfiguration `default`".to_string(), 1400)]);
        let installation = json!({"metadata": {"name": "default"}, "spec": {"calicoNetwork": {"mtu": 1430}}});
        assert_eq!(
            read(&[("Installation", installation)]).mtus,
            [("Installation `default`".to_string(), 1430)]
        );
    }

    #[test]
    fn others() {
        let antrea = |conf: &str| read(&[config_map("antrea-config", &json!({"antrea-agent.conf": conf}))]);
        assert_eq!(antrea("# nothing\ndefaultMTU: 0\n").tunnels, [("Antrea", 6081)]);
        let found = antrea("tunnelType: vxlan\ndefaultMTU: 1400\n");
        assert_eq!((found.tunnels.as_slice(), found.mtus.len()), ([("Antrea", 4789)].as_slice(), 1));
        assert_eq!(antrea("trafficEncapMode: noEncap\n").tunnels, []);
        assert_eq!(antrea("tunnelType: gre\n").tunnels, []);
        let env = json!([{"name": "IPALLOC_RANGE", "value": "10.32.0.0/12"}, {"name": "WEAVE_MTU", "value": "8916"}]);
        let weave = json!({"spec": {"template": {"spec": {"containers": [{"name": "weave", "env": env}]}}}});
        let found = read(&[("DaemonSet", weave)]);
        assert_eq!(pools(&found), ["10.32.0.0/12 Pods: `IPALLOC_RANGE` of Weave Net"]);
        assert_eq!((found.mtus.len(), found.tunnels.len()), (1, 2));
        let subnet =
            json!({"metadata": {"name": "join"}, "spec": {"cidrBlock": "100.64.0.0/16,fd00:100:64::/112"}});
        assert_eq!(read(&[("Subnet", subnet)]).pools.len(), 2);
    }
}
