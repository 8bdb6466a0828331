//! Reads a zone from the service that holds it: name servers, or Route 53.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use tokio::sync::OnceCell;

use super::{KeyFile, Read, ReadError, ZoneService, unread};
use crate::host::resolver::nameservers;
use crate::nameserver::{Key, NameserverError, PORT, Record, RecordKind, RecordSet, Server, Soa, canonical};
use crate::route53::{HostedZone, Listed, Route53, Route53Error};

/// SOA record and name servers of a zone, as one server or resolver returns them.
pub type Seen = (Option<Soa>, BTreeSet<String>);

/// The kind of service that holds a zone.
#[derive(Debug, Clone)]
pub enum Provider {
    /// Name servers that accept dynamic updates (RFC 2136).
    Rfc2136 {
        /// The server that accepts updates, with or without a port; `None` for the primary that the resolver finds.
        server: Option<String>,
        /// The key that signs updates, and its file.
        key: Option<(Key, PathBuf)>,
    },
    /// Amazon Route 53, with the id of the hosted zone, if it is given.
    Route53(Option<String>),
    /// The ExternalDNS of the cluster.
    ExternalDns {
        /// A name server of the zone, with or without a port; `None` for the primary that the resolver finds.
        server: Option<String>,
    },
}

/// A zone, and the service from which it is read. Each part is read once.
pub struct Zone {
    /// Name of the zone.
    pub name: String,
    /// The service that holds the zone.
    pub provider: Provider,
    resolver: Read<Server>,
    /// How the resolver was selected, for error texts.
    resolver_by: &'static str,
    primary: OnceCell<Read<Server>>,
    hosted: OnceCell<Read<Hosted>>,
    records: OnceCell<Read<Vec<RecordSet>>>,
}

/// The zone in Route 53.
pub struct Hosted {
    /// The Route 53 API of the account.
    pub api: Route53,
    /// The zone.
    pub zone: HostedZone,
    /// The record sets of the zone.
    pub listed: Vec<Listed>,
    /// Other hosted zones with this name.
    pub twins: Vec<HostedZone>,
}

impl Zone {
    /// Creates a zone, and reads nothing yet. `resolver`: a resolver that clients use, with or without a port.
    pub fn new(name: &str, provider: Provider, resolver: Option<&str>) -> Self {
        Self {
            name: canonical(name),
            provider,
            resolver: found_resolver(resolver),
            resolver_by: if resolver.is_some() {
                "the resolver of `--resolver`"
            } else {
                "the resolver in /etc/resolv.conf of this host"
            },
            primary: OnceCell::new(),
            hosted: OnceCell::new(),
            records: OnceCell::new(),
        }
    }

    /// Returns the resolver.
    pub fn resolver(&self) -> Read<&Server> {
        self.resolver.as_ref().map_err(Clone::clone)
    }

    /// Returns the error of a reader that got an error from the resolver.
    pub fn unresolved(&self, error: &NameserverError) -> ReadError {
        let hint = error.hint().map(|hint| format!("{hint}; or ")).unwrap_or_default();
        ReadError::unknown(
            format!("{}: {error}", self.resolver_by),
            format!("{hint}give another resolver that clients use: `--resolver ADDRESS[:PORT]`"),
        )
    }

    /// Returns the zone in Route 53; `None` if name servers hold it.
    pub async fn hosted(&self) -> Read<Option<&Hosted>> {
        let Provider::Route53(id) = &self.provider else { return Ok(None) };
        let read = async || {
            let api = Route53::new().await.map_err(|error| refused(&error))?;
            let mut zones = api.zones(&self.name).await.map_err(|error| refused(&error))?;
            let listed = zones.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let at = match id {
                Some(id) => zones.iter().position(|zone| zone.id == *id),
                None if zones.len() == 1 => Some(0),
                None => None,
            };
            let Some(at) = at else {
                return Err(match zones.len() {
                    0 => ReadError::fault(
                        format!("this account has no hosted zone `{}` in Route 53", self.name),
                        "check `--zone`, and the account of the credentials: `aws sts get-caller-identity`",
                    ),
                    _ => ReadError::fault(
                        match id {
                            Some(id) => {
                                format!(
                                    "`{id}` is not the id of a hosted zone `{}`; hosted zones with this name: {listed}",
                                    self.name
                                )
                            }
                            None => {
                                format!("this account has several hosted zones `{}`: {listed}", self.name)
                            }
                        },
                        "give the id of the hosted zone to change: `--hosted-zone ID`",
                    ),
                });
            };
            let zone = zones.swap_remove(at);
            let listed = api.list(&zone.id).await.map_err(|error| refused(&error))?;
            Ok(Hosted { api, zone, listed, twins: zones })
        };
        self.hosted.get_or_init(read).await.as_ref().map(Some).map_err(Clone::clone)
    }

