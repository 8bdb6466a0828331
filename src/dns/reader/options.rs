//! What the user selects for a cutover: the zone, the names, and how to probe them.

use std::collections::BTreeMap;

use crate::dns::Probing;
use crate::inventory::published_hosts::is_in;
use crate::inventory::zone::Provider;
use crate::nameserver::canonical;
use crate::session::Failure;

/// The names that will point to the mirror, the servers of their zone, and the probes of the mirror.
#[derive(Debug, Clone)]
pub struct Names {
    /// Zone of the names.
    pub zone: String,
    /// Selected names. If the list is empty, netsurgeon selects every host name that is in the zone and in an object of the
    /// cluster.
    pub name: Vec<String>,
    /// Names that change although their records do not point to this cluster.
    pub take: Vec<String>,
    /// The Deployments of ExternalDNS in this cluster and on the mirror, each as `NAMESPACE/NAME`. If a list is empty,
    /// netsurgeon finds them.
    pub external_dns: [Vec<String>; 2],
    /// How to probe the names on the mirror.
    pub probes: Probes,
    /// The service that holds the zone.
    pub provider: Provider,
    /// A resolver that clients use, with or without a port.
    pub resolver: Option<String>,
}

/// How to probe names on the mirror.
#[derive(Debug, Clone, Default)]
pub struct Probes {
    /// The probe for every name. With `None`, the probe uses `https` if an object of the name declares TLS, otherwise `http`.
    pub probe: Option<Probing>,
    /// Probes for single names. They replace `probe` for these names.
    pub of: BTreeMap<String, Probing>,
    /// Additional CA certificates that probes trust, as DER.
    pub trusted: Vec<Vec<u8>>,
}

impl Names {
    /// Checks whether the names are in the zone. This needs no network access.
    pub fn check(&self) -> Result<(), Failure> {
        let zone = canonical(&self.zone);
        let mut all = self.name.iter().chain(&self.take);
        let Some(name) = all.find(|name| !is_in(&zone, &canonical(name))) else {
            return Ok(());
        };
        Err(Failure::usage(format!("`{name}` is not in the zone `{zone}`"))
            .hint("give the zone of this name: `--zone`"))
    }
}
