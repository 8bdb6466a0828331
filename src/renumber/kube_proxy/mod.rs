//! Determines which data plane routes Services in the cluster, the mode of kube-proxy, and whether external IPs can hold old
//! addresses. The source is a survey. If the operator gives a configuration of kube-proxy, the given configuration replaces the
//! configuration in the survey.
//!
//! A hold by external IP needs a kube-proxy that routes external IPs and detects local traffic of the address's family. Only such
//! a kube-proxy treats an external IP with `externalTrafficPolicy: Local` like a ClusterIP for traffic from Pods and nodes.

mod routers;

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use self::routers::of_plugins;
use crate::controlplane::{LocalDetector, argument, document};
use crate::ip::{Family, ServiceCidr};
use crate::survey::{NodeRecord, ProxyContainer, Survey};

/// The data plane that routes Services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataPlane {
    /// kube-proxy in a supported (tested) mode.
    KubeProxy {
        /// Mode, local-traffic detector and source of the configuration, as text.
        about: String,
        /// Why external IPs cannot hold old addresses; `None` if they can hold old addresses.
        no_external_ip: Option<Obstacle>,
    },
    /// The data plane could not be identified. Contains the reason.
    Unknown(String),
    /// The data plane is not supported, because it was not tested. Contains the reason.
    Unsupported(String),
}

/// Reason why external IPs cannot hold addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// The feature gate `AllowServiceExternalIPs` is off, so kube-proxy has no rules for external IPs.
    Gate,
    /// kube-proxy cannot distinguish local traffic (of Pods and nodes) from other traffic.
    Detector,
    /// kube-proxy before 1.36 has a bug in mode nftables.
    OldNftables,
}

impl Obstacle {
    /// Returns the reason as text.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Gate => {
                "kube-proxy routes no external IPs (its feature gate `AllowServiceExternalIPs` is off)"
            }
            Self::Detector => {
                "kube-proxy has no local-traffic detector for this address family (`clusterCIDR` or `detectLocalMode`)"
            }
            Self::OldNftables => {
                "in mode nftables, kube-proxy before 1.36 drops traffic to external IPs on nodes without endpoints"
            }
        }
    }

    /// Returns what the operator can change so that external IPs work; `None` if only an upgrade helps.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Self::Gate => Some("enable kube-proxy's feature gate `AllowServiceExternalIPs`"),
            Self::Detector => Some("set `clusterCIDR` or `detectLocalMode` of kube-proxy"),
            Self::OldNftables => None,
        }
    }
}

/// One configuration of kube-proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Proxy {
    mode: String,
    detector: String,
    /// The range, bridge or prefix by which kube-proxy detects local traffic.
    detects_by: String,
    /// Value of the feature gate `AllowServiceExternalIPs`; `None` if it is not set.
    gate: Option<bool>,
}

/// The kind of kube-proxy's configuration.
/// The feature gate that makes kube-proxy route external IPs (`pkg/proxy/serviceport.go`, v1.36.3).
const GATE: &str = "AllowServiceExternalIPs";

/// The first minor version in which the gate is planned to be off by default (KEP-5707).
const OFF_BY_DEFAULT: u32 = 40;

/// Determines the data plane for Services of a family. `given` is the text of a KubeProxyConfiguration from the operator.
pub fn judge(survey: &Survey, family: Family, given: Option<&str>) -> DataPlane {
    let windows = survey.nodes.iter().find(|node| node.operating_system == "windows");
    if let Some(node) = windows {
        return DataPlane::Unsupported(format!(
            "node `{}` runs Windows: kube-proxy on Windows was not tested",
            node.name
        ));
    }
    if let Some(other) = of_plugins(&survey.routing, given.is_some()) {
        return other;
    }
    let found = match given {
        Some(text) => parse(text).map(|proxy| vec![(proxy, "the given configuration".to_string())]),
        None => configurations(survey),
    };
    let found = match found {
        Ok(found) => found,
        Err(reason) => return DataPlane::Unknown(reason),
    };
    let versions = versions(survey);
    combine(&found, &Around { family, nodes: &survey.nodes, minors: &versions })
}

