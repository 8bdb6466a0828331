//! Checks before DNS names that point to a cluster are changed to point to its mirror.

mod dns_rights;
mod external_dns;
mod left_behind;
mod names;
mod owners;
mod probes;
mod record_space;
mod targets;
mod ttls;
mod twin_zones;
mod zone_servers;
mod zone_share;
mod zone_transfer;
mod zone_updates;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tokio::sync::OnceCell;

use self::names::entries::{self, Entry, Selected};
use crate::dns::external_dns::resource;
use crate::dns::{Facts, Found, LeftOut, Probing, Published, TOO_MANY_TARGETS, addresses};
use crate::kube_api::Cluster;
use crate::nameserver::{AT_ONCE, Key, Kind, RecordSet, canonical};
use crate::preflight::facts::exposed::{Exposed, exposed, is_in};
use crate::preflight::facts::external_dns::{Controller, annotations, ownership_names};
use crate::preflight::facts::pointing::{ByName, listed};
use crate::preflight::facts::published::published;
pub use crate::preflight::reading::Provider;
use crate::preflight::reading::{Reading, Zone, unread};
use crate::preflight::{Check, Judged, Read, shared};
use crate::session::Failure;

/// The checks, in display order.
pub const CHECKS: &[Check<Dns>] = &[
    zone_servers::CHECK,
    zone_updates::CHECK,
    zone_transfer::CHECK,
    twin_zones::CHECK,
    names::CHECK,
    ttls::CHECK,
    zone_share::CHECK,
    external_dns::CHECK,
    owners::CHECK,
    left_behind::CHECK,
    targets::CHECK,
    probes::CHECK,
    shared::gitops::check("a GitOps controller restores the old hosts and annotations"),
    dns_rights::CHECK,
    record_space::CHECK,
];

/// The types of the records that netsurgeon changes, so that a name points to the mirror.
const LEADING: [Kind; 3] = [Kind::A, Kind::Aaaa, Kind::Cname];

/// Other record types that a name often has: MX, TXT, SRV, HTTPS and CAA. These types are queried only if the zone cannot be read
/// completely.
const BESIDE: [Kind; 5] = [Kind::Other(15), Kind::Txt, Kind::Other(33), Kind::Other(65), Kind::Other(257)];

/// Maximum time in seconds that ExternalDNS and the DNS service need to write a change, after the interval of ExternalDNS has
/// ended.
const LOOP: u64 = 180;

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

/// Reads a TSIG key from a file.
pub fn read_key(path: &Path) -> Result<Key, Failure> {
    let doing = || format!("cannot use the key in `{}`", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| Failure::from(error).context(doing()))?;
    let text = zeroize::Zeroizing::new(text);
    Key::parse(&text).map_err(|error| {
        let hint = error.hint().unwrap_or_default();
        Failure::refused(error.to_string()).context(doing()).hint(hint)
    })
}

/// Input of the checks of `preflight dns`.
pub struct Dns {
    /// The options of the command.
    options: Names,
    zone: Zone,
    read: Reading,
    mirror: Read<Option<Reading>>,
    selected: OnceCell<Read<Selected>>,
    controllers: OnceCell<Read<Instances>>,
    owned: OnceCell<Read<BTreeMap<String, Vec<RecordSet>>>>,
    here: OnceCell<Read<Vec<Exposed>>>,
    exposed: OnceCell<Read<Vec<Exposed>>>,
}

/// The instances of ExternalDNS in a cluster.
struct Instances {
    found: Vec<Controller>,
    /// Deployments that look like ExternalDNS, but are not trusted, as text.
    ignored: Vec<String>,
}

impl AsRef<Reading> for Dns {
    fn as_ref(&self) -> &Reading {
        &self.read
    }
}

impl Dns {
    /// Creates the input. The caller has validated the names with [`Names::check`].
    pub async fn new(
        cluster: Result<Cluster, Failure>,
        mirror: Option<Result<Cluster, Failure>>,
        names: Names,
    ) -> Self {
        let read = Reading::of_api(cluster, "the API");
        let mirror = mirror.map(|mirror| Reading::of_api(mirror, "the API of the mirror"));
        let mirror = another(&read, mirror).await;
        Self {
            zone: Zone::new(&names.zone, names.provider.clone(), names.resolver.as_deref()),
            options: names,
            read,
            mirror,
            selected: OnceCell::new(),
            controllers: OnceCell::new(),
            owned: OnceCell::new(),
            here: OnceCell::new(),
            exposed: OnceCell::new(),
        }
    }

