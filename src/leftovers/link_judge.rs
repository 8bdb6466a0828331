//! Finds the links, routes, rules, programs and files of a plug-in.

use std::collections::BTreeMap;

use super::Kind;
use super::context::Scene;
use super::signature::{Found, LinkMark, Signature, any, quoted};
use crate::node_state::{Link, PolicyRule, Route};

pub(super) fn found(signature: &Signature, scene: &Scene<'_>) -> Vec<Found> {
    let mut found = links(signature, scene);
    found.extend(routes(signature, scene));
    found.extend(xfrm(signature, scene));
    found.extend(programs(signature, scene));
    found.extend(files(signature, scene));
    found
}

/// Returns the mark by which a link belongs to the plug-in.
fn mark_of(signature: &Signature, link: &Link) -> Option<&'static LinkMark> {
    let matches = |mark: &&LinkMark| {
        let has_kind = link.kind.as_deref().is_some_and(|kind| mark.kinds.contains(&kind));
        mark.name.matches(&link.name) && (mark.kinds.is_empty() || has_kind)
    };
    signature.links.iter().find(matches)
}

fn links(signature: &Signature, scene: &Scene<'_>) -> Vec<Found> {
    let own = scene.state.links.items.iter().filter_map(|link| Some((link, mark_of(signature, link)?)));
    own.map(|(link, mark)| {
        let reason = match &link.kind {
            Some(kind) => {
                format!("{} creates links with this name; this one has the kind `{kind}`", signature.plugin)
            }
            None => format!("{} creates links with this name", signature.plugin),
        };
        let command = format!("ip -details link show dev {}", quoted(&link.name));
        Found::new(signature, Kind::Link, &link.name, command).because(reason).weak_if(mark.is_weak)
    })
    .collect()
}

fn routes(signature: &Signature, scene: &Scene<'_>) -> Vec<Found> {
    let links = scene.state.links.items.iter();
    let own_links: BTreeMap<&str, &LinkMark> =
        links.filter_map(|link| Some((link.name.as_str(), mark_of(signature, link)?))).collect();
    let mut found = Vec::new();
    for route in &scene.state.routes.items {
        let item = || {
            let family = if route.to.is_ipv4() { "-4" } else { "-6" };
            let command = format!("ip {family} route show table {} exact {}", route.table, route.to);
            Found::new(signature, Kind::Route, route_text(route), command)
                .at(format!("table {}", route.table))
        };
        if let Some(reason) = (signature.route)(route, scene) {
            found.push(item().for_reason(reason));
        } else if let Some((link, mark)) =
            route.link.as_deref().and_then(|link| own_links.get_key_value(link))
        {
            // The kernel adds these for every IPv6 link.
            let is_link_local = route.to.to_string() == "fe80::/64" || route.to.to_string() == "ff00::/8";
            if !is_link_local {
                let reason = format!("it leads to the link `{link}` of {}", signature.plugin);
                found.push(item().because(reason).weak_if(mark.is_weak));
            }
        }
    }
    for rule in &scene.state.policy_rules.items {
        if let Some(reason) = (signature.policy_rule)(rule, scene) {
            let family = if rule.is_v6 { "-6" } else { "-4" };
            let command = format!("ip {family} rule show priority {}", rule.priority);
            let place = if rule.is_v6 { "IPv6" } else { "IPv4" };
            found.push(
                Found::new(signature, Kind::PolicyRule, rule_text(rule), command)
                    .at(place)
                    .for_reason(reason),
            );
        }
    }
    let names = scene.state.table_names.items.iter();
    let own = names.filter(|name| signature.tables.contains(&(name.table, name.name.as_str())));
    found.extend(own.map(|name| {
        let text = format!("{} {}", name.table, name.name);
        Found::new(
            signature,
            Kind::TableName,
            text,
            format!("grep {} {}", quoted(&name.name), quoted(&name.file)),
        )
        .at(&name.file)
        .because(format!("{} adds this name", signature.plugin))
    }));
    found
}

fn route_text(route: &Route) -> String {
    let kind = match route.kind {
        1 => "",
        2 => "local ",
        6 => "blackhole ",
        7 => "unreachable ",
        8 => "prohibit ",
        _ => "other ",
    };
    let mut words = vec![format!("{kind}{}", route.to)];
    words.extend(route.via.iter().map(|via| format!("via {via}")));
    words.extend(route.link.iter().map(|link| format!("dev {link}")));
    words.push(format!("proto {}", route.protocol));
    words.join(" ")
}

