//! Which kinds of object the mirror must serve, custom resources among them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::super::objects::name;
use super::super::{Judged, first_few};
use crate::words::counted;

/// A kind that a cluster serves, in all its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// As in `Deployment`.
    pub kind: String,
    /// The versions it is served in, the one that clients prefer first.
    pub versions: Vec<String>,
}

/// What a cluster serves, by API group and resource, as `apps` and `deployments`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kinds {
    /// The kinds.
    pub all: BTreeMap<(String, String), Kind>,
    /// API groups that did not say what they serve, and why, in words.
    pub silent: BTreeMap<String, String>,
}

/// Objects that nobody copies: the cluster writes them by itself, or makes them of what is copied.
const NOT_COPIED: [(&str, &str); 11] = [
    ("", "events"),
    ("events.k8s.io", "events"),
    ("", "endpoints"),
    ("discovery.k8s.io", "endpointslices"),
    ("coordination.k8s.io", "leases"),
    ("", "pods"),
    ("apps", "replicasets"),
    ("apps", "controllerrevisions"),
    ("storage.k8s.io", "csistoragecapacities"),
    ("resource.k8s.io", "resourceclaims"),
    ("cilium.io", "ciliumendpoints"),
];

/// Whether objects of a kind are copied, by its group, its resource, and what can be done with it: listed, and made. What nobody can
/// make is shown by whoever serves it, as the PackageManifests of OLM. Metrics are no objects at all.
pub fn is_copied(group: &str, resource: &str, verbs: &BTreeSet<String>) -> bool {
    let can = ["list", "create"].iter().all(|verb| verbs.contains(*verb));
    can && !NOT_COPIED.contains(&(group, resource)) && !is_of_metrics(group)
}

/// Whether an API group has measurements alone, whoever serves it.
fn is_of_metrics(group: &str) -> bool {
    group == "metrics.k8s.io" || group.ends_with(".metrics.k8s.io")
}

/// What was found of a kind in the chosen namespaces: an object in words (`shop/web`), or why it could not be listed.
pub type Used = BTreeMap<(String, String), Result<String, String>>;

/// Every kind of which there are objects must be served by the mirror. `definitions`: CustomResourceDefinitions of the mirror.
pub fn judge(
    used: &Used,
    source: &Kinds,
    mirror: &Kinds,
    definitions: &[CustomResourceDefinition],
) -> Judged {
    let (mut missing, mut other, mut unseen) = (Vec::new(), Vec::new(), Vec::new());
    for (place, found) in used {
        let (Some(kind), (group, _)) = (source.all.get(place), place) else { continue };
        let words = in_words(group, kind);
        let wanted = kind.versions.first();
        let is_served = mirror
            .all
            .get(place)
            .is_some_and(|served| wanted.is_some_and(|wanted| served.versions.contains(wanted)));
        if is_served {
            // Whether or not there are any, as of Secrets that the user has no permission to list.
            continue;
        }
        let example = match found {
            Ok(example) => example,
            Err(why) => {
                unseen.push(format!("{words} could not be listed ({why})"));
                continue;
            }
        };
        match mirror.all.get(place) {
            None if mirror.silent.contains_key(group) => {
                unseen.push(format!(
                    "{words} may be served by the mirror, whose API of that group does not answer"
                ));
            }
            None => missing.push(format!("{words}{}, as `{example}`", is_refused(place, definitions))),
            Some(served) => {
                other.push(format!("{words} (there in {})", served.versions.join(", ")));
            }
        }
    }
    for (whose, kinds) in [("source", source), ("mirror", mirror)] {
        let silent = kinds.silent.iter().filter(|(group, _)| !is_of_metrics(group));
        let silent =
            silent.filter(|(group, _)| whose == "source" || used.keys().any(|(used, _)| used == *group));
        unseen.extend(
            silent.map(|(group, why)| format!("`{group}` of the {whose} does not say what it serves: {why}")),
        );
    }
    let hidden = used.values().filter(|found| found.is_err()).count();
    told((used.len().saturating_sub(hidden), hidden), missing, other, unseen)
}

fn told(
    (count, hidden): (usize, usize),
    missing: Vec<String>,
    other: Vec<String>,
    unseen: Vec<String>,
) -> Judged {
    let is_missing = !missing.is_empty();
    let is_unseen = !unseen.is_empty();
    let parts = [("the mirror does not serve ", missing), ("only in another version: ", other), ("", unseen)];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(begin, list)| format!("{begin}{}", first_few(&list)))
        .collect();
    let seen = parts.join("; ");
    if is_missing {
        return Judged::fail(
            seen,
            "install what brings these kinds on the mirror (`kubectl get crd NAME` of the source tells it), and wait until each \
             CustomResourceDefinition is Established",
        );
    }
    if is_unseen {
        return Judged::unknown(
            seen,
            "bring back what serves the group (`kubectl get apiservices`); where kinds may not be listed, give a ClusterRole that lists them the label \
             `netsurgeon.io/aggregate-to-mirror-source=true`: it joins `netsurgeon-mirror-source` of deploy/rbac.yaml",
        );
    }
    if parts.is_empty() {
        let all = format!("all {} of which there are objects", counted(count, "kind", "kinds"));
        return Judged::pass(match hidden {
            0 => all,
            _ => format!("{all}, and {hidden} that could not be listed"),
        });
    }
    Judged::warn(
        seen,
        "see that what is copied is read in a version that both serve: `kubectl api-resources` of both, and the newer version's notes",
    )
}

fn in_words(group: &str, kind: &Kind) -> String {
    let version = kind.versions.first().map_or("", String::as_str);
    if group.is_empty() {
        format!("{version} {}", kind.kind)
    } else {
        format!("{group}/{version} {}", kind.kind)
    }
}