/// Returns the different configurations of the kube-proxies, each with its source. The source is the arguments of the container
/// or, if they name a configuration file, the ConfigMap `kube-system/kube-proxy`. Without a Pod of kube-proxy, the ConfigMap proves
/// nothing: another data plane can have replaced kube-proxy and left its ConfigMap.
fn configurations(survey: &Survey) -> Result<Vec<(Proxy, String)>, String> {
    let shared = || match &survey.routing.proxy_config {
        Some(text) => parse(text)
            .map(|proxy| (proxy, "ConfigMap `kube-system/kube-proxy`".to_string()))
            .map_err(|reason| format!("ConfigMap `kube-system/kube-proxy`, entry `config.conf`: {reason}")),
        None => Err("there is no ConfigMap `kube-system/kube-proxy`".to_string()),
    };
    if survey.routing.proxies.is_empty() {
        let beside = match survey.routing.proxy_config {
            Some(_) => "; the ConfigMap `kube-system/kube-proxy` alone does not show that kube-proxy runs",
            None => ", and there is no ConfigMap `kube-system/kube-proxy`",
        };
        return Err(format!("no Pod of `kube-system` has a container `kube-proxy`{beside}"));
    }
    let mut found: Vec<(Proxy, String)> = Vec::new();
    for container in &survey.routing.proxies {
        let (proxy, source) = match of_arguments(container) {
            Some(proxy) => (proxy, format!("the arguments of Pod `{}`", container.pod)),
            None => shared()?,
        };
        if !found.iter().any(|(known, _)| *known == proxy) {
            found.push((proxy, source));
        }
    }
    Ok(found)
}

/// Returns the minor versions of the kube-proxies. If their image tags are not versions, returns the minor versions of the
/// kubelets.
fn versions(survey: &Survey) -> Vec<u32> {
    let images = survey.routing.proxies.iter().filter_map(|container| container.image.rsplit_once(':'));
    let from_images: Vec<u32> = images.filter_map(|(_, tag)| minor(tag)).collect();
    if !from_images.is_empty() {
        return from_images;
    }
    survey.nodes.iter().filter_map(|node| minor(&node.kubelet_version)).collect()
}

fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("v1.")?.split(['.', '-', '+']).next()?.parse().ok()
}

/// Properties of the cluster that decide whether a configuration supports external IPs.
struct Around<'a> {
    family: Family,
    nodes: &'a [NodeRecord],
    /// Minor versions of kube-proxy.
    minors: &'a [u32],
}

fn combine(found: &[(Proxy, String)], around: &Around<'_>) -> DataPlane {
    let tested = ["iptables", "nftables"];
    if let Some((proxy, source)) = found.iter().find(|(proxy, _)| !tested.contains(&proxy.mode.as_str())) {
        return DataPlane::Unsupported(format!(
            "kube-proxy runs in mode `{}` ({source}), which was not tested",
            proxy.mode
        ));
    }
    let (oldest, newest) = (around.minors.iter().min(), around.minors.iter().max());
    let is_old = oldest.is_none_or(|minor| *minor < 36);
    let by_default = newest.is_none_or(|minor| *minor < OFF_BY_DEFAULT);
    let proxies = || found.iter().map(|(proxy, _)| proxy);
    let no_external_ip = match () {
        () if proxies().any(|proxy| !proxy.gate.unwrap_or(by_default)) => Some(Obstacle::Gate),
        () if proxies().any(|proxy| !proxy.detects(around)) => Some(Obstacle::Detector),
        () if is_old && proxies().any(|proxy| proxy.mode == "nftables") => Some(Obstacle::OldNftables),
        () => None,
    };
    let words = |(proxy, source): &(Proxy, String)| format!("{} ({source})", proxy.words(around));
    let about = found.iter().map(words).collect::<Vec<_>>().join("; ");
    DataPlane::KubeProxy { about: format!("kube-proxy: {about}"), no_external_ip }
}

/// Checks whether a text contains a configuration of kube-proxy. The error is the reason why it does not.
pub fn check(text: &str) -> Result<(), String> {
    parse(text).map(drop)
}

