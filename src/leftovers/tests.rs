//! Tests of the judge. `tests/live/leftovers` plants real items.

use std::collections::{BTreeMap, BTreeSet};

use super::signature::{
    Letters,
    Pattern::{Between, Hash, Is},
};
use super::*;
use crate::node_state::{
    CachedResult, Chain, FilterBackend, FilterTable, Lease, Link, NetworkConfiguration, Part, PolicyRule,
    Route, Rule,
};

/// A node with nothing on it.
fn empty() -> NodeState {
    NodeState {
        version: 1,
        node: "node-1".to_string(),
        links: Part::complete(vec![]),
        addresses: Part::complete(vec![]),
        routes: Part::complete(vec![]),
        policy_rules: Part::complete(vec![]),
        nft_tables: Part::complete(vec![]),
        legacy_tables: Part::complete(vec![]),
        ipsets: Part::complete(vec![]),
        xfrm_states: Part::complete(vec![]),
        xfrm_policies: Part::complete(vec![]),
        traffic_filters: Part::complete(vec![]),
        bpf_pins: Part::complete(vec![]),
        table_names: Part::complete(vec![]),
        files: Part::complete(vec![]),
        configurations: Part::complete(vec![]),
        leases: Part::complete(vec![]),
        results: Part::complete(vec![]),
    }
}

fn context() -> Context {
    Context { pod_addresses: Some(BTreeSet::new()), ..Context::default() }
}

fn names(state: &NodeState, context: &Context) -> Vec<String> {
    judge(state, context).leftovers.into_iter().map(|leftover| leftover.name).collect()
}

fn link(name: &str, kind: &str) -> Link {
    Link { index: 1, name: name.to_string(), kind: Some(kind.to_string()), master: None }
}

fn rule(jump: &str, comment: Option<&str>) -> Rule {
    let comment = comment.map(ToString::to_string);
    Rule { text: format!("-j {jump}"), jump: Some(jump.to_string()), comment, ..Rule::default() }
}

fn filter(chains: Vec<Chain>) -> FilterTable {
    FilterTable {
        backend: FilterBackend::IptablesNft,
        family: "ip".to_string(),
        name: "filter".to_string(),
        chains,
        sets: vec![],
    }
}

#[test]
fn patterns_match_whole_names() {
    assert!(Is("weave").matches("weave") && !Is("weave").matches("weave0"));
    let hash = Hash("cali", Letters::Hex, 11, 11);
    assert!(hash.matches("cali0123456789a"));
    for name in ["cali0123456789", "cali0123456789ag", "cali-123456789a", "xcali0123456789a"] {
        assert!(!hash.matches(name), "{name}");
    }
    assert!(Between("/etc/cni/net.d/", ".cilium_bak").matches("/etc/cni/net.d/10-a.conf.cilium_bak"));
    for path in ["/etc/cni/net.d/.cilium_bak", "/etc/cni/net.d/a/b.cilium_bak", "/etc/cni/net.d/a"] {
        assert!(!Between("/etc/cni/net.d/", ".cilium_bak").matches(path), "{path}");
    }
}

#[test]
fn no_pattern_is_a_shared_prefix() {
    for plugin in Plugin::ALL {
        let signature = plugin.signature();
        for name in [
            "KUBE-",
            "KUBE-MINE",
            "KUBE-SERVICES",
            "KUBE-SVC-ABCDEFGHIJKLMNOP",
            "CNI-",
            "CNI-ADMIN",
            "CNI-MINE",
        ] {
            assert!(!signature.chains.iter().any(|mark| mark.name.matches(name)), "{plugin}: {name}");
        }
        assert_eq!(signature.plugin, plugin);
    }
}

