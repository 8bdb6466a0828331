use serde_json::json;

use super::*;
use crate::cni::plan::fixtures::{daemon_set, manifests};

#[test]
fn calico_is_recognised_with_its_settings() {
    let found = recognise(&manifests("10.100.0.0/16")).unwrap();
    assert_eq!((found.plugin, found.image.as_str()), ("Calico", "example.com/node:1"));
    assert_eq!(
        found.ranges.iter().map(|(_, range)| range.to_string()).collect::<Vec<_>>(),
        ["10.100.0.0/16"]
    );
    assert_eq!(found.conf.as_deref(), Some("10-calico.conflist"));
    assert_eq!((found.has("portmap"), found.has("bandwidth")), (Some(true), Some(false)));
    assert_eq!(found.tunnels, BTreeSet::from([VXLAN]));
    assert!(found.host_ports.contains(&(9099, "TCP".to_string())), "{:?}", found.host_ports);
    assert_eq!(found.update_strategy(), "RollingUpdate");
    assert!(!found.replaces_kube_proxy && !found.is_exclusive);
}

#[test]
fn conf_name_comes_from_variables_paths_and_entries() {
    let name = |container: Value, data: Value| {
        let mut object = daemon_set("kube-flannel", "flannel");
        object["spec"]["template"]["spec"]["initContainers"] = json!([container]);
        let map = json!({"kind": "ConfigMap", "metadata": {"name": "kube-flannel-cfg"}, "data": data});
        recognise(&[object, map]).unwrap().conf.unwrap()
    };
    let copy = json!({"name": "install", "command": ["sh", "-c", "cp /x /etc/cni/net.d/11-net.conflist && ls /etc/cni/net.d/"]});
    assert_eq!(name(copy, json!({})), "11-net.conflist");
    let told = json!({"name": "i", "env": [{"name": "CNI_CONF_NAME", "value": "07-a.conflist"}]});
    assert_eq!(name(told, json!({})), "07-a.conflist");
    let path = json!({"name": "i", "env": [{"name": "FILE", "value": "/host/etc/cni/net.d/08-a.conf"}]});
    assert_eq!(name(path, json!({})), "08-a.conf");
    assert_eq!(name(json!({"name": "i"}), json!({"10-b.conflist": "{}", "c.conf": "{}"})), "10-b.conflist");
    assert_eq!(
        name(json!({"name": "i"}), json!({"write-cni-conf": "/host/etc/cni/net.d/05-d.conflist"})),
        "05-d.conflist"
    );
    assert_eq!(name(json!({"name": "i"}), json!({})), "10-flannel.conflist", "the default");
}

#[test]
fn manifests_without_one_plugin_are_refused() {
    let operator = [json!({"kind": "Installation", "apiVersion": "operator.tigera.io/v1"})];
    assert_eq!(recognise(&operator).unwrap_err(), NewcomerError::Operator("Calico"));
    assert_eq!(recognise(&[daemon_set("fluentd", "logs")]).unwrap_err(), NewcomerError::Missing);
    let two = [daemon_set("calico-node", "calico"), daemon_set("kube-flannel", "flannel")];
    assert_eq!(recognise(&two).unwrap_err(), NewcomerError::Several("Calico, Flannel".to_string()));
    let broken = [json!({"kind": "DaemonSet", "metadata": {"name": "x"}, "spec": []})];
    assert!(matches!(recognise(&broken), Err(NewcomerError::Invalid { .. })));
}

#[test]
fn settings_of_cilium_are_read() {
    let data =
        json!({"cluster-pool-ipv4-cidr": "10.7.0.0/16", "kube-proxy-replacement": "true", "mtu": "1400"});
    let map = json!({"kind": "ConfigMap", "metadata": {"name": "cilium-config"}, "data": data});
    let found = recognise(&[daemon_set("cilium-agent", "cilium"), map]).unwrap();
    assert!(found.replaces_kube_proxy && found.is_exclusive);
    assert_eq!((found.ranges.len(), found.mtus.len()), (1, 1));
    assert_eq!((found.chain, found.conf.as_deref()), (None, Some("05-cilium.conflist")));
}

#[test]
fn operator_of_cilium_watches_unmanaged_pods_by_default() {
    let of = |data: Value| {
        let map = json!({"kind": "ConfigMap", "metadata": {"name": "cilium-config"}, "data": data});
        recognise(&[daemon_set("cilium-agent", "cilium"), map]).unwrap().deletes_unmanaged
    };
    let with = |interval: &str| of(json!({"unmanaged-pod-watcher-interval": interval}));
    assert!(of(json!({})) && with("15") && with("15s"));
    assert!(!with("0") && !with("0s"));
    assert!(!recognise(&manifests("10.100.0.0/16")).unwrap().deletes_unmanaged);
}
