//! What is looked at before names are led to a mirror.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use futures_util::future::join_all;
use time::OffsetDateTime;
use tokio::sync::OnceCell;

use super::DnsArgs;
use super::reading::{Read, Reading, Rights, carry_out, unread};
use crate::certs::Certificate;
use crate::cli::failure::Failure;
use crate::cluster::served;
use crate::host::resolver::nameservers;
use crate::nameserver::{Answer, Key, Kind, NameserverError, Record, Server, Soa, canonical};
use crate::preflight::dns::{self, Entry, Presented, Seen};
use crate::preflight::exposed::{Exposed, Objects, exposed, is_in};
use crate::preflight::external_dns::{self, Controller};
use crate::preflight::{Check, DNS, Judged, Verdict};

/// Where name servers answer (RFC 1035, section 4.2).
const PORT: u16 = 53;

/// Where names are served over TLS.
const TLS_PORT: u16 = 443;

/// What leads a name, as the records of its zone say.
const LEADING: [Kind; 3] = [Kind::A, Kind::Aaaa, Kind::Cname];

/// What changing names does through the API, in each of the two clusters: it looks for names, and holds ExternalDNS back.
const RIGHTS: &Rights = &[
    (&["list"], ("networking.k8s.io", "ingresses")),
    (&["list"], ("", "services")),
    (&["get", "list", "patch"], ("apps", "deployments")),
    (&["get", "create", "patch", "delete"], ("", "configmaps")),
];

/// What the checks look at.
struct Looking<'a> {
    args: &'a DnsArgs,
    zone: String,
    key: Option<Key>,
    read: Reading,
    mirror: Option<Reading>,
    resolver: Read<Server>,
    primary: OnceCell<Read<Server>>,
    records: OnceCell<Result<Vec<Record>, NameserverError>>,
    entries: OnceCell<Read<Vec<Entry>>>,
    controllers: OnceCell<Read<Vec<Controller>>>,
    exposed: OnceCell<Read<Vec<Exposed>>>,
}

/// Carries the checks out.
pub(super) async fn look(args: &DnsArgs) -> Result<Vec<Check>, Failure> {
    let key = args.tsig_key_file.as_deref().map(read_key).transpose()?;
    let of_mirror = async || match args.mirror.named(&args.kube) {
        Some(kube) => Some(Reading::of_api(&kube, "the API of the mirror").await),
        None => None,
    };
    let (read, mirror) = tokio::join!(Reading::of_api(&args.kube, "the API"), of_mirror());
    let looking = Looking {
        args,
        zone: canonical(&args.zone),
        key,
        read,
        mirror,
        resolver: resolver(args.resolver.as_deref()),
        primary: OnceCell::new(),
        records: OnceCell::new(),
        entries: OnceCell::new(),
        controllers: OnceCell::new(),
        exposed: OnceCell::new(),
    };
    Ok(carry_out(DNS, &args.asked, async |name| looking.judge(name).await).await)
}

fn read_key(path: &Path) -> Result<Key, Failure> {
    let doing = || format!("cannot use the key in `{}`", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| Failure::from(error).context(doing()))?;
    let text = zeroize::Zeroizing::new(text);
    Key::parse(&text).map_err(|error| {
        let hint = error.hint().unwrap_or_default();
        Failure::refused(error.to_string()).context(doing()).hint(hint)
    })
}

/// The resolver that is named, or the first that this machine asks.
fn resolver(named: Option<&str>) -> Read<Server> {
    if let Some(named) = named {
        let at = address(named).ok_or_else(|| {
            Judged::unknown(format!("`{named}` is no address"), "give `--resolver ADDRESS` or `ADDRESS:PORT`")
        })?;
        return Ok(Server::new(at, None));
    }
    let found = nameservers().map_err(|error| unread(format!("the resolvers of this machine: {error}")))?;
    let first = found.first().ok_or_else(|| {
        Judged::unknown("this machine has no resolver in `/etc/resolv.conf`", "name one: `--resolver`")
    })?;
    Ok(Server::new(SocketAddr::new(*first, PORT), None))
}

/// An address with or without a port.
fn address(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, PORT)))
}

fn unanswered(error: &NameserverError) -> Judged {
    Judged::unknown(error.to_string(), error.hint().unwrap_or_default())
}