/// Reads a KubeProxyConfiguration (`kube-proxy/config/v1alpha1/types.go`, v0.36.3). An empty mode means iptables on Linux, and an
/// empty detector means `ClusterCIDR` (`cmd/kube-proxy/app/server_linux.go`, v1.36.3).
fn parse(text: &str) -> Result<Proxy, String> {
    let config = document(text)?;
    let gate = config.pointer("/featureGates").and_then(|gates| gates.get(GATE)).and_then(Value::as_bool);
    let mode = config.get("mode").and_then(Value::as_str).unwrap_or_default();
    Ok(Proxy::of(mode, LocalDetector::of_config(&config), gate))
}

/// Returns the health port of the kube-proxies, from `healthzBindAddress`. The default is 10256 on every address
/// (`pkg/proxy/apis/config/v1alpha1/defaults.go`, v1.36.3). Returns `None` if the health port is off, or listens only on
/// loopback, as in K3s. The first configuration found is used for all kube-proxies.
pub fn health_port(survey: &Survey, given: Option<&str>) -> Option<u16> {
    const DEFAULT: u16 = 10256;
    let of_text = |text: &str| {
        document(text).ok()?.get("healthzBindAddress").and_then(Value::as_str).map(str::to_string)
    };
    let of_container = || {
        let container = survey.routing.proxies.first()?;
        argument(&words(container), "healthz-bind-address").map(str::to_string)
    };
    let text = match given {
        Some(text) => of_text(text),
        None => of_container().or_else(|| of_text(survey.routing.proxy_config.as_deref()?)),
    };
    let text = text.unwrap_or_default();
    match (text.parse::<SocketAddr>(), text.parse::<IpAddr>()) {
        (Ok(at), _) => (at.port() != 0 && !at.ip().is_loopback()).then_some(at.port()),
        (_, Ok(address)) => (!address.is_loopback()).then_some(DEFAULT),
        _ => Some(DEFAULT),
    }
}

/// Splits arguments into words. A shell can start kube-proxy with a single argument: `/bin/sh -c "kube-proxy --flag ..."`.
fn words(container: &ProxyContainer) -> Vec<&str> {
    container.arguments.iter().flat_map(|argument| argument.split_whitespace()).collect()
}

/// Reads the flags of a kube-proxy; `None` if there is a configuration file, which overrides the flags.
fn of_arguments(container: &ProxyContainer) -> Option<Proxy> {
    let words = words(container);
    let detector = LocalDetector::of_flags(&words)?;
    Some(Proxy::of(argument(&words, "proxy-mode").unwrap_or_default(), detector, gate_in(&words)))
}

/// Reads `--feature-gates=A=true,B=false`. The flag can be given several times; the last value applies (`MapStringBool.Set`,
/// component-base `cli/flag/map_string_bool.go`, v0.36.3).
fn gate_in(words: &[&str]) -> Option<bool> {
    let flags = words.iter().enumerate().filter_map(|(at, word)| {
        let rest = word.strip_prefix("--feature-gates")?;
        rest.strip_prefix('=')
            .or_else(|| words.get(at.saturating_add(1)).copied().filter(|_| rest.is_empty()))
    });
    let pairs = flags.flat_map(|flag| flag.trim_matches(['"', '\'']).split(','));
    let own = pairs.filter_map(|pair| pair.trim().strip_prefix(GATE)?.trim_start().strip_prefix('='));
    // Accepts the same values as Go's `strconv.ParseBool`.
    own.filter_map(|value| match value.trim() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    })
    .next_back()
}

impl Proxy {
    fn of(
        mode: &str,
        LocalDetector { mode: detector, by: detects_by }: LocalDetector,
        gate: Option<bool>,
    ) -> Self {
        let mode = if mode.is_empty() { "iptables" } else { mode }.to_string();
        Self { mode, detector, detects_by, gate }
    }

