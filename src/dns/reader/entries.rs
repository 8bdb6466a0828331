//! The names to change: which names of the zone belong to this cluster, and why the other names do not move.
//!
//! A name moves only if every record of the name points to an object of this cluster. Otherwise a host name in an Ingress is
//! enough to take over a name that another site or a CDN serves. `--take` selects such a name.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};

use super::name_objects::{ByName, Resolved, namespaces, unresolved};
use super::{CutoverReader, LEADING};
use crate::dns::LeftOut;
use crate::inventory::Read;
use crate::inventory::published_hosts::{PublishedHost, is_in};
use crate::nameserver::{AT_ONCE, RecordSet, canonical, is_name};

/// The names to change, and the names of this cluster's objects that do not change.
pub struct Selected {
    /// The names to change. Includes every name that the user selected.
    pub entries: Vec<Entry>,
    /// Names of objects in this cluster that cannot change.
    pub left_out: Vec<LeftOut>,
}

/// A name to change, with its current records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// Objects that contain the name, as text.
    pub by: Vec<String>,
    /// Whether the user selected the name (`--name`, `--take`).
    pub is_given: bool,
    /// A, AAAA and CNAME record sets of the name.
    pub sets: Vec<RecordSet>,
    /// Whether the name is served over TLS.
    pub has_tls: bool,
    /// Namespaces of the objects to which the records point. Empty if the user takes the name although its records point
    /// elsewhere.
    pub namespaces: BTreeSet<String>,
    /// Why the name cannot change.
    pub unfit: Option<Unfit>,
}

impl Entry {
    /// Returns whether the name is in the zone, and not in a delegated child zone.
    pub fn is_in_zone(&self) -> bool {
        !matches!(self.unfit, Some(Unfit::Below(_)))
    }

    /// Returns the name with its objects, as text.
    pub fn words(&self) -> String {
        format!("`{}` ({})", self.name, self.by.join(", "))
    }
}

/// Why a name cannot change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// It is not a domain name.
    Invalid,
    /// It is in this delegated child zone.
    Below(String),
    /// It has no record of its own.
    Missing,
    /// It has no record of its own, but a wildcard record answers for it.
    Wild,
    /// The service does not return one set to all clients (Route 53).
    Routing(String),
    /// Its records do not point to this cluster.
    Elsewhere(String),
}

impl Unfit {
    /// Returns the reason.
    pub fn reason(&self) -> String {
        match self {
            Self::Invalid => "it is not a valid domain name".to_string(),
            Self::Below(zone) => format!("it is in the child zone `{zone}`"),
            Self::Missing => "it has no record in the zone".to_string(),
            Self::Wild => {
                "it has no record of its own: a wildcard record answers for it, and changes with the wildcard"
                    .to_string()
            }
            Self::Routing(why) => format!("it {why}, and netsurgeon changes only names with simple routing"),
            Self::Elsewhere(why) => why.clone(),
        }
    }

    /// Returns what to do.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Invalid => "correct the name in the object that contains it",
            Self::Below(_) => "check each zone separately: `--zone`, `--name`",
            Self::Missing => {
                "create the records, or remove the host from its object: a name that does not answer now cannot be verified later"
            }
            Self::Wild => {
                "create a record for this name with the addresses of the wildcard record, or select the wildcard record itself, in quotes: `--name '*.DOMAIN'`"
            }
            Self::Routing(_) => {
                "first change these names to simple routing in Route 53, or select only the other names with `--name`"
            }
            Self::Elsewhere(_) => "if this name must point to the mirror anyway: `--take NAME`",
        }
    }
}

/// The names of a zone.
struct Tree<'z> {
    /// Names with records of their own.
    own: BTreeSet<&'z str>,
    /// These names, and all names above them. A name that has only names below it also exists (RFC 4592, section 2.2.2).
    existing: BTreeSet<&'z str>,
}

impl<'z> Tree<'z> {
    fn of(sets: &'z [RecordSet]) -> Self {
        let own: BTreeSet<&str> = sets.iter().map(|set| set.name.as_str()).collect();
        let above = |name: &&'z str| {
            std::iter::successors(Some(*name), |name| name.split_once('.').map(|(_, parent)| parent))
        };
        let existing = own.iter().flat_map(above).collect();
        Self { own, existing }
    }

    /// Returns whether only a wildcard record answers for a name: the name does not exist, and the closest name above it that
    /// exists has a wildcard (RFC 4592, section 3.3.1). A name server returns such an answer as the record of the name; the API
    /// of Route 53 does not.
    fn is_wild(&self, name: &str) -> bool {
        if self.existing.contains(name) {
            return false;
        }
        let mut above =
            std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, parent)| parent));
        let closest = above.find(|name| self.existing.contains(name));
        closest.is_some_and(|closest| self.own.contains(format!("*.{closest}").as_str()))
    }
}