#[test]
fn names_of_plugins_are_those_of_the_inventory() {
    let known: BTreeSet<&str> =
        crate::inventory::network_plugins::PLUGINS.iter().map(|plugin| plugin.name).collect();
    for plugin in Plugin::ALL {
        let is_known = known.contains(plugin.name()) || matches!(plugin, Plugin::Canal | Plugin::Reference);
        assert!(is_known, "{plugin}");
        assert_eq!(Plugin::of_name(plugin.name()), Some(plugin));
    }
}

#[test]
fn weak_items_need_a_name_of_the_plugin() {
    let mut state = empty();
    state.routes.items.push(Route {
        to: "10.244.1.0/26".parse().unwrap(),
        via: None,
        link: None,
        table: 254,
        protocol: 12,
        kind: 6,
        metric: None,
    });
    assert_eq!(names(&state, &context()), Vec::<String>::new());
    state.links.items.push(link("vxlan.calico", "vxlan"));
    assert_eq!(names(&state, &context()), ["vxlan.calico", "blackhole 10.244.1.0/26 proto 12"]);
    let running = Context { in_place: BTreeSet::from([Plugin::Canal]), ..context() };
    assert_eq!(names(&state, &running), Vec::<String>::new(), "Canal contains Calico");
}

#[test]
fn items_of_the_kernel_and_of_tetragon_are_not_listed_alone() {
    let mut state = empty();
    state.links.items.push(link("tunl0", "ipip"));
    state.files.items.push("/run/cilium".to_string());
    let route = |table| Route {
        to: "0.0.0.0/0".parse().unwrap(),
        via: None,
        link: Some("eth1".to_string()),
        table,
        protocol: 3,
        kind: 1,
        metric: None,
    };
    state.routes.items.push(route(200));
    assert_eq!(names(&state, &context()), Vec::<String>::new());
    state.links.items.push(link("vxlan.calico", "vxlan"));
    state.links.items.push(link("cilium_host", "veth"));
    assert_eq!(names(&state, &context()), ["tunl0", "vxlan.calico", "cilium_host", "/run/cilium"]);
    let crd = |name: &str| object("CustomResourceDefinition", "apiextensions.k8s.io", "", name);
    let objects = [crd("tracingpolicies.cilium.io"), crd("podinfo.cilium.io"), crd("ciliumnodes.cilium.io")];
    let found = judge_objects(&objects, &[], &BTreeSet::new());
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn rule_of_local_table_is_only_listed_if_it_was_moved() {
    let local = |priority| PolicyRule {
        is_v6: false,
        priority,
        table: 255,
        from: None,
        to: None,
        mark: None,
        incoming: None,
        is_negated: false,
    };
    let mut state = empty();
    state.links.items.push(link("cilium_host", "veth"));
    state.policy_rules.items.push(local(100));
    assert_eq!(names(&state, &context()), ["cilium_host", "100: from all lookup 255"]);
    state.policy_rules.items.push(local(0));
    assert_eq!(names(&state, &context()), ["cilium_host"]);
}

#[test]
fn jump_of_a_user_to_a_chain_is_listed_with_its_chain() {
    let chain = |name: &str, rules| Chain { name: name.to_string(), is_base: false, rules };
    let mut state = empty();
    state.nft_tables.items.push(filter(vec![
        chain("WEAVE-NPC", vec![]),
        chain("WEAVE-SHOP", vec![rule("WEAVE-NPC", None), rule("ACCEPT-SHOP", None)]),
        chain("cali-pi-shop", vec![rule("ACCEPT-SHOP", Some("cali:shop"))]),
    ]));
    assert_eq!(names(&state, &context()), ["WEAVE-NPC", "-A WEAVE-SHOP -j WEAVE-NPC"]);
    // A chain with a prefix of Calico needs Calico's comment, in it or in a jump to it.
    let table = &mut state.nft_tables.items[0];
    table.chains.push(chain("cali-INPUT", vec![rule("cali-pi-shop", Some("cali:0123456789abcdef"))]));
    let found = names(&state, &context());
    assert!(found.contains(&"cali-pi-shop".to_string()), "{found:?}");
}

#[test]
fn further_networks_of_a_live_sandbox_are_not_listed() {
    let lease = |container: &str, address: &str| Lease {
        file: format!("/var/lib/cni/networks/macvlan/{address}"),
        network: "macvlan".to_string(),
        address: address.parse().unwrap(),
        container: container.to_string(),
    };
    let result = |container: &str, network: &str, address: &str| CachedResult {
        file: format!("/var/lib/cni/results/{network}-{container}"),
        network: network.to_string(),
        container: container.to_string(),
        addresses: vec![address.parse().unwrap()],
    };
    let winner = |kind: &str| NetworkConfiguration {
        file: "00-first.conf".to_string(),
        network: Some("first".to_string()),
        plugins: vec![kind.to_string()],
        ..NetworkConfiguration::default()
    };
    let live = Context { pod_addresses: Some(BTreeSet::from(["10.244.0.7".parse().unwrap()])), ..context() };
    let mut state = empty();
    state.configurations.items.push(winner("multus"));
    state.leases.items = vec![lease("live", "192.0.2.7"), lease("unknown", "192.0.2.8")];
    state.results.items = vec![result("live", "first", "10.244.0.7"), result("live", "macvlan", "192.0.2.7")];
    assert_eq!(names(&state, &live), Vec::<String>::new());
    state.configurations.items = vec![winner("bridge")];
    assert_eq!(
        names(&state, &live),
        ["/var/lib/cni/networks/macvlan/192.0.2.8"],
        "no result for its sandbox"
    );
    let listed = names(&state, &context());
    assert_eq!(listed.len(), 3, "no Pod has the address of the sandbox: {listed:?}");
}

#[test]
fn commands_quote_hostile_names() {
    let mut state = empty();
    state.files.items.push("/etc/cni/net.d/$(reboot).cilium_bak".to_string());
    let judgement = judge(&state, &context());
    assert_eq!(judgement.leftovers[0].command, "ls -d '/etc/cni/net.d/$(reboot).cilium_bak'");
}

#[test]
fn incomplete_lists_are_reported() {
    let mut state = empty();
    state.ipsets = Part::incomplete(vec![], "permission denied");
    state.configurations = Part::incomplete(vec![], "permission denied");
    // Which plug-ins are in use is not known, so their items are not judged.
    state.nft_tables.items.push(FilterTable {
        name: "cni_hostport".to_string(),
        family: "inet".to_string(),
        backend: FilterBackend::Nft,
        ..filter(vec![])
    });
    let judgement = judge(&state, &context());
    assert_eq!(judgement.leftovers, []);
    let subjects: Vec<_> = judgement.unchecked.iter().map(|unchecked| unchecked.subject.as_str()).collect();
    assert_eq!(subjects, ["IP sets", "network configurations"]);
    state.configurations = Part::complete(vec![]);
    assert_eq!(names(&state, &context()), ["cni_hostport"]);
    state
        .configurations
        .items
        .push(NetworkConfiguration { plugins: vec!["portmap".to_string()], ..Default::default() });
    assert_eq!(names(&state, &context()), Vec::<String>::new());
}

#[test]
fn node_of_k3s_keeps_its_items() {
    let chain = |name: &str| Chain { name: name.to_string(), is_base: false, rules: vec![] };
    let table = |name: &str, chains| FilterTable { name: name.to_string(), ..filter(chains) };
    let mut state = empty();
    state.links.items.push(link("cni0", "bridge"));
    state.nft_tables.items = vec![
        table("nat", vec![chain("CNI-HOSTPORT-DNAT")]),
        table("filter", vec![chain("KUBE-ROUTER-INPUT")]),
    ];
    let all = ["KUBE-ROUTER-INPUT", "cni0", "CNI-HOSTPORT-DNAT"];
    assert_eq!(names(&state, &context()), all);
    let k3s = Context { is_ready: true, is_k3s: true, ..context() };
    let judgement = judge(&state, &k3s);
    assert_eq!(judgement.leftovers, []);
    assert_eq!(judgement.unchecked.len(), 1, "{judgement:?}");
    assert_eq!(judgement.unchecked[0].subject, "network configurations");
}

#[test]
fn state_is_the_same_after_json() {
    let mut state = empty();
    state.links.items.push(link("weave", "bridge"));
    state.ipsets = Part::absent("the kernel has not loaded `ip_set`");
    state.leases = Part::incomplete(vec![], "permission denied");
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<NodeState>(&text).unwrap(), state);
}

