//! Finds the object from which the ExternalDNS of a cluster publishes a name.

use std::collections::BTreeSet;

use crate::dns::annotations::Published;
use crate::dns::external_dns::{owner, resource};
use crate::inventory::external_dns::{self, Controller, prefixes};
use crate::inventory::published_hosts::{PublishedHost, Source};
use crate::nameserver::RecordSet;
use crate::words::first_few;

/// Returns the object from which ExternalDNS publishes a name, or the reason why a change of annotations cannot move the name.
/// `sets`: records of the name. `owned`: ownership records of the name. `exposed`: external names of the cluster.
pub fn published(
    name: &str,
    sets: &[RecordSet],
    owned: &[RecordSet],
    exposed: &[PublishedHost],
    controllers: &[Controller],
) -> Result<Published, String> {
    let owners: BTreeSet<String> =
        owned.iter().flat_map(|set| &set.data).filter_map(|text| owner(text)).collect();
    let is_owner = |one: &&Controller| {
        one.runs
            && one.policy.as_deref().is_some_and(|policy| policy != "create-only")
            && one.owner.as_ref().is_some_and(|owner| owners.contains(owner))
    };
    let Some(controller) = controllers.iter().find(is_owner) else {
        return Err("no ExternalDNS that runs in this cluster owns it and updates records".to_string());
    };
    if let Some(option) = controller.deviates {
        return Err(format!("{} has the option `--{option}`", controller.subject));
    }
    let prefixes = prefixes(controller);
    let reads_too = |one: &&Controller| {
        one.subject != controller.subject
            && one.runs
            && external_dns::prefixes(one).iter().any(|prefix| prefixes.contains(prefix))
    };
    if let Some(other) = controllers.iter().find(reads_too) {
        let (one, other) = (&controller.subject, &other.subject);
        return Err(format!("both {one} and {other} read the annotations of the object with this name"));
    }
    let (source, by, at) = object(name, exposed)?;
    if !is_published_from(source, owned) {
        return Err(format!("its TXT record names a different object, not {by}"));
    }
    let data: BTreeSet<String> = sets.iter().flat_map(RecordSet::plain_data).collect();
    if data != *at {
        let listed = |set: &BTreeSet<String>| {
            if set.is_empty() {
                "none".to_string()
            } else {
                first_few(&set.iter().cloned().collect::<Vec<_>>())
            }
        };
        return Err(format!("its records are {}, but the targets of {by} are {}", listed(&data), listed(at)));
    }
    let ttls: BTreeSet<u32> = sets.iter().map(|set| set.ttl).collect();
    if ttls.len() > 1 {
        return Err(
            "its records have different TTLs, but the annotation sets one TTL for all of them".to_string()
        );
    }
    Ok(Published::new(source.object.clone(), prefixes, &source.annotations))
}

/// Returns the object that contains a name, the same object as text, and its targets. Fails if no object or several objects
/// contain the name, if the object is an HTTPRoute, or if it contains another name, too.
fn object<'e>(
    name: &str,
    exposed: &'e [PublishedHost],
) -> Result<(&'e Source, &'e str, &'e BTreeSet<String>), String> {
    let with_name: Vec<&PublishedHost> = exposed.iter().filter(|one| one.name == name).collect();
    let [PublishedHost { source: Some(source), by, at, .. }] = with_name.as_slice() else {
        let by: Vec<String> = with_name.iter().map(|one| one.by.clone()).collect();
        return Err(match by.as_slice() {
            [] => "no object in this cluster contains this name".to_string(),
            [route] => format!("{route} has no annotation of its own for targets"),
            _ => format!("several objects contain this name: {}", first_few(&by)),
        });
    };
    let others: Vec<String> =
        source.names.iter().filter(|other| *other != name).map(|other| format!("`{other}`")).collect();
    if !others.is_empty() {
        return Err(format!("{by} also names {}, and all its names change together", first_few(&others)));
    }
    Ok((source, by, at))
}