    /// Returns the record sets to change, by name and type.
    async fn sets(&self) -> Read<BTreeSet<(&str, Kind)>> {
        let entries = self.entries().await?.iter().filter(|entry| entry.is_in_zone());
        Ok(entries.flat_map(|entry| entry.sets.iter().map(|set| (entry.name.as_str(), set.kind))).collect())
    }

    async fn controllers(&self) -> Read<&Vec<Controller>> {
        Ok(&self.instances().await?.found)
    }

    async fn instances(&self) -> Read<&Instances> {
        let [own, _] = &self.options.external_dns;
        let read = async || instances(&self.read, (own, "--external-dns")).await;
        self.controllers.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the instances of ExternalDNS on the mirror.
    async fn of_mirror(&self) -> Read<Instances> {
        let [_, named] = &self.options.external_dns;
        match self.mirror_if_given()? {
            Some(mirror) => instances(mirror, (named, "--mirror-external-dns")).await,
            None => Ok(Instances { found: Vec::new(), ignored: Vec::new() }),
        }
    }

    async fn selected(&self) -> Read<&Selected> {
        let read = async || Box::pin(entries::read(self)).await;
        self.selected.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the names to change: the given names, or every host name that is in the zone, in an object of the cluster, and
    /// points to this cluster.
    async fn entries(&self) -> Read<&Vec<Entry>> {
        Ok(&self.selected().await?.entries)
    }

    /// Returns the objects of the mirror whose addresses a name gets. The inner error is the reason why they are unknown.
    async fn serving<'m>(
        &self,
        mirror: &ByName<'m>,
        entry: &Entry,
    ) -> Read<Result<Vec<&'m Exposed>, String>> {
        let mut namespaces = entry.namespaces.clone();
        // Only ExternalDNS and the owner of the zone can write the object into a TXT record, so the record decides.
        if let Ok(owned) = self.owned().await {
            let texts = owned.get(&entry.name).into_iter().flatten().flat_map(|set| &set.data);
            let objects = texts.filter_map(|text| resource(text));
            let named: BTreeSet<String> =
                objects.filter_map(|object| Some(object.split('/').nth(1)?.to_string())).collect();
            if !namespaces.is_disjoint(&named) {
                namespaces.retain(|namespace| named.contains(namespace));
            }
        }
        let namespaces = Some(&namespaces).filter(|namespaces| !namespaces.is_empty());
        Ok(mirror.on_the_mirror(&entry.name, namespaces))
    }