/// Why a kind is not served although somebody has defined it.
fn is_refused((group, resource): &(String, String), definitions: &[CustomResourceDefinition]) -> String {
    let wanted = format!("{resource}.{group}");
    let Some(definition) = definitions.iter().find(|one| name(*one) == wanted) else {
        return String::new();
    };
    let conditions = || definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let of = |name: &str| conditions().find(|one| one.type_ == name);
    if of("Established").is_some_and(|one| one.status == "True") {
        return String::new();
    }
    let reason = of("NamesAccepted").and_then(|one| one.message.as_deref()).unwrap_or_default();
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!(" (its CustomResourceDefinition is there and not Established{reason})")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;

    fn kinds(all: &[(&str, &str, &str, &[&str])]) -> Kinds {
        let all = all.iter().map(|(group, resource, kind, versions)| {
            let versions = versions.iter().map(|text| (*text).to_string()).collect();
            (((*group).to_string(), (*resource).to_string()), Kind { kind: (*kind).to_string(), versions })
        });
        Kinds { all: all.collect(), silent: BTreeMap::new() }
    }

    fn used(all: &[(&str, &str)]) -> Used {
        let one = |(group, resource): &(&str, &str)| {
            (((*group).to_string(), (*resource).to_string()), Ok("shop/web".to_string()))
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn a_kind_is_served_by_both() {
        let source = kinds(&[
            ("", "services", "Service", &["v1"]),
            ("example.com", "widgets", "Widget", &["v2", "v1"]),
            ("example.com", "gadgets", "Gadget", &["v1"]),
        ]);
        let mirror =
            kinds(&[("", "services", "Service", &["v1"]), ("example.com", "widgets", "Widget", &["v1"])]);
        let of = |used: &Used, mirror: &Kinds| judge(used, &source, mirror, &[]);
        assert_eq!(of(&used(&[("", "services")]), &mirror).observed, "all 1 kind of which there are objects");
        let older = of(&used(&[("example.com", "widgets")]), &mirror);
        assert_eq!(
            (older.verdict, older.observed.as_str()),
            (Verdict::Warn, "only in another version: example.com/v2 Widget (there in v1)")
        );
        let missing = of(&used(&[("example.com", "gadgets"), ("example.com", "widgets")]), &mirror);
        assert_eq!(missing.verdict, Verdict::Fail);
        assert_eq!(
            missing.observed,
            "the mirror does not serve example.com/v1 Gadget, as `shop/web`; only in another version: example.com/v2 Widget (there in v1)"
        );
        assert_eq!(of(&used(&[("example.com", "widgets")]), &source).verdict, Verdict::Pass);
    }

    #[test]
    fn a_definition_that_is_not_established_serves_nothing() {
        let source = kinds(&[("example.com", "widgets", "Widget", &["v1"])]);
        let definition = |status: &str| {
            let definition = json!({"metadata": {"name": "widgets.example.com"}, "status": {"conditions": [
                {"type": "Established", "status": status}, {"type": "NamesAccepted", "status": "False", "message": "taken"},
            ]}});
            serde_json::from_value(definition).unwrap()
        };
        let of = |status: &str| {
            judge(&used(&[("example.com", "widgets")]), &source, &Kinds::default(), &[definition(status)])
                .observed
        };
        assert!(of("False").contains("not Established: taken), as `shop/web`"), "{}", of("False"));
        assert!(!of("True").contains("Established"), "{}", of("True"));
    }

    #[test]
    fn who_does_not_answer_is_named() {
        let mut source = kinds(&[("example.com", "widgets", "Widget", &["v1"])]);
        let mut mirror = source.clone();
        let refused = Used::from([(("example.com".into(), "widgets".into()), Err("forbidden".into()))]);
        assert_eq!(judge(&refused, &source, &Kinds::default(), &[]).verdict, Verdict::Unknown);
        let served = judge(&refused, &source, &mirror, &[]);
        assert_eq!(served.observed, "all 0 kinds of which there are objects, and 1 that could not be listed");
        assert_eq!(served.verdict, Verdict::Pass, "the mirror serves it, whether or not there is one");
        source.silent.insert("metrics.k8s.io".into(), "status 503".into());
        mirror.silent.insert("other.example.com".into(), "status 503".into());
        let of =
            |source: &Kinds, mirror: &Kinds| judge(&used(&[("example.com", "widgets")]), source, mirror, &[]);
        assert_eq!(of(&source, &mirror).verdict, Verdict::Pass, "nothing is copied of either");
        source.silent.insert("other.example.com".into(), "status 503".into());
        let silent = of(&source, &mirror);
        assert_eq!(
            silent.observed,
            "`other.example.com` of the source does not say what it serves: status 503"
        );
        assert_eq!(silent.verdict, Verdict::Unknown);
        mirror = Kinds {
            all: BTreeMap::new(),
            silent: BTreeMap::from([("example.com".into(), "status 503".into())]),
        };
        source.silent.clear();
        assert_eq!(of(&source, &mirror).verdict, Verdict::Unknown);
    }

    #[test]
    fn what_is_not_made_is_not_copied() {
        let all = ["get", "list", "create"].map(str::to_string);
        let (all, shown) = (BTreeSet::from(all.clone()), BTreeSet::from([all[0].clone(), all[1].clone()]));
        assert!(is_copied("apps", "deployments", &all) && !is_copied("", "pods", &all));
        assert!(!is_copied("custom.metrics.k8s.io", "pods", &all));
        assert!(!is_copied("packages.operators.coreos.com", "packagemanifests", &shown));
    }
}
