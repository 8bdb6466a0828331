//! Reads what a cutover needs: the names of the cluster, their records, and their targets on the mirror.

mod entries;
mod name_objects;
mod options;
mod ownership;
mod publishing_object;

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::OnceCell;

use super::annotations::Published;
use super::external_dns::resource;
use super::{Facts, Found, LeftOut, TOO_MANY_TARGETS, addresses};
use crate::inventory::external_dns::{Controller, ownership_names};
use crate::inventory::external_dns_reader::Instances;
use crate::inventory::published_hosts::PublishedHost;
use crate::inventory::zone::Zone;
use crate::inventory::{ClusterReader, Read, ReadError, unread};
use crate::kube_api::Cluster;
use crate::nameserver::{RecordKind, RecordSet};
use crate::session::Failure;

pub use entries::{Entry, Selected, Unfit};
pub use name_objects::{ByName, listed};
pub use options::{Names, Probes};
use publishing_object::published;

/// The types of the records that netsurgeon changes, so that a name points to the mirror.
pub const LEADING: [RecordKind; 3] = [RecordKind::A, RecordKind::Aaaa, RecordKind::Cname];

/// Other record types that a name often has: MX, TXT, SRV, HTTPS and CAA. These types are queried only if the zone cannot be read
/// completely.
const BESIDE: [RecordKind; 5] = [
    RecordKind::Other(15),
    RecordKind::Txt,
    RecordKind::Other(33),
    RecordKind::Other(65),
    RecordKind::Other(257),
];

/// Maximum time in seconds that ExternalDNS and the DNS service need to write a change, after the interval of ExternalDNS has
/// ended.
const LOOP: u64 = 180;

/// The cluster, its mirror, and the zone of a cutover. Each part is read once, on first use.
pub struct CutoverReader {
    /// What the user selects.
    pub options: Names,
    /// The zone.
    pub zone: Zone,
    /// The cluster.
    pub read: ClusterReader,
    mirror: Read<Option<ClusterReader>>,
    selected: OnceCell<Read<Selected>>,
    controllers: OnceCell<Read<Instances>>,
    owned: OnceCell<Read<BTreeMap<String, Vec<RecordSet>>>>,
    here: OnceCell<Read<Vec<PublishedHost>>>,
    exposed: OnceCell<Read<Vec<PublishedHost>>>,
}

impl AsRef<ClusterReader> for CutoverReader {
    fn as_ref(&self) -> &ClusterReader {
        &self.read
    }
}

