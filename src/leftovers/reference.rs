//! The names of the reference plug-ins `bridge`, `ptp`, `portmap` and `firewall`: `pkg/ip` and `plugins/` of their repository.
//!
//! Other network plug-ins call them. So an item is a leftover only if no configuration that the runtime uses calls its plug-in, or
//! if the item belongs to a Pod that no longer exists. The chain `CNI-ADMIN` contains rules of the user and is never a leftover.

use std::collections::BTreeSet;

use ipnetwork::IpNetwork;

use super::context::{Scene, host};
use super::filter_judge::{chain_command, place, tables};
use super::signature::{Found, Letters, Pattern::Hash, Signature};
use super::{Kind, Leftover, Plugin};
use crate::node_state::{Chain, FilterBackend, FilterTable, Rule};

pub(super) const SIGNATURE: Signature = Signature { plugin: Plugin::Reference, ..Signature::EMPTY };

/// Chains that exist once, each with its table and its plug-in.
const CHAINS: [(&str, &str, &str); 7] = [
    ("CNI-HOSTPORT-DNAT", "nat", "portmap"),
    ("CNI-HOSTPORT-SNAT", "nat", "portmap"),
    ("CNI-HOSTPORT-SETMARK", "nat", "portmap"),
    ("CNI-HOSTPORT-MASQ", "nat", "portmap"),
    ("CNI-FORWARD", "filter", "firewall"),
    ("CNI-ISOLATION-STAGE-1", "filter", "firewall"),
    ("CNI-ISOLATION-STAGE-2", "filter", "firewall"),
];
/// Tables of nftables, each with its plug-ins.
const TABLES: [(&str, &[&str]); 2] =
    [("cni_hostport", &["portmap"]), ("cni_plugins_masquerade", &["bridge", "ptp"])];
/// The default name of the bridge.
const BRIDGE: &str = "cni0";

pub(super) fn found(scene: &Scene<'_>) -> Vec<Leftover> {
    let mut found: Vec<Found> = bridge(scene).into_iter().collect();
    for table in tables(scene) {
        if table.backend == FilterBackend::Nft {
            let plugins = TABLES.iter().find(|(name, _)| *name == table.name && table.family == "inet");
            if plugins.is_some_and(|(_, plugins)| plugins.iter().all(|plugin| scene.is_unused(plugin))) {
                let command = format!("nft list table {} {}", table.family, table.name);
                let item = Found::new(&SIGNATURE, Kind::NftTable, &table.name, command).at(&table.family);
                found.push(item.because("no network configuration in use calls the plug-in of this table"));
            }
        } else {
            found.extend(of_iptables(table, scene));
        }
    }
    found.into_iter().map(|found| found.leftover).collect()
}

fn bridge(scene: &Scene<'_>) -> Option<Found> {
    let is_used = scene.winner().is_some_and(|winner| winner.bridge.as_deref() == Some(BRIDGE));
    let is_unused = !is_used && scene.is_unused("bridge") && scene.is_unused("flannel");
    let links = &scene.state.links.items;
    let link = links.iter().find(|link| link.name == BRIDGE && link.kind.as_deref() == Some("bridge"))?;
    let ports = links.iter().filter(|other| other.master.as_deref() == Some(BRIDGE)).count();
    let attached = crate::words::counted(ports, "link is", "links are");
    let item = Found::new(&SIGNATURE, Kind::Link, &link.name, format!("ip -details link show dev {BRIDGE}"));
    is_unused.then(|| {
        item.because(format!(
            "it is the default bridge of the plug-in `bridge`, which no network configuration in use calls; {attached} attached"
        ))
    })
}

