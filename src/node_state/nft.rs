//! Reads the tables, chains, rules and sets of nftables in this network namespace, with those of `iptables-nft`
//! (`include/uapi/linux/netfilter/nf_tables.h`, Linux 6.12).

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::model::{Chain, FilterBackend, FilterTable, IpSet, Part, Rule};
use super::nft_rule::rule;
use super::{MOST, socket_of};
use crate::host::kernel::KernelPart;
use crate::host::netlink::{Family, GENERIC, List, Netlink, attribute, text};

/// Message types of `NFNL_SUBSYS_NFTABLES`: `NFT_MSG_GETTABLE`, `_GETCHAIN`, `_GETRULE`, `_GETSET`.
const GET_TABLE: u16 = 10 << 8 | 1;
const GET_CHAIN: u16 = 10 << 8 | 4;
const GET_RULE: u16 = 10 << 8 | 7;
const GET_SET: u16 = 10 << 8 | 0xa;
/// Attributes of a table: `NFTA_TABLE_NAME`. Chains, rules and sets have the name of the table in the same attribute.
const TABLE: u16 = 1;
/// Attributes of a chain: `NFTA_CHAIN_NAME`, `NFTA_CHAIN_HOOK`.
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
/// Attribute of a rule: `NFTA_RULE_CHAIN`.
const RULE_CHAIN: u16 = 2;
/// Attribute of a set: `NFTA_SET_NAME`.
const SET_NAME: u16 = 2;
/// How often everything is read until two lists of tables are equal.
const TRIES: usize = 3;
/// The tables and base chains of `iptables-nft`.
const TABLES_OF_IPTABLES: [&str; 5] = ["filter", "nat", "mangle", "raw", "security"];
const CHAINS_OF_IPTABLES: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// Family and name of a table, and the name of something in it.
type Place = (u8, String, String);

pub(super) fn read(ipsets: &Part<IpSet>) -> Part<FilterTable> {
    let mut socket = match socket_of(KernelPart::Nftables, Family::Netfilter) {
        Ok(socket) => socket,
        Err(part) => return part,
    };
    let names = ipsets.items.iter().filter_map(|set| Some((set.index?, set.name.clone()))).collect();
    // Rules are read after chains. A chain that is created meanwhile would have no entry, so the read is repeated.
    let mut last = None;
    for _ in 0..TRIES {
        match tables(&mut socket, &names) {
            Ok((part, true)) => return part,
            Ok((part, false)) => last = Some(part),
            Err(error) => return Part::unread(&error),
        }
    }
    let items = last.map(|part| part.items).unwrap_or_default();
    Part::incomplete(items, "the tables changed each time they were read")
}

/// Returns the tables, and whether every rule is in a known chain.
fn tables(socket: &mut Netlink, names: &BTreeMap<u16, String>) -> io::Result<(Part<FilterTable>, bool)> {
    let mut gap = None;
    let mut get = |kind| -> io::Result<Vec<Vec<u8>>> {
        let List { messages, gap: cut } = socket.list(kind, &[0; GENERIC], MOST)?;
        gap = gap.take().or(cut);
        Ok(messages.into_iter().map(|message| message.body).collect())
    };
    let tables = get(GET_TABLE)?;
    let (chains, rules, sets) = (get(GET_CHAIN)?, get(GET_RULE)?, get(GET_SET)?);
    let mut known: BTreeSet<(u8, String)> =
        tables.iter().filter_map(|body| Some((*body.first()?, text(body.get(GENERIC..)?, TABLE)?))).collect();
    let mut of_chain: BTreeMap<Place, Chain> = BTreeMap::new();
    for body in &chains {
        if let Some((place, is_base)) = chain(body) {
            known.insert((place.0, place.1.clone()));
            let chain = Chain { name: place.2.clone(), is_base, rules: Vec::new() };
            of_chain.insert(place, chain);
        }
    }
    let mut is_consistent = true;
    for body in &rules {
        if let Some((place, rule)) = placed_rule(body, names) {
            match of_chain.get_mut(&place) {
                Some(chain) => chain.rules.push(rule),
                None => is_consistent = false,
            }
        }
    }
    let mut of_set: BTreeMap<(u8, String), Vec<String>> = BTreeMap::new();
    for (family, table, name) in sets.iter().filter_map(|body| place(body, SET_NAME)) {
        of_set.entry((family, table)).or_default().push(name);
    }
    let tables = known.into_iter().map(|key| {
        let chains = of_chain.iter().filter(|((family, table, _), _)| (*family, table) == (key.0, &key.1));
        let chains: Vec<Chain> = chains.map(|(_, chain)| chain.clone()).collect();
        let sets = of_set.remove(&key).unwrap_or_default();
        table(key.0, key.1, chains, sets)
    });
    Ok((Part::with_gap(tables.collect(), gap), is_consistent))
}

fn table(family: u8, name: String, chains: Vec<Chain>, sets: Vec<String>) -> FilterTable {
    let family = match family {
        1 => "inet".to_string(),
        2 => "ip".to_string(),
        3 => "arp".to_string(),
        5 => "netdev".to_string(),
        7 => "bridge".to_string(),
        10 => "ip6".to_string(),
        other => other.to_string(),
    };
    let is_of_iptables = ["ip", "ip6"].contains(&family.as_str())
        && TABLES_OF_IPTABLES.contains(&name.as_str())
        && chains
            .iter()
            .filter(|chain| chain.is_base)
            .all(|chain| CHAINS_OF_IPTABLES.contains(&chain.name.as_str()));
    let backend = if is_of_iptables { FilterBackend::IptablesNft } else { FilterBackend::Nft };
    FilterTable { backend, family, name, chains, sets }
}

fn place(body: &[u8], name: u16) -> Option<Place> {
    let attributes = body.get(GENERIC..)?;
    Some((*body.first()?, text(attributes, TABLE)?, text(attributes, name)?))
}

fn chain(body: &[u8]) -> Option<(Place, bool)> {
    Some((place(body, CHAIN_NAME)?, attribute(body.get(GENERIC..)?, CHAIN_HOOK).is_some()))
}

fn placed_rule(body: &[u8], names: &BTreeMap<u16, String>) -> Option<(Place, Rule)> {
    let place = place(body, RULE_CHAIN)?;
    let rule = rule(body.get(GENERIC..)?, place.0, names);
    Some((place, rule))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (chain(&bytes), placed_rule(&bytes, &BTreeMap::new()), place(&bytes, SET_NAME));
        }
    }
}
