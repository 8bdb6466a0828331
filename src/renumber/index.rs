//! An index of a survey: Services by name, IPAddress objects by address, and the owners of an address.

use std::collections::HashMap;
use std::net::IpAddr;

use super::intention::Move;
use crate::store::Guard;
use crate::survey::{AddressRecord, Manager, ServiceRecord, Survey};

/// The parts of a survey that a renumbering looks up.
pub(super) struct Index<'a> {
    services: HashMap<(&'a str, &'a str), &'a ServiceRecord>,
    objects: HashMap<IpAddr, &'a AddressRecord>,
    owners: HashMap<IpAddr, Vec<&'a ServiceRecord>>,
}

impl<'a> Index<'a> {
    pub(super) fn of(survey: &'a Survey) -> Self {
        let mut owners: HashMap<IpAddr, Vec<&ServiceRecord>> = HashMap::new();
        for service in &survey.services {
            for address in &service.addresses {
                owners.entry(*address).or_default().push(service);
            }
        }
        let services = survey.services.iter().map(|s| ((s.namespace.as_str(), s.name.as_str()), s));
        let objects = survey.addresses.iter().filter_map(|object| Some((object.address?, object)));
        Self { services: services.collect(), objects: objects.collect(), owners }
    }

    /// The Service of that name in a move's namespace.
    pub(super) fn named(&self, candidate: &Move, name: &str) -> Option<&'a ServiceRecord> {
        self.services.get(&(candidate.namespace.as_str(), name)).copied()
    }

    /// The Service of the move, or another Service that now has its name.
    pub(super) fn service(&self, candidate: &Move) -> Option<&'a ServiceRecord> {
        self.named(candidate, &candidate.name)
    }

    /// The IPAddress of an address.
    pub(super) fn object(&self, address: IpAddr) -> Option<&'a AddressRecord> {
        self.objects.get(&address).copied()
    }

    /// The IPAddress of an address, if it belongs to this Service or to one of its shadows.
    pub(super) fn own_object(&self, candidate: &Move, address: IpAddr) -> Option<&'a AddressRecord> {
        self.object(address).filter(|object| is_own(candidate, object))
    }

    /// Whether a Service has the address.
    pub(super) fn is_listed(&self, address: IpAddr) -> bool {
        self.owners.contains_key(&address)
    }

    /// A Service that has the address, and is neither the planned one (by name) nor one of its shadows.
    pub(super) fn other_owner(&self, candidate: &Move, address: IpAddr) -> Option<&'a ServiceRecord> {
        let is_other = |service: &&&ServiceRecord| {
            service.namespace != candidate.namespace
                || (service.name != candidate.name && !candidate.has_shadow(&service.name))
        };
        self.owners.get(&address)?.iter().find(is_other).copied()
    }
}

/// Whether an IPAddress belongs to this Service or to one of its shadows.
pub(super) fn is_own(candidate: &Move, object: &AddressRecord) -> bool {
    object.managed_by == Manager::Allocator
        && object.parent.0 == candidate.namespace
        && (object.parent.1 == candidate.name || candidate.has_shadow(&object.parent.1))
}

/// The precondition that a Service is unchanged since it was read.
pub(super) fn as_seen(service: &ServiceRecord) -> Guard {
    Guard::Unchanged(service.key.clone(), service.mod_revision)
}
