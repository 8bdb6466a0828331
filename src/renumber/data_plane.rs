//! What routes Services in the cluster, and which holds it can carry. Pure: judged from a survey, or from a
//! configuration that the operator gives.
//!
//! A hold by external IP needs a kube-proxy that can tell local traffic: only then is traffic of Pods and nodes to
//! an external IP with `externalTrafficPolicy: Local` routed as to a ClusterIP.

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use crate::survey::{ProxyContainer, Survey};

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataPlane {
    /// kube-proxy in a mode that was tested.
    KubeProxy {
        /// Mode, detector and source, in words.
        about: String,
        /// Why a Service cannot be held by an external IP; `None` if it can.
        no_external_ip: Option<&'static str>,
    },
    /// Nothing tells.
    Unknown(String),
    /// Something that was not tested, and why it is none.
    Unsupported(String),
}

/// What one configuration says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Proxy {
    mode: String,
    detects: bool,
    detector: String,
}

/// Why nothing can be held by an external IP where something is missing in kube-proxy's configuration.
pub const NO_DETECTOR: &str = "kube-proxy has no local-traffic detector (`clusterCIDR` or `detectLocalMode`)";
const OLD_NFTABLES: &str =
    "kube-proxy before 1.36 in mode nftables drops what a node without endpoints sends to an external IP";

/// Judges what routes Services. `given` is the text of a KubeProxyConfiguration of the operator's.
pub fn judge(survey: &Survey, given: Option<&str>) -> DataPlane {
    let windows = survey.nodes.iter().find(|node| node.operating_system == "windows");
    if let Some(node) = windows {
        return DataPlane::Unsupported(format!(
            "node `{}` runs Windows, whose kube-proxy was not tested",
            node.name
        ));
    }
    let replacement = survey.routing.cilium_replacement.as_deref().unwrap_or("false");
    if !matches!(replacement, "false" | "disabled" | "") {
        return DataPlane::Unsupported(
            "Cilium routes Services (`kube-proxy-replacement` in ConfigMap `kube-system/cilium-config`), which was not \
             tested"
                .to_string(),
        );
    }
    let found = match given {
        Some(text) => parse(text).map(|proxy| vec![(proxy, "the configuration given".to_string())]),
        None => configurations(survey),
    };
    let found = match found {
        Ok(found) => found,
        Err(reason) => return DataPlane::Unknown(reason),
    };
    combine(&found, oldest_minor(survey))
}