impl Looking<'_> {
    async fn judge(&self, name: &str) -> Read<Judged> {
        match name {
            "zone-servers" => self.authority().await,
            "zone-updates" => self.updates().await,
            "zone-transfer" => Ok(dns::transfer(self.records().await?)),
            "twin-zones" => self.twins().await,
            "names" => Ok(dns::names(&self.zone, self.entries().await?)),
            "ttls" => Ok(dns::ttls(self.entries().await?)),
            "zone-share" => {
                let records = self.records().await?.as_ref().map_err(unanswered)?;
                let names = records.iter().map(|record| record.name.as_str()).collect();
                Ok(dns::share(self.entries().await?, &names))
            }
            "external-dns" => {
                let of_mirror = match &self.mirror {
                    Some(mirror) => controllers(mirror).await?,
                    None => Vec::new(),
                };
                Ok(external_dns::running(self.controllers().await?, &of_mirror))
            }
            "owners" => self.owners().await,
            "targets" => Ok(dns::targets(self.entries().await?, self.on_the_mirror().await?)),
            "served-certificates" => self.certificates().await,
            "dns-rights" => self.rights().await,
            other => self.read.judge(other).await,
        }
    }

    fn resolver(&self) -> Read<&Server> {
        self.resolver.as_ref().map_err(Clone::clone)
    }

    /// The server that takes updates: as it is named, or the primary of the zone as a resolver knows it.
    async fn primary(&self) -> Read<&Server> {
        let find = async || {
            let host = match &self.args.server {
                Some(named) => match address(named) {
                    Some(at) => return Ok(Server::new(at, self.key.clone())),
                    None => canonical(named),
                },
                None => {
                    self.start(self.resolver()?, true).await?.0.map(|soa| soa.primary).unwrap_or_default()
                }
            };
            if host.is_empty() {
                let seen = format!("a resolver finds no zone `{}`", self.zone);
                return Err(Judged::fail(seen, "name the server that takes its updates: `--server`"));
            }
            Ok(Server::new(SocketAddr::new(self.find(&host).await?, PORT), self.key.clone()))
        };
        self.primary.get_or_init(find).await.as_ref().map_err(Clone::clone)
    }

    /// Returns an address of a host.
    async fn find(&self, host: &str) -> Read<IpAddr> {
        for kind in [Kind::A, Kind::Aaaa] {
            let answer = self.resolver()?.resolve(host, kind).await.map_err(|error| unanswered(&error))?;
            if let Some(Ok(found)) = answer.of(kind).first().map(|text| text.parse()) {
                return Ok(found);
            }
        }
        Err(Judged::unknown(format!("`{host}` has no address"), "name the server by its address: `--server`"))
    }

    /// What a server, or a resolver, says of the zone's start and servers.
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
        let primary = self.primary().await?;
        // A name that is to be changed, or where none is known the zone's own.
        let known = self
            .entries()
            .await
            .ok()
            .and_then(|entries| entries.first())
            .and_then(|entry| entry.records.first());
        let (name, kind) =
            known.map_or((self.zone.as_str(), Kind::Ns), |record| (record.name.as_str(), record.kind));
        let outcome = primary.would_change(&self.zone, name, kind).await;
        let servers = match &outcome {
            Ok(()) => BTreeSet::new(),
            Err(_) => match self.start(self.resolver()?, true).await {
                Ok((_, servers)) => servers,
                Err(_) => BTreeSet::new(),
            },
        };
        let by_key = self.key.as_ref().map(Key::name);
        Ok(dns::updates(&outcome, by_key.as_deref(), dns::hosted(&servers)))
    }

    async fn records(&self) -> Read<&Result<Vec<Record>, NameserverError>> {
        let primary = self.primary().await?;
        Ok(self.records.get_or_init(async || primary.transfer(&self.zone).await).await)
    }

    async fn twins(&self) -> Read<Judged> {
        let (primary, resolver) = (self.primary().await?, self.resolver()?);
        let ours = self.start(primary, false).await?;
        let theirs = self.start(resolver, true).await?;
        let mut differing = Vec::new();
        for entry in self.entries().await? {
            for kind in entry.records.iter().map(|record| record.kind).collect::<BTreeSet<_>>() {
                let told = |answer: Answer| -> BTreeSet<String> {
                    answer.of(kind).into_iter().map(str::to_string).collect()
                };
                let own = primary.ask(&entry.name, kind).await.map_err(|error| unanswered(&error))?;
                let found = resolver.resolve(&entry.name, kind).await.map_err(|error| unanswered(&error))?;
                if told(own) != told(found) {
                    differing.push(format!("{kind} of `{}`", entry.name));
                }
            }
        }
        Ok(dns::twins(&self.zone, &ours, &theirs, &differing))
    }

    async fn controllers(&self) -> Read<&Vec<Controller>> {
        let read = async || controllers(&self.read).await;
        self.controllers.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// The names that are to lead elsewhere: those that are given, or those that the cluster's objects have in the zone.
    async fn entries(&self) -> Read<&Vec<Entry>> {
        let read = async || {
            let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for name in &self.args.name {
                names.insert(canonical(name), vec!["--name".to_string()]);
            }
            if names.is_empty() {
                let annotations = external_dns::annotations(self.controllers().await?);
                for one in exposed(&objects(&self.read).await?, &annotations) {
                    if is_in(&self.zone, &one.name) {
                        names.entry(one.name).or_default().push(one.by);
                    }
                }
            }
            let primary = self.primary().await?;
            let asked = names.into_iter().map(async |(name, by)| entry(primary, name, by).await);
            join_all(asked).await.into_iter().collect()
        };
        self.entries.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    async fn owners(&self) -> Read<Judged> {
        let (primary, own) = (self.primary().await?, self.controllers().await?);
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for entry in self.entries().await? {
            let owners = found.entry(entry.name.clone()).or_default();
            let names: BTreeSet<String> = entry
                .records
                .iter()
                .flat_map(|record| external_dns::ownership_names(&entry.name, record.kind, own))
                .collect();
            for name in names {
                let answer = primary.ask(&name, Kind::Txt).await.map_err(|error| unanswered(&error))?;
                owners.extend(
                    answer.of(Kind::Txt).into_iter().filter_map(external_dns::owner).map(str::to_string),
                );
            }
        }
        Ok(external_dns::owners(&found, own))
    }

    fn mirror(&self) -> Read<&Reading> {
        self.mirror.as_ref().ok_or_else(|| {
            Judged::unknown(
                "no mirror is named",
                "say where it is: `--mirror-kubeconfig`, `--mirror-context`; or leave what looks at it out: `--skip targets,served-certificates`",
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

    /// What the mirror presents for each name that it serves over TLS, at each of its addresses.
    async fn certificates(&self) -> Read<Judged> {
        let mut asked: BTreeSet<(String, String)> = BTreeSet::new();
        for entry in self.entries().await? {
            let serving = self.on_the_mirror().await?.iter();
            let serving = serving.filter(|one| one.has_tls && dns::serves(one, entry));
            asked.extend(serving.flat_map(|one| &one.at).map(|at| (entry.name.clone(), at.clone())));
        }
        let presented = asked.into_iter().map(async |(name, at)| {
            let presented = present(&name, &at).await;
            (name, at, presented)
        });
        Ok(dns::certificates(&join_all(presented).await))
    }

    async fn rights(&self) -> Read<Judged> {
        let own = self.read.rights(RIGHTS, "this").await?;
        match &self.mirror {
            Some(mirror) if own.verdict == Verdict::Pass => {
                let mut judged = mirror.rights(RIGHTS, "this").await?;
                judged.seen = format!("on the mirror: {}; here {}", judged.seen, own.seen);
                Ok(judged)
            }
            _ => Ok(own),
        }
    }
}

async fn controllers(read: &Reading) -> Read<Vec<Controller>> {
    Ok(Controller::all(&read.list("apps/v1", "Deployment").await?))
}

/// The objects of a cluster that may have names.
async fn objects(read: &Reading) -> Read<Objects> {
    let gateway = "gateway.networking.k8s.io/v1";
    Ok(Objects {
        ingresses: read.list("networking.k8s.io/v1", "Ingress").await?,
        services: read.list("v1", "Service").await?,
        routes: read.list_if_served(gateway, "HTTPRoute").await?.unwrap_or_default(),
        gateways: read.list_if_served(gateway, "Gateway").await?.unwrap_or_default(),
    })
}

/// A name as its zone has it. A sibling that nobody has made shows whether a wildcard answers.
async fn entry(primary: &Server, name: String, by: Vec<String>) -> Read<Entry> {
    let parent = name.split_once('.').map(|(_, parent)| parent).unwrap_or_default();
    let sibling = format!("netsurgeon-preflight-nobody.{parent}");
    let (mut records, mut is_wild) = (Vec::new(), false);
    for kind in LEADING {
        let answer = primary.ask(&name, kind).await.map_err(|error| unanswered(&error))?;
        let own: Vec<Record> =
            answer.records_of(kind).filter(|record| record.name == name).cloned().collect();
        if !own.is_empty() {
            let other = primary.ask(&sibling, kind).await.map_err(|error| unanswered(&error))?;
            is_wild |= other.of(kind) == answer.of(kind) && !other.records.is_empty();
        }
        records.extend(own);
    }
    Ok(Entry { name, by, records, is_wild })
}

/// What a server at an address, or at a load balancer of this name, presents to who asks for a name.
async fn present(name: &str, at: &str) -> Presented {
    let at = match at.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, TLS_PORT).to_string(),
        Err(_) => format!("{at}:{TLS_PORT}"),
    };
    let chain = served(&at, Some(name)).await?;
    let first = chain.into_iter().next().ok_or("it presents no certificate")?;
    let certificate = Certificate::from_der(first)?;
    let days = certificate.left(OffsetDateTime::now_utc()).whole_days();
    Ok((certificate.dns_names, days))
}
