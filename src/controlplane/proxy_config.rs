//! The configuration of kube-proxy: how it is read, and by what it detects local traffic.

use serde_json::Value;

use crate::kube_api::accessors::words;
use k8s_openapi::api::apps::v1::DaemonSet;

const KIND: &str = "KubeProxyConfiguration";

/// By what kube-proxy detects traffic of Pods of its own node, for example `ClusterCIDR` and `10.244.0.0/16`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalDetector {
    /// The value of `detectLocalMode`; by default, `ClusterCIDR`.
    pub mode: String,
    /// The range, bridge or prefix; empty if none is configured.
    pub by: String,
}

impl LocalDetector {
    /// Returns the detector of a configuration. An empty mode means `ClusterCIDR` (`cmd/kube-proxy/app/server_linux.go`, v1.36.3).
    pub fn new(mode: &str, cluster_cidr: &str, [bridge, prefix]: [&str; 2]) -> Self {
        let mode = if mode.is_empty() { "ClusterCIDR" } else { mode };
        let by = match mode {
            "ClusterCIDR" => cluster_cidr,
            "BridgeInterface" => bridge,
            "InterfaceNamePrefix" => prefix,
            _ => "",
        };
        Self { mode: mode.to_string(), by: by.to_string() }
    }

    /// Reads a KubeProxyConfiguration (`kube-proxy/config/v1alpha1/types.go`, v0.36.3).
    pub fn of_config(config: &Value) -> Self {
        let get = |path: &str| config.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let interfaces = [get("/detectLocal/bridgeInterface"), get("/detectLocal/interfaceNamePrefix")];
        Self::new(get("/detectLocalMode"), get("/clusterCIDR"), interfaces)
    }

    /// Reads the flags of a kube-proxy; `None` if there is a configuration file, which overrides the flags.
    pub fn of_flags(words: &[&str]) -> Option<Self> {
        let flag = |name: &str| argument(words, name);
        if flag("config").is_some() {
            return None;
        }
        let text = |name| flag(name).unwrap_or_default();
        let interfaces = [text("pod-bridge-interface"), text("pod-interface-name-prefix")];
        Some(Self::new(text("detect-local-mode"), text("cluster-cidr"), interfaces))
    }

    /// Reads the flags of the kube-proxy in a DaemonSet; `None` if it runs no kube-proxy, or one with a configuration file.
    pub fn of_daemon_set(object: &DaemonSet) -> Option<Self> {
        let containers = crate::kube_api::accessors::containers(object).iter();
        let mut proxies = containers.filter(|one| one.name.contains("kube-proxy"));
        let container = proxies.next()?;
        let arguments: Vec<&str> = words(container).flat_map(str::split_whitespace).collect();
        Self::of_flags(&arguments)
    }
}

/// Returns the value of a flag in the words of a command line.
pub fn argument<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| word.strip_prefix("--").is_some_and(|word| word == name));
    let inline = words.iter().find_map(|word| word.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('='));
    let apart = at.and_then(|at| words.get(at.saturating_add(1)).copied());
    inline.or(apart).map(|value| value.trim_matches(['"', '\'']))
}

/// Returns the KubeProxyConfiguration in a YAML text. The text can have several documents, such as a configuration file of
/// kubeadm.
pub fn document(text: &str) -> Result<Value, String> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| format!("it is not valid YAML: {error}"))?;
    let is_wanted = |document: &Value| document.get("kind").and_then(Value::as_str) == Some(KIND);
    let mut found = documents.into_iter().filter(is_wanted);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(format!("it contains no {KIND}")),
        (Some(_), Some(_)) => Err(format!("it contains more than one {KIND}")),
    }
}