fn object(kind: &str, group: &str, namespace: &str, name: &str) -> ObjectFacts {
    let [kind, group, namespace, name] = [kind, group, namespace, name].map(ToString::to_string);
    ObjectFacts { kind, group, namespace, name }
}

#[test]
fn objects_of_absent_plugins_are_listed() {
    let objects = [
        object("DaemonSet", "apps", "kube-system", "weave-net"),
        object("Secret", "", "shop", "weave-net"),
        object("CustomResourceDefinition", "apiextensions.k8s.io", "", "ippools.crd.projectcalico.org"),
        object(
            "CustomResourceDefinition",
            "apiextensions.k8s.io",
            "",
            "adminnetworkpolicies.policy.networking.k8s.io",
        ),
        object("APIService", "apiregistration.k8s.io", "", "v3.projectcalico.org"),
        object("Installation", "operator.tigera.io", "", "default"),
        object("Installation", "shop.example.com", "", "default"),
        object("ConfigMap", "", "kube-system", "canal-config"),
        object("ClusterRole", "rbac.authorization.k8s.io", "", "flannel"),
    ];
    let listed = |in_place: &[Plugin]| -> Vec<String> {
        let found = judge_objects(&objects, &[], &in_place.iter().copied().collect());
        found.into_iter().map(|leftover| leftover.name).collect()
    };
    assert_eq!(
        listed(&[]),
        [
            "DaemonSet weave-net",
            "ClusterRole flannel",
            "APIService v3.projectcalico.org",
            "CustomResourceDefinition ippools.crd.projectcalico.org",
            "Installation default",
            "ConfigMap canal-config",
        ]
    );
    assert_eq!(listed(&[Plugin::Canal]), ["DaemonSet weave-net"]);
    let found = judge_objects(&objects, &[], &BTreeSet::new());
    assert_eq!(found[0].command, "kubectl get daemonset.apps weave-net --namespace kube-system");
}

