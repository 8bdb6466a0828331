//! Reads settings from the CNIs' own objects: ranges for Pods, MTUs that are set by hand, and tunnel ports.
//!
//! The settings come from Cilium's ConfigMap (`install/kubernetes/cilium/templates/cilium-configmap.yaml`), Flannel's
//! `net-conf.json` (`Documentation/configuration.md` and `backends.md`), Calico's IPPool and FelixConfiguration
//! (`libcalico-go/lib/apis/v3`), the Installation of Calico's operator (`api/v1/installation_types.go`), Antrea's
//! `antrea-agent.conf`, Kube-OVN's Subnet (`pkg/apis/kubeovn/v1`), and the environment variables of Weave Net and Amazon VPC CNI.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use serde_json::Value;

use super::network_plugins::{GENEVE, NetworkPlugin, PLUGINS, VXLAN, VXLAN_OF_LINUX, agent, wanted};
use super::{list, text};
use crate::ip::ServiceCidr;
use crate::kube_api::accessors::{annotation, containers, name, words};
use crate::wire::yaml::Yaml;

/// The default range of Weave Net (`prog/weave-kube/launch.sh`, v2.8.1).
const RANGE_OF_WEAVE: &str = "10.32.0.0/12";
/// MTU in Amazon's own manifest. Such a value is not treated as a manual setting.
const MTU_OF_AMAZON: u64 = 9001;
/// Annotation that Flannel sets on Nodes (`pkg/subnet/kube/annotations.go`). k3s runs Flannel without a Pod, but the Nodes also
/// have this annotation.
const ANNOTATION_OF_FLANNEL: &str = "flannel.alpha.coreos.com/backend-type";

const NET_CONF: &str = "net-conf.json";

/// Ranges in use. Each has a text that describes where the range is used.
pub type UsedRanges = Vec<(String, ServiceCidr)>;

/// NetworkSettings that were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkSettings {
    /// Whether agents of the new CNI run.
    pub has_newcomer: bool,
    /// CNIs with running agents. Does not include the new CNI if agents of another CNI run.
    pub running: BTreeSet<&'static str>,
    /// Ranges for Pods, each with its source.
    pub pools: UsedRanges,
    /// MTUs that are set by hand, each with the place where it is set.
    pub mtus: Vec<(String, u64)>,
    /// CNIs and the UDP ports of their tunnels.
    pub tunnels: Vec<(&'static str, u16)>,
    /// Whether Cilium is set to give its Pods addresses of the ranges of Nodes.
    pub has_node_ranges: bool,
    /// CNIs that route Services in place of kube-proxy.
    pub service_proxies: BTreeSet<&'static str>,
}

/// Objects that contain settings.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The ConfigMaps of network plug-ins that exist.
    pub config_maps: Vec<ConfigMap>,
    /// The other objects with settings, each with its kind.
    pub others: Vec<(&'static str, Value)>,
}

/// Reads the settings of the CNIs with running agents. Ignores leftover objects of other CNIs. Ignores objects of the new CNI
/// (`to`, for example `Cilium`) if another CNI runs.
pub fn read(
    sources: &Sources,
    daemon_sets: &[DaemonSet],
    nodes: &[Node],
    to: Option<&str>,
) -> NetworkSettings {
    let mut found = NetworkSettings { running: running(daemon_sets), ..NetworkSettings::default() };
    let flannel =
        nodes.iter().any(|node| annotation(node, ANNOTATION_OF_FLANNEL) == "vxlan") && to != Some("Flannel");
    found.has_newcomer = to.is_some_and(|to| found.running.contains(to));
    if found.running.len() > 1 || flannel {
        found.running.retain(|whose| Some(*whose) != to);
    }
    for object in daemon_sets {
        found.daemon_set(object);
    }
    for object in &sources.config_maps {
        found.config_map(object);
    }
    let mut calicos = Calico::default();
    for (kind, object) in &sources.others {
        found.object(kind, object, &mut calicos);
    }
    if calicos.has_vxlan {
        found.tunnels.push(("Calico", calicos.port.unwrap_or(VXLAN)));
    }
    for plugin in PLUGINS.iter().filter(|plugin| found.running.contains(plugin.name)) {
        found.tunnels.extend(plugin.tunnels.iter().map(|port| (plugin.name, *port)));
    }
    // If only agents of other CNIs run, the annotation is left over from an earlier Flannel.
    let mut confs = sources.config_maps.iter().filter_map(|object| object.data.as_ref()?.get(NET_CONF));
    let is_read = confs.any(|conf| !conf.is_empty());
    let is_flannels = found.running.is_empty() || found.running.contains("Flannel");
    if flannel && is_flannels && !is_read {
        found.running.insert("Flannel");
        found.tunnels.push(("Flannel (by Node annotations)", VXLAN_OF_LINUX));
    }
    found
}

