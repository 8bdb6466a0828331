//! Decides which objects a name belongs to: in the old cluster the objects to which its records point, and on the mirror the
//! objects of the same namespaces.
//!
//! Each user who is allowed to create an Ingress or a Service in one namespace can give any host name and any target, also a
//! wildcard. So an object counts only if the records of the zone point to it, and an object of another namespace never adds its
//! address to a name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::inventory::published_hosts::{PublishedHost, covers};
use crate::words::first_few;

/// The addresses of host names, as far as they are known.
pub type Resolved = BTreeMap<String, BTreeSet<IpAddr>>;

/// External names, by name.
pub struct ByName<'e>(BTreeMap<&'e str, Vec<&'e PublishedHost>>);

impl<'e> ByName<'e> {
    /// Groups host names by name.
    pub fn new(exposed: impl IntoIterator<Item = &'e PublishedHost>) -> Self {
        let mut by_name: BTreeMap<&str, Vec<&PublishedHost>> = BTreeMap::new();
        for one in exposed {
            by_name.entry(&one.name).or_default().push(one);
        }
        Self(by_name)
    }

    /// Returns the objects that serve a name: the objects with exactly this name, otherwise the objects with a wildcard that
    /// covers the name. If no object has a given wildcard, returns the objects whose names the wildcard covers. `is_meant`
    /// selects objects.
    fn serving(&self, name: &str, is_meant: impl Fn(&PublishedHost) -> bool) -> Vec<&'e PublishedHost> {
        let of = |name: &str| -> Vec<&'e PublishedHost> {
            self.0.get(name).into_iter().flatten().copied().filter(|one| is_meant(one)).collect()
        };
        let exact = of(name);
        if !exact.is_empty() {
            return exact;
        }
        if name.starts_with("*.") {
            let covered = self.0.iter().filter(|(other, _)| covers(name, other));
            return covered.flat_map(|(_, all)| all).copied().filter(|one| is_meant(one)).collect();
        }
        name.split_once('.').map(|(_, parent)| of(&format!("*.{parent}"))).unwrap_or_default()
    }

    /// Returns the objects that serve a name.
    pub fn all(&self, name: &str) -> Vec<&'e PublishedHost> {
        self.serving(name, |_| true)
    }

    /// Returns the objects that serve a name and are in the namespaces of these objects.
    pub fn beside(&self, name: &str, objects: &[&PublishedHost]) -> Vec<&'e PublishedHost> {
        self.serving(name, |one| objects.iter().any(|other| other.namespace == one.namespace))
    }

    /// Returns the objects of the mirror whose addresses a name gets: objects in these namespaces, or in any namespace if
    /// `namespaces` is `None`. If objects of several namespaces have different addresses, the right ones are unknown, and the
    /// function fails with the reason.
    pub fn on_the_mirror(
        &self,
        name: &str,
        namespaces: Option<&BTreeSet<String>>,
    ) -> Result<Vec<&'e PublishedHost>, String> {
        let is_meant = |one: &PublishedHost| namespaces.is_none_or(|those| those.contains(&one.namespace));
        let found = self.serving(name, is_meant);
        if found.is_empty() {
            let others = self.all(name);
            if others.is_empty() {
                return Ok(found);
            }
            return Err(format!(
                "only objects of other namespaces than here contain it on the mirror: {}",
                first_few(&listed(&others))
            ));
        }
        let mut at: BTreeMap<&str, BTreeSet<&String>> = BTreeMap::new();
        for one in found.iter().filter(|one| !one.at.is_empty()) {
            at.entry(&one.namespace).or_default().extend(one.at.iter());
        }
        if at.values().collect::<BTreeSet<_>>().len() > 1 {
            let told = found.iter().filter(|one| !one.at.is_empty());
            let told: BTreeSet<String> =
                told.map(|one| format!("{} ({})", one.by, addresses(&one.at))).collect();
            return Err(format!(
                "objects of several namespaces contain it on the mirror, with different addresses: {}",
                first_few(&told.into_iter().collect::<Vec<_>>())
            ));
        }
        Ok(found)
    }
}

/// Returns the objects as text, each once.
pub fn listed(objects: &[&PublishedHost]) -> Vec<String> {
    objects.iter().map(|one| one.by.clone()).collect::<BTreeSet<_>>().into_iter().collect()
}

