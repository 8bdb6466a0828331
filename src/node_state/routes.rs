//! Reads the routes and the policy rules of this network namespace (`include/uapi/linux/rtnetlink.h`, `fib_rules.h`, Linux 6.12).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

use super::links::{ip, name};
use super::list;
use super::model::{Link, Part, PolicyRule, Route};
use crate::host::netlink::{Family, Netlink, attribute, native32, text};

/// Message types `RTM_GETROUTE` and `RTM_GETRULE`. Both have a header of 12 bytes.
const GET_ROUTE: u16 = 26;
const GET_RULE: u16 = 34;
const HEADER: usize = 12;
/// Address families.
const V4: u8 = 2;
const V6: u8 = 10;
/// The routing table of the addresses of this host.
const TABLE_LOCAL: u32 = 255;
/// Flag of a cache entry (`RTM_F_CLONED`).
const CLONED: u32 = 0x200;
/// Attributes of a route: `RTA_DST`, `RTA_OIF`, `RTA_GATEWAY`, `RTA_PRIORITY`, `RTA_MULTIPATH`, `RTA_TABLE`.
const TO: u16 = 1;
const LINK: u16 = 4;
const GATEWAY: u16 = 5;
const METRIC: u16 = 6;
const TABLE: u16 = 15;
/// Attributes of a rule: `FRA_DST`, `FRA_SRC`, `FRA_IIFNAME`, `FRA_PRIORITY`, `FRA_FWMARK`, `FRA_TABLE`, `FRA_FWMASK`.
const RULE_TO: u16 = 1;
const RULE_FROM: u16 = 2;
const RULE_LINK: u16 = 3;
const RULE_PRIORITY: u16 = 6;
const RULE_MARK: u16 = 10;
const RULE_TABLE: u16 = 15;
const RULE_MASK: u16 = 16;
/// Flag of a rule with negated selectors (`FIB_RULE_INVERT`).
const INVERT: u32 = 2;

fn bodies() -> [Vec<u8>; 2] {
    [V4, V6].map(|family| {
        let mut body = vec![0; HEADER];
        if let Some(first) = body.first_mut() {
            *first = family;
        }
        body
    })
}

pub(super) fn routes(links: &Part<Link>) -> Part<Route> {
    list(Netlink::open(Family::Route), GET_ROUTE, &bodies(), |body| route(body, links))
}

fn route(body: &[u8], links: &Part<Link>) -> Option<Route> {
    let family = *body.first()?;
    let attributes = body.get(HEADER..)?;
    let table = attribute(attributes, TABLE).and_then(native32).unwrap_or_else(|| u32::from(byte(body, 4)));
    let is_cloned = native32(body.get(8..)?)? & CLONED != 0;
    if table == TABLE_LOCAL || is_cloned || ![V4, V6].contains(&family) {
        return None;
    }
    Some(Route {
        to: network(attribute(attributes, TO), byte(body, 1), family)?,
        via: attribute(attributes, GATEWAY).and_then(ip),
        link: attribute(attributes, LINK).and_then(native32).and_then(|index| name(links, index)),
        table,
        protocol: byte(body, 5),
        kind: byte(body, 7),
        metric: attribute(attributes, METRIC).and_then(native32),
    })
}

pub(super) fn policy_rules() -> Part<PolicyRule> {
    list(Netlink::open(Family::Route), GET_RULE, &bodies(), policy_rule)
}

fn policy_rule(body: &[u8]) -> Option<PolicyRule> {
    let family = *body.first()?;
    let attributes = body.get(HEADER..)?;
    let number = |kind| attribute(attributes, kind).and_then(native32);
    let mark = number(RULE_MARK).map(|mark| (mark, number(RULE_MASK).unwrap_or(u32::MAX)));
    let selected = |kind, prefix_len: u8| {
        attribute(attributes, kind).and_then(|bytes| network(Some(bytes), prefix_len, family))
    };
    [V4, V6].contains(&family).then_some(PolicyRule {
        is_v6: family == V6,
        priority: number(RULE_PRIORITY).unwrap_or_default(),
        table: number(RULE_TABLE).unwrap_or_else(|| u32::from(byte(body, 4))),
        from: selected(RULE_FROM, byte(body, 2)),
        to: selected(RULE_TO, byte(body, 1)),
        mark: mark.filter(|mark| *mark != (0, 0)),
        incoming: text(attributes, RULE_LINK),
        is_negated: native32(body.get(8..)?)? & INVERT != 0,
    })
}

fn byte(body: &[u8], place: usize) -> u8 {
    body.get(place).copied().unwrap_or_default()
}

/// Returns a network. Without an address, it contains all addresses.
fn network(bytes: Option<&[u8]>, prefix_len: u8, family: u8) -> Option<IpNetwork> {
    let all =
        || if family == V4 { Ipv4Addr::UNSPECIFIED.into() } else { IpAddr::from(Ipv6Addr::UNSPECIFIED) };
    let address = match bytes {
        Some(bytes) => ip(bytes)?,
        None => all(),
    };
    IpNetwork::new(address, prefix_len).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::netlink::encode;

    #[test]
    fn blackhole_route_is_parsed() {
        let mut body = vec![V4, 26, 0, 0, 254, 80, 0, 6, 0, 0, 0, 0];
        body.extend(encode(TO, &[10, 244, 1, 0]));
        let route = route(&body, &Part::complete(vec![])).unwrap();
        assert_eq!((route.to.to_string().as_str(), route.protocol, route.kind), ("10.244.1.0/26", 80, 6));
    }

    #[test]
    fn rule_with_mark_is_parsed() {
        let mut body = vec![V4, 0, 32, 0, 0, 0, 0, 1, 2, 0, 0, 0];
        for (kind, value) in
            [(RULE_PRIORITY, 99_u32), (RULE_MARK, 0x10), (RULE_MASK, 0x30), (RULE_TABLE, 2004)]
        {
            body.extend(encode(kind, &value.to_ne_bytes()));
        }
        body.extend(encode(RULE_FROM, &[10, 0, 0, 1]));
        let rule = policy_rule(&body).unwrap();
        assert_eq!((rule.priority, rule.mark, rule.table), (99, Some((0x10, 0x30)), 2004));
        assert_eq!(rule.from.map(|from| from.to_string()).as_deref(), Some("10.0.0.1/32"));
        assert!(rule.is_negated && !rule.is_v6);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = (route(&bytes, &Part::complete(vec![])), policy_rule(&bytes));
        }
    }
}
