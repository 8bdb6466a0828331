//! Reads the input of the checks of `preflight dns`.

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use time::OffsetDateTime;
use tokio::sync::OnceCell;

pub use self::names::Names;
use super::Selection;
use super::permissions;
use super::reading::{Read, Reading, carry_out, unread};
use crate::certs::Certificate;
use crate::host::resolver::nameservers;
use crate::kube_api::{Cluster, served};
use crate::nameserver::{Answer, Key, Kind, NameserverError, Record, Server, Soa, canonical, is_name};
use crate::preflight::dns::{self, Entry, Presented, Seen};
use crate::preflight::exposed::{Exposed, Objects, exposed, is_in};
use crate::preflight::external_dns::{self, Controller};
use crate::preflight::{Check, DNS, DnsCheck, Judged, Verdict};
use crate::session::Failure;

/// The port of name servers (RFC 1035, section 4.2).
const PORT: u16 = 53;

/// A day in seconds.
const DAY: i64 = 24 * 60 * 60;

/// Number of concurrent queries. Each query needs a connection, and BIND accepts 150 connections (`tcp-clients`).
const AT_ONCE: usize = 8;

/// The port of TLS servers.
const TLS_PORT: u16 = 443;

/// The record types that change when a name points to the mirror.
const LEADING: [Kind; 3] = [Kind::A, Kind::Aaaa, Kind::Cname];

/// Input of the checks of `preflight dns`.
struct Looking<'a> {
    names: &'a Names,
    zone: String,
    key: Option<Key>,
    read: Reading,
    mirror: Read<Option<Reading>>,
    resolver: Read<Server>,
    primary: OnceCell<Read<Server>>,
    records: OnceCell<Result<Vec<Record>, NameserverError>>,
    entries: OnceCell<Read<Vec<Entry>>>,
    controllers: OnceCell<Read<Vec<Controller>>>,
    exposed: OnceCell<Read<Vec<Exposed>>>,
}

/// Runs the checks of `preflight dns`. The caller has validated the names and the key with [`Names::check`].
pub async fn look(
    cluster: Result<Cluster, Failure>,
    mirror: Option<Result<Cluster, Failure>>,
    (names, key): (&Names, Option<Key>),
    asked: &Selection,
) -> Vec<Check> {
    let zone = canonical(&names.zone);
    let read = Reading::of_api(cluster, "the API");
    let mirror = mirror.map(|mirror| Reading::of_api(mirror, "the API of the mirror"));
    let mirror = another(&read, mirror).await;
    let looking = Looking {
        names,
        zone,
        key,
        read,
        mirror,
        resolver: resolver(names.resolver.as_deref()),
        primary: OnceCell::new(),
        records: OnceCell::new(),
        entries: OnceCell::new(),
        controllers: OnceCell::new(),
        exposed: OnceCell::new(),
    };
    carry_out(DNS, asked, async |check| looking.judge(check).await).await
}

/// Returns the mirror; fails if the mirror is this cluster.
async fn another(own: &Reading, mirror: Option<Reading>) -> Read<Option<Reading>> {
    let Some(mirror) = mirror else { return Ok(None) };
    let (Ok(this), Ok(other)) = (own.cluster(), mirror.cluster()) else { return Ok(Some(mirror)) };
    match (this.identity().await, other.identity().await) {
        (Ok(this), Ok(other)) if this == other => Err(Judged::fail(
            "the given mirror is this cluster itself",
            "give the kubeconfig or the context of the other cluster: `--mirror-kubeconfig`, `--mirror-context`",
        )),
        _ => Ok(Some(mirror)),
    }
}