    /// Returns the key that signs updates, and its file.
    pub fn key(&self) -> Option<&(Key, PathBuf)> {
        match &self.provider {
            Provider::Rfc2136 { key, .. } => key.as_ref(),
            Provider::Route53(_) | Provider::ExternalDns { .. } => None,
        }
    }

    /// Returns whether ExternalDNS changes the records, based on the annotations of objects.
    pub fn is_published(&self) -> bool {
        matches!(self.provider, Provider::ExternalDns { .. })
    }

    /// Returns the service that holds the zone, for a plan. `delay`: maximum time until ExternalDNS writes a change, in seconds.
    pub async fn service(&self, delay: u64) -> Read<ZoneService> {
        if let Some(Hosted { zone, .. }) = self.hosted().await? {
            return Ok(ZoneService::Route53 { id: zone.id.clone(), private: zone.private });
        }
        let key = self.key().map(|(key, file)| KeyFile {
            name: key.name(),
            file: std::path::absolute(file).unwrap_or_else(|_| file.clone()),
        });
        let server = self.primary().await?.at();
        Ok(if self.is_published() {
            ZoneService::ExternalDns { server, delay }
        } else {
            ZoneService::Rfc2136 { server, key }
        })
    }

    /// Returns the server that accepts updates: the given server, or the primary that the resolver finds for the zone.
    pub async fn primary(&self) -> Read<&Server> {
        let find = async || {
            let key = self.key().map(|(key, _)| key.clone());
            let given = match &self.provider {
                Provider::Rfc2136 { server, .. } | Provider::ExternalDns { server } => server.as_ref(),
                Provider::Route53(_) => None,
            };
            let (host, port) = if let Some(named) = given {
                if let Some(at) = address(named) {
                    return Ok(Server::new(at, key));
                }
                with_port(named)
            } else {
                let start = self.start(self.resolver()?, true).await?.0;
                (start.map(|soa| soa.primary).unwrap_or_default(), PORT)
            };
            if host.is_empty() {
                let seen = format!("{} finds no zone `{}`", self.resolver_by, self.name);
                return Err(ReadError::fault(
                    seen,
                    "give the server that accepts updates of the zone: `--server`",
                ));
            }
            Ok(Server::new(SocketAddr::new(self.find(&host).await?, port), key))
        };
        self.primary.get_or_init(find).await.as_ref().map_err(Clone::clone)
    }

    /// Resolves a name server to one of its addresses.
    async fn find(&self, host: &str) -> Read<IpAddr> {
        let found = self.resolver()?.addresses(host).await.map_err(|error| self.unresolved(&error))?;
        found.first().copied().ok_or_else(|| {
            ReadError::fault(
                NameserverError::NoAddress { name: host.to_string() }.to_string(),
                "repair its record, or give the address of the server that accepts updates: `--server`",
            )
        })
    }

    /// Reads the SOA and the name servers of the zone, from a name server or a resolver.
    pub async fn start(&self, server: &Server, by_resolver: bool) -> Read<Seen> {
        let ask = async |kind| {
            let asked = if by_resolver {
                server.resolve(&self.name, kind).await
            } else {
                server.ask(&self.name, kind).await
            };
            asked.map_err(|error| if by_resolver { self.unresolved(&error) } else { unanswered(&error) })
        };
        let servers = ask(RecordKind::Ns).await?;
        let servers = servers.of(RecordKind::Ns).into_iter().map(canonical).collect();
        Ok((ask(RecordKind::Soa).await?.records.iter().find_map(Soa::of), servers))
    }

    /// Reads the SOA and the name servers of the zone, from the service that holds it.
    pub async fn own_start(&self) -> Read<Seen> {
        let Some(Hosted { listed, .. }) = self.hosted().await? else {
            return self.start(self.primary().await?, false).await;
        };
        let apex = |kind| {
            let sets = listed.iter().map(|listed| &listed.set);
            sets.filter(move |set| set.name == self.name && set.kind == kind)
        };
        let soa = apex(RecordKind::Soa).find_map(|set| {
            let data = set.data.first()?.split_whitespace().map(canonical).collect::<Vec<_>>().join(" ");
            Soa::of(&Record::new(&set.name, set.kind, set.ttl, data))
        });
        Ok((soa, apex(RecordKind::Ns).flat_map(|set| &set.data).map(|name| canonical(name)).collect()))
    }

    /// Returns all record sets of the zone.
    pub async fn records(&self) -> Read<&Read<Vec<RecordSet>>> {
        let hosted = self.hosted().await?;
        let read = async || {
            if let Some(Hosted { listed, .. }) = hosted {
                return Ok(listed.iter().map(|listed| listed.set.clone()).collect());
            }
            let records = self.primary().await?.transfer(&self.name).await;
            Ok(RecordSet::group(&records.map_err(|error| unanswered(&error))?))
        };
        Ok(self.records.get_or_init(read).await)
    }