/// A name of objects, before its records are read.
#[derive(Default)]
struct Named {
    by: BTreeSet<String>,
    is_given: bool,
    has_tls: bool,
    /// Whether only TLS sections of Ingresses contain the name.
    is_tls_only: bool,
}

/// Reads the names to change: the given names, or every host name that is in the zone and in an object of the cluster.
pub(super) async fn read(dns: &CutoverReader) -> Read<Selected> {
    let (named, taken) = named(dns).await?;
    let tree = dns.zone.records().await?.as_ref().ok().map(|sets| Tree::of(sets));
    let tree = tree.as_ref();
    let asked = named.into_iter().map(async |(name, named)| entry(dns, tree, name, named).await);
    let entries: Vec<Read<Option<Entry>>> = stream::iter(asked).buffered(AT_ONCE).collect().await;
    let entries: Read<Vec<Option<Entry>>> = entries.into_iter().collect();
    let mut entries: Vec<Entry> = entries?.into_iter().flatten().collect();
    compare(dns, &mut entries, &taken).await?;
    let mut left_out = Vec::new();
    entries.retain(|entry| match &entry.unfit {
        Some(unfit) if !entry.is_given => {
            let (name, by) = (entry.name.clone(), entry.by.clone());
            left_out.push(LeftOut { name, by, reason: unfit.reason() });
            false
        }
        _ => true,
    });
    Ok(Selected { entries, left_out })
}

/// Returns the names, and the names that change although their records point elsewhere.
async fn named(dns: &CutoverReader) -> Read<(BTreeMap<String, Named>, BTreeSet<String>)> {
    let taken: BTreeSet<String> = dns.options.take.iter().map(|name| canonical(name)).collect();
    let mut names: BTreeMap<String, Named> = BTreeMap::new();
    let mut give = |name: &String, option: &str| {
        let one = names.entry(canonical(name)).or_default();
        one.is_given = true;
        one.by.insert(option.to_string());
    };
    dns.options.name.iter().for_each(|name| give(name, "--name"));
    dns.options.take.iter().for_each(|name| give(name, "--take"));
    // Without ExternalDNS, a host in a TLS section alone has no record, or its record belongs to another object.
    let reads_tls_hosts = dns.controllers().await?.iter().any(|one| one.runs && one.reads_tls_hosts);
    let is_all = dns.options.name.is_empty();
    for one in dns.here().await? {
        let is_published = !one.is_tls_only || reads_tls_hosts;
        if is_all && is_published && is_in(&dns.zone.name, &one.name) && !names.contains_key(&one.name) {
            names.insert(one.name.clone(), Named { is_tls_only: true, ..Named::default() });
        }
        if let Some(named) = names.get_mut(&one.name) {
            named.has_tls |= one.has_tls;
            named.is_tls_only &= one.is_tls_only;
            if !named.is_given {
                named.by.insert(one.by.clone());
            }
        }
    }
    Ok((names, taken))
}

/// Reads the records of a name. Returns `None` for a host without records that only TLS sections of Ingresses contain.
async fn entry(
    dns: &CutoverReader,
    tree: Option<&Tree<'_>>,
    name: String,
    named: Named,
) -> Read<Option<Entry>> {
    let Named { by, is_given, has_tls, is_tls_only } = named;
    let mut entry = Entry {
        by: by.into_iter().collect(),
        is_given,
        sets: Vec::new(),
        has_tls,
        namespaces: BTreeSet::new(),
        unfit: None,
        name,
    };
    if !is_name(&entry.name) {
        entry.unfit = Some(Unfit::Invalid);
        return Ok(Some(entry));
    }
    entry.sets = dns.zone.present(&entry.name, &LEADING).await?;
    let is_wild = match tree {
        Some(tree) => tree.is_wild(&entry.name),
        None => answers_for_nobody(dns, &entry).await?,
    };
    entry.unfit = if let Some(zone) = dns.zone.below(&entry.name).await? {
        Some(Unfit::Below(zone))
    } else if is_wild && !entry.name.starts_with("*.") {
        Some(Unfit::Wild)
    } else if entry.sets.is_empty() {
        Some(Unfit::Missing)
    } else {
        dns.zone.routing(&entry.name).await?.map(Unfit::Routing)
    };
    let is_only_a_certificate = is_tls_only && !is_given && entry.unfit == Some(Unfit::Missing);
    Ok((!is_only_a_certificate).then_some(entry))
}