fn addresses(at: &BTreeSet<String>) -> String {
    if at.is_empty() { "no address".to_string() } else { first_few(&at.iter().cloned().collect::<Vec<_>>()) }
}

/// Returns the namespaces of the objects to which the records of a name point. Fails with the reason if a record points to
/// another place. `data`: addresses and host names in the records. `here`: objects of this cluster that serve the name.
/// `mirror`: objects of the mirror in the same namespaces that serve the name; a record can point to them already.
pub fn namespaces(
    data: &BTreeSet<String>,
    here: &[&PublishedHost],
    mirror: &[&PublishedHost],
    resolved: &Resolved,
) -> Result<BTreeSet<String>, String> {
    if here.is_empty() {
        return Err("no object of this cluster contains it, so the addresses of the old cluster are unknown"
            .to_string());
    }
    // One object can have tens of thousands of names and targets, so the sets are built only if they are needed.
    let meant: BTreeSet<String> = here
        .iter()
        .filter(|one| data.iter().any(|data| one.at.contains(data)))
        .map(|one| one.namespace.clone())
        .collect();
    if !meant.is_empty() && are_listed(data, here) {
        return Ok(meant);
    }
    let of = |objects: &[&PublishedHost]| -> BTreeSet<String> {
        objects.iter().flat_map(|one| one.at.iter().cloned()).collect()
    };
    let expected = of(here);
    let known: BTreeSet<String> = expected.union(&of(mirror)).cloned().collect();
    if !data.iter().all(|one| is_at(one, &known, resolved)) {
        let records = addresses(data);
        let by = first_few(&listed(here));
        return Err(if expected.is_empty() {
            format!("its records are {records}, and {by} has no address to compare them with")
        } else {
            format!("its records are {records}, but the addresses of {by} are {}", addresses(&expected))
        });
    }
    let is_meant = |one: &&&PublishedHost| data.iter().any(|data| is_at(data, &one.at, resolved));
    let meant: BTreeSet<String> = here.iter().filter(is_meant).map(|one| one.namespace.clone()).collect();
    Ok(if meant.is_empty() { here.iter().map(|one| one.namespace.clone()).collect() } else { meant })
}

/// Returns the host names that must be resolved to compare the records of a name with the addresses of objects.
pub fn unresolved(data: &BTreeSet<String>, objects: &[&PublishedHost]) -> BTreeSet<String> {
    if are_listed(data, objects) {
        return BTreeSet::new();
    }
    let at: BTreeSet<String> = objects.iter().flat_map(|one| one.at.iter().cloned()).collect();
    if data.iter().all(|one| is_at(one, &at, &Resolved::new())) {
        return BTreeSet::new();
    }
    data.union(&at)
        .filter(|text| text.parse::<IpAddr>().is_err())
        .map(|text| plain(text).to_string())
        .collect()
}

/// Returns whether every record has the address or the host name of one of these objects.
fn are_listed(data: &BTreeSet<String>, objects: &[&PublishedHost]) -> bool {
    data.iter().all(|data| objects.iter().any(|one| one.at.contains(data)))
}

/// Returns whether an address or a host name is one of the expected ones, or has only addresses of the expected ones.
fn is_at(data: &str, expected: &BTreeSet<String>, resolved: &Resolved) -> bool {
    if expected.iter().any(|one| plain(one) == plain(data)) {
        return true;
    }
    let addresses = |text: &str| match text.parse::<IpAddr>() {
        Ok(at) => BTreeSet::from([at]),
        Err(_) => resolved.get(plain(text)).cloned().unwrap_or_default(),
    };
    let expected: BTreeSet<IpAddr> = expected.iter().flat_map(|one| addresses(one)).collect();
    let found = addresses(data);
    !found.is_empty() && found.is_subset(&expected)
}