/// Returns the CNIs with an agent on at least one node.
fn running(daemon_sets: &[DaemonSet]) -> BTreeSet<&'static str> {
    let found = daemon_sets.iter().filter(|one| wanted(one) > 0).filter_map(agent).map(|(whose, _)| whose);
    found.flat_map(|whose| if whose == "Canal" { vec!["Calico", "Flannel"] } else { vec![whose] }).collect()
}

/// VXLAN settings, collected from several Calico objects.
#[derive(Default)]
struct Calico {
    has_vxlan: bool,
    port: Option<u16>,
}

fn of(what: &str, object: &Value) -> String {
    format!("{what} `{}`", text(object, "/metadata/name"))
}

impl NetworkSettings {
    fn is_running(&self, plugin: Option<&NetworkPlugin>) -> bool {
        plugin.is_some_and(|plugin| self.running.contains(plugin.name))
    }

    fn object(&mut self, kind: &str, object: &Value, calicos: &mut Calico) {
        if !self.is_running(NetworkPlugin::of_settings(kind)) {
            return;
        }
        match kind {
            "IPPool" => {
                self.pool(&of("Calico's IPPool", object), text(object, "/spec/cidr"));
                calicos.has_vxlan |= !matches!(text(object, "/spec/vxlanMode"), "" | "Never");
            }
            "FelixConfiguration" => {
                if text(object, "/metadata/name") == "default" {
                    let port = object.pointer("/spec/vxlanPort").and_then(Value::as_u64);
                    calicos.port = port.and_then(|port| u16::try_from(port).ok());
                }
                if object.pointer("/spec/bpfEnabled") == Some(&Value::Bool(true)) {
                    self.service_proxies.insert("Calico");
                }
                for name in ["vxlanMTU", "vxlanMTUV6", "ipipMTU", "wireguardMTU", "wireguardMTUV6"] {
                    let mtu = object.pointer(&format!("/spec/{name}"));
                    self.mtu(&of(&format!("`{name}` of FelixConfiguration"), object), mtu.and_then(number));
                }
            }
            "Installation" => {
                if text(object, "/spec/calicoNetwork/linuxDataplane") == "BPF" {
                    self.service_proxies.insert("Calico");
                }
                let mtu = object.pointer("/spec/calicoNetwork/mtu");
                self.mtu(&of("Installation", object), mtu.and_then(number));
            }
            "CiliumPodIPPool" => {
                let families = ["ipv4", "ipv6"].into_iter();
                let ranges = families.flat_map(|family| list(object, &format!("/spec/{family}/cidrs")));
                let who = of("CiliumPodIPPool", object);
                ranges.filter_map(Value::as_str).for_each(|range| self.pool(&who, range));
            }
            "Subnet" => self.pool(&of("Kube-OVN's Subnet", object), text(object, "/spec/cidrBlock")),
            _ => {}
        }
    }

    /// Adds ranges that are separated by commas or spaces.
    fn pool(&mut self, who: &str, ranges: &str) {
        let ranges = ranges.split([',', ' ']).filter_map(|text| text.trim().parse().ok());
        self.pools.extend(ranges.map(|range| (format!("Pods: {who}"), range)));
    }

    /// Adds an MTU. The value 0 means that the CNI detects the MTU.
    fn mtu(&mut self, at: &str, told: Option<u64>) {
        self.mtus.extend(told.filter(|mtu| *mtu > 0).map(|mtu| (at.to_string(), mtu)));
    }