    /// Returns whether the kube-proxy detects local traffic of the family. A range detects only traffic of its own family
    /// (`getLocalDetectors`, `cmd/kube-proxy/app/server_linux.go`, v1.36.3).
    fn detects(&self, around: &Around<'_>) -> bool {
        let is_own = |range: &ServiceCidr| range.family() == around.family;
        match self.detector.as_str() {
            // A range with host bits is also accepted, because only the family matters.
            "ClusterCIDR" => self.detects_by.split(',').any(|text| {
                let address = text.split('/').next().and_then(|address| address.trim().parse().ok());
                address.is_some_and(|address| Family::of(address) == around.family)
            }),
            "NodeCIDR" => around.nodes.iter().all(|node| node.pod_cidrs.iter().any(is_own)),
            "BridgeInterface" | "InterfaceNamePrefix" => !self.detects_by.is_empty(),
            _ => false,
        }
    }

    fn words(&self, around: &Around<'_>) -> String {
        let Self { mode, detector, detects_by, .. } = self;
        let detector = match (self.detects(around), detects_by.as_str()) {
            (false, "") => "without a local-traffic detector".to_string(),
            (false, value) => {
                format!("no local-traffic detector for {} (configured: {detector} {value})", around.family)
            }
            (true, "") => format!("local traffic detected by {detector}"),
            (true, value) => format!("local traffic detected by {detector} {value}"),
        };
        let gate = match self.gate {
            Some(false) => format!(", feature gate `{GATE}` off"),
            _ => String::new(),
        };
        format!("{mode}, {detector}{gate}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(arguments: &[&str]) -> ProxyContainer {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        ProxyContainer { pod: "kube-proxy-1".into(), image: "kube-proxy:v1.36.3".into(), arguments }
    }

    fn judged_for(text: &str, minor: u32, family: Family, nodes: &[NodeRecord]) -> DataPlane {
        let around = Around { family, nodes, minors: &[minor] };
        combine(&[(parse(text).unwrap(), "test".to_string())], &around)
    }

    fn obstacle(plane: &DataPlane) -> Option<Obstacle> {
        match plane {
            DataPlane::KubeProxy { no_external_ip, .. } => *no_external_ip,
            other => panic!("{other:?}"),
        }
    }

    const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

    #[test]
    fn configuration_is_read_with_its_defaults() {
        for (more, minor, wanted) in [
            ("clusterCIDR: 10.244.0.0/16\nmode: ''", 24, Some(None)),
            ("clusterCIDR: ''\nmode: iptables", 36, Some(Some(Obstacle::Detector))),
            ("detectLocalMode: NodeCIDR\nmode: nftables", 36, Some(None)),
            ("detectLocalMode: BridgeInterface\nmode: nftables", 36, Some(Some(Obstacle::Detector))),
            ("detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0}", 36, Some(None)),
            ("clusterCIDR: 10.244.0.0/16\nmode: nftables", 32, Some(Some(Obstacle::OldNftables))),
            ("clusterCIDR: 10.244.0.0/16\nmode: ipvs", 36, None),
        ] {
            let found = match judged_for(&format!("{HEAD}{more}"), minor, Family::V4, &[]) {
                DataPlane::KubeProxy { no_external_ip, .. } => Some(no_external_ip),
                DataPlane::Unsupported(_) => None,
                DataPlane::Unknown(reason) => panic!("{reason}"),
            };
            assert_eq!(found, wanted, "{more}");
        }
        assert!(parse("kind: ConfigMap").is_err());
        assert!(parse("[").is_err());
        let kubeadm = format!("---\nkind: ClusterConfiguration\nmode: x\n---\n{HEAD}mode: ipvs\n---\n");
        assert_eq!(parse(&kubeadm).unwrap().mode, "ipvs", "one of several documents");
        assert!(parse(&format!("{HEAD}---\n{HEAD}")).unwrap_err().contains("more than one"));
    }

    #[test]
    fn external_ips_are_ruled_out_if_the_feature_gate_is_off() {
        for (gates, minor, wanted) in [
            ("featureGates: {AllowServiceExternalIPs: false}", 36, Some(Obstacle::Gate)),
            ("featureGates: {AllowServiceExternalIPs: true}", 36, None),
            ("featureGates: {Other: false}", 36, None),
            ("featureGates: null", 36, None),
            ("featureGates: {}", OFF_BY_DEFAULT, Some(Obstacle::Gate)),
            ("featureGates: {AllowServiceExternalIPs: true}", OFF_BY_DEFAULT, None),
        ] {
            let text = format!("{HEAD}clusterCIDR: 10.244.0.0/16\n{gates}");
            let plane = judged_for(&text, minor, Family::V4, &[]);
            assert_eq!(obstacle(&plane), wanted, "{gates} {minor}");
        }
        let off =
            format!("{HEAD}clusterCIDR: 10.244.0.0/16\nfeatureGates: {{AllowServiceExternalIPs: false}}");
        let DataPlane::KubeProxy { about, .. } = judged_for(&off, 36, Family::V4, &[]) else { panic!() };
        assert!(about.contains("feature gate `AllowServiceExternalIPs` off"), "{about}");
    }

    #[test]
    fn cluster_cidr_detects_only_its_own_family() {
        let of = |text: &str, family| obstacle(&judged_for(&format!("{HEAD}{text}"), 36, family, &[]));
        for (text, v4, v6) in [
            ("clusterCIDR: 10.244.0.0/16", true, false),
            ("clusterCIDR: fd00:10:244::/56", false, true),
            ("clusterCIDR: 10.244.0.0/16,fd00:10:244::/56", true, true),
            ("clusterCIDR: 10.244.1.2/16", true, false),
            ("clusterCIDR: x", false, false),
            ("detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0}", true, true),
        ] {
            for (family, detects) in [(Family::V4, v4), (Family::V6, v6)] {
                let wanted = (!detects).then_some(Obstacle::Detector);
                assert_eq!(of(text, family), wanted, "{text} {family}");
            }
        }
        let node = |cidr: &str| NodeRecord {
            name: "node-1".into(),
            pod_cidrs: vec![cidr.parse().unwrap()],
            addresses: Vec::new(),
            operating_system: String::new(),
            kubelet_version: String::new(),
        };
        let (text, nodes) = (format!("{HEAD}detectLocalMode: NodeCIDR"), [node("10.244.1.0/24")]);
        assert_eq!(obstacle(&judged_for(&text, 36, Family::V4, &nodes)), None);
        assert_eq!(obstacle(&judged_for(&text, 36, Family::V6, &nodes)), Some(Obstacle::Detector));
    }

    #[test]
    fn feature_gate_is_read_from_arguments() {
        let of = |arguments: &[&str]| of_arguments(&container(arguments)).expect("flags").gate;
        assert_eq!(of(&["kube-proxy"]), None);
        assert_eq!(of(&["kube-proxy", "--feature-gates=AllowServiceExternalIPs=false"]), Some(false));
        assert_eq!(
            of(&["kube-proxy", "--feature-gates", "Other=true,AllowServiceExternalIPs=False"]),
            Some(false)
        );
        let shell =
            ["/bin/sh", "-c", "kube-proxy --feature-gates=\"AllowServiceExternalIPs=false,Other=true\" 2>&1"];
        assert_eq!(of(&shell), Some(false));
        let twice =
            ["--feature-gates=AllowServiceExternalIPs=false", "--feature-gates=AllowServiceExternalIPs=true"];
        assert_eq!(of(&twice), Some(true));
    }

    #[test]
    fn arguments_count_unless_a_configuration_file_exists() {
        assert_eq!(of_arguments(&container(&["kube-proxy", "--config=/x", "--proxy-mode=ipvs"])), None);
        let shell = ["/bin/sh", "-c", "kube-proxy --proxy-mode \"nftables\" --cluster-cidr=10.0.0.0/8 2>&1"];
        for arguments in
            [&shell[..], &["kube-proxy", "--proxy-mode=nftables", "--cluster-cidr", "10.0.0.0/8"]]
        {
            let proxy = of_arguments(&container(arguments)).expect("flags");
            let around = Around { family: Family::V4, nodes: &[], minors: &[36] };
            assert_eq!((proxy.mode.as_str(), proxy.detects(&around)), ("nftables", true), "{arguments:?}");
            let bare = of_arguments(&container(&["kube-proxy"])).expect("flags");
            assert!(!bare.detects(&around));
        }
    }

    #[test]
    fn versions_are_read_from_image_tags() {
        assert_eq!(minor("v1.32.2"), Some(32));
        assert_eq!(minor("v1.36.0-rc.1"), Some(36));
        assert_eq!(minor("latest"), None);
    }
}
