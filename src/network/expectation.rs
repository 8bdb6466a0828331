//! Compares what an agent saw with what must be.

use std::net::IpAddr;
use std::sync::Arc;

use super::cell::{FaultClass, Observation};
use super::member::{Member, Role};
use crate::agent::{Fault, Seen};

/// The longest gap of a connection that stays open, in milliseconds: two retransmissions of a lost segment (RFC 6298, section 2).
const LONGEST_GAP: u64 = 3000;

/// What must come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expectation {
    /// One of these agents answers. With `source`, it saw the own address of the agent (node and role) that asked; the number is the
    /// node where it answers.
    Agent { names: Arc<[String]>, source: Option<((usize, Role), usize)> },
    /// The agent answers through a node port with `externalTrafficPolicy: Local`, and saw an address of the node that asked. Plug-ins that
    /// replace kube-proxy may use endpoints of all nodes for traffic from inside the cluster.
    LocalPort { name: String, all: Arc<[String]>, from: (usize, Role), to: usize },
    /// Every connection is answered by one of these agents, and if `is_complete`, each of them answers. With `source`, those on
    /// other nodes saw the address of the agent that asked.
    Endpoints { all: Arc<[String]>, is_complete: bool, source: Option<(usize, Role)> },
    /// All datagrams of a series arrive, and all answers return. `key` is that of the series at the receiver.
    Series { receiver: (usize, Role), key: u64, name: String },
    /// Packets of the full size arrive.
    FullSize,
    /// The attempt succeeds.
    Success,
    /// The name has these addresses, or any if the list is empty.
    Addresses { wanted: Vec<IpAddr> },
    /// The connection is open.
    Open,
    /// Nothing answers, because a policy denies it.
    Denied,
}

/// Returns the observation of a fault.
fn fault(class: FaultClass, seen: impl Into<String>) -> (Option<FaultClass>, String) {
    (Some(class), seen.into())
}

/// Judges what an agent saw. `received` is what the receiver of a series counted, if it is known.
pub(super) fn judged(
    expectation: &Expectation,
    seen: &Seen,
    received: Option<u16>,
    members: &[Member],
    tried: &str,
) -> Observation {
    let (fault, seen) = match (expectation, seen) {
        (Expectation::Denied, seen) => denied(seen),
        (_, Seen::Failed(reason)) => (Some(class_of(reason)), reason.to_string()),
        (Expectation::Agent { names, source }, Seen::Answer { by, source: address, tries, micros }) => {
            agent((names, *source), (by, *address), members, (*tries, *micros))
        }
        (
            Expectation::LocalPort { name, all, from, to },
            Seen::Answer { by, source: address, tries, micros },
        ) => local_port((name, all), (*from, *to), (by, *address), members, (*tries, *micros)),
        (Expectation::Endpoints { all, is_complete, source }, Seen::Spread { .. }) => {
            endpoints((all, *is_complete, *source), seen, members)
        }
        (Expectation::Series { name, .. }, Seen::Echoes { .. }) => series(name, seen, received),
        (Expectation::FullSize, Seen::FullSize { size }) => (None, format!("{size} bytes arrived")),
        (Expectation::FullSize, Seen::TooLarge { size, passes, named }) => too_large(*size, *passes, *named),
        (Expectation::Success, Seen::Moved { micros } | Seen::Connected { micros }) => {
            (None, format!("in {}", millis(*micros)))
        }
        (Expectation::Addresses { wanted }, Seen::Addresses { .. }) => addresses(wanted, seen),
        (Expectation::Open, Seen::Standing { is_open, longest_gap, fault: reason }) => {
            standing(*is_open, *longest_gap, reason.as_ref())
        }
        (_, seen) => fault(FaultClass::Broken, format!("an unexpected reply of the agent: {seen:?}")),
    };
    Observation { tried: tried.to_string(), seen, fault }
}

fn millis(micros: u64) -> String {
    format!("{}.{} ms", micros / 1000, micros % 1000 / 100)
}

fn class_of(fault: &Fault) -> FaultClass {
    match fault {
        Fault::Refused => FaultClass::Refused,
        Fault::NoAnswer { .. } => FaultClass::Silent,
        Fault::Unreachable { .. } => FaultClass::Unreachable,
        Fault::Stranger { .. } => FaultClass::WrongServer,
        Fault::Broken { .. } | Fault::Impossible { .. } => FaultClass::Broken,
    }
}