    fn config_map(&mut self, object: &ConfigMap) {
        let plugin = NetworkPlugin::of_config_map(name(object));
        if !self.is_running(plugin) {
            return;
        }
        let at = format!("ConfigMap `{}`", name(object));
        let data = object.data.as_ref();
        let told = |name: &str| data.and_then(|data| data.get(name)).map(String::as_str).unwrap_or_default();
        match plugin.map(|plugin| plugin.name).unwrap_or_default() {
            "Cilium" => self.cilium(&at, told),
            "Antrea" => self.antrea(&at, told("antrea-agent.conf")),
            _ => {
                self.mtu(&format!("`veth_mtu` of {at}"), parsed(told("veth_mtu")));
                self.flannel(&at, told(NET_CONF));
            }
        }
    }

    fn cilium<'d>(&mut self, at: &str, told: impl Fn(&str) -> &'d str) {
        self.mtu(&format!("`mtu` of {at}"), parsed(told("mtu")));
        if matches!(told("kube-proxy-replacement"), "true" | "strict") {
            self.service_proxies.insert("Cilium");
        }
        self.has_node_ranges = told("ipam") == "kubernetes";
        if !self.has_node_ranges {
            for family in ["ipv4", "ipv6"] {
                self.pool(at, told(&format!("cluster-pool-{family}-cidr")));
            }
            // For example, `default=ipv4-cidrs:10.10.0.0/16;ipv4-mask-size:24`.
            for word in told("auto-create-cilium-pod-ip-pools").split([';', ',', ' ', '\n']) {
                self.pool(at, word.rsplit_once("cidrs:").map_or(word, |(_, range)| range));
            }
        }
        let is_off = told("routing-mode") == "native" || told("tunnel") == "disabled";
        // Before Cilium 1.14, the entry `tunnel` contains the protocol.
        let is_geneve = [told("tunnel-protocol"), told("tunnel")].contains(&"geneve");
        let usual = if is_geneve { GENEVE } else { VXLAN_OF_LINUX };
        if !is_off {
            let port = told("tunnel-port").parse().ok().filter(|port| *port > 0);
            self.tunnels.push(("Cilium", port.unwrap_or(usual)));
        }
    }

    fn flannel(&mut self, at: &str, conf: &str) {
        let Ok(conf) = serde_json::from_str::<Value>(conf) else { return };
        for name in ["Network", "IPv6Network"] {
            self.pool(at, text(&conf, &format!("/{name}")));
        }
        self.mtu(&format!("`Backend.MTU` of {at}"), conf.pointer("/Backend/MTU").and_then(number));
        if text(&conf, "/Backend/Type") == "vxlan" {
            let port = conf.pointer("/Backend/Port").and_then(Value::as_u64);
            let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
            self.tunnels.push(("Flannel", port.unwrap_or(VXLAN_OF_LINUX)));
        }
    }

    fn antrea(&mut self, at: &str, conf: &str) {
        let Ok(yaml) = Yaml::parse(conf) else { return };
        let told = |name: &str| yaml.at(&[name]).and_then(|node| yaml.scalar(node)).unwrap_or_default();
        self.mtu(&format!("`defaultMTU` of {at}"), parsed(told("defaultMTU")));
        let usual = match told("tunnelType") {
            "" | "geneve" => GENEVE,
            "vxlan" => VXLAN,
            // Other tunnel types do not use UDP.
            _ => return,
        };
        if matches!(told("trafficEncapMode"), "" | "encap" | "hybrid") {
            let port = told("tunnelPort").parse().ok().filter(|port| *port > 0);
            self.tunnels.push(("Antrea", port.unwrap_or(usual)));
        }
    }

    /// Reads settings from the environment variables of agents.
    fn daemon_set(&mut self, object: &DaemonSet) {
        for container in containers(object) {
            let told = |name: &str| {
                let entry = container.env.iter().flatten().find(|one| one.name == name);
                entry.and_then(|one| one.value.as_deref()).unwrap_or_default()
            };
            match container.name.as_str() {
                "weave" if self.running.contains("Weave Net") => {
                    let range = Some(told("IPALLOC_RANGE")).filter(|range| !range.is_empty());
                    self.pool("`IPALLOC_RANGE` of Weave Net", range.unwrap_or(RANGE_OF_WEAVE));
                    self.mtu("`WEAVE_MTU` of Weave Net", parsed(told("WEAVE_MTU")));
                }
                "calico-node" if self.running.contains("Calico") && told("FELIX_BPFENABLED") == "true" => {
                    self.service_proxies.insert("Calico");
                }
                // It routes Services by default (`pkg/options/options.go`).
                "kube-router" if self.running.contains("kube-router") => {
                    let is_off = words(container).any(|word| word == "--run-service-proxy=false");
                    self.service_proxies.extend((!is_off).then_some("kube-router"));
                }
                "aws-node" if self.running.contains("Amazon VPC CNI") => {
                    let mtu = parsed(told("AWS_VPC_ENI_MTU")).filter(|mtu| *mtu != MTU_OF_AMAZON);
                    self.mtu("`AWS_VPC_ENI_MTU` of Amazon VPC CNI", mtu);
                }
                _ => {}
            }
        }
    }
}

