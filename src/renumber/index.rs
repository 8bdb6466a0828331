//! An index of a survey: Services by name, IPAddress objects by address, and the owners of each address.

use std::collections::HashMap;
use std::net::IpAddr;

use super::intention::Move;
use crate::store::Guard;
use crate::survey::{AddressRecord, ServiceRecord, Survey};
use crate::wire::objects::ALLOCATOR;

/// Index of a survey for the look-ups of a renumbering.
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

    /// Returns the Service with this name in the namespace of a move.
    pub(super) fn named(&self, candidate: &Move, name: &str) -> Option<&'a ServiceRecord> {
        self.services.get(&(candidate.namespace.as_str(), name)).copied()
    }

    /// Returns the Service of a move, or another Service that now has the name of the moved Service.
    pub(super) fn service(&self, candidate: &Move) -> Option<&'a ServiceRecord> {
        self.named(candidate, &candidate.name)
    }

    /// Returns the IPAddress object of an address.
    pub(super) fn object(&self, address: IpAddr) -> Option<&'a AddressRecord> {
        self.objects.get(&address).copied()
    }

    /// Returns the IPAddress object of an address, if it belongs to the Service of the move or to one of its shadows.
    pub(super) fn own_object(&self, candidate: &Move, address: IpAddr) -> Option<&'a AddressRecord> {
        self.object(address).filter(|object| is_own(candidate, object))
    }

    /// Returns whether a Service has the address.
    pub(super) fn is_listed(&self, address: IpAddr) -> bool {
        self.owners.contains_key(&address)
    }

    /// Returns a Service that has the address, except the planned Service (by name) and its shadows.
    pub(super) fn other_owner(&self, candidate: &Move, address: IpAddr) -> Option<&'a ServiceRecord> {
        let is_other = |service: &&&ServiceRecord| {
            service.namespace != candidate.namespace
                || (service.name != candidate.name && !candidate.has_shadow(&service.name))
        };
        self.owners.get(&address)?.iter().find(is_other).copied()
    }
}

/// Returns whether an IPAddress belongs to the Service of the move or to one of its shadows.
pub(super) fn is_own(candidate: &Move, object: &AddressRecord) -> bool {
    object.managed_by == ALLOCATOR
        && object.parent.0 == candidate.namespace
        && (object.parent.1 == candidate.name || candidate.has_shadow(&object.parent.1))
}

/// Returns the precondition that a Service is unchanged since it was read.
pub(super) fn as_seen(service: &ServiceRecord) -> Guard {
    Guard::Unchanged(service.key.clone(), service.mod_revision)
}