    /// Returns the current record sets of a name that have one of these types.
    pub async fn present(&self, name: &str, kinds: &[RecordKind]) -> Read<Vec<RecordSet>> {
        if let Some(Hosted { listed, .. }) = self.hosted().await? {
            let is_of = |set: &&RecordSet| set.name == name && kinds.contains(&set.kind);
            return Ok(listed.iter().map(|listed| &listed.set).filter(is_of).cloned().collect());
        }
        self.primary().await?.sets(name, kinds, false).await.map_err(|error| unanswered(&error))
    }

    /// Returns the record sets that a client without the key gets from the server that accepts updates. Returns `None` if the
    /// requests have no key, or if the server does not answer this client.
    pub async fn without_key(&self, name: &str, kinds: &[RecordKind]) -> Read<Option<Vec<RecordSet>>> {
        if self.key().is_none() {
            return Ok(None);
        }
        let server = Server::new(self.primary().await?.at(), None);
        Ok(server.sets(name, kinds, false).await.ok())
    }

    /// Returns whether a name has records of its own, or names below it. Returns `None` if only an answer of the server is known,
    /// which a wildcard record can also give.
    pub async fn exists(&self, name: &str) -> Read<Option<bool>> {
        if !matches!(self.provider, Provider::Rfc2136 { .. }) {
            return Ok(None);
        }
        Ok(self.primary().await?.has_name(&self.name, name).await.ok())
    }

    /// Returns why netsurgeon cannot change the record sets of a name; `None` if the service returns one set to all clients
    /// (simple routing in Route 53).
    pub async fn routing(&self, name: &str) -> Read<Option<String>> {
        let Some(Hosted { listed, .. }) = self.hosted().await? else { return Ok(None) };
        Ok(listed.iter().filter(|listed| listed.set.name == name).find_map(|listed| listed.routing.clone()))
    }

    /// Returns the delegated child zone that contains a name, if there is one. A delegated zone has its own NS records.
    pub async fn below(&self, name: &str) -> Read<Option<String>> {
        let (mut path, mut rest) = (Vec::new(), name);
        while rest != self.name {
            path.push(rest);
            rest = rest.split_once('.').map(|(_, parent)| parent).unwrap_or_default();
        }
        if let Some(Hosted { listed, .. }) = self.hosted().await? {
            let is_delegated =
                |at: &&str| listed.iter().any(|one| one.set.name == **at && one.set.kind == RecordKind::Ns);
            return Ok(path.into_iter().rev().find(is_delegated).map(str::to_string));
        }
        let primary = self.primary().await?;
        for at in path.into_iter().rev() {
            let answer = primary.ask(at, RecordKind::Ns).await.map_err(|error| unanswered(&error))?;
            // If another server has the child zone, the answer is a referral.
            let is_elsewhere = answer.exists && !answer.is_authoritative;
            if is_elsewhere || answer.records_of(RecordKind::Ns).any(|one| one.name == at) {
                return Ok(Some(at.to_string()));
            }
        }
        Ok(None)
    }
}

/// Returns the given resolver. If no resolver is given, returns the first resolver of this host.
fn found_resolver(named: Option<&str>) -> Read<Server> {
    if let Some(named) = named {
        let at = address(named).ok_or_else(|| {
            ReadError::unknown(
                format!("`--resolver {named}`: this is not an IP address"),
                "give an address: `--resolver ADDRESS` or `--resolver ADDRESS:PORT`",
            )
        })?;
        return Ok(Server::new(at, None));
    }
    let found =
        nameservers().map_err(|error| unread(format!("cannot read the resolvers of this host: {error}")))?;
    let first = found.first().ok_or_else(|| {
        ReadError::unknown("`/etc/resolv.conf` of this host lists no resolver", "give one: `--resolver`")
    })?;
    Ok(Server::new(SocketAddr::new(*first, PORT), None))
}

/// Parses an address with or without a port.
fn address(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, PORT)))
}

/// Splits a text into host and port. The port can be missing.
fn with_port(text: &str) -> (String, u16) {
    let split = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = split.unwrap_or((text, PORT));
    (canonical(host), port)
}

/// Returns the error of a reader that got an error from a name server.
pub fn unanswered(error: &NameserverError) -> ReadError {
    ReadError::unknown(error.to_string(), error.hint().unwrap_or_default())
}

/// Returns the error of a reader that got an error from Route 53.
pub fn refused(error: &Route53Error) -> ReadError {
    ReadError::unknown(error.to_string(), error.hint())
}