fn parsed(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Returns a number that is stored as a number or as a string.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| parsed(value.as_str()?))
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    fn typed<K: DeserializeOwned>(object: Value) -> K {
        serde_json::from_value(object).unwrap()
    }

    fn config_map(name: &str, data: &Value) -> Sources {
        let object = json!({"metadata": {"name": name, "namespace": "kube-system"}, "data": data});
        Sources { config_maps: vec![typed(object)], ..Sources::default() }
    }

    fn sources(objects: &[(&'static str, Value)]) -> Sources {
        Sources { others: objects.to_vec(), ..Sources::default() }
    }

    fn running_all(containers: &Value) -> DaemonSet {
        typed(json!({
            "spec": {"template": {"spec": {"containers": containers}}},
            "status": {"desiredNumberScheduled": 2},
        }))
    }

    fn running(container: &str, env: &Value) -> DaemonSet {
        running_all(&json!([{"name": container, "env": env}]))
    }

    /// Returns the settings of a cluster in which only this agent runs.
    fn with(container: &str, sources: &Sources) -> NetworkSettings {
        read(sources, &[running(container, &json!([]))], &[], None)
    }

    fn pools(settings: &NetworkSettings) -> Vec<String> {
        settings.pools.iter().map(|(who, range)| format!("{range} {who}")).collect()
    }

    #[test]
    fn flannel_and_canal_settings_are_read() {
        let conf =
            r#"{"Network": "10.244.0.0/16", "IPv6Network": "fd00:244::/56", "Backend": {"Type": "vxlan"}}"#;
        let objects = config_map("kube-flannel-cfg", &json!({"net-conf.json": conf}));
        let found = with("kube-flannel", &objects);
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
        let left = with("cilium-agent", &objects);
        assert_eq!((pools(&left), left.tunnels.len()), (Vec::new(), 0), "a leftover of Flannel");
        let conf = r#"{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan", "Port": 4789, "MTU": 1400}}"#;
        let data = json!({"net-conf.json": conf, "veth_mtu": "1450"});
        let canal = running_all(&json!([{"name": "calico-node"}, {"name": "kube-flannel"}]));
        let found = read(&config_map("canal-config", &data), &[canal], &[], None);
        assert_eq!(found.mtus.iter().map(|(_, mtu)| *mtu).collect::<Vec<_>>(), [1450, 1400]);
        assert_eq!(found.tunnels, [("Flannel", 4789)]);
        for conf in [r#"{"Network": "10.244.0.0/16", "Backend": {"Type": "host-gw"}}"#, "{"] {
            let objects = config_map("kube-flannel-cfg", &json!({"net-conf.json": conf}));
            assert_eq!(with("kube-flannel", &objects).tunnels, []);
        }
    }

    /// For example, k3s runs Flannel in the kubelet's process.
    #[test]
    fn flannel_without_pods_is_found_by_node_annotations() {
        let node = |kind: &str| {
            typed(json!({"metadata": {"annotations": {"flannel.alpha.coreos.com/backend-type": kind}}}))
        };
        let of = |agents: &[&str], kind: &str, to: Option<&str>| {
            let agents: Vec<DaemonSet> = agents.iter().map(|agent| running(agent, &json!([]))).collect();
            read(&Sources::default(), &agents, &[node(kind)], to).tunnels
        };
        let told = [("Flannel (by Node annotations)", 8472)];
        assert_eq!(of(&[], "vxlan", None), told);
        assert_eq!(of(&["kube-flannel"], "vxlan", None), told);
        assert_eq!(of(&[], "wireguard", None), []);
        assert_eq!(of(&["cilium-agent"], "vxlan", None), [], "left behind");
        assert_eq!(of(&["cilium-agent"], "vxlan", Some("Cilium")), told);
    }

    #[test]
    fn cilium_settings_are_read() {
        let of = |data: Value| with("cilium-agent", &config_map("cilium-config", &data));
        let found = of(json!({"cluster-pool-ipv4-cidr": "10.0.0.0/9 10.192.0.0/10", "mtu": "0"}));
        assert_eq!(found.pools.len(), 2);
        assert_eq!((found.mtus.len(), found.tunnels.as_slice()), (0, [("Cilium", 8472)].as_slice()));
        let by_node = of(json!({"ipam": "kubernetes", "cluster-pool-ipv4-cidr": "10.0.0.0/9"}));
        assert!(by_node.has_node_ranges && by_node.pools.is_empty() && !found.has_node_ranges);
        let several = json!({"ipam": "multi-pool", "auto-create-cilium-pod-ip-pools": "default=ipv4-cidrs:10.10.0.0/16,10.11.0.0/16;ipv4-mask-size:24;ipv6-cidrs:fd00::/104\n"});
        let several: Vec<String> = of(several).pools.iter().map(|(_, range)| range.to_string()).collect();
        assert_eq!(several, ["10.10.0.0/16", "10.11.0.0/16", "fd00::/104"]);
        assert_eq!(of(json!({"tunnel-protocol": "geneve"})).tunnels, [("Cilium", 6081)]);
        assert_eq!(of(json!({"tunnel": "geneve"})).tunnels, [("Cilium", 6081)]);
        assert_eq!(of(json!({"tunnel-port": "8473"})).tunnels, [("Cilium", 8473)]);
        assert_eq!(of(json!({"tunnel-port": "0"})).tunnels, [("Cilium", 8472)]);
        assert_eq!(of(json!({"routing-mode": "native", "tunnel-port": "8473"})).tunnels, []);
        assert_eq!(
            of(json!({"mtu": "9000"})).mtus,
            [("`mtu` of ConfigMap `cilium-config`".to_string(), 9000)]
        );
        let cidrs = json!({"cidrs": ["10.7.0.0/16"], "maskSize": 24});
        let pool = json!({"metadata": {"name": "blue"}, "spec": {"ipv4": cidrs}});
        let pool = sources(&[("CiliumPodIPPool", pool)]);
        assert_eq!(pools(&with("cilium-agent", &pool)), ["10.7.0.0/16 Pods: CiliumPodIPPool `blue`"]);
        let both = ["cilium-agent", "kube-flannel"].map(|container| running(container, &json!([])));
        let other = read(&pool, &both, &[], Some("Cilium"));
        assert_eq!((pools(&other), other.tunnels.len()), (Vec::new(), 0), "it is the new CNI");
        assert_eq!(read(&pool, &both[..1], &[], Some("Cilium")).pools.len(), 1, "no other CNI runs");
    }

    #[test]
    fn calico_settings_are_read() {
        let pool = |mode: &str| {
            let spec = json!({"cidr": "192.168.0.0/16", "vxlanMode": mode, "ipipMode": "Never"});
            ("IPPool", json!({"metadata": {"name": "default"}, "spec": spec}))
        };
        let felix = |name: &str, spec: Value| {
            ("FelixConfiguration", json!({"metadata": {"name": name}, "spec": spec}))
        };
        let found = with("calico-node", &sources(&[pool("CrossSubnet")]));
        assert_eq!(pools(&found), ["192.168.0.0/16 Pods: Calico's IPPool `default`"]);
        assert_eq!(found.tunnels, [("Calico", 4789)]);
        assert_eq!(with("calico-node", &sources(&[pool("Never")])).tunnels, []);
        let of_all = felix("default", json!({"vxlanPort": 8472, "vxlanMTU": 1400}));
        let all = [of_all, felix("node.a", json!({"vxlanPort": 9999})), pool("Always")];
        let found = with("calico-node", &sources(&all));
        assert_eq!(found.tunnels, [("Calico", 8472)]);
        assert_eq!(found.mtus, [("`vxlanMTU` of FelixConfiguration `default`".to_string(), 1400)]);
        let installation = json!({"metadata": {"name": "default"}, "spec": {"calicoNetwork": {"mtu": 1430}}});
        let found = with("calico-node", &sources(&[("Installation", installation)]));
        assert_eq!(found.mtus, [("Installation `default`".to_string(), 1430)]);
    }

    #[test]
    fn plug_ins_that_route_services_are_found() {
        let of = |found: NetworkSettings| found.service_proxies.into_iter().collect::<Vec<_>>();
        let cilium = |on: &str| {
            of(with("cilium-agent", &config_map("cilium-config", &json!({"kube-proxy-replacement": on}))))
        };
        assert_eq!((cilium("true"), cilium("false")), (vec!["Cilium"], vec![]));
        let felix = json!({"metadata": {"name": "default"}, "spec": {"bpfEnabled": true}});
        assert_eq!(of(with("calico-node", &sources(&[("FelixConfiguration", felix)]))), ["Calico"]);
        assert!(of(with("calico-node", &Sources::default())).is_empty());
        let router = |flag: &str| {
            let container = json!([{"name": "kube-router", "args": [flag]}]);
            of(read(&Sources::default(), &[running_all(&container)], &[], None))
        };
        assert_eq!(router("--run-router=true"), ["kube-router"]);
        assert!(router("--run-service-proxy=false").is_empty());
    }

    #[test]
    fn settings_of_other_cnis_are_read() {
        let antrea = |conf: &str| {
            with("antrea-agent", &config_map("antrea-config", &json!({"antrea-agent.conf": conf})))
        };
        assert_eq!(antrea("# nothing\ndefaultMTU: 0\n").tunnels, [("Antrea", 6081)]);
        let found = antrea("tunnelType: vxlan\ndefaultMTU: 1400\n");
        assert_eq!((found.tunnels.as_slice(), found.mtus.len()), ([("Antrea", 4789)].as_slice(), 1));
        assert_eq!(antrea("trafficEncapMode: noEncap\n").tunnels, []);
        assert_eq!(antrea("tunnelType: gre\n").tunnels, []);
        let env = json!([{"name": "IPALLOC_RANGE", "value": "10.40.0.0/16"}, {"name": "WEAVE_MTU", "value": "8916"}]);
        let found = read(&Sources::default(), &[running("weave", &env)], &[], None);
        assert_eq!(pools(&found), ["10.40.0.0/16 Pods: `IPALLOC_RANGE` of Weave Net"]);
        assert_eq!((found.mtus.len(), found.tunnels.len()), (1, 2));
        assert_eq!(
            pools(&with("weave", &Sources::default())),
            ["10.32.0.0/12 Pods: `IPALLOC_RANGE` of Weave Net"],
            "its own"
        );
        let amazon = |mtu: &str| running("aws-node", &json!([{"name": "AWS_VPC_ENI_MTU", "value": mtu}]));
        let mtus = |mtu: &str| read(&Sources::default(), &[amazon(mtu)], &[], None).mtus.len();
        assert_eq!((mtus("9001"), mtus("1500")), (0, 1));
        let subnet =
            json!({"metadata": {"name": "join"}, "spec": {"cidrBlock": "100.64.0.0/16,fd00:100:64::/112"}});
        let found = with("cni-server", &sources(&[("Subnet", subnet)]));
        assert_eq!((found.pools.len(), found.tunnels.as_slice()), (2, [("Kube-OVN", 6081)].as_slice()));
    }
}