/// Each answer must have the addresses: several Pods answer for one name server, and one of them may have old data.
fn addresses(wanted: &[IpAddr], seen: &Seen) -> (Option<FaultClass>, String) {
    let Seen::Addresses { addresses, server, empty, truncated, micros } = seen else {
        return fault(FaultClass::Broken, "an unexpected reply of the agent");
    };
    let list = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let found = if list.is_empty() { "no address".to_string() } else { list };
    let again = match truncated {
        0 => String::new(),
        count => format!("; {count} truncated answers, asked again over TCP"),
    };
    let text = format!("{server} answered {found} in {}{again}", millis(*micros));
    let has = |is_v4: bool| wanted.iter().any(|one| one.is_ipv4() == is_v4);
    let without = [("A", empty.0, has(true)), ("AAAA", empty.1, has(false))];
    let without = without.into_iter().find(|(_, count, is_wanted)| *count > 0 && *is_wanted);
    match (wanted.iter().find(|one| !addresses.contains(one)), without) {
        _ if wanted.is_empty() => (addresses.is_empty().then_some(FaultClass::WrongAddress), text),
        (Some(missing), _) => fault(FaultClass::WrongAddress, format!("{text}; {missing} is missing")),
        (None, Some((kind, count, _))) => fault(
            FaultClass::WrongAddress,
            format!("{text}; answers to queries for {kind} had no address: {count}"),
        ),
        (None, None) => (None, text),
    }
}

fn denied(seen: &Seen) -> (Option<FaultClass>, String) {
    match seen {
        Seen::Failed(Fault::NoAnswer { .. } | Fault::Refused | Fault::Unreachable { .. }) => {
            (None, "blocked".to_string())
        }
        Seen::Answer { by, .. } => fault(FaultClass::NotDenied, format!("`{by}` answered")),
        other => fault(FaultClass::Broken, format!("an unexpected reply of the agent: {other:?}")),
    }
}

type SourceOf = Option<((usize, Role), usize)>;

fn agent(
    (names, source): (&[String], SourceOf),
    (by, address): (&str, IpAddr),
    members: &[Member],
    (tries, micros): (u8, u64),
) -> (Option<FaultClass>, String) {
    if !names.iter().any(|name| name == by) {
        return fault(FaultClass::WrongServer, format!("`{by}` answered instead"));
    }
    if let Some((from, to)) = source
        && let Some(class) = foreign_source(address, from, to, members)
    {
        return fault(class, format!("it answered, but saw the source address {address}"));
    }
    let again = if tries > 1 { format!(" at try {tries}") } else { String::new() };
    (None, format!("answered{again} in {}, source {address}", millis(micros)))
}

fn local_port(
    (name, all): (&str, &[String]),
    (from, to): ((usize, Role), usize),
    (by, address): (&str, IpAddr),
    members: &[Member],
    (tries, micros): (u8, u64),
) -> (Option<FaultClass>, String) {
    if by != name && all.iter().any(|other| other == by) {
        return (None, format!("answered by `{by}` on another node: kube-proxy is replaced"));
    }
    // A node may have more addresses than the Node object names.
    match agent((&[name.to_string()], Some((from, to))), (by, address), members, (tries, micros)) {
        (Some(FaultClass::SourceOfSender), seen) => (None, seen),
        judged => judged,
    }
}

/// Returns whose address the receiver saw, if it is not that of the agent that asked.
fn foreign_source(
    address: IpAddr,
    (from, role): (usize, Role),
    to: usize,
    members: &[Member],
) -> Option<FaultClass> {
    let sender = members.get(from)?;
    let receiver = members.get(to)?;
    let own = sender.agent(role)?;
    if own.addresses.contains(&address) {
        return None;
    }
    let is_of_node =
        |member: &Member| member.agent(Role::Host).is_some_and(|host| host.addresses.contains(&address));
    let is_in_range = |member: &Member| member.pod_cidrs.iter().any(|range| range.contains(address));
    // Many plug-ins do not use the ranges of the Nodes. The bridge or tunnel of a node has an address beside those of its Pods.
    let is_near = |member: &Member| {
        let pod = member.agent(Role::Pod).and_then(|pod| pod.address_of(address.is_ipv4()));
        matches!((pod, address), (Some(IpAddr::V4(pod)), IpAddr::V4(seen)) if pod.octets().first_chunk::<3>() == seen.octets().first_chunk())
    };
    Some(if is_of_node(sender) {
        FaultClass::SourceOfSender
    } else if is_of_node(receiver) {
        FaultClass::SourceOfReceiver
    } else if is_in_range(sender) || is_near(sender) {
        FaultClass::SourceOfSender
    } else if is_in_range(receiver) || is_near(receiver) {
        FaultClass::SourceOfReceiver
    } else {
        FaultClass::SourceOther
    })
}

