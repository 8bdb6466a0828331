//! The old and the new address of a Service, and which of them must answer in the current phase of the Service. This module opens
//! no connections: the caller connects and reports the result.

use std::net::{IpAddr, SocketAddr};

use super::intention::{Move, Renumbering};
use super::verify::Phase;
use crate::operation::{State, StepId};
use crate::survey::{Finding, ServiceRecord, Survey};

/// One of the two addresses of a Service that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The address and port to connect to.
    pub at: SocketAddr,
    /// Whether the address must answer now.
    pub is_to_answer: bool,
}

/// A Service with the addresses that the caller connects to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedAnswers {
    /// `namespace/name`.
    pub subject: String,
    /// The old address.
    pub old: Address,
    /// The new address.
    pub new: Address,
}

impl ExpectedAnswers {
    /// Returns the addresses of a planned Service, with the given port or the Service's first TCP port. `state` returns the state
    /// of a step. Fails with a message if the Service is not in the plan. If no port is given, also fails if the Service was
    /// deleted or has no TCP port.
    pub fn of(
        work: &Renumbering,
        survey: &Survey,
        (subject, port): (&str, Option<u16>),
        state: impl Fn(&StepId) -> Option<State>,
    ) -> Result<Self, String> {
        let candidate = work.moves.iter().find(|candidate| candidate.subject() == subject);
        let candidate = candidate.ok_or_else(|| format!("`{subject}` is not part of this renumbering"))?;
        let port = match port {
            Some(port) => port,
            None => first_tcp_port(survey, candidate)?,
        };
        let phase = Phase::of(candidate, state);
        let address = |ip: IpAddr, is_to_answer| Address { at: SocketAddr::new(ip, port), is_to_answer };
        Ok(Self {
            subject: subject.to_string(),
            old: address(candidate.old_address, phase != Phase::Retired),
            new: address(candidate.new_address, phase != Phase::Waiting),
        })
    }

    /// Returns the finding for an address that must answer but does not. `reason` is the error.
    pub fn unanswered(&self, address: &Address, reason: &str) -> Finding {
        let which = if *address == self.old { "old" } else { "new" };
        Finding::error("address-unanswered", format!("Service {}", self.subject))
            .says(format!("cannot connect from this host to its {which} address `{}`: {reason}", address.at))
    }
}

fn first_tcp_port(survey: &Survey, candidate: &Move) -> Result<u16, String> {
    let is_it =
        |service: &&ServiceRecord| service.namespace == candidate.namespace && service.name == candidate.name;
    let subject = candidate.subject();
    let service = survey.services.iter().find(is_it).ok_or_else(|| format!("`{subject}` was deleted"))?;
    let port =
        service.spec.ports.iter().find(|port| matches!(port.protocol.as_deref(), None | Some("" | "TCP")));
    let port = port.and_then(|port| port.port).and_then(|port| u16::try_from(port).ok());
    port.ok_or_else(|| format!("`{subject}` has no TCP port, and a probe uses TCP"))
}