/// Returns whether the ownership records name only this object, or no object (`resource` in `endpoint/labels.go`).
fn is_published_from(source: &Source, owned: &[RecordSet]) -> bool {
    let object = &source.object;
    let own = format!("{}/{}/{}", object.kind.name().to_lowercase(), object.namespace, object.name);
    let mut resources = owned.iter().flat_map(|set| &set.data).filter_map(|text| resource(text));
    resources.all(|resource| resource == own)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::inventory::external_dns::testing::controller;
    use crate::inventory::host_object::{HostObject, HostObjectKind};
    use crate::nameserver::RecordKind;

    fn exposed(name: &str, object: &str, more: &[&str]) -> PublishedHost {
        let object =
            HostObject { kind: HostObjectKind::Ingress, namespace: "shop".into(), name: object.into() };
        let names = [name].iter().chain(more).map(ToString::to_string).collect();
        PublishedHost {
            name: name.into(),
            by: object.to_string(),
            namespace: "shop".into(),
            is_tls_only: false,
            has_tls: true,
            at: Arc::new(BTreeSet::from(["192.0.2.1".to_string()])),
            source: Some(Arc::new(Source { object, annotations: BTreeMap::new(), names })),
        }
    }

    fn judged(exposed: &[PublishedHost], data: &str, own: &[Controller]) -> Result<Published, String> {
        let name = "www.example.com";
        let sets = [RecordSet::new(name, RecordKind::A, 60, vec![data.to_string()])];
        let record =
            "\"heritage=external-dns,external-dns/owner=blue,external-dns/resource=ingress/shop/web\"";
        let record = record.to_string();
        let owned = [RecordSet::new(name, RecordKind::Txt, 60, vec![record])];
        published(name, &sets, &owned, exposed, own)
    }

    #[test]
    fn name_has_one_object_and_one_running_owner() {
        let www = exposed("www.example.com", "web", &[]);
        let blue = [controller("blue", &[])];
        let found = judged(std::slice::from_ref(&www), "192.0.2.1", &blue).unwrap();
        assert_eq!((found.object.to_string(), found.before.len()), ("Ingress `shop/web`".to_string(), 4));
        let own = [controller("blue", &["--annotation-prefix=dns.example/"])];
        assert_eq!(judged(std::slice::from_ref(&www), "192.0.2.1", &own).unwrap().before.len(), 2);
        let reason = |exposed: &[PublishedHost], data: &str, own: &[Controller]| {
            judged(exposed, data, own).unwrap_err()
        };
        let one = std::slice::from_ref(&www);
        assert!(reason(one, "192.0.2.1", &[controller("red", &[])]).starts_with("no ExternalDNS"));
        assert!(
            reason(one, "192.0.2.1", &[controller("blue", &["--policy=create-only"])])
                .starts_with("no ExternalDNS")
        );
        assert!(reason(one, "192.0.2.9", &blue).ends_with("the targets of Ingress `shop/web` are 192.0.2.1"));
        assert!(reason(&[], "192.0.2.1", &blue).contains("no object"));
        let twice = [www.clone(), exposed("www.example.com", "other", &[])];
        assert!(reason(&twice, "192.0.2.1", &blue).starts_with("several objects contain this name"));
        let both = [exposed("www.example.com", "web", &["shop.example.com"])];
        assert!(reason(&both, "192.0.2.1", &blue).contains("also names `shop.example.com`"));
        let route = [PublishedHost { source: None, by: "HTTPRoute `shop/web`".into(), ..www.clone() }];
        assert!(reason(&route, "192.0.2.1", &blue).starts_with("HTTPRoute"));
        let elsewhere = [exposed("www.example.com", "other", &[])];
        assert!(reason(&elsewhere, "192.0.2.1", &blue).contains("names a different object"));
        let mut beside = [controller("blue", &[]), controller("red", &[])];
        beside[1].subject = "`dns/another`".to_string();
        assert!(reason(one, "192.0.2.1", &beside).starts_with("both "));
        let templated = [controller("blue", &["--fqdn-template={{.Name}}.example.com"])];
        assert!(reason(one, "192.0.2.1", &templated).contains("`--fqdn-template`"));
    }
}