fn of_iptables(table: &FilterTable, scene: &Scene<'_>) -> Vec<Found> {
    let mut reasons: Vec<(&str, String)> = Vec::new();
    for chain in table.chains.iter().filter(|chain| !chain.is_base) {
        let single = CHAINS.iter().find(|(name, of, _)| chain.name == *name && table.name == *of);
        match single {
            Some((_, _, plugin)) if scene.is_unused(plugin) => {
                reasons.push((
                    &chain.name,
                    format!("no network configuration in use calls the plug-in `{plugin}`"),
                ));
            }
            Some(_) => {}
            None => {
                reasons.extend(pod_chain(chain, table, scene).map(|reason| (chain.name.as_str(), reason)));
            }
        }
    }
    let own: BTreeSet<&str> = reasons.iter().map(|(name, _)| *name).collect();
    let mut found: Vec<Found> = reasons
        .iter()
        .map(|(name, reason)| {
            Found::new(&SIGNATURE, Kind::Chain, *name, chain_command(table, name))
                .at(place(table))
                .because(reason)
        })
        .collect();
    for chain in table.chains.iter().filter(|chain| !own.contains(chain.name.as_str())) {
        let rules =
            chain.rules.iter().filter_map(|rule| Some((rule, rule_reason(rule, chain, table, &own, scene)?)));
        found.extend(rules.map(|(rule, reason)| {
            let name = format!("-A {} {}", chain.name, rule.text);
            let item = Found::new(&SIGNATURE, Kind::FilterRule, name, chain_command(table, &chain.name));
            item.at(place(table)).because(reason)
        }));
    }
    found
}

/// Returns why a chain of a single Pod is a leftover.
fn pod_chain(chain: &Chain, table: &FilterTable, scene: &Scene<'_>) -> Option<String> {
    let is_port = Hash("CNI-DN-", Letters::Hex, 21, 21).matches(&chain.name)
        || Hash("CNI-SN-", Letters::Hex, 21, 21).matches(&chain.name);
    let is_masquerade = Hash("CNI-", Letters::Hex, 24, 24).matches(&chain.name);
    // The names are checked first: a table of kube-proxy can have tens of thousands of rules.
    if table.name != "nat" || !(is_port || is_masquerade) {
        return None;
    }
    let rules = table.chains.iter().flat_map(|other| &other.rules);
    let jumps: Vec<&Rule> = rules.filter(|rule| rule.jump.as_deref() == Some(chain.name.as_str())).collect();
    // The comment of the jump or of a rule contains the sandbox.
    let mut comments = jumps.iter().copied().chain(&chain.rules).filter_map(|rule| rule.comment.as_deref());
    let sandbox = comments.find_map(sandbox)?;
    let is_cached = scene.state.results.items.iter().any(|result| result.container == sandbox);
    if is_cached || scene.state.results.gap().is_some() {
        return None;
    }
    let addresses: BTreeSet<_> = if is_port {
        chain.rules.iter().flat_map(pod_addresses).collect()
    } else {
        jumps.into_iter().flat_map(pod_addresses).collect()
    };
    let is_dead = !addresses.is_empty() && addresses.iter().all(|address| scene.is_dead(*address));
    is_dead.then(|| format!("it belongs to the sandbox `{sandbox}`, whose address no Pod has now"))
}

/// Returns the addresses of single Pods in a rule.
fn pod_addresses(rule: &Rule) -> Vec<std::net::IpAddr> {
    let selected =
        [&rule.source, &rule.destination].into_iter().flatten().filter(|selector| !selector.is_negated);
    let single = selected.filter_map(|selector| host(selector.value.parse::<IpNetwork>().ok()?));
    match rule.new_destination {
        Some(address) => vec![address],
        None => single.collect(),
    }
}

/// Returns the sandbox in the comment `name: "NETWORK" id: "SANDBOX"`.
fn sandbox(comment: &str) -> Option<&str> {
    let (_, rest) = comment.split_once("name: \"")?;
    let (_, rest) = rest.split_once("id: \"")?;
    rest.split('"').next().filter(|id| !id.is_empty())
}

fn rule_reason(
    rule: &Rule,
    chain: &Chain,
    table: &FilterTable,
    own: &BTreeSet<&str>,
    scene: &Scene<'_>,
) -> Option<String> {
    if let Some(jump) = rule.jump.as_deref().filter(|jump| own.contains(jump)) {
        return Some(format!("it jumps to the chain `{jump}`"));
    }
    let addresses = pod_addresses(rule);
    let is_dead = !addresses.is_empty() && addresses.iter().all(|address| scene.is_dead(*address));
    let is_firewall = table.name == "filter" && chain.name == "CNI-FORWARD" && rule.action.is_some();
    (is_firewall && is_dead)
        .then(|| "it allows the packets of a Pod; no Pod has this address now".to_string())
}