fn endpoints(
    (all, is_complete, source): (&[String], bool, Option<(usize, Role)>),
    seen: &Seen,
    members: &[Member],
) -> (Option<FaultClass>, String) {
    let Seen::Spread { answers, failed, first } = seen else {
        return fault(FaultClass::Broken, "an unexpected reply of the agent");
    };
    let total = answers.values().fold(*failed, |sum, answers| sum.saturating_add(answers.count));
    if let (1.., Some(reason)) = (*failed, first) {
        let class = if answers.is_empty() { class_of(reason) } else { FaultClass::Endpoints };
        return fault(class, format!("{failed} of {total} connections failed: {reason}"));
    }
    if let Some(stranger) = answers.keys().find(|by| !all.contains(by)) {
        return fault(FaultClass::WrongServer, format!("`{stranger}` answered, which is no endpoint"));
    }
    if is_complete && let Some(silent) = all.iter().find(|name| !answers.contains_key(*name)) {
        return fault(
            FaultClass::Endpoints,
            format!("{total} connections, and none of them reached the endpoint `{silent}`"),
        );
    }
    if let Some((from, role)) = source {
        let own = members.get(from).and_then(|member| member.agent(role)).map(|agent| agent.name.as_str());
        for (by, answers) in answers.iter().filter(|(by, _)| Some(by.as_str()) != own) {
            let to = members
                .iter()
                .position(|member| member.agent(Role::Pod).is_some_and(|agent| agent.name == *by));
            for address in &answers.sources {
                if let Some(class) = foreign_source(*address, (from, role), to.unwrap_or(from), members) {
                    return fault(class, format!("`{by}` saw the source address {address}"));
                }
            }
        }
    }
    (None, format!("{total} connections, answered by {} endpoints", answers.len()))
}

fn series(name: &str, seen: &Seen, received: Option<u16>) -> (Option<FaultClass>, String) {
    let Seen::Echoes { sent, answered, duplicates, by, .. } = seen else {
        return fault(FaultClass::Broken, "an unexpected reply of the agent");
    };
    let lost = sent.saturating_sub(*answered);
    let arrived = received.map_or_else(
        || "the receiver's count is not known".to_string(),
        |received| format!("{received} arrived"),
    );
    let text = format!("{sent} sent, {arrived}, {answered} answered");
    if let Some(other) = by.iter().find(|by| *by != name) {
        return fault(FaultClass::Duplicate, format!("{text}; `{other}` answered for the same address"));
    }
    if *duplicates > 0 {
        return fault(FaultClass::Duplicate, format!("{text}; {duplicates} answers arrived twice"));
    }
    let class = match (lost, received) {
        (0, _) => return (None, text),
        (_, Some(received)) if received < *sent && received <= *answered => FaultClass::LostThere,
        (_, Some(received)) if received >= *sent => FaultClass::LostBack,
        _ => FaultClass::Lost,
    };
    fault(class, text)
}

fn too_large(size: u16, passes: Option<u16>, named: Option<u32>) -> (Option<FaultClass>, String) {
    let passes = passes.map_or_else(
        || "no smaller size that was tried arrives either".to_string(),
        |passes| format!("packets of {passes} bytes do"),
    );
    let reason = named.map_or_else(
        || "and nothing reported the limit (ICMP is blocked, or the link drops silently)".to_string(),
        |named| format!("and the limit of {named} bytes was reported"),
    );
    fault(
        FaultClass::TooLarge,
        format!("packets of {size} bytes, the size of the link, do not arrive, {passes}, {reason}"),
    )
}

fn standing(is_open: bool, longest_gap: u64, reason: Option<&Fault>) -> (Option<FaultClass>, String) {
    match reason {
        Some(reason) if !is_open => fault(FaultClass::Broken, format!("the connection ended: {reason}")),
        _ if longest_gap > LONGEST_GAP => {
            fault(FaultClass::Silent, format!("open, but without an answer for {longest_gap} ms"))
        }
        _ => (None, format!("open, longest gap {longest_gap} ms")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_of_a_name_server_must_have_the_addresses() {
        let [four, six] = ["10.96.0.1", "fd00::1"].map(|text| text.parse::<IpAddr>().unwrap());
        let of = |wanted: &[IpAddr], found: &[IpAddr], empty| {
            let addresses = found.iter().copied().collect();
            let seen = Seen::Addresses { addresses, server: four, empty, truncated: 0, micros: 1 };
            super::addresses(wanted, &seen)
        };
        let judged = |wanted: &[IpAddr], found: &[IpAddr], empty| of(wanted, found, empty).0;
        let wrong = Some(FaultClass::WrongAddress);
        assert_eq!(judged(&[four], &[four], (0, 3)), None, "no AAAA is wanted");
        assert_eq!(judged(&[four], &[four], (1, 3)), wrong, "one server does not know the name");
        assert!(of(&[four], &[four], (1, 3)).1.ends_with("answers to queries for A had no address: 1"));
        assert_eq!(judged(&[four, six], &[four], (0, 3)), wrong);
        assert!(of(&[four, six], &[four], (0, 3)).1.ends_with("fd00::1 is missing"));
        assert_eq!(judged(&[], &[six], (3, 0)), None);
        assert_eq!(judged(&[], &[], (3, 3)), wrong);
    }
}