#[test]
fn condition_without_owner_is_listed() {
    let condition = |status: &str, reason: &str| Condition {
        kind: "NetworkUnavailable".to_string(),
        status: status.to_string(),
        reason: reason.to_string(),
    };
    let node = NodeFacts {
        name: "node-1".to_string(),
        annotations: BTreeMap::from([
            ("projectcalico.org/IPv4Address".to_string(), "10.0.0.1/24".to_string()),
            ("example.com/calico".to_string(), String::new()),
        ]),
        taints: vec!["node.cilium.io/agent-not-ready".to_string()],
        conditions: vec![condition("True", "CalicoIsDown"), condition("False", "RouteCreated")],
        ..NodeFacts::default()
    };
    let found = judge_objects(&[], std::slice::from_ref(&node), &BTreeSet::new());
    let told: Vec<_> = found.iter().map(|one| (one.plugin, one.kind, one.name.as_str())).collect();
    assert_eq!(
        told,
        [
            (Plugin::Calico, Kind::Annotation, "projectcalico.org/IPv4Address"),
            (Plugin::Calico, Kind::Condition, "NetworkUnavailable=True (CalicoIsDown)"),
            (Plugin::Cilium, Kind::Taint, "node.cilium.io/agent-not-ready"),
        ]
    );
    assert!(found[1].reason.contains("no component removes it"), "{}", found[1].reason);
    assert_eq!(judge_objects(&[], &[node], &BTreeSet::from([Plugin::Calico])).len(), 1);
}
