//! Who still uses the old address of a Service that has moved, by what a host's connection tracking says. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::intention::{Move, Renumbering};
use super::verify::Phase;
use crate::host::conntrack::Flow;
use crate::operation::{State, StepId};

/// A port of an old address that is in use, or was a moment ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    /// The Service, as `namespace/name`.
    pub subject: String,
    /// Its old address.
    pub address: IpAddr,
    /// `tcp`, `udp`, ...
    pub protocol: String,
    /// The port, where the protocol has ports.
    pub port: Option<u16>,
    /// Who uses it.
    pub clients: BTreeMap<IpAddr, Count>,
}

/// Connections of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// That may still be in use.
    pub open: usize,
    /// That ended a moment ago, or were never opened.
    pub ended: usize,
}

/// Returns the old addresses of the Services that have moved; `state` tells the state of a step.
pub fn given_up(work: &Renumbering, state: impl Fn(&StepId) -> Option<State>) -> BTreeMap<IpAddr, &Move> {
    let has_moved = |candidate: &&Move| Phase::of(candidate, &state) != Phase::Waiting;
    work.moves.iter().filter(has_moved).map(|candidate| (candidate.old_address, candidate)).collect()
}

/// Returns which of these addresses are in use, those with most open connections first.
pub fn users(given_up: &BTreeMap<IpAddr, &Move>, flows: &[Flow]) -> Vec<Used> {
    let mut ports: BTreeMap<(IpAddr, &str, Option<u16>), Vec<&Flow>> = BTreeMap::new();
    for one in flows {
        ports.entry((one.to, &one.protocol, one.port)).or_default().push(one);
    }
    let mut all = Vec::new();
    for ((address, protocol, port), flows) in ports {
        let Some(candidate) = given_up.get(&address) else { continue };
        let mut clients: BTreeMap<IpAddr, Count> = BTreeMap::new();
        for one in flows {
            let count = clients.entry(one.client).or_default();
            let of_these = if one.is_open { &mut count.open } else { &mut count.ended };
            *of_these = of_these.saturating_add(1);
        }
        let (subject, protocol) = (candidate.subject(), protocol.to_string());
        all.push(Used { subject, address, protocol, port, clients });
    }
    all.sort_by_key(|used| std::cmp::Reverse(used.count().open));
    all
}

impl Used {
    /// Returns the connections of all clients.
    pub fn count(&self) -> Count {
        let sum = |of: fn(&Count) -> usize| self.clients.values().map(of).sum();
        Count { open: sum(|count| count.open), ended: sum(|count| count.ended) }
    }
}