/// Returns the given resolver; without one, the first resolver of this host.
fn resolver(named: Option<&str>) -> Read<Server> {
    if let Some(named) = named {
        let at = address(named).ok_or_else(|| {
            Judged::unknown(
                format!("`{named}` is not an address"),
                "give `--resolver ADDRESS` or `ADDRESS:PORT`",
            )
        })?;
        return Ok(Server::new(at, None));
    }
    let found =
        nameservers().map_err(|error| unread(format!("cannot read the resolvers of this host: {error}")))?;
    let first = found.first().ok_or_else(|| {
        Judged::unknown("`/etc/resolv.conf` of this host lists no resolver", "give one: `--resolver`")
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

fn unanswered(error: &NameserverError) -> Judged {
    Judged::unknown(error.to_string(), error.hint().unwrap_or_default())
}

impl Looking<'_> {
    async fn judge(&self, check: DnsCheck) -> Read<Judged> {
        match check {
            DnsCheck::ZoneServers => self.authority().await,
            DnsCheck::ZoneUpdates => self.updates().await,
            DnsCheck::ZoneTransfer => Ok(dns::transfer(self.records().await?)),
            DnsCheck::TwinZones => self.twins().await,
            DnsCheck::Names => Ok(dns::names(&self.zone, self.entries().await?)),
            DnsCheck::Ttls => Ok(dns::ttls(self.entries().await?)),
            DnsCheck::ZoneShare => {
                let records = self.records().await?.as_ref().map_err(unanswered)?;
                // Ownership records of ExternalDNS do not count as names.
                let names = records.iter().filter(|record| external_dns::owner(&record.data).is_none());
                Ok(dns::share(self.entries().await?, &names.map(|record| record.name.as_str()).collect()))
            }
            DnsCheck::ExternalDns => {
                let of_mirror = match self.mirror.as_ref().map_err(Clone::clone)? {
                    Some(mirror) => controllers(mirror).await?,
                    None => Vec::new(),
                };
                Ok(external_dns::running(self.controllers().await?, &of_mirror))
            }
            DnsCheck::Owners => self.owners().await,
            DnsCheck::Targets => Ok(dns::targets(self.entries().await?, self.on_the_mirror().await?)),
            DnsCheck::ServedCertificates => self.certificates().await,
            DnsCheck::DnsRights => self.rights().await,
            DnsCheck::Shared(check) => self.read.judge(check).await,
        }
    }

    fn resolver(&self) -> Read<&Server> {
        self.resolver.as_ref().map_err(Clone::clone)
    }

    /// Returns the server that accepts updates: the given server, or the primary that the resolver finds for the zone.
    async fn primary(&self) -> Read<&Server> {
        let find = async || {
            let (host, port) = if let Some(named) = self.names.server.as_deref() {
                if let Some(at) = address(named) {
                    return Ok(Server::new(at, self.key.clone()));
                }
                with_port(named)
            } else {
                let start = self.start(self.resolver()?, true).await?.0;
                (start.map(|soa| soa.primary).unwrap_or_default(), PORT)
            };
            if host.is_empty() {
                let seen = format!("the resolver finds no zone `{}`", self.zone);
                return Err(Judged::fail(
                    seen,
                    "give the server that accepts updates of the zone: `--server`",
                ));
            }
            Ok(Server::new(SocketAddr::new(self.find(&host).await?, port), self.key.clone()))
        };
        self.primary.get_or_init(find).await.as_ref().map_err(Clone::clone)
    }

    /// Resolves a host to one of its addresses.
    async fn find(&self, host: &str) -> Read<IpAddr> {
        for kind in [Kind::A, Kind::Aaaa] {
            let answer = self.resolver()?.resolve(host, kind).await.map_err(|error| unanswered(&error))?;
            if let Some(Ok(found)) = answer.of(kind).first().map(|text| text.parse()) {
                return Ok(found);
            }
        }
        Err(Judged::fail(
            format!("the resolver finds no address for the name server `{host}`"),
            "repair its record, or give the address of the server that accepts updates: `--server`",
        ))
    }

    /// Reads the SOA and the name servers of the zone, from a name server or a resolver.
    async fn start(&self, server: &Server, by_resolver: bool) -> Read<Seen> {
        let ask = async |kind| {
            let asked = if by_resolver {
                server.resolve(&self.zone, kind).await
            } else {
                server.ask(&self.zone, kind).await
            };
            asked.map_err(|error| unanswered(&error))
        };
        let servers = ask(Kind::Ns).await?;
        let servers = servers.of(Kind::Ns).into_iter().map(canonical).collect();
        Ok((ask(Kind::Soa).await?.records.iter().find_map(Soa::of), servers))
    }

    async fn authority(&self) -> Read<Judged> {
        let (_, servers) = self.start(self.primary().await?, false).await?;
        let asked = servers.into_iter().map(async |name| {
            let at = SocketAddr::new(self.find(&name).await?, PORT);
            Ok((name, Server::new(at, None).ask(&self.zone, Kind::Soa).await))
        });
        let answers: Read<Vec<_>> = join_all(asked).await.into_iter().collect();
        Ok(dns::authority(&answers?))
    }

    async fn updates(&self) -> Read<Judged> {
        let outcome = self.may_update().await?;
        let servers = match &outcome {
            Ok(_) => BTreeSet::new(),
            Err(_) => match self.start(self.resolver()?, true).await {
                Ok((_, servers)) => servers,
                Err(_) => BTreeSet::new(),
            },
        };
        let looked_ahead = outcome.as_ref().copied().unwrap_or_default();
        let by_key = self.key.as_ref().map(Key::name);
        Ok(dns::updates(&outcome.map(|_| ()), looked_ahead, by_key.as_deref(), dns::hosted(&servers)))
    }

    /// Tests an update of every name to change. Returns whether the server checks the permission for single names.
    async fn may_update(&self) -> Read<Result<bool, NameserverError>> {
        let (primary, zone) = (self.primary().await?, self.zone.as_str());
        if let Err(error) = primary.knows_us(zone).await {
            return Ok(Err(error));
        }
        let looks_ahead = match primary.looks_ahead(zone).await {
            Ok(looks_ahead) => looks_ahead,
            Err(error) => return Ok(Err(error)),
        };
        let tried = self.sets().await?.into_iter();
        let tried = tried.map(async |(name, kind)| primary.would_change(zone, name, kind).await);
        let tried: Vec<_> = stream::iter(tried).buffered(AT_ONCE).collect().await;
        Ok(tried.into_iter().collect::<Result<(), _>>().map(|()| looks_ahead))
    }

    /// Returns the record sets to change, by name and type.
    async fn sets(&self) -> Read<BTreeSet<(&str, Kind)>> {
        let entries = self.entries().await?.iter().filter(|entry| entry.below.is_none());
        let of = |entry: &'_ Entry| entry.records.iter().map(|record| record.kind).collect::<BTreeSet<_>>();
        Ok(entries.flat_map(|entry| of(entry).into_iter().map(|kind| (entry.name.as_str(), kind))).collect())
    }

    async fn records(&self) -> Read<&Result<Vec<Record>, NameserverError>> {
        let primary = self.primary().await?;
        Ok(self.records.get_or_init(async || primary.transfer(&self.zone).await).await)
    }

    async fn twins(&self) -> Read<Judged> {
        let (primary, resolver) = (self.primary().await?, self.resolver()?);
        let ours = self.start(primary, false).await?;
        let theirs = self.start(resolver, true).await?;
        let compared = self.sets().await?.into_iter().map(async |(name, kind)| {
            let told = |answer: Answer| -> BTreeSet<String> {
                answer.of(kind).into_iter().map(str::to_string).collect()
            };
            let (own, found) = tokio::try_join!(primary.ask(name, kind), resolver.resolve(name, kind))?;
            Ok((told(own) != told(found)).then(|| format!("{kind} of `{name}`")))
        });
        let compared: Vec<Result<_, NameserverError>> =
            stream::iter(compared).buffered(AT_ONCE).collect().await;
        let differing: Result<Vec<_>, _> = compared.into_iter().filter_map(Result::transpose).collect();
        let differing = differing.map_err(|error| unanswered(&error))?;
        let judged = dns::twins(&self.zone, &ours, &theirs, &differing);
        Ok(if self.names.server.is_none() { dns::by_itself(judged) } else { judged })
    }

    async fn controllers(&self) -> Read<&Vec<Controller>> {
        let read = async || controllers(&self.read).await;
        self.controllers.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the names to change: the given names, or the hosts in the zone that objects of the cluster name.
    async fn entries(&self) -> Read<&Vec<Entry>> {
        let read = async || {
            let mut names: BTreeMap<String, (Vec<String>, bool)> = BTreeMap::new();
            for name in &self.names.name {
                names.insert(canonical(name), (vec!["--name".to_string()], false));
            }
            let is_chosen = |name: &str| self.names.name.is_empty() && is_in(&self.zone, name);
            let annotations = external_dns::annotations(self.controllers().await?);
            for one in exposed(&objects(&self.read).await?, &annotations) {
                if is_chosen(&one.name) {
                    names.entry(one.name.clone()).or_default().0.push(one.by);
                }
                if let Some((_, has_tls)) = names.get_mut(&one.name) {
                    *has_tls |= one.has_tls;
                }
            }
            let asked =
                names.into_iter().map(async |(name, (by, has_tls))| self.entry(name, by, has_tls).await);
            stream::iter(asked).buffered(AT_ONCE).collect::<Vec<_>>().await.into_iter().collect()
        };
        self.entries.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Reads the records of a name.
    async fn entry(&self, name: String, by: Vec<String>, has_tls: bool) -> Read<Entry> {
        let primary = self.primary().await?;
        if !is_name(&name) {
            return Ok(Entry { name, by, records: Vec::new(), is_wild: false, below: None, has_tls });
        }
        let below = self.below(&name).await?;
        let mut records = Vec::new();
        for kind in LEADING {
            let answer = primary.ask(&name, kind).await.map_err(|error| unanswered(&error))?;
            records.extend(answer.records_of(kind).filter(|record| record.name == name).cloned());
        }
        let is_wild = match self.records().await? {
            Ok(zone) => !zone.iter().any(|record| record.name == name) && !records.is_empty(),
            Err(_) => self.answers_for_nobody(&name, &records).await?,
        };
        Ok(Entry { name, by, records, is_wild, below, has_tls })
    }

    /// Returns the delegated child zone that contains a name, if there is one. Such a zone has its own NS records.
    async fn below(&self, name: &str) -> Read<Option<String>> {
        let (primary, mut path, mut rest) = (self.primary().await?, Vec::new(), name);
        while rest != self.zone {
            path.push(rest);
            rest = rest.split_once('.').map(|(_, parent)| parent).unwrap_or_default();
        }
        for at in path.into_iter().rev() {
            let answer = primary.ask(at, Kind::Ns).await.map_err(|error| unanswered(&error))?;
            // If another server has the child zone, the answer is a referral.
            let is_elsewhere = answer.exists && !answer.is_authoritative;
            if is_elsewhere || answer.records_of(Kind::Ns).any(|one| one.name == at) {
                return Ok(Some(at.to_string()));
            }
        }
        Ok(None)
    }

    /// Returns whether an unused sibling name has the same records. If so, a wildcard may answer for both names.
    async fn answers_for_nobody(&self, name: &str, records: &[Record]) -> Read<bool> {
        let parent = name.split_once('.').map(|(_, parent)| parent).unwrap_or_default();
        if !is_in(&self.zone, parent) {
            return Ok(false);
        }
        let (primary, sibling) = (self.primary().await?, format!("netsurgeon-preflight-nobody.{parent}"));
        for record in records {
            let other = primary.ask(&sibling, record.kind).await.map_err(|error| unanswered(&error))?;
            if other.of(record.kind).contains(&record.data.as_str()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn owners(&self) -> Read<Judged> {
        let (primary, own) = (self.primary().await?, self.controllers().await?);
        let entries = self.entries().await?;
        let mut found: BTreeMap<String, BTreeSet<String>> =
            entries.iter().map(|entry| (entry.name.clone(), BTreeSet::new())).collect();
        // Query the ownership records of every type. A Route 53 alias is an A record, but ExternalDNS once recorded it as a
        // CNAME.
        let asked = entries.iter().flat_map(|entry| {
            let names =
                LEADING.iter().flat_map(|kind| external_dns::ownership_names(&entry.name, *kind, own));
            let names: BTreeSet<String> =
                names.filter(|name| is_in(&self.zone, name) && is_name(name)).collect();
            names.into_iter().map(|name| (entry.name.clone(), name))
        });
        let asked = asked.map(async |(of, name)| {
            let answer = primary.ask(&name, Kind::Txt).await;
            answer.map(|answer| (of, name, answer))
        });
        for answer in stream::iter(asked).buffered(AT_ONCE).collect::<Vec<_>>().await {
            let (of, name, answer) = answer.map_err(|error| unanswered(&error))?;
            // If the name is a CNAME, the TXT records belong to its target.
            let texts = answer.records_of(Kind::Txt).filter(|record| record.name == name);
            let owners = texts.filter_map(|record| external_dns::owner(&record.data)).map(str::to_string);
            found.entry(of).or_default().extend(owners);
        }
        Ok(external_dns::owners(&found, own))
    }

    fn mirror(&self) -> Read<&Reading> {
        self.mirror.as_ref().map_err(Clone::clone)?.as_ref().ok_or_else(|| {
            Judged::unknown(
                "no mirror given",
                "select it (`--mirror-kubeconfig`, `--mirror-context`), or skip the checks that need it: `--skip targets,served-certificates`",
            )
        })
    }

    async fn on_the_mirror(&self) -> Read<&Vec<Exposed>> {
        let read = async || {
            let mirror = self.mirror()?;
            let annotations = external_dns::annotations(&controllers(mirror).await?);
            Ok(exposed(&objects(mirror).await?, &annotations))
        };
        self.exposed.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Checks the certificates of the mirror: each name with TLS, at each of its addresses. A name has TLS if an object of either
    /// cluster declares it.
    async fn certificates(&self) -> Read<Judged> {
        let (mut asked, mut plain) = (BTreeSet::new(), 0_usize);
        for entry in self.entries().await? {
            let serving = self.on_the_mirror().await?.iter().filter(|one| dns::serves(one, entry));
            let serving: Vec<&Exposed> = serving.filter(|one| one.has_tls || entry.has_tls).collect();
            if serving.is_empty() {
                plain = plain.saturating_add(1);
            }
            let at = serving.into_iter().flat_map(|one| &one.at);
            asked.extend(at.map(|at| (entry.name.clone(), at.clone())));
        }
        let presented = asked.into_iter().map(async |(name, at)| {
            let presented = present(&name, &at).await;
            (name, at, presented)
        });
        let presented: Vec<_> = stream::iter(presented).buffered(AT_ONCE).collect().await;
        Ok(dns::certificates(&presented, plain))
    }

    async fn rights(&self) -> Read<Judged> {
        let own = self.read.rights(&permissions::DNS).await?;
        let Some(mirror) = self.mirror.as_ref().map_err(Clone::clone)? else { return Ok(own) };
        if own.verdict == Verdict::Fail {
            return Ok(own);
        }
        let of_mirror = mirror.rights(&permissions::DNS).await?;
        let observed = format!("on the mirror: {}; here: {}", of_mirror.observed, own.observed);
        let worse = if of_mirror.verdict == Verdict::Pass { own } else { of_mirror };
        Ok(Judged { observed, ..worse })
    }
}

async fn controllers(read: &Reading) -> Read<Vec<Controller>> {
    Ok(Controller::all(&read.objects().await?))
}

/// Reads the objects of a cluster that can have external names.
async fn objects(read: &Reading) -> Read<Objects> {
    let gateway = "gateway.networking.k8s.io/v1";
    Ok(Objects {
        ingresses: read.objects().await?,
        services: read.objects().await?,
        routes: read.list_if_served(gateway, "HTTPRoute").await?.unwrap_or_default(),
        gateways: read.list_if_served(gateway, "Gateway").await?.unwrap_or_default(),
    })
}

/// Returns the certificate that a server presents for a name. `at`: the address of the server, or the name of its load balancer.
async fn present(name: &str, at: &str) -> Presented {
    let at = match at.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, TLS_PORT).to_string(),
        Err(_) => format!("{at}:{TLS_PORT}"),
    };
    // Clients send a host name that the wildcard covers, not the asterisk.
    let asked = name.strip_prefix('*').map(|rest| format!("netsurgeon-preflight{rest}"));
    let chain = served(&at, Some(asked.as_deref().unwrap_or(name))).await?;
    let first = chain.into_iter().next().ok_or("the server presents no certificate")?;
    let certificate = Certificate::from_der(first)?;
    let now = OffsetDateTime::now_utc();
    if now < certificate.not_before {
        return Err(format!("the certificate is not valid before {}", certificate.not_before));
    }
    let days = certificate.left(now).whole_seconds().div_euclid(DAY);
    Ok((certificate.dns_names, days))
}