/// Returns whether an unused sibling name has the same records. If so, a wildcard record probably answers for both names.
async fn answers_for_nobody(dns: &CutoverReader, entry: &Entry) -> Read<bool> {
    let parent = entry.name.split_once('.').map(|(_, parent)| parent).unwrap_or_default();
    if entry.sets.is_empty() || !is_in(&dns.zone.name, parent) {
        return Ok(false);
    }
    let sibling = format!("netsurgeon-preflight-nobody.{parent}");
    let others = dns.zone.present(&sibling, &LEADING).await?;
    let is_same =
        |set: &RecordSet| others.iter().any(|other| other.kind == set.kind && other.data == set.data);
    if !entry.sets.iter().any(is_same) {
        return Ok(false);
    }
    // Only the server knows whether the name also has records of its own.
    Ok(!dns.zone.exists(&entry.name).await?.unwrap_or(false))
}

/// Compares the records of each name with the addresses of the objects that contain the name. `taken`: names that change even if
/// the records point elsewhere.
async fn compare(dns: &CutoverReader, entries: &mut [Entry], taken: &BTreeSet<String>) -> Read<()> {
    let here = ByName::new(dns.here().await?);
    // Without the mirror, a name that points to the mirror already is reported as a name that points elsewhere.
    let none = Vec::new();
    let exposed = match dns.mirror_if_given() {
        Ok(Some(_)) => dns.on_the_mirror().await.unwrap_or(&none),
        _ => &none,
    };
    let mirror = ByName::new(exposed);
    let objects = |name: &str| -> (Vec<&PublishedHost>, Vec<&PublishedHost>) {
        let of_here = here.all(name);
        let of_mirror = mirror.beside(name, &of_here);
        (of_here, of_mirror)
    };
    let mut unknown = BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry.unfit.is_none()) {
        let (of_here, of_mirror) = objects(&entry.name);
        unknown.extend(unresolved(&data(entry), &[of_here, of_mirror].concat()));
    }
    let resolved = resolve(dns, unknown).await?;
    for entry in entries.iter_mut().filter(|entry| entry.unfit.is_none()) {
        let (of_here, of_mirror) = objects(&entry.name);
        match namespaces(&data(entry), &of_here, &of_mirror, &resolved) {
            Ok(found) => entry.namespaces = found,
            Err(_) if taken.contains(&entry.name) => {}
            Err(why) => entry.unfit = Some(Unfit::Elsewhere(why)),
        }
    }
    Ok(())
}

fn data(entry: &Entry) -> BTreeSet<String> {
    entry.sets.iter().flat_map(|set| &set.data).map(|data| canonical(data)).collect()
}

/// Resolves host names. Omits names that cannot be resolved.
async fn resolve(dns: &CutoverReader, names: BTreeSet<String>) -> Read<Resolved> {
    if names.is_empty() {
        return Ok(Resolved::new());
    }
    let resolver = dns.zone.resolver()?;
    let asked = names.into_iter().map(async |name| {
        let found = resolver.addresses(&name).await.unwrap_or_default();
        (name, found.into_iter().collect())
    });
    Ok(stream::iter(asked).buffered(AT_ONCE).collect::<Vec<_>>().await.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nameserver::RecordKind;

    #[test]
    fn name_without_its_own_records_is_found_below_a_wildcard() {
        let set = |name: &str| RecordSet::new(name, RecordKind::A, 60, vec!["192.0.2.1".into()]);
        let names =
            ["example.com", "*.example.com", "www.example.com", "x.dev.example.com", "*.wild.example.com"];
        let sets = names.map(set);
        let tree = Tree::of(&sets);
        for name in ["a.example.com", "a.b.example.com", "b.wild.example.com"] {
            assert!(tree.is_wild(name), "{name}");
        }
        for name in ["www.example.com", "dev.example.com", "a.dev.example.com", "a.www.example.com"] {
            assert!(!tree.is_wild(name), "{name}: a name that exists hides the wildcards above it");
        }
    }
}
