//! Checks before DNS names that point to a cluster are changed to point to its mirror.

mod dns_rights;
mod external_dns;
mod names;
mod owners;
mod served_certificates;
mod targets;
mod ttls;
mod twin_zones;
mod zone_servers;
mod zone_share;
mod zone_transfer;
mod zone_updates;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use futures_util::{StreamExt as _, stream};
use tokio::sync::OnceCell;

use crate::dns::{Facts, Found, Published, TOO_MANY_TARGETS, addresses};
use crate::kube_api::Cluster;
use crate::nameserver::{AT_ONCE, Key, Kind, RecordSet, canonical, is_name};
use crate::preflight::facts::exposed::{Exposed, covers, exposed, is_in};
use crate::preflight::facts::external_dns::{Controller, annotations, ownership_names};
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
    targets::CHECK,
    served_certificates::CHECK,
    shared::gitops::check("a GitOps controller restores the old hosts and annotations"),
    dns_rights::CHECK,
];

/// The types of the records that netsurgeon changes, so that a name points to the mirror.
const LEADING: [Kind; 3] = [Kind::A, Kind::Aaaa, Kind::Cname];

/// Other record types that a name often has: MX, TXT, SRV, HTTPS and CAA. These types are queried only if the zone cannot be read
/// completely.
const BESIDE: [Kind; 5] = [Kind::Other(15), Kind::Txt, Kind::Other(33), Kind::Other(65), Kind::Other(257)];

/// Maximum time in seconds that ExternalDNS and the DNS service need to write a change, after the interval of ExternalDNS has
/// ended.
const LOOP: u64 = 180;

/// The names that will point to the mirror, and the servers of their zone.
#[derive(Debug, Clone)]
pub struct Names {
    /// Zone of the names.
    pub zone: String,
    /// Selected names. If the list is empty, netsurgeon selects every host name that is in the zone and in an object of the
    /// cluster.
    pub name: Vec<String>,
    /// The service that holds the zone.
    pub provider: Provider,
    /// A resolver that clients use, with or without a port.
    pub resolver: Option<String>,
}