/// Returns the host name without the prefix that the console of AWS adds to the name of a load balancer in an alias.
fn plain(text: &str) -> &str {
    text.strip_prefix("dualstack.").unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposed(namespace: &str, name: &str, at: &[&str]) -> PublishedHost {
        PublishedHost {
            name: name.into(),
            by: format!("Ingress `{namespace}/web`"),
            namespace: namespace.into(),
            is_tls_only: false,
            has_tls: true,
            at: std::sync::Arc::new(texts(at)),
            source: None,
        }
    }

    fn texts(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn object_of_another_namespace_adds_no_address() {
        let shop = exposed("shop", "www.example.com", &["192.0.2.1"]);
        let wild = exposed("tenant", "*.example.com", &["203.0.113.6"]);
        let same = exposed("tenant", "www.example.com", &["203.0.113.6"]);
        let own = texts(&["shop"]);
        let at = |objects: &[PublishedHost], namespaces: Option<&BTreeSet<String>>| {
            let found = ByName::new(objects).on_the_mirror("www.example.com", namespaces)?;
            Ok::<_, String>(found.iter().flat_map(|one| one.at.iter().cloned()).collect::<Vec<_>>())
        };
        let both = [shop.clone(), wild.clone()];
        assert_eq!(at(&both, Some(&own)), Ok(vec!["192.0.2.1".to_string()]));
        assert_eq!(
            at(&both, None),
            Ok(vec!["192.0.2.1".to_string()]),
            "an exact name comes before a wildcard"
        );
        assert_eq!(at(&[shop.clone(), same.clone()], Some(&own)), Ok(vec!["192.0.2.1".to_string()]));
        let refused = at(&[shop.clone(), same.clone()], None).unwrap_err();
        assert!(refused.contains("Ingress `tenant/web` (203.0.113.6)"), "{refused}");
        let refused = at(std::slice::from_ref(&wild), Some(&own)).unwrap_err();
        assert!(refused.contains("other namespaces"), "{refused}");
        assert_eq!(at(&[wild], None), Ok(vec!["203.0.113.6".to_string()]));
        assert_eq!(at(&[], Some(&own)), Ok(Vec::new()));
        let second = exposed("shop", "www.example.com", &["192.0.2.2"]);
        assert_eq!(
            at(&[shop, second], Some(&own)).map(|at| at.len()),
            Ok(2),
            "one namespace has two balancers"
        );
    }

    #[test]
    fn name_belongs_to_the_objects_to_which_its_records_point() {
        let shop = exposed("shop", "www.example.com", &["192.0.2.1"]);
        let other = exposed("tenant", "www.example.com", &["203.0.113.6"]);
        let none = Resolved::new();
        let of = |data: &[&str], here: &[&PublishedHost]| namespaces(&texts(data), here, &[], &none);
        assert_eq!(of(&["192.0.2.1"], &[&shop, &other]), Ok(texts(&["shop"])));
        let elsewhere = of(&["198.51.100.9"], &[&shop]).unwrap_err();
        assert_eq!(
            elsewhere,
            "its records are 198.51.100.9, but the addresses of Ingress `shop/web` are 192.0.2.1"
        );
        assert!(of(&["192.0.2.1", "198.51.100.9"], &[&shop]).is_err(), "one of its records points elsewhere");
        assert!(of(&["192.0.2.1"], &[]).unwrap_err().contains("no object"));
        assert!(of(&["192.0.2.1"], &[&exposed("shop", "x", &[])]).unwrap_err().contains("no address"));
        let mirror = exposed("shop", "www.example.com", &["198.51.100.1"]);
        let moved = namespaces(&texts(&["198.51.100.1"]), &[&shop], &[&mirror], &none);
        assert_eq!(moved, Ok(texts(&["shop"])), "the name points to the mirror already");
    }

    #[test]
    fn host_names_are_compared_by_their_addresses() {
        let balancer = exposed("shop", "www.example.com", &["lb.example.net"]);
        let data = texts(&["192.0.2.1"]);
        assert_eq!(unresolved(&data, &[&balancer]), texts(&["lb.example.net"]));
        assert_eq!(unresolved(&texts(&["dualstack.lb.example.net"]), &[&balancer]), BTreeSet::new());
        let at = BTreeSet::from(["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()]);
        let resolved = Resolved::from([("lb.example.net".to_string(), at)]);
        assert!(namespaces(&data, &[&balancer], &[], &resolved).is_ok());
        assert!(namespaces(&texts(&["192.0.2.3"]), &[&balancer], &[], &resolved).is_err());
        let wild = exposed("shop", "a.apps.example.com", &["192.0.2.1"]);
        assert_eq!(ByName::new([&wild]).all("*.apps.example.com").len(), 1);
    }
}