fn rule_text(rule: &PolicyRule) -> String {
    let mut words = vec![format!("{}:", rule.priority)];
    words.extend(rule.is_negated.then(|| "not".to_string()));
    words.push(rule.from.map_or_else(|| "from all".to_string(), |from| format!("from {from}")));
    words.extend(rule.to.iter().map(|to| format!("to {to}")));
    words.extend(rule.mark.iter().map(|(mark, mask)| format!("fwmark {mark:#x}/{mask:#x}")));
    words.extend(rule.incoming.iter().map(|link| format!("iif {link}")));
    words.push(format!("lookup {}", rule.table));
    words.join(" ")
}

fn xfrm(signature: &Signature, scene: &Scene<'_>) -> Vec<Found> {
    let marked = |mark: Option<(u32, u32)>| {
        mark.map_or(String::new(), |(value, mask)| format!(" mark {value:#x}/{mask:#x}"))
    };
    let policies = scene.state.xfrm_policies.items.iter().filter(|policy| (signature.xfrm_policy)(policy));
    let mut found: Vec<Found> = policies
        .map(|policy| {
            let direction = match policy.direction {
                0 => "in",
                1 => "out",
                2 => "fwd",
                _ => "other",
            };
            let action = if policy.blocks { " action block" } else { "" };
            let name = format!(
                "src {} dst {} dir {direction}{action}{}",
                policy.from,
                policy.to,
                marked(policy.mark)
            );
            Found::new(signature, Kind::XfrmPolicy, name, "ip xfrm policy list")
                .because(format!("{} uses this mark for IPsec", signature.plugin))
        })
        .collect();
    let states = scene.state.xfrm_states.items.iter().filter(|state| (signature.xfrm_state)(state, scene));
    found.extend(states.map(|state| {
        let name =
            format!("src {} dst {} spi {:#010x}{}", state.from, state.to, state.spi, marked(state.mark));
        Found::new(signature, Kind::XfrmState, name, "ip xfrm state list nokeys")
            .because(format!("an IPsec policy of {} or its mark belongs to it", signature.plugin))
    }));
    found
}

fn programs(signature: &Signature, scene: &Scene<'_>) -> Vec<Found> {
    let filters =
        scene.state.traffic_filters.items.iter().filter(|filter| any(signature.programs, &filter.program));
    let mut found: Vec<Found> = filters
        .map(|filter| {
            let command = format!("tc filter show dev {} {}", quoted(&filter.link), filter.direction);
            Found::new(signature, Kind::TrafficFilter, &filter.program, command)
                .at(format!("{} of {}", filter.direction, filter.link))
                .because(format!("{} gives its programs this name", signature.plugin))
        })
        .collect();
    let pins = scene.state.bpf_pins.items.iter().filter(|path| any(signature.pins, path));
    found.extend(pins.map(|path| {
        Found::new(signature, Kind::BpfPin, path, format!("ls -d {}", quoted(path)))
            .because(format!("{} pins its BPF objects there", signature.plugin))
    }));
    found
}

fn files(signature: &Signature, scene: &Scene<'_>) -> Vec<Found> {
    let files = scene.state.files.items.iter().filter(|path| any(signature.files, path));
    let mut found: Vec<Found> = files
        .map(|path| {
            Found::new(signature, Kind::File, path, format!("ls -d {}", quoted(path)))
                .because(format!("{} creates this path", signature.plugin))
                .weak_if(any(signature.weak_files, path))
        })
        .collect();
    for configuration in &scene.state.configurations.items {
        let folder = configuration.folder.as_deref().unwrap_or("/etc/cni/net.d");
        let path = format!("{folder}/{}", configuration.file);
        let kind = configuration.plugins.iter().find(|kind| signature.types.contains(&kind.as_str()));
        if let Some(kind) = kind.filter(|_| !any(signature.files, &path)) {
            found.push(Found::new(signature, Kind::File, &path, format!("cat {}", quoted(&path))).because(
                format!("this network configuration calls the plug-in `{kind}` of {}", signature.plugin),
            ));
        }
    }
    found
}