    /// Returns, for every name, the TXT record sets that contain ownership records of ExternalDNS.
    async fn owned(&self) -> Read<&BTreeMap<String, Vec<RecordSet>>> {
        let read = async || Box::pin(owners::read_owned(self)).await;
        self.owned.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the data for the plan of a cutover.
    pub async fn facts(&self) -> Read<Facts> {
        let cluster = self.read.cluster()?.identity().await.map_err(|error| unread(error.to_string()))?;
        self.mirror()?;
        let of_mirror = self.of_mirror().await?.found;
        let controllers = self.controllers().await?;
        let mut heirs = of_mirror.iter().filter(|one| one.has_readable_owners() && one.owner.is_some());
        // If the mirror has several ExternalDNS instances that record their ownership, it is unknown which instance will manage a
        // name.
        let heir = heirs.next().filter(|_| heirs.next().is_none());
        let running = || controllers.iter().filter(|one| one.runs);
        let delay = running().map(|one| one.interval).max().unwrap_or_default().saturating_add(LOOP);
        // ExternalDNS stays the owner of the records that it publishes.
        let by_annotations = self.zone.is_published();
        let nothing = BTreeMap::new();
        let owned = if by_annotations { &nothing } else { self.owned().await? };
        let heir = heir.filter(|_| !by_annotations);
        for set in owned.values().flatten() {
            if let Some(why) = self.zone.routing(&set.name).await? {
                let observed = format!("the TXT record `{}` of ExternalDNS {why}", set.name);
                return Err(Judged::fail(observed, "change it to simple routing in Route 53 first"));
            }
        }
        let mirror = ByName::new(self.on_the_mirror().await?);
        let Selected { entries, left_out } = self.selected().await?;
        let (mut names, mut left_out) = (Vec::new(), left_out.clone());
        for entry in entries {
            let serving = match self.serving(&mirror, entry).await? {
                Ok(serving) => serving,
                // The check `targets` fails for a name that the user selected.
                Err(reason) => {
                    left_out.push(LeftOut { name: entry.name.clone(), by: entry.by.clone(), reason });
                    continue;
                }
            };
            let owned = owned.get(&entry.name).cloned().unwrap_or_default();
            names.push(Found { owned, ..self.found(entry, &serving, heir).await? });
        }
        Ok(Facts {
            cluster,
            zone: self.zone.name.clone(),
            service: self.zone.service(delay).await?,
            resolver: self.zone.resolver()?.at(),
            heir: heir.and_then(|heir| heir.owner.clone()),
            owner_cache: running().map(|one| one.cache).max().unwrap_or_default(),
            negative_ttl: self.zone.own_start().await?.0.map_or(0, |soa| soa.negative_ttl.into()),
            names,
            left_out,
        })
    }

    /// Returns the data for the plan of one name, without its ownership records. `serving`: its objects on the mirror.
    async fn found(&self, entry: &Entry, serving: &[&Exposed], heir: Option<&Controller>) -> Read<Found> {
        let published = if self.zone.is_published() {
            Some(self.published(entry).await?.map_err(|why| Judged::fail(why, ""))?)
        } else {
            None
        };
        let targets: BTreeSet<&String> = serving.iter().flat_map(|one| one.at.iter()).collect();
        let targets = targets.into_iter().take(TOO_MANY_TARGETS).cloned().collect();
        Ok(Found {
            name: entry.name.clone(),
            by: entry.by.clone(),
            is_given: entry.is_given,
            sets: entry.sets.clone(),
            on_mirror: listed(serving),
            has_tls: entry.has_tls || serving.iter().any(|one| one.has_tls),
            address_kinds: self.address_kinds(&targets).await?,
            targets,
            beside: self.beside(&entry.name).await?,
            owned: Vec::new(),
            published,
            heir_names: heir.map(|heir| heir_names(&entry.name, heir)).unwrap_or_default(),
        })
    }

    /// Returns the address record types (A, AAAA) for the addresses of the mirror's objects. A target that cannot be resolved has
    /// no type; the check `probes` reports it.
    async fn address_kinds(&self, targets: &BTreeSet<String>) -> Read<BTreeSet<Kind>> {
        let mut kinds = BTreeSet::new();
        for at in targets {
            let found = addresses(at, self.zone.resolver()?).await.unwrap_or_default();
            kinds.extend(found.iter().map(|at| if at.is_ipv4() { Kind::A } else { Kind::Aaaa }));
        }
        Ok(kinds)
    }

    /// Returns the types of the other records of a name, as far as they are known.
    async fn beside(&self, name: &str) -> Read<BTreeSet<Kind>> {
        let sets = match self.zone.records().await? {
            Ok(zone) => zone.iter().filter(|set| set.name == name).cloned().collect(),
            Err(_) => self.zone.present(name, &BESIDE).await?,
        };
        Ok(sets
            .iter()
            .map(|set| set.kind)
            .filter(|kind| !LEADING.contains(kind) && !kind.is_of_dnssec())
            .collect())
    }

    /// Returns the mirror, if one is given.
    fn mirror_if_given(&self) -> Read<Option<&Reading>> {
        self.mirror.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    fn mirror(&self) -> Read<&Reading> {
        self.mirror_if_given()?.ok_or_else(|| {
            Judged::unknown(
                "no mirror given",
                "select it (`--mirror-kubeconfig`, `--mirror-context`), or skip the checks that need it: `--skip targets,probes`",
            )
        })
    }

    /// Returns the external names of the cluster.
    async fn here(&self) -> Read<&Vec<Exposed>> {
        let read = async || exposed_by(&self.read, self.controllers().await?).await;
        self.here.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the object from which ExternalDNS publishes a name, or why netsurgeon cannot change its annotations.
    async fn published(&self, entry: &Entry) -> Read<Result<Published, String>> {
        let owned = self.owned().await?.get(&entry.name).cloned().unwrap_or_default();
        Ok(published(&entry.name, &entry.sets, &owned, self.here().await?, self.controllers().await?))
    }

    async fn on_the_mirror(&self) -> Read<&Vec<Exposed>> {
        let read = async || {
            let controllers = self.of_mirror().await?.found;
            exposed_by(self.mirror()?, &controllers).await
        };
        self.exposed.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }
}

/// Returns, for each record type of a name, the name of the record in which an ExternalDNS records its ownership.
fn heir_names(name: &str, heir: &Controller) -> BTreeMap<Kind, String> {
    let first = |kind| ownership_names(name, kind, heir.affixes.as_ref()?).into_iter().next();
    LEADING.into_iter().filter_map(|kind| Some((kind, first(kind)?))).collect()
}

/// Returns the mirror, if one is given. Fails if the mirror is this cluster.
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

/// Resources from which ExternalDNS reads names.
const SOURCES: [(&str, &str); 4] = [
    ("networking.k8s.io", "ingresses"),
    ("", "services"),
    ("gateway.networking.k8s.io", "httproutes"),
    ("externaldns.k8s.io", "dnsendpoints"),
];

/// Maximum number of service accounts to check. Each user can create Deployments that look like ExternalDNS.
const MOST_ACCOUNTS: usize = 50;

/// Finds the instances of ExternalDNS in a cluster: the named Deployments (`option`), or the Deployments that look like ExternalDNS and
/// whose service account is allowed to list the sources of names in all namespaces. A user who is allowed to change only one
/// namespace cannot give this permission to a service account, so such a user cannot set owners or waiting times of a cutover.
async fn instances(read: &Reading, (named, option): (&[String], &str)) -> Read<Instances> {
    let deployments = read.objects().await?;
    if !named.is_empty() {
        let (found, missing) = Controller::named(&deployments, named);
        return match missing.first() {
            None => Ok(Instances { found, ignored: Vec::new() }),
            Some(missing) => Err(Judged::fail(
                format!("there is no Deployment `{missing}`"),
                format!("give the Deployment of ExternalDNS as NAMESPACE/NAME: `{option}`"),
            )),
        };
    }
    let all = Controller::all(&deployments);
    let accounts: BTreeSet<&(String, String)> = all.iter().map(|one| &one.account).collect();
    if accounts.len() > MOST_ACCOUNTS {
        return Err(Judged::fail(
            format!(
                "more than {MOST_ACCOUNTS} service accounts have a Deployment that looks like ExternalDNS"
            ),
            format!("name the Deployment of ExternalDNS as NAMESPACE/NAME: `{option}`"),
        ));
    }
    let cluster = read.cluster()?;
    let mut trusted = BTreeSet::new();
    for account in accounts {
        let (namespace, name) = account;
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let group = format!("system:serviceaccounts:{namespace}");
        let groups = ["system:serviceaccounts", group.as_str(), "system:authenticated"];
        for source in SOURCES {
            if cluster.may_somebody((&user, &groups), "list", source).await.map_err(unread)? {
                trusted.insert(account.clone());
                break;
            }
        }
    }
    let (found, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| trusted.contains(&one.account));
    Ok(Instances { found, ignored: others.into_iter().map(|one| one.subject).collect() })
}

/// Routes of the Gateway API, with the versions that are served first. A `TCPRoute` or `UDPRoute` has a name only in an annotation.
const ROUTES: [(&str, &[&str]); 5] = [
    ("HTTPRoute", &["v1"]),
    ("GRPCRoute", &["v1"]),
    ("TLSRoute", &["v1", "v1alpha3", "v1alpha2"]),
    ("TCPRoute", &["v1alpha2"]),
    ("UDPRoute", &["v1alpha2"]),
];

/// Returns the external names of a cluster.
async fn exposed_by(read: &Reading, controllers: &[Controller]) -> Read<Vec<Exposed>> {
    let group = "gateway.networking.k8s.io";
    let (ingresses, services) = (read.objects().await?, read.objects().await?);
    let mut routes = Vec::new();
    for (kind, versions) in ROUTES {
        for version in versions {
            if let Some(found) = read.list_if_served(&format!("{group}/{version}"), kind).await? {
                routes.push((kind, found));
                break;
            }
        }
    }
    let gateways = read.list_if_served(&format!("{group}/v1"), "Gateway").await?.unwrap_or_default();
    Ok(exposed(&ingresses, &services, &routes, &gateways, &annotations(controllers)))
}

#[cfg(test)]
mod testing {
    //! Names and records for tests.

    use super::*;
    use crate::nameserver::Record;

    pub fn record(name: &str, kind: Kind, ttl: u32, data: &str) -> Record {
        Record::new(name, kind, ttl, data)
    }

    pub fn entry(name: &str, records: &[Record]) -> Entry {
        Entry {
            name: name.into(),
            by: vec!["Ingress `shop/web`".into()],
            is_given: false,
            sets: RecordSet::group(records),
            has_tls: true,
            namespaces: BTreeSet::from(["shop".to_string()]),
            unfit: None,
        }
    }

    pub fn www() -> Entry {
        entry("www.example.com", &[record("www.example.com", Kind::A, 60, "192.0.2.1")])
    }
}