impl Names {
    /// Checks whether the names are in the zone. This needs no network access.
    pub fn check(&self) -> Result<(), Failure> {
        let zone = canonical(&self.zone);
        let Some(name) = self.name.iter().find(|name| !is_in(&zone, &canonical(name))) else {
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
    /// The selected names.
    names: Vec<String>,
    zone: Zone,
    read: Reading,
    mirror: Read<Option<Reading>>,
    entries: OnceCell<Read<Vec<Entry>>>,
    controllers: OnceCell<Read<Vec<Controller>>>,
    owned: OnceCell<Read<BTreeMap<String, Vec<RecordSet>>>>,
    here: OnceCell<Read<Vec<Exposed>>>,
    exposed: OnceCell<Read<Vec<Exposed>>>,
}

/// A name that will point to the mirror, with its current records.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// The name.
    name: String,
    /// Objects that contain the name, as text.
    by: Vec<String>,
    /// A, AAAA and CNAME record sets of the name.
    sets: Vec<RecordSet>,
    /// Why netsurgeon cannot change the sets. `None` if netsurgeon can change the sets, because the service returns the same set
    /// to all clients (simple routing in Route 53).
    routing: Option<String>,
    /// Whether the name has no records of its own, and a wildcard record answers for the name.
    is_wild: bool,
    /// Delegated child zone that contains the name, if there is one.
    below: Option<String>,
    /// Whether the name is served over TLS.
    has_tls: bool,
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
            zone: Zone::new(&names.zone, names.provider, names.resolver.as_deref()),
            names: names.name,
            read,
            mirror,
            entries: OnceCell::new(),
            controllers: OnceCell::new(),
            owned: OnceCell::new(),
            here: OnceCell::new(),
            exposed: OnceCell::new(),
        }
    }

    /// Returns the record sets to change, by name and type.
    async fn sets(&self) -> Read<BTreeSet<(&str, Kind)>> {
        let entries = self.entries().await?.iter().filter(|entry| entry.below.is_none());
        Ok(entries.flat_map(|entry| entry.sets.iter().map(|set| (entry.name.as_str(), set.kind))).collect())
    }

    async fn controllers(&self) -> Read<&Vec<Controller>> {
        let read = async || controllers(&self.read).await;
        self.controllers.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the names to change: the given names, or every host name that is in the zone and in an object of the cluster.
    async fn entries(&self) -> Read<&Vec<Entry>> {
        let read = async || {
            let mut names: BTreeMap<String, (Vec<String>, bool)> = BTreeMap::new();
            for name in &self.names {
                names.insert(canonical(name), (vec!["--name".to_string()], false));
            }
            let is_chosen = |name: &str| self.names.is_empty() && is_in(&self.zone.name, name);
            for one in self.here().await? {
                if is_chosen(&one.name) {
                    names.entry(one.name.clone()).or_default().0.push(one.by.clone());
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
        if !is_name(&name) {
            let (sets, routing) = (Vec::new(), None);
            return Ok(Entry { name, by, sets, routing, is_wild: false, below: None, has_tls });
        }
        let (below, routing) = (self.zone.below(&name).await?, self.zone.routing(&name).await?);
        let sets = self.zone.present(&name, &LEADING).await?;
        let is_wild = match self.zone.records().await? {
            Ok(zone) => !zone.iter().any(|set| set.name == name) && !sets.is_empty(),
            Err(_) => self.answers_for_nobody(&name, &sets).await?,
        };
        Ok(Entry { name, by, sets, routing, is_wild, below, has_tls })
    }

    /// Returns whether an unused sibling name has the same records. If so, a wildcard record probably answers for both names.
    async fn answers_for_nobody(&self, name: &str, sets: &[RecordSet]) -> Read<bool> {
        let parent = name.split_once('.').map(|(_, parent)| parent).unwrap_or_default();
        if !is_in(&self.zone.name, parent) {
            return Ok(false);
        }
        let sibling = format!("netsurgeon-preflight-nobody.{parent}");
        let others = self.zone.present(&sibling, &LEADING).await?;
        Ok(sets.iter().any(|set| others.iter().any(|other| other.kind == set.kind && other.data == set.data)))
    }

    /// Returns, for every name, the TXT record sets that contain ownership records of ExternalDNS.
    async fn owned(&self) -> Read<&BTreeMap<String, Vec<RecordSet>>> {
        let read = async || Box::pin(owners::read_owned(self)).await;
        self.owned.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the data for the plan of a cutover.
    pub async fn facts(&self) -> Read<Facts> {
        let cluster = self.read.cluster()?.identity().await.map_err(|error| unread(error.to_string()))?;
        let of_mirror = controllers(self.mirror()?).await?;
        let controllers = self.controllers().await?;
        let mut heirs = of_mirror.iter().filter(|one| one.registry == "txt" && one.owner.is_some());
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
        let mut names = Vec::new();
        for entry in self.entries().await? {
            let serving = self.on_the_mirror().await?.iter().filter(|one| covers(&one.name, &entry.name));
            let serving: Vec<&Exposed> = serving.collect();
            let targets: BTreeSet<&String> = serving.iter().flat_map(|one| one.at.iter()).collect();
            let targets = targets.into_iter().take(TOO_MANY_TARGETS).cloned().collect();
            names.push(Found {
                name: entry.name.clone(),
                by: entry.by.clone(),
                sets: entry.sets.clone(),
                has_tls: entry.has_tls || serving.iter().any(|one| one.has_tls),
                address_kinds: self.address_kinds(&targets).await?,
                targets,
                beside: self.beside(&entry.name).await?,
                owned: owned.get(&entry.name).cloned().unwrap_or_default(),
                published: if by_annotations {
                    Some(self.published(entry).await?.map_err(|why| Judged::fail(why, ""))?)
                } else {
                    None
                },
                heir_names: heir.map(|heir| heir_names(&entry.name, heir)).unwrap_or_default(),
            });
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
        })
    }

    /// Returns the address record types (A, AAAA) for the addresses of the mirror's objects.
    async fn address_kinds(&self, targets: &BTreeSet<String>) -> Read<BTreeSet<Kind>> {
        let mut kinds = BTreeSet::new();
        for at in targets {
            let found = addresses(at, self.zone.resolver()?).await.map_err(unread)?;
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
                "select it (`--mirror-kubeconfig`, `--mirror-context`), or skip the checks that need it: `--skip targets,served-certificates`",
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
            let mirror = self.mirror()?;
            exposed_by(mirror, &controllers(mirror).await?).await
        };
        self.exposed.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }
}

/// Returns, for each record type of a name, the name of the record in which an ExternalDNS records its ownership.
fn heir_names(name: &str, heir: &Controller) -> BTreeMap<Kind, String> {
    let first = |kind| ownership_names(name, kind, &heir.affixes).into_iter().next();
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

async fn controllers(read: &Reading) -> Read<Vec<Controller>> {
    Ok(Controller::all(&read.objects().await?))
}

/// Returns the external names of a cluster.
async fn exposed_by(read: &Reading, controllers: &[Controller]) -> Read<Vec<Exposed>> {
    let gateway = "gateway.networking.k8s.io/v1";
    let (ingresses, services) = (read.objects().await?, read.objects().await?);
    let routes = read.list_if_served(gateway, "HTTPRoute").await?.unwrap_or_default();
    let gateways = read.list_if_served(gateway, "Gateway").await?.unwrap_or_default();
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
            sets: RecordSet::group(records),
            routing: None,
            is_wild: false,
            below: None,
            has_tls: true,
        }
    }

    pub fn www() -> Entry {
        entry("www.example.com", &[record("www.example.com", Kind::A, 60, "192.0.2.1")])
    }
}
