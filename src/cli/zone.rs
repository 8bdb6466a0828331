//! The options for the names of a zone.

use std::path::PathBuf;

use clap::Args;

use crate::preflight::dns::Names;

/// Which names will point to the mirror.
#[derive(Debug, Clone, Args)]
pub(super) struct ZoneArgs {
    /// The zone whose names will point to the mirror
    #[arg(long, value_name = "ZONE")]
    zone: String,
    /// A name in the zone; can be repeated [default: every host in it that an Ingress, Service or HTTPRoute names]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    name: Vec<String>,
    /// The server that accepts updates of the zone, with or without a port [default: the primary in its SOA]
    #[arg(long, value_name = "HOST[:PORT]")]
    server: Option<String>,
    /// The key that signs updates, as `tsig-keygen` writes it; it is never shown
    #[arg(long, value_name = "FILE")]
    tsig_key_file: Option<PathBuf>,
    /// A resolver that clients use, with or without a port [default: the first in /etc/resolv.conf]
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    resolver: Option<String>,
}

impl ZoneArgs {
    /// Returns the names that will point to the mirror.
    pub(super) fn names(&self) -> Names {
        Names {
            zone: self.zone.clone(),
            name: self.name.clone(),
            server: self.server.clone(),
            tsig_key_file: self.tsig_key_file.clone(),
            resolver: self.resolver.clone(),
        }
    }
}