impl CutoverReader {
    /// Creates the reader, and compares the two clusters. The caller has validated the names with [`Names::check`].
    pub async fn new(
        cluster: Option<Result<Cluster, Failure>>,
        mirror: Option<Result<Cluster, Failure>>,
        names: Names,
    ) -> Self {
        let read = ClusterReader::of_api(cluster, "the API");
        let mirror = mirror.map(|mirror| ClusterReader::of_api(Some(mirror), "the API of the mirror"));
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
    pub async fn sets(&self) -> Read<BTreeSet<(&str, RecordKind)>> {
        let entries = self.entries().await?.iter().filter(|entry| entry.is_in_zone());
        Ok(entries.flat_map(|entry| entry.sets.iter().map(|set| (entry.name.as_str(), set.kind))).collect())
    }

    /// Returns the instances of ExternalDNS in the cluster.
    pub async fn controllers(&self) -> Read<&Vec<Controller>> {
        Ok(&self.instances().await?.found)
    }

    /// Returns the instances of ExternalDNS in the cluster, and the Deployments that only look like it.
    pub async fn instances(&self) -> Read<&Instances> {
        let [own, _] = &self.options.external_dns;
        let read = async || self.read.external_dns((own, "--external-dns")).await;
        self.controllers.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the instances of ExternalDNS on the mirror.
    pub async fn of_mirror(&self) -> Read<Instances> {
        let [_, named] = &self.options.external_dns;
        match self.mirror_if_given()? {
            Some(mirror) => mirror.external_dns((named, "--mirror-external-dns")).await,
            None => Ok(Instances { found: Vec::new(), ignored: Vec::new() }),
        }
    }

    /// Returns the names to change, and the names of objects that do not change.
    pub async fn selected(&self) -> Read<&Selected> {
        let read = async || Box::pin(entries::read(self)).await;
        self.selected.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the names to change: the given names, or every host name that is in the zone, in an object of the cluster, and
    /// points to this cluster.
    pub async fn entries(&self) -> Read<&Vec<Entry>> {
        Ok(&self.selected().await?.entries)
    }

    /// Returns the objects of the mirror whose addresses a name gets. The inner error is the reason why they are unknown.
    pub async fn serving<'m>(
        &self,
        mirror: &ByName<'m>,
        entry: &Entry,
    ) -> Read<Result<Vec<&'m PublishedHost>, String>> {
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
    pub async fn owned(&self) -> Read<&BTreeMap<String, Vec<RecordSet>>> {
        let read = async || Box::pin(ownership::read(self)).await;
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
                return Err(ReadError::fault(observed, "change it to simple routing in Route 53 first"));
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
    async fn found(
        &self,
        entry: &Entry,
        serving: &[&PublishedHost],
        heir: Option<&Controller>,
    ) -> Read<Found> {
        let published = if self.zone.is_published() {
            Some(self.published(entry).await?.map_err(|why| ReadError::fault(why, ""))?)
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
    async fn address_kinds(&self, targets: &BTreeSet<String>) -> Read<BTreeSet<RecordKind>> {
        let mut kinds = BTreeSet::new();
        for at in targets {
            let found = addresses(at, self.zone.resolver()?).await.unwrap_or_default();
            kinds.extend(found.iter().map(|at| if at.is_ipv4() { RecordKind::A } else { RecordKind::Aaaa }));
        }
        Ok(kinds)
    }

    /// Returns the types of the other records of a name, as far as they are known.
    async fn beside(&self, name: &str) -> Read<BTreeSet<RecordKind>> {
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
    pub fn mirror_if_given(&self) -> Read<Option<&ClusterReader>> {
        self.mirror.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    fn mirror(&self) -> Read<&ClusterReader> {
        self.mirror_if_given()?.ok_or_else(|| {
            ReadError::unknown(
                "no mirror given",
                "select it (`--mirror-kubeconfig`, `--mirror-context`), or skip the checks that need it: `--skip targets,probes`",
            )
        })
    }

    /// Returns the external names of the cluster.
    pub async fn here(&self) -> Read<&Vec<PublishedHost>> {
        let read = async || self.read.published_hosts(self.controllers().await?).await;
        self.here.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the object from which ExternalDNS publishes a name, or why netsurgeon cannot change its annotations.
    pub async fn published(&self, entry: &Entry) -> Read<Result<Published, String>> {
        let owned = self.owned().await?.get(&entry.name).cloned().unwrap_or_default();
        Ok(published(&entry.name, &entry.sets, &owned, self.here().await?, self.controllers().await?))
    }

    /// Returns the host names of the mirror.
    pub async fn on_the_mirror(&self) -> Read<&Vec<PublishedHost>> {
        let read = async || {
            let controllers = self.of_mirror().await?.found;
            self.mirror()?.published_hosts(&controllers).await
        };
        self.exposed.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }
}

/// Returns, for each record type of a name, the name of the record in which an ExternalDNS records its ownership.
fn heir_names(name: &str, heir: &Controller) -> BTreeMap<RecordKind, String> {
    let first = |kind| ownership_names(name, kind, heir.affixes.as_ref()?).into_iter().next();
    LEADING.into_iter().filter_map(|kind| Some((kind, first(kind)?))).collect()
}

/// Returns the mirror, if one is given. Fails if the mirror is this cluster.
async fn another(own: &ClusterReader, mirror: Option<ClusterReader>) -> Read<Option<ClusterReader>> {
    let Some(mirror) = mirror else { return Ok(None) };
    let (Ok(this), Ok(other)) = (own.cluster(), mirror.cluster()) else { return Ok(Some(mirror)) };
    match (this.identity().await, other.identity().await) {
        (Ok(this), Ok(other)) if this == other => Err(ReadError::fault(
            "the given mirror is this cluster itself",
            "give the kubeconfig or the context of the other cluster: `--mirror-kubeconfig`, `--mirror-context`",
        )),
        _ => Ok(Some(mirror)),
    }
}
