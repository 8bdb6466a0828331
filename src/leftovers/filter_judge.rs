//! Finds the chains, rules, tables and IP sets of a plug-in.

use std::collections::BTreeSet;

use super::Kind;
use super::context::Scene;
use super::signature::{ChainMark, Found, Placed, Signature, any, quoted};
use crate::node_state::{Chain, FilterBackend, FilterTable, Rule};

pub(super) fn found(signature: &Signature, scene: &Scene<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    for table in tables(scene) {
        if table.backend == FilterBackend::Nft {
            found.extend(nft_table(signature, table));
        } else {
            found.extend(of_iptables(signature, table, scene));
        }
    }
    let sets = scene.state.ipsets.items.iter().filter(|set| any(signature.ipsets, &set.name));
    found.extend(sets.map(|set| {
        let used = if set.references == 0 { "no rule uses it" } else { "rules or sets use it" };
        Found::new(signature, Kind::IpSet, &set.name, format!("ipset list -terse {}", quoted(&set.name)))
            .at(&set.kind)
            .because(format!("{} creates IP sets with this name; {used}", signature.plugin))
    }));
    found
}

/// Returns the tables of all programs.
pub(super) fn tables<'s>(scene: &Scene<'s>) -> impl Iterator<Item = &'s FilterTable> + use<'s> {
    scene.state.nft_tables.items.iter().chain(&scene.state.legacy_tables.items)
}

fn nft_table(signature: &Signature, table: &FilterTable) -> Option<Found> {
    let is_own = |(family, name): &(&str, super::signature::Pattern)| {
        (family.is_empty() || *family == table.family) && name.matches(&table.name)
    };
    signature.nft_tables.iter().any(is_own).then(|| {
        let command = format!("nft list table {} {}", table.family, quoted(&table.name));
        Found::new(signature, Kind::NftTable, &table.name, command)
            .at(&table.family)
            .because(format!("{} creates a table with this name", signature.plugin))
    })
}

fn of_iptables(signature: &Signature, table: &FilterTable, scene: &Scene<'_>) -> Vec<Found> {
    let own: BTreeSet<&str> = table
        .chains
        .iter()
        .filter(|chain| {
            !chain.is_base && signature.chains.iter().any(|mark| is_own(mark, chain, signature, table))
        })
        .map(|chain| chain.name.as_str())
        .collect();
    let mut found: Vec<Found> = own
        .iter()
        .map(|chain| {
            Found::new(signature, Kind::Chain, *chain, chain_command(table, chain))
                .at(place(table))
                .because(format!("{} creates a chain with this name", signature.plugin))
        })
        .collect();
    for chain in table.chains.iter().filter(|chain| !own.contains(chain.name.as_str())) {
        for rule in &chain.rules {
            let item = || rule_item(signature, table, chain, rule);
            let placed = Placed { table: &table.name, chain: &chain.name, rule, chain_rules: &chain.rules };
            if let Some(jump) = rule.jump.as_deref().filter(|jump| own.contains(jump)) {
                found.push(item().because(format!("it jumps to the chain `{jump}` of {}", signature.plugin)));
            } else if rule.comment.as_deref().is_some_and(|comment| any(signature.comments, comment)) {
                found.push(item().because(format!("its comment is that of {}", signature.plugin)));
            } else if let Some(reason) = (signature.filter_rule)(&placed, scene) {
                found.push(item().for_reason(reason));
            }
        }
    }
    found
}

fn rule_item(signature: &Signature, table: &FilterTable, chain: &Chain, rule: &Rule) -> Found {
    let name = format!("-A {} {}", chain.name, rule.text);
    Found::new(signature, Kind::FilterRule, name, chain_command(table, &chain.name)).at(place(table))
}

fn is_own(mark: &ChainMark, chain: &Chain, signature: &Signature, table: &FilterTable) -> bool {
    let has_place = mark.tables.is_empty() || mark.tables.contains(&table.name.as_str());
    let has_comment =
        |rule: &Rule| rule.comment.as_deref().is_some_and(|comment| any(signature.inner_comments, comment));
    let is_commented = || {
        let jumps = table.chains.iter().flat_map(|other| &other.rules);
        let mut to_it = jumps.filter(|rule| rule.jump.as_deref() == Some(chain.name.as_str()));
        chain.rules.iter().any(has_comment) || to_it.any(has_comment)
    };
    has_place && mark.name.matches(&chain.name) && (!mark.needs_comment || is_commented())
}

/// Returns family, name and program of a table.
pub(super) fn place(table: &FilterTable) -> String {
    let program = match table.backend {
        FilterBackend::Nft => "nft",
        FilterBackend::IptablesNft => "iptables-nft",
        FilterBackend::IptablesLegacy => "iptables-legacy",
    };
    format!("{} {}, {program}", table.family, table.name)
}

/// Returns the command that lists a chain.
pub(super) fn chain_command(table: &FilterTable, chain: &str) -> String {
    let version = if table.family == "ip6" { "6" } else { "" };
    let program = match table.backend {
        FilterBackend::Nft => {
            return format!("nft list chain {} {} {}", table.family, quoted(&table.name), quoted(chain));
        }
        FilterBackend::IptablesNft => "nft",
        FilterBackend::IptablesLegacy => "legacy",
    };
    format!("ip{version}tables-{program} -t {} -S {}", table.name, quoted(chain))
}
