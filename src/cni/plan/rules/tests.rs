use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Effect;
use crate::cni::plan::cluster_view::ClusterView;
use crate::cni::plan::fixtures::{cluster, daemon_set, manifests, node, pod, typed};
use crate::cni::plan::newcomer::recognise;
use crate::cni::plan::{Finding, Plan, PlanOptions, Role, Strategy, plan};
use crate::controlplane::LocalDetector;

fn made(view: &ClusterView, objects: &[Value], strategy: Option<Strategy>) -> Plan {
    let options = PlanOptions { strategy, ..PlanOptions::default() };
    plan(view, &recognise(objects).unwrap(), &options)
}

fn findings(view: &ClusterView, objects: &[Value]) -> BTreeMap<&'static str, Finding> {
    made(view, objects, None).findings.into_iter().map(|one| (one.name, one)).collect()
}

/// Returns the effects of the findings of a change to Calico.
fn effects(view: &ClusterView) -> BTreeMap<&'static str, Effect> {
    findings(view, &manifests("10.100.0.0/16")).into_iter().map(|(name, one)| (name, one.effect)).collect()
}

fn changed(change: impl FnOnce(&mut ClusterView)) -> ClusterView {
    let mut view = cluster();
    view.detector = Some(LocalDetector::new("", "10.0.0.0/8", ["", ""]));
    change(&mut view);
    view
}

fn annotated(key: &str) -> Value {
    let mut pod = pod("asking", "d");
    pod["metadata"]["annotations"] = json!({key: "x"});
    pod
}

#[test]
fn clean_cluster_has_two_networks_for_a_time() {
    let found = effects(&changed(|_| {}));
    assert_eq!(found, BTreeMap::from([("installer", Effect::Note), ("two-networks", Effect::Accept)]));
}

#[test]
fn ranges_are_compared() {
    let view = changed(|_| {});
    let of = |range: &str, strategy| {
        let plan = made(&view, &manifests(range), strategy);
        plan.findings.into_iter().find(|one| one.name == "shared-range").map(|one| (one.effect, one.observed))
    };
    let (effect, seen) = of("10.244.0.0/16", Some(Strategy::InPlace)).unwrap();
    assert_eq!(effect, Effect::Blocks);
    assert!(seen.contains("equals `10.244.0.0/16` of Flannel"), "{seen}");
    let (effect, seen) = of("10.244.128.0/17", Some(Strategy::Roll)).unwrap();
    assert!(effect == Effect::Accept && seen.contains("overlaps"), "{seen}");
    assert_eq!(of("10.245.0.0/16", None), None);
    assert!(!findings(&view, &manifests("10.244.0.0/16")).contains_key("two-networks"));
    let found = findings(&view, &manifests("192.0.2.0/24"));
    assert_eq!(found["range-conflict"].effect, Effect::Blocks, "{found:?}");
    let by_node = [daemon_set("kube-router", "kube-router")];
    let found = findings(&view, &by_node);
    assert_eq!(found["shared-range"].effect, Effect::Accept);
    assert!(found["shared-range"].observed.contains("each node keeps"), "{found:?}");
    let mut view = view;
    view.ranges = vec![("Pods: `--cluster-cidr` of m".to_string(), "10.244.0.0/16".parse().unwrap())];
    assert_eq!(effects(&view)["node-ranges"], Effect::Note);
}

#[test]
fn ranges_come_from_kubeadm_and_from_nodes() {
    let mut calico = manifests("10.244.0.0/16");
    calico[0]["spec"]["template"]["spec"]["containers"][0]["env"] = json!([]);
    let view = changed(|view| view.kubeadm_ranges = vec!["10.244.0.0/16".parse().unwrap()]);
    let plan = made(&view, &calico, None);
    assert_eq!(plan.to.ranges[0].source, "`podSubnet` of kubeadm-config");
    assert!(plan.findings.iter().any(|one| one.name == "shared-range"), "{plan:?}");
    assert!(!effects(&view).contains_key("shared-range"), "the manifests have another range");
    let cilium = |ipam: &str| {
        let data =
            json!({"ipam": ipam, "kube-proxy-replacement": "false", "cluster-pool-ipv4-cidr": "10.7.0.0/16"});
        let config = json!({"kind": "ConfigMap", "metadata": {"name": "cilium-config"}, "data": data});
        [daemon_set("cilium-agent", "cilium"), config]
    };
    let mut view = changed(|view| view.detector = Some(LocalDetector::new("NodeCIDR", "", ["", ""])));
    let found = findings(&view, &cilium("kubernetes"));
    assert!(found["shared-range"].observed.contains("each node keeps"), "{found:?}");
    assert!(!found.contains_key("kube-proxy-range"), "Cilium uses `spec.podCIDR` then");
    let found = findings(&view, &cilium("cluster-pool"));
    assert!(!found.contains_key("shared-range") && found.contains_key("kube-proxy-range"));
    view.nodes.iter_mut().for_each(|node| node.spec.as_mut().unwrap().pod_cidrs = None);
    assert_eq!(findings(&view, &cilium("kubernetes"))["node-ranges"].effect, Effect::Blocks);
}

