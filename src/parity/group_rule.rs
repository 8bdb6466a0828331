//! Rules of security groups: one direction, protocol, ports and peer each.

use std::fmt;

use ipnetwork::IpNetwork;

use super::change::Command;
use crate::aws::Region;
use crate::aws::ec2::{Permission, SecurityGroup};

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// Interfaces with a security group.
    Group(String),
    /// Addresses.
    Range(IpNetwork),
    /// A managed prefix list.
    List(String),
    /// Addresses in a form that is not known.
    Other(String),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(range) => range.fmt(f),
            Self::Group(text) | Self::List(text) | Self::Other(text) => f.write_str(text),
        }
    }
}

/// Protocol and ports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Traffic {
    /// `tcp`, `udp`, `icmp`, `icmpv6`, a number, or `-1` for all.
    pub protocol: String,
    /// First port, or the ICMP type; -1 for all.
    from: i64,
    /// Last port, or the ICMP code; -1 for all.
    to: i64,
}

impl Traffic {
    fn of(permission: &Permission) -> Self {
        let protocol = match permission.ip_protocol.as_str() {
            "6" => "tcp",
            "17" => "udp",
            "1" => "icmp",
            "58" => "icmpv6",
            other => other,
        };
        let (from, to) = if protocol == "-1" {
            (-1, -1)
        } else {
            (permission.from_port.unwrap_or(-1), permission.to_port.unwrap_or(-1))
        };
        Self { protocol: protocol.to_string(), from, to }
    }

    /// Returns whether this traffic contains all of the other one.
    pub fn contains(&self, other: &Self) -> bool {
        if self.protocol == "-1" {
            return true;
        }
        let is_icmp = self.protocol.starts_with("icmp");
        let contains_ports = if is_icmp {
            [(self.from, other.from), (self.to, other.to)]
                .iter()
                .all(|(own, other)| *own == -1 || own == other)
        } else {
            self.from == -1 || self.from <= other.from && other.to <= self.to && other.from != -1
        };
        self.protocol == other.protocol && contains_ports
    }
}

/// Formats the traffic: `tcp 5432`, `udp 30000-32767`, `all traffic`.
impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.protocol.as_str(), self.from, self.to) {
            ("-1", ..) => f.write_str("all traffic"),
            (name, -1, _) => f.write_str(name),
            (name, from, to) if from == to => write!(f, "{name} {from}"),
            (name, from, to) => write!(f, "{name} {from}-{to}"),
        }
    }
}

/// The direction of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To the interfaces with the group.
    Inbound,
    /// From them.
    Outbound,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Its direction.
    pub direction: Direction,
    /// Protocol and ports.
    pub traffic: Traffic,
    /// Who is at the other end.
    pub peer: Peer,
}

impl Rule {
    /// Returns the rules of a group.
    pub fn all(group: &SecurityGroup) -> Vec<Self> {
        let of = |direction, permissions: &[Permission]| -> Vec<Self> {
            let rules = |permission: &Permission| {
                let traffic = Traffic::of(permission);
                let rule = move |peer| Self { direction, traffic: traffic.clone(), peer };
                peers(permission).into_iter().map(rule).collect::<Vec<_>>()
            };
            permissions.iter().flat_map(rules).collect()
        };
        [of(Direction::Inbound, &group.inbound), of(Direction::Outbound, &group.outbound)].concat()
    }

    /// Returns whether this rule allows everything that another rule allows. Prefix lists are compared by id.
    pub fn allows(&self, other: &Self) -> bool {
        let is_same_peer = match (&self.peer, &other.peer) {
            (Peer::Range(own), Peer::Range(range)) => contains(own, range),
            (own, other) => own == other,
        };
        self.direction == other.direction && is_same_peer && self.traffic.contains(&other.traffic)
    }

    /// Returns the rule with another peer.
    #[must_use]
    pub fn with_peer(&self, peer: Peer) -> Self {
        Self { peer, ..self.clone() }
    }

    /// Returns what the rule allows: `tcp 5432 from sg-1`.
    pub fn words(&self) -> String {
        let preposition = if self.direction == Direction::Inbound { "from" } else { "to" };
        format!("{} {preposition} {}", self.traffic, self.peer)
    }

    /// Returns the command that adds the rule to a group, for these peers.
    pub fn command(&self, region: &Region, group: &str, peers: &[Peer]) -> String {
        let action = match self.direction {
            Direction::Inbound => "authorize-security-group-ingress",
            Direction::Outbound => "authorize-security-group-egress",
        };
        let mut words = vec![format!("IpProtocol={}", self.traffic.protocol)];
        if self.traffic.protocol != "-1" {
            words.push(format!("FromPort={}", self.traffic.from));
            words.push(format!("ToPort={}", self.traffic.to));
        }
        words.extend(lists(peers));
        Command::new("ec2", action)
            .in_region(region)
            .with("--group-id", group)
            .with("--ip-permissions", &words.join(","))
            .text()
    }
}

