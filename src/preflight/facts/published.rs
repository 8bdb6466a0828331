//! The object from which the ExternalDNS of a cluster publishes a name.

use std::collections::BTreeSet;

use super::exposed::{Exposed, Source};
use super::external_dns::{Controller, prefixes};
use crate::dns::Published;
use crate::dns::external_dns::owner;
use crate::nameserver::{RecordSet, canonical};
use crate::preflight::first_few;

/// Returns the object from which ExternalDNS publishes a name, or why its annotations cannot move the name. `sets`: its records.
/// `owned`: its ownership records. `exposed`: the names of the cluster.
pub fn published(
    name: &str,
    sets: &[RecordSet],
    owned: &[RecordSet],
    exposed: &[Exposed],
    controllers: &[Controller],
) -> Result<Published, String> {
    let owners: BTreeSet<&str> =
        owned.iter().flat_map(|set| &set.data).filter_map(|text| owner(text)).collect();
    let is_owner = |one: &&Controller| {
        one.runs
            && one.policy != "create-only"
            && one.owner.as_deref().is_some_and(|owner| owners.contains(owner))
    };
    let Some(controller) = controllers.iter().find(is_owner) else {
        return Err("no ExternalDNS that runs in this cluster owns it and updates records".to_string());
    };
    let with_name: Vec<&Exposed> = exposed.iter().filter(|one| one.name == name).collect();
    let [Exposed { source: Some(source), by, at, .. }] = with_name.as_slice() else {
        let by: Vec<String> = with_name.iter().map(|one| one.by.clone()).collect();
        return Err(match by.as_slice() {
            [] => "no object of this cluster names it".to_string(),
            [route] => format!("{route} has no annotation of its own for targets"),
            _ => format!("several objects name it: {}", first_few(&by)),
        });
    };
    let is_other = |one: &&Exposed| one.name != name && one.source.as_ref() == Some(source);
    let others: Vec<String> = exposed.iter().filter(is_other).map(|one| format!("`{}`", one.name)).collect();
    if !others.is_empty() {
        return Err(format!("{by} also names {}, and all its names change together", first_few(&others)));
    }
    let prefixes = prefixes(controller);
    let targets = targets(source, &prefixes).unwrap_or_else(|| at.clone());
    let data: BTreeSet<String> = sets.iter().flat_map(|set| set.data.clone()).collect();
    if data != targets {
        let listed = |set: &BTreeSet<String>| first_few(&set.iter().cloned().collect::<Vec<_>>());
        return Err(format!(
            "its records are {}, and the targets of {by} {}",
            listed(&data),
            listed(&targets)
        ));
    }
    Ok(Published::new(source.object.clone(), prefixes, &source.annotations))
}

/// Returns the targets in the annotation of an object, if it has one.
fn targets(source: &Source, prefixes: &[&str]) -> Option<BTreeSet<String>> {
    let text = prefixes.iter().find_map(|prefix| source.annotations.get(&format!("{prefix}target")))?;
    let targets: BTreeSet<String> =
        text.split(',').map(|one| canonical(one.trim())).filter(|one| !one.is_empty()).collect();
    (!targets.is_empty()).then_some(targets)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::dns::Object;
    use crate::nameserver::Kind;
    use crate::preflight::facts::external_dns::testing::controller;

    fn exposed(name: &str, object: &str, annotations: &[(&str, &str)]) -> Exposed {
        let own = |(key, value): &(&str, &str)| ((*key).to_string(), (*value).to_string());
        let object = Object { kind: "Ingress".into(), namespace: "shop".into(), name: object.into() };
        Exposed {
            name: name.into(),
            by: object.to_string(),
            has_tls: true,
            at: BTreeSet::from(["192.0.2.1".to_string()]),
            source: Some(Source {
                object,
                annotations: annotations.iter().map(own).collect::<BTreeMap<_, _>>(),
            }),
        }
    }

    fn judged(exposed: &[Exposed], data: &str, own: &[Controller]) -> Result<Published, String> {
        let name = "www.example.com";
        let sets = [RecordSet::new(name, Kind::A, 60, vec![data.to_string()])];
        let record = "heritage=external-dns,external-dns/owner=blue".to_string();
        let owned = [RecordSet::new(name, Kind::Txt, 60, vec![record])];
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
        let reason =
            |exposed: &[Exposed], data: &str, own: &[Controller]| judged(exposed, data, own).unwrap_err();
        let one = std::slice::from_ref(&www);
        assert!(reason(one, "192.0.2.1", &[controller("red", &[])]).starts_with("no ExternalDNS"));
        assert!(
            reason(one, "192.0.2.1", &[controller("blue", &["--policy=create-only"])])
                .starts_with("no ExternalDNS")
        );
        assert!(reason(one, "192.0.2.9", &blue).ends_with("the targets of Ingress `shop/web` 192.0.2.1"));
        assert!(reason(&[], "192.0.2.1", &blue).contains("no object"));
        let twice = [www.clone(), exposed("www.example.com", "other", &[])];
        assert!(reason(&twice, "192.0.2.1", &blue).starts_with("several objects name it"));
        let both = [www.clone(), exposed("shop.example.com", "web", &[])];
        assert!(reason(&both, "192.0.2.1", &blue).contains("also names `shop.example.com`"));
        let route = [Exposed { source: None, by: "HTTPRoute `shop/web`".into(), ..www }];
        assert!(reason(&route, "192.0.2.1", &blue).starts_with("HTTPRoute"));
        let annotated =
            exposed("www.example.com", "web", &[("external-dns.kubernetes.io/target", "192.0.2.7 ")]);
        assert!(judged(&[annotated], "192.0.2.7", &blue).is_ok());
    }
}