#[test]
fn new_agent_must_not_start_on_nodes_of_the_old_network() {
    let view = changed(|_| {});
    let mut objects = manifests("10.100.0.0/16");
    objects[0]["spec"]["template"]["spec"]["nodeSelector"] = Value::Null;
    let found = findings(&view, &objects);
    let finding = &found["node-selector"];
    assert_eq!(finding.effect, Effect::Blocks);
    assert!(
        finding.observed.contains("`10-calico.conflist` sorts before or replaces `10-flannel.conflist`"),
        "{finding:?}"
    );
    objects[0]["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "CNI_CONF_NAME", "value": "99-calico.conflist"}]);
    assert_eq!(findings(&view, &objects)["node-selector"].effect, Effect::Accept);
    let cilium = findings(&view, &[daemon_set("cilium-agent", "cilium")]);
    assert_eq!(
        (cilium["conf-exclusive"].effect, cilium["node-selector"].effect),
        (Effect::Accept, Effect::Blocks)
    );
    assert_eq!(cilium["unmanaged-pods"].effect, Effect::Blocks);
}

#[test]
fn tunnels_and_ports_must_be_free() {
    let view = changed(|_| {});
    let mut objects = manifests("10.100.0.0/16");
    let env = &mut objects[0]["spec"]["template"]["spec"]["containers"][0]["env"];
    env.as_array_mut().unwrap().push(json!({"name": "FELIX_VXLANPORT", "value": "8472"}));
    let found = findings(&view, &objects);
    assert_eq!(found["tunnel-port"].effect, Effect::Accept);
    assert!(found["tunnel-port"].observed.contains("8472/UDP"), "{found:?}");
    objects[0]["spec"]["template"]["spec"]["nodeSelector"] = Value::Null;
    assert_eq!(findings(&view, &objects)["tunnel-port"].effect, Effect::Blocks);
    let view = changed(|view| {
        let mut taken = pod("taken", "d");
        taken["spec"] = json!({"nodeName": "d", "hostNetwork": true, "containers": [{"name": "x", "ports": [{"containerPort": 9099, "hostPort": 9099}]}]});
        view.pods.push(typed(&taken));
    });
    assert_eq!(effects(&view)["agent-ports"], Effect::Blocks);
}

#[test]
fn agent_must_tolerate_the_taints_of_nodes() {
    let tainted = |key: &str| {
        changed(|view| {
            let taint = json!([{"key": key, "effect": "NoSchedule"}]);
            view.nodes[0].spec.as_mut().unwrap().taints = typed(&taint);
        })
    };
    let of = |key: &str, tolerations: Value, is_on_host: bool| {
        let mut objects = manifests("10.100.0.0/16");
        objects[0]["spec"]["template"]["spec"]["tolerations"] = tolerations;
        objects[0]["spec"]["template"]["spec"]["hostNetwork"] = json!(is_on_host);
        findings(&tainted(key), &objects).get("tolerations").map(|one| one.observed.clone())
    };
    let all = || json!([{"operator": "Exists", "effect": "NoSchedule"}]);
    assert_eq!(of("node-role.kubernetes.io/control-plane", all(), true), None);
    let one = json!([{"operator": "Exists", "key": "node.kubernetes.io/not-ready"}]);
    let seen = of("dedicated", one.clone(), true).unwrap();
    assert!(seen.ends_with("taints of nodes: `dedicated:NoSchedule`"), "{seen}");
    assert_eq!(of("node.kubernetes.io/unschedulable", one.clone(), true), None);
    assert!(of("node.kubernetes.io/unschedulable", one, false).unwrap().contains("network-unavailable"));
    assert!(of("x", json!([]), true).unwrap().contains("not-ready"));
}

#[test]
fn capabilities_that_get_lost_are_found() {
    let view = changed(|view| {
        let mut mapped = pod("mapped", "d");
        mapped["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
        view.pods.push(typed(&mapped));
        view.pods.push(typed(&annotated("kubernetes.io/egress-bandwidth")));
        view.pods.push(typed(&annotated("k8s.v1.cni.cncf.io/networks")));
        view.daemon_sets.push(typed(&daemon_set("install-cni", "istio-cni-node")));
    });
    let found = effects(&view);
    assert!(!found.contains_key("host-ports"), "it has portmap");
    for name in ["bandwidth", "pod-annotations", "chained-plug-ins"] {
        assert_eq!(found[name], Effect::Accept, "{name}");
    }
    let mut objects = manifests("10.100.0.0/16");
    objects[1]["data"]["cni_network_config"] =
        json!(r#"{"plugins": [{"type": "calico"}, {"type": "bandwidth"}]}"#);
    let found = findings(&view, &objects);
    assert!(found["host-ports"].observed.contains("has no `portmap`"), "{found:?}");
    assert!(!found.contains_key("bandwidth"));
}

#[test]
fn kube_proxy_must_know_the_new_range() {
    let with = |mode: &str, range: &str, links: [&str; 2]| {
        let view = changed(|view| view.detector = Some(LocalDetector::new(mode, range, links)));
        effects(&view).get("kube-proxy-range").copied()
    };
    assert_eq!(with("", "10.244.0.0/16", ["", ""]), Some(Effect::Accept));
    assert_eq!(with("", "10.0.0.0/8", ["", ""]), None);
    assert_eq!(with("NodeCIDR", "", ["", ""]), Some(Effect::Accept));
    assert_eq!(with("BridgeInterface", "", ["cni0", ""]), Some(Effect::Accept));
    assert_eq!(with("InterfaceNamePrefix", "", ["", "cali"]), None);
    assert_eq!(effects(&changed(|view| view.detector = None))["kube-proxy-range"], Effect::Note);
    let data = json!({"kube-proxy-replacement": "true"});
    let config = json!({"kind": "ConfigMap", "metadata": {"name": "cilium-config"}, "data": data});
    let found = findings(&changed(|_| {}), &[daemon_set("cilium-agent", "cilium"), config]);
    assert_eq!(found["kube-proxy-replaced"].effect, Effect::Accept);
}

#[test]
fn services_need_a_proxy_on_every_node() {
    let cleanup = |view: &ClusterView, objects: &[Value]| {
        let plan = made(view, objects, None);
        let told = plan.nodes[0].steps.iter().find(|step| step.name == "kube-proxy");
        (plan.before.iter().any(|step| step.name == "kube-proxy"), told.map(|step| step.action.clone()))
    };
    let mut view = changed(|view| {
        view.detector = None;
        view.settings.service_proxies.insert("Cilium");
    });
    let found = findings(&view, &manifests("10.100.0.0/16"));
    assert_eq!(found["kube-proxy-missing"].effect, Effect::Blocks);
    assert!(found["kube-proxy-missing"].observed.starts_with("Cilium routes Services"), "{found:?}");
    assert!(!found.contains_key("kube-proxy-range"));
    assert_eq!(cleanup(&view, &manifests("10.100.0.0/16")), (false, None));
    let data = json!({"kube-proxy-replacement": "true"});
    let config = json!({"kind": "ConfigMap", "metadata": {"name": "cilium-config"}, "data": data});
    let cilium = [daemon_set("cilium-agent", "cilium"), config];
    assert!(!findings(&view, &cilium).contains_key("kube-proxy-missing"));
    view.detector = Some(LocalDetector::new("", "10.0.0.0/8", ["", ""]));
    assert!(!effects(&view).contains_key("kube-proxy-missing"));
    assert!(cleanup(&view, &manifests("10.100.0.0/16")).1.unwrap().starts_with("label the node"));
    let (is_before, told) = cleanup(&view, &cilium);
    assert!(is_before && told.unwrap().contains("kube-proxy --cleanup"));
}

#[test]
fn mtus_are_compared() {
    let of = |old: Option<u64>, new: &str| {
        let view = changed(|view| {
            view.settings.mtus = old.map(|mtu| ("old".to_string(), mtu)).into_iter().collect();
        });
        let mut objects = manifests("10.100.0.0/16");
        objects[1]["data"]["veth_mtu"] = json!(new);
        findings(&view, &objects).get("mtu").map(|one| (one.effect, one.observed.clone()))
    };
    assert_eq!(of(None, "0"), None);
    assert_eq!(of(Some(1450), "1450"), None);
    assert!(of(Some(1450), "1400").unwrap().1.contains("smaller"));
    assert!(of(Some(1400), "1450").unwrap().1.contains("larger"));
    assert_eq!(of(Some(1400), "0").unwrap().0, Effect::Accept);
    assert_eq!(of(None, "1400").unwrap().0, Effect::Note);
}

#[test]
fn policies_and_webhooks_are_found() {
    let policy = |cidr: &str| {
        typed(&json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": cidr}}]}]},
        }))
    };
    let view = changed(|view| {
        view.policies = vec![policy("192.0.2.10/32")];
        view.plugin_policies =
            vec![("GlobalNetworkPolicy", "Calico's".to_string(), 2), ("X", "Weave's".to_string(), 1)];
    });
    let found = findings(&view, &manifests("10.100.0.0/16"));
    assert_eq!(found["network-policies"].effect, Effect::Accept, "Flannel does not enforce them");
    assert!(found["policy-addresses"].observed.contains("node `a`"), "{found:?}");
    assert!(found["plug-in-policies"].observed.ends_with("1 X (Weave's)"), "{found:?}");
    let view = changed(|view| view.policies = vec![policy("0.0.0.0/0")]);
    assert!(!effects(&view).contains_key("policy-addresses"));
    let flannel = [daemon_set("kube-flannel", "flannel")];
    let view = changed(|view| {
        view.policies = vec![policy("0.0.0.0/0")];
        view.daemon_sets.clear();
        view.settings.running.clear();
        let mut agent = daemon_set("weave", "weave-net");
        agent["status"] = json!({"desiredNumberScheduled": 5, "currentNumberScheduled": 5, "numberMisscheduled": 0, "numberReady": 5});
        view.daemon_sets.push(typed(&agent));
    });
    assert!(findings(&view, &flannel)["network-policies"].observed.starts_with("Flannel does not enforce"));
    assert_eq!(effects(&view)["network-policies"], Effect::Note);
    let text = || vec!["a webhook".to_string()];
    assert_eq!(effects(&changed(|view| view.webhooks.own = text()))["pod-webhooks"], Effect::Blocks);
    assert_eq!(effects(&changed(|view| view.webhooks.all = text()))["pod-webhooks"], Effect::Accept);
    assert_eq!(effects(&changed(|view| view.webhooks.ignored = text()))["pod-webhooks"], Effect::Note);
}

#[test]
fn networks_with_an_owner_are_refused() {
    let openshift = changed(|view| view.groups = BTreeSet::from(["config.openshift.io".to_string()]));
    assert_eq!(effects(&openshift)["managed-network"], Effect::Blocks);
    let aks =
        changed(|view| view.nodes.push(typed(&node("z", &json!({"kubernetes.azure.com/cluster": "x"})))));
    assert_eq!(effects(&aks)["managed-network"], Effect::Blocks);
    let kops = changed(|view| {
        let labels =
            BTreeMap::from([("addon.kops.k8s.io/name".to_string(), "networking.flannel".to_string())]);
        view.daemon_sets[0].metadata.labels = Some(labels);
    });
    let found = findings(&kops, &manifests("10.100.0.0/16"));
    assert_eq!(found["installer"].effect, Effect::Accept);
    assert!(found["installer"].observed.contains("kOps addon"), "{found:?}");
    assert!(found["installer"].remedy.starts_with("suspend this installer"), "{found:?}");
    let plan = made(&kops, &manifests("10.100.0.0/16"), None);
    let after: Vec<&str> = plan.after.iter().map(|step| step.name).collect();
    assert!(after.ends_with(&["soak", "restore", "installer", "remove", "resume"]), "{after:?}");
    let same = findings(&changed(|_| {}), &[daemon_set("kube-flannel", "flannel")]);
    assert_eq!(same["plug-in"].effect, Effect::Blocks);
    let unknown = changed(|view| {
        view.daemon_sets.clear();
        view.settings.running.clear();
    });
    assert_eq!(effects(&unknown)["plug-in"], Effect::Accept);
}

#[test]
fn budgets_capacity_and_nodes_are_checked() {
    let budget = json!({
        "metadata": {"namespace": "shop", "name": "web", "generation": 1}, "spec": {"selector": {}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2},
    });
    let view = changed(|view| view.budgets = vec![typed(&budget)]);
    let plan = made(&view, &manifests("10.100.0.0/16"), None);
    assert!(plan.findings.iter().any(|one| one.name == "budgets" && one.effect == Effect::Blocks));
    assert_eq!(plan.nodes[0].blocked_by, ["`shop/web` (2 healthy, 2 required)"]);
    assert!(plan.nodes[4].blocked_by.is_empty(), "a control-plane node has no Pod of it");
    let view = changed(|view| {
        let mut large = pod("large", "d");
        large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("3500m");
        let mut other = pod("other", "e");
        other["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("3500m");
        view.nodes.retain(|node| ["d", "e"].contains(&node.metadata.name.as_deref().unwrap()));
        view.pods = vec![typed(&large), typed(&other)];
    });
    let of = |strategy| {
        let plan = made(&view, &manifests("10.100.0.0/16"), Some(strategy));
        plan.findings.into_iter().find(|one| one.name == "capacity").unwrap().effect
    };
    assert_eq!((of(Strategy::InPlace), of(Strategy::Roll)), (Effect::Blocks, Effect::Note));
    let found =
        effects(&changed(|view| view.nodes.push(typed(&node("w", &json!({"kubernetes.io/os": "windows"}))))));
    assert_eq!(found["windows-nodes"], Effect::Blocks);
    let found =
        effects(&changed(|view| view.nodes.retain(|node| node.metadata.name.as_deref() != Some("a"))));
    assert_eq!(found["quorum"], Effect::Accept, "two members tolerate no failure");
    let unready = changed(|view| {
        view.nodes[0].status.as_mut().unwrap().conditions = None;
    });
    assert_eq!(
        (effects(&unready)["nodes-ready"], effects(&unready)["quorum"]),
        (Effect::Blocks, Effect::Blocks)
    );
}

#[test]
fn nodes_change_in_order_with_their_steps() {
    let mut view = changed(|view| {
        view.pods.push(typed(&pod("web-3", "d")));
        let mut agent = pod("cache", "e");
        agent["metadata"]["ownerReferences"][0]["kind"] = json!("DaemonSet");
        view.pods.push(typed(&agent));
        let mut fixed = pod("static", "e");
        fixed["metadata"]["ownerReferences"][0]["kind"] = json!("Node");
        view.pods.push(typed(&fixed));
    });
    let in_place = made(&view, &manifests("10.100.0.0/16"), None);
    assert_eq!(in_place.strategy.name, Strategy::InPlace);
    let order: Vec<(&str, Role)> = in_place.nodes.iter().map(|one| (one.name.as_str(), one.role)).collect();
    let control = Role::ControlPlane;
    assert_eq!(
        order,
        [("e", Role::Canary), ("d", Role::Worker), ("a", control), ("b", control), ("c", control)]
    );
    let names =
        |index: usize, plan: &Plan| plan.nodes[index].steps.iter().map(|step| step.name).collect::<Vec<_>>();
    let expected = [
        "cordon",
        "drain",
        "sandboxes",
        "stop-conf",
        "old-agent",
        "leftovers",
        "new-agent",
        "conf",
        "recreate",
        "kube-proxy",
        "dns",
        "test",
        "uncordon",
    ];
    assert_eq!(names(0, &in_place), expected);
    assert_eq!(names(2, &in_place)[0], "quorum");
    assert_eq!(
        (&in_place.nodes[0].evicted[..], &in_place.nodes[0].recreated[..]),
        (&["`shop/web-2`".to_string()][..], &["`shop/cache`".to_string(), "`shop/static`".to_string()][..])
    );
    view.nodes[3].spec.as_mut().unwrap().provider_id = Some("aws:///a/i-1".to_string());
    view.nodes[4].spec.as_mut().unwrap().provider_id = Some("aws:///a/i-2".to_string());
    let roll = made(&view, &manifests("10.100.0.0/16"), None);
    assert_eq!((roll.strategy.name, roll.other_strategy.name), (Strategy::Roll, Strategy::InPlace));
    assert_eq!(names(0, &roll)[..6], ["add", "dns", "test", "others", "taint", "load-balancers"]);
    assert!(actions(&roll, 0, "add")[0].contains("excludes `kube-system/kube-flannel-ds` (`--node-labels`"));
    assert!(
        actions(&roll, 0, "taint")[0]
            .starts_with("`kubectl taint node d e netsurgeon.io/replaced=:NoSchedule`")
    );
    assert!(actions(&roll, 1, "taint").is_empty(), "all old workers have it");
    let tests = |plan: &Plan, index| actions(plan, index, "test").remove(0);
    let command = |nodes: &str| {
        format!("`netsurgeon network test --image IMAGE --node {nodes} --baseline before.json`")
    };
    for (index, nodes) in [(0, "e"), (1, "e,d"), (2, "e,a")] {
        assert!(tests(&in_place, index).starts_with(&command(nodes)), "{}", tests(&in_place, index));
    }
    assert!(tests(&roll, 1).starts_with(&command("NEW")) && tests(&roll, 2).starts_with(&command("NEW,a")));
    assert!(
        names(1, &roll).contains(&"remove") && names(2, &roll).contains(&"uncordon"),
        "the control plane is never doubled"
    );
}

/// Returns a cluster whose agents belong to another plug-in.
fn with_old(container: &str) -> ClusterView {
    changed(|view| {
        let mut agent = daemon_set(container, "old-agent");
        agent["status"] = view.daemon_sets[0].status.as_ref().map(|status| json!(status)).unwrap();
        view.daemon_sets = vec![typed(&agent)];
        view.settings = crate::inventory::network_settings::read(
            &crate::inventory::network_settings::Sources::default(),
            &view.daemon_sets,
            &view.nodes,
            None,
        );
    })
}

fn actions(plan: &Plan, index: usize, name: &str) -> Vec<String> {
    let steps = plan.nodes[index].steps.iter().filter(|step| step.name == name);
    steps.map(|step| step.action.clone()).collect()
}

#[test]
fn flannel_of_k3s_is_no_daemon_set() {
    let view = changed(|view| {
        view.daemon_sets.clear();
        view.settings.running.clear();
        for node in &mut view.nodes {
            let annotations = [("flannel.alpha.coreos.com/backend-type".to_string(), "host-gw".to_string())];
            node.metadata.annotations = Some(annotations.into());
            let mut status = json!(node.status);
            status["nodeInfo"] = json!({
                "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                "kubeletVersion": "v1.34.1+k3s1", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
            });
            node.status = typed(&status);
        }
    });
    let plan = made(&view, &manifests("10.100.0.0/16"), Some(Strategy::InPlace));
    assert_eq!(plan.from.plugins, ["Flannel"]);
    assert!(plan.findings.iter().any(|one| one.name == "built-in-network" && one.effect == Effect::Accept));
    assert!(actions(&plan, 0, "old-agent")[0].starts_with("restart K3s"));
    assert!(!effects(&changed(|_| {})).contains_key("built-in-network"));
}

#[test]
fn condition_of_calico_is_cleared() {
    let of = |old: &str, new: &str| {
        let plan = made(&with_old(old), &[daemon_set(new, "new-agent")], Some(Strategy::InPlace));
        actions(&plan, 0, "condition")
    };
    let told = of("calico-node", "kube-router");
    let command = "`kubectl patch node d --subresource=status --type=strategic -p \
                   '{\"status\":{\"conditions\":[{\"type\":\"NetworkUnavailable\",\"status\":\"False\",\"reason\":\"Cleared\"}]}}'`";
    assert!(told[0].ends_with(command), "{told:?}");
    assert!(of("calico-node", "cilium-agent").is_empty() && of("calico-node", "kube-flannel").is_empty());
    assert!(of("kube-flannel", "kube-router").is_empty());
}

#[test]
fn finding_is_accepted_by_name_unless_it_blocks() {
    let view = changed(|view| view.webhooks.all = vec!["a webhook".to_string()]);
    let new = recognise(&manifests("10.244.0.0/16")).unwrap();
    let accepted = ["pod-webhooks", "shared-range"].map(str::to_string).into();
    let options = PlanOptions { strategy: Some(Strategy::InPlace), accepted, manifests: None };
    let found = plan(&view, &new, &options).findings;
    let of = |name: &str| found.iter().find(|one| one.name == name).map(|one| (one.accepted, one.is_open()));
    assert_eq!((of("pod-webhooks"), of("shared-range")), (Some((true, false)), Some((false, true))));
}

#[test]
fn documentation_lists_every_finding() {
    let rows = super::rules().map(|rule| format!("| `{}` |", rule.name));
    let text = include_str!("../../../../docs/cni.md");
    let missing: Vec<String> = rows.filter(|row| !text.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let names: BTreeSet<&str> = super::rules().map(|rule| rule.name).collect();
    assert_eq!(names.len(), super::rules().count(), "names are unique");
}
