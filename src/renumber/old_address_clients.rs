//! Finds clients that still use the old address of a moved Service, in the connection tracking table of a host. The caller reads
//! this table.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;

use super::intention::{Move, Renumbering};
use super::verify::Phase;
use crate::host::conntrack::Flow;
use crate::operation::{Record, State, StepId};

/// A port of an old address that is in use, or was in use recently.
#[derive(Debug, Clone, Serialize)]
pub struct Used {
    /// The Service, as `namespace/name`.
    pub service: String,
    /// The old address of the Service.
    pub old_address: IpAddr,
    /// Protocol: `tcp`, `udp`, ...
    pub protocol: String,
    /// The port, if the protocol has ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Connections of all clients.
    #[serde(flatten)]
    pub count: Count,
    /// The clients that use the port, ordered by address.
    pub clients: Vec<Client>,
}

/// A client of an old address.
#[derive(Debug, Clone, Serialize)]
pub struct Client {
    /// The address of the client.
    pub address: IpAddr,
    /// Connections of the client.
    #[serde(flatten)]
    pub count: Count,
}

/// Numbers of connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Number of connections that may still be in use.
    pub open: usize,
    /// Number of connections that ended recently, or were never established.
    pub ended: usize,
}

/// Returns the old addresses of the Services that have moved, each with its move. `state` returns the state of a step.
pub fn given_up(work: &Renumbering, state: impl Fn(&StepId) -> Option<State>) -> BTreeMap<IpAddr, &Move> {
    let has_moved = |candidate: &&Move| Phase::of(candidate, &state) != Phase::Waiting;
    work.moves.iter().filter(has_moved).map(|candidate| (candidate.old_address, candidate)).collect()
}

/// Returns the Services that have moved, each with the time of its flip, in seconds since 1970. `record` returns the record of a
/// step.
pub fn given_up_when<'w, 'j>(
    work: &'w Renumbering,
    record: impl Fn(&StepId) -> Option<&'j Record>,
) -> Vec<(&'w Move, i64)> {
    let state =
        |step: &StepId| record(step).map(|record| record.state).filter(|state| *state != State::Reset);
    let when = |candidate: &'w Move| {
        let history = &record(&candidate.step("flip"))?.history;
        let (_, time) = history.iter().rfind(|(state, _)| *state == State::Done)?;
        Some((candidate, *time))
    };
    given_up(work, state).into_values().filter_map(when).collect()
}

/// Returns the ports of these addresses that are in use. Ports with the most open connections come first.
pub fn users(given_up: &BTreeMap<IpAddr, &Move>, flows: &[Flow]) -> Vec<Used> {
    let mut ports: BTreeMap<(IpAddr, &str, Option<u16>), Vec<&Flow>> = BTreeMap::new();
    for flow in flows {
        let one = &flow.connection;
        ports.entry((one.to, &one.protocol, one.port)).or_default().push(flow);
    }
    let mut all = Vec::new();
    for ((address, protocol, port), flows) in ports {
        let Some(candidate) = given_up.get(&address) else { continue };
        let (mut count, mut clients) = (Count::default(), BTreeMap::<IpAddr, Count>::new());
        for one in flows {
            count.add(one);
            clients.entry(one.connection.client).or_default().add(one);
        }
        let clients = clients.into_iter().map(|(address, count)| Client { address, count }).collect();
        let (service, protocol) = (candidate.subject(), protocol.to_string());
        all.push(Used { service, old_address: address, protocol, port, count, clients });
    }
    all.sort_by_key(|used| std::cmp::Reverse(used.count.open));
    all
}

impl Count {
    fn add(&mut self, flow: &Flow) {
        let of_these = if flow.is_open { &mut self.open } else { &mut self.ended };
        *of_these = of_these.saturating_add(1);
    }
}

/// Two values are equal if the same clients use the same port of the same Service. So a watcher does not report a change if only
/// the number of connections has changed.
impl PartialEq for Used {
    fn eq(&self, other: &Self) -> bool {
        let of = |used: &Self| {
            let clients: Vec<IpAddr> = used.clients.iter().map(|client| client.address).collect();
            (used.service.clone(), used.protocol.clone(), used.port, clients)
        };
        of(self) == of(other)
    }
}

impl Eq for Used {}