/// Every kube-proxy's own configuration: the arguments of its container, or the ConfigMap that they refer to.
fn configurations(survey: &Survey) -> Result<Vec<(Proxy, String)>, String> {
    let shared = || match &survey.routing.proxy_config {
        Some(text) => parse(text).map(|proxy| (proxy, "ConfigMap `kube-system/kube-proxy`".to_string())),
        None => Err("there is no ConfigMap `kube-system/kube-proxy`".to_string()),
    };
    if survey.routing.proxies.is_empty() {
        return shared()
            .map(|found| vec![found])
            .map_err(|reason| format!("{reason}, and no Pod of `kube-system` has a container `kube-proxy`"));
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

/// The oldest minor version of a kube-proxy or, where their images do not tell, of a kubelet.
fn oldest_minor(survey: &Survey) -> Option<u32> {
    let images = survey.routing.proxies.iter().filter_map(|container| container.image.rsplit_once(':'));
    let from_images = images.filter_map(|(_, tag)| minor(tag)).min();
    from_images.or_else(|| survey.nodes.iter().filter_map(|node| minor(&node.kubelet_version)).min())
}

fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("v1.")?.split(['.', '-', '+']).next()?.parse().ok()
}

fn combine(found: &[(Proxy, String)], minor: Option<u32>) -> DataPlane {
    let tested = ["iptables", "nftables"];
    if let Some((proxy, source)) = found.iter().find(|(proxy, _)| !tested.contains(&proxy.mode.as_str())) {
        return DataPlane::Unsupported(format!(
            "kube-proxy runs in mode `{}` ({source}), which was not tested",
            proxy.mode
        ));
    }
    let is_old =
        || minor.is_none_or(|minor| minor < 36) && found.iter().any(|(proxy, _)| proxy.mode == "nftables");
    let no_external_ip = match () {
        () if found.iter().any(|(proxy, _)| !proxy.detects) => Some(NO_DETECTOR),
        () if is_old() => Some(OLD_NFTABLES),
        () => None,
    };
    let words = |(proxy, source): &(Proxy, String)| format!("{}, {} ({source})", proxy.mode, proxy.detector);
    let about = found.iter().map(words).collect::<Vec<_>>().join("; ");
    DataPlane::KubeProxy { about: format!("kube-proxy: {about}"), no_external_ip }
}

/// Reads a KubeProxyConfiguration (`kube-proxy/config/v1alpha1/types.go`, v0.36.3). An empty mode is iptables on
/// Linux, an empty detector `ClusterCIDR` (`cmd/kube-proxy/app/server_linux.go`, v1.36.3).
fn parse(text: &str) -> Result<Proxy, String> {
    let config: Value =
        serde_saphyr::from_str(text).map_err(|error| format!("kube-proxy's configuration: {error}"))?;
    let get = |path: &str| config.pointer(path).and_then(Value::as_str).unwrap_or_default();
    if get("/kind") != "KubeProxyConfiguration" {
        return Err("kube-proxy's configuration is no KubeProxyConfiguration".to_string());
    }
    Ok(Proxy::of(
        get("/mode"),
        get("/detectLocalMode"),
        get("/clusterCIDR"),
        [get("/detectLocal/bridgeInterface"), get("/detectLocal/interfaceNamePrefix")],
    ))
}

/// Where kube-proxies tell others of their health: the port of `healthzBindAddress`, by default 10256 on every address
/// (`pkg/proxy/apis/config/v1alpha1/defaults.go`, v1.36.3); `None` where it is off, or on loopback, as K3s has it. The first
/// configuration that is found stands for all.
pub fn health_port(survey: &Survey, given: Option<&str>) -> Option<u16> {
    const DEFAULT: u16 = 10256;
    let of_text = |text: &str| {
        let config: Value = serde_saphyr::from_str(text).ok()?;
        config.get("healthzBindAddress").and_then(Value::as_str).map(str::to_string)
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

/// A shell may start it: `/bin/sh -c "kube-proxy --flag ..."`, with everything in one argument.
fn words(container: &ProxyContainer) -> Vec<&str> {
    container.arguments.iter().flat_map(|argument| argument.split_whitespace()).collect()
}

fn argument<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| word.strip_prefix("--").is_some_and(|word| word == name));
    let inline = words.iter().find_map(|word| word.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('='));
    let apart = at.and_then(|at| words.get(at.saturating_add(1)).copied());
    inline.or(apart).map(|value| value.trim_matches(['"', '\'']))
}

/// Reads the flags; `None` when there is a configuration file, which overrides them.
fn of_arguments(container: &ProxyContainer) -> Option<Proxy> {
    let words = words(container);
    let flag = |name: &str| argument(&words, name);
    if flag("config").is_some() {
        return None;
    }
    let text = |name| flag(name).unwrap_or_default();
    let interfaces = [text("pod-bridge-interface"), text("pod-interface-name-prefix")];
    Some(Proxy::of(text("proxy-mode"), text("detect-local-mode"), text("cluster-cidr"), interfaces))
}

impl Proxy {
    fn of(mode: &str, detector: &str, cluster_cidr: &str, [bridge, prefix]: [&str; 2]) -> Self {
        let detector = if detector.is_empty() { "ClusterCIDR" } else { detector };
        let (value, detects) = match detector {
            "ClusterCIDR" => (cluster_cidr, !cluster_cidr.is_empty()),
            "NodeCIDR" => ("", true),
            "BridgeInterface" => (bridge, !bridge.is_empty()),
            "InterfaceNamePrefix" => (prefix, !prefix.is_empty()),
            _ => ("", false),
        };
        let detector = match (detects, value) {
            (false, _) => "without a local-traffic detector".to_string(),
            (true, "") => format!("local traffic by {detector}"),
            (true, value) => format!("local traffic by {detector} {value}"),
        };
        let mode = if mode.is_empty() { "iptables" } else { mode }.to_string();
        Self { mode, detects, detector }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(arguments: &[&str]) -> ProxyContainer {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        ProxyContainer { pod: "kube-proxy-1".into(), image: "kube-proxy:v1.36.3".into(), arguments }
    }

    fn judged(text: &str, minor: u32) -> DataPlane {
        combine(&[(parse(text).unwrap(), "test".to_string())], Some(minor))
    }

    #[test]
    fn a_configuration_is_read_with_its_defaults() {
        let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
        for (more, minor, wanted) in [
            ("clusterCIDR: 10.244.0.0/16\nmode: ''", 24, Some(None)),
            ("clusterCIDR: ''\nmode: iptables", 36, Some(Some(NO_DETECTOR))),
            ("detectLocalMode: NodeCIDR\nmode: nftables", 36, Some(None)),
            ("detectLocalMode: BridgeInterface\nmode: nftables", 36, Some(Some(NO_DETECTOR))),
            ("detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0}", 36, Some(None)),
            ("clusterCIDR: 10.244.0.0/16\nmode: nftables", 32, Some(Some(OLD_NFTABLES))),
            ("clusterCIDR: 10.244.0.0/16\nmode: ipvs", 36, None),
        ] {
            let found = match judged(&format!("{head}{more}"), minor) {
                DataPlane::KubeProxy { no_external_ip, .. } => Some(no_external_ip),
                DataPlane::Unsupported(_) => None,
                DataPlane::Unknown(reason) => panic!("{reason}"),
            };
            assert_eq!(found, wanted, "{more}");
        }
        assert!(parse("kind: ConfigMap").is_err());
        assert!(parse("[").is_err());
    }

    #[test]
    fn arguments_count_unless_there_is_a_file() {
        assert_eq!(of_arguments(&container(&["kube-proxy", "--config=/x", "--proxy-mode=ipvs"])), None);
        let shell = ["/bin/sh", "-c", "kube-proxy --proxy-mode \"nftables\" --cluster-cidr=10.0.0.0/8 2>&1"];
        for arguments in
            [&shell[..], &["kube-proxy", "--proxy-mode=nftables", "--cluster-cidr", "10.0.0.0/8"]]
        {
            let proxy = of_arguments(&container(arguments)).expect("flags");
            assert_eq!((proxy.mode.as_str(), proxy.detects), ("nftables", true), "{arguments:?}");
        }
        assert!(!of_arguments(&container(&["kube-proxy"])).expect("flags").detects);
    }

    #[test]
    fn versions_are_read_from_tags() {
        assert_eq!(minor("v1.32.2"), Some(32));
        assert_eq!(minor("v1.36.0-rc.1"), Some(36));
        assert_eq!(minor("latest"), None);
    }
}