/// Returns the peers in the shorthand syntax of the AWS CLI.
fn lists(peers: &[Peer]) -> Vec<String> {
    let list = |name: &str, key: &str, of: &dyn Fn(&Peer) -> Option<String>| {
        let items: Vec<String> =
            peers.iter().filter_map(of).map(|value| format!("{{{key}={value}}}")).collect();
        (!items.is_empty()).then(|| format!("{name}=[{}]", items.join(",")))
    };
    let range = |peer: &Peer, is_v6: bool| match peer {
        Peer::Range(range) if range.is_ipv6() == is_v6 => Some(range.to_string()),
        _ => None,
    };
    let group = |peer: &Peer| if let Peer::Group(id) = peer { Some(id.clone()) } else { None };
    let prefix = |peer: &Peer| if let Peer::List(id) = peer { Some(id.clone()) } else { None };
    [
        list("UserIdGroupPairs", "GroupId", &group),
        list("IpRanges", "CidrIp", &|peer| range(peer, false)),
        list("Ipv6Ranges", "CidrIpv6", &|peer| range(peer, true)),
        list("PrefixListIds", "PrefixListId", &prefix),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn peers(permission: &Permission) -> Vec<Peer> {
    let range = |text: &str| text.parse().map_or_else(|_| Peer::Other(text.to_string()), Peer::Range);
    let groups = permission.groups.iter().map(|group| Peer::Group(group.group_id.clone()));
    let ranges = permission.ranges.iter().map(|one| range(&one.cidr_ip));
    let ranges6 = permission.ranges6.iter().map(|one| range(&one.cidr_ipv6));
    let lists = permission.lists.iter().map(|list| Peer::List(list.prefix_list_id.clone()));
    groups.chain(ranges).chain(ranges6).chain(lists).collect()
}

/// Returns whether a range contains all addresses of another one.
pub fn contains(range: &IpNetwork, other: &IpNetwork) -> bool {
    range.prefix() <= other.prefix() && range.contains(other.network())
}

/// Returns whether two ranges have addresses in common.
pub fn overlap(one: &IpNetwork, other: &IpNetwork) -> bool {
    contains(one, other) || contains(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(protocol: &str, from: i64, to: i64, peer: Peer) -> Rule {
        let traffic = Traffic { protocol: protocol.into(), from, to };
        Rule { direction: Direction::Inbound, traffic, peer }
    }

    fn range(text: &str) -> Peer {
        Peer::Range(text.parse().unwrap())
    }

    #[test]
    fn wider_rule_allows_what_a_narrow_one_does() {
        let narrow = rule("tcp", 443, 443, range("10.1.2.0/24"));
        for wide in [
            rule("tcp", 400, 500, range("10.1.0.0/16")),
            rule("-1", -1, -1, range("0.0.0.0/0")),
            rule("tcp", -1, -1, range("10.1.2.0/24")),
            narrow.clone(),
        ] {
            assert!(wide.allows(&narrow), "{wide:?}");
        }
        for other in [
            rule("udp", 443, 443, range("10.1.0.0/16")),
            rule("tcp", 444, 500, range("10.1.0.0/16")),
            rule("tcp", 443, 443, range("10.1.2.0/25")),
            rule("tcp", 443, 443, range("::/0")),
            rule("tcp", 443, 443, Peer::Group("sg-1".into())),
        ] {
            assert!(!other.allows(&narrow), "{other:?}");
        }
        assert!(!rule("tcp", 443, 443, range("0.0.0.0/0")).allows(&rule("-1", -1, -1, range("10.0.0.0/8"))));
        assert!(!rule("tcp", 0, 65535, range("0.0.0.0/0")).allows(&rule("tcp", -1, -1, range("0.0.0.0/0"))));
        assert!(rule("icmp", -1, -1, range("0.0.0.0/0")).allows(&rule("icmp", 8, 0, range("10.0.0.0/8"))));
        assert!(!rule("icmp", 8, 0, range("0.0.0.0/0")).allows(&rule("icmp", -1, -1, range("10.0.0.0/8"))));
    }

    #[test]
    fn command_has_all_peers() {
        let command = rule("tcp", 5432, 5432, Peer::Group("sg-1".into())).command(
            &Region::new("eu-west-1"),
            "sg-db",
            &[Peer::Group("sg-2".into()), range("10.0.0.0/8"), range("fd00::/8"), range("10.1.0.0/16")],
        );
        let words = shlex::split(&command).unwrap();
        assert_eq!(
            words.last().unwrap(),
            "IpProtocol=tcp,FromPort=5432,ToPort=5432,UserIdGroupPairs=[{GroupId=sg-2}],\
             IpRanges=[{CidrIp=10.0.0.0/8},{CidrIp=10.1.0.0/16}],Ipv6Ranges=[{CidrIpv6=fd00::/8}]"
        );
        assert_eq!(rule("-1", -1, -1, range("10.0.0.0/8")).words(), "all traffic from 10.0.0.0/8");
        assert_eq!(rule("udp", 1, 9, range("10.0.0.0/8")).words(), "udp 1-9 from 10.0.0.0/8");
    }
}
