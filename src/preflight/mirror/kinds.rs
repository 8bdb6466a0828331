//! `kinds`: whether the mirror serves every kind that has objects in the source, including custom resources.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::Mirror;
use crate::inventory::kinds::is_of_metrics;
use crate::inventory::namespaces::UsedKinds;
use crate::inventory::unread;
use crate::kube_api::accessors::name;
use crate::kube_api::{Cluster, ServedKinds};
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::all_of;
use crate::words::counted;

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "kinds",
    why: "objects of a kind that the mirror does not serve cannot be created there",
    needs: &[Source::Api, Source::Mirror],
    judge: |input| Box::pin(read(input)),
};

async fn read(input: &Mirror) -> Read<Judged> {
    let (source, mirror) = (input.source.reader.cluster()?, input.target.cluster()?);
    let (of_source, of_mirror) =
        tokio::try_join!(source.served_kinds(), mirror.served_kinds()).map_err(unread)?;
    let used = input.source.used_kinds(&of_source.kinds).await?;
    let definitions = definitions(mirror).await?;
    Ok(judge(&used, &by_place(of_source), &by_place(of_mirror), &definitions))
}

/// Reads the CustomResourceDefinitions without their schemas.
async fn definitions(cluster: &Cluster) -> Read<Vec<CustomResourceDefinition>> {
    let keep = |CustomResourceDefinition { metadata, status, .. }| {
        Some(CustomResourceDefinition { metadata, status, ..CustomResourceDefinition::default() })
    };
    Ok(cluster.objects_as(None, &keep).await.map_err(unread)?)
}

fn by_place(served: ServedKinds) -> Kinds {
    let mut all: BTreeMap<(String, String), Kind> = BTreeMap::new();
    for one in served.kinds {
        let fresh = || Kind { kind: one.kind, versions: Vec::new() };
        all.entry((one.group, one.plural)).or_insert_with(fresh).versions.push(one.version);
    }
    Kinds { all, silent: served.silent.into_iter().collect() }
}

/// A kind that a cluster serves, with all its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kind {
    /// Name of the kind, for example `Deployment`.
    kind: String,
    /// Served versions. The preferred version is first.
    versions: Vec<String>,
}

/// Kinds that a cluster serves, by API group and resource, for example `apps` and `deployments`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Kinds {
    /// All served kinds.
    all: BTreeMap<(String, String), Kind>,
    /// API groups for which discovery failed, each with the reason.
    silent: BTreeMap<String, String>,
}

/// Checks whether the mirror serves every kind that has objects. `definitions`: CustomResourceDefinitions of the mirror.
fn judge(
    used: &UsedKinds,
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
            // The kind counts as served even if its objects cannot be listed, for example Secrets that the user is not allowed to
            // list.
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
                unseen.push(format!("{words}: the API of this group does not answer on the mirror"));
            }
            None => {
                missing.push(format!("{words}{}, for example `{example}`", is_refused(place, definitions)));
            }
            Some(served) => {
                other.push(format!("{words} (on the mirror: {})", served.versions.join(", ")));
            }
        }
    }
    for (whose, kinds) in [("source", source), ("mirror", mirror)] {
        let silent = kinds.silent.iter().filter(|(group, _)| !is_of_metrics(group));
        let silent =
            silent.filter(|(group, _)| whose == "source" || used.keys().any(|(used, _)| used == *group));
        unseen.extend(
            silent.map(|(group, why)| format!("discovery of `{group}` on the {whose} failed: {why}")),
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
            "install the components that define these kinds on the mirror (`kubectl get crd NAME` on the source shows them), and wait until \
             each CustomResourceDefinition is Established",
        );
    }
    if is_unseen {
        return Judged::unknown(
            seen,
            "repair the API server of the group (`kubectl get apiservices`); if you are not allowed to list a kind, set the label `netsurgeon.io/aggregate-to-mirror-source=true` on a ClusterRole with this permission: `netsurgeon-mirror-source` of deploy/rbac.yaml aggregates that ClusterRole",
        );
    }
    if parts.is_empty() {
        let (all, also) = match count {
            0 => ("no object to copy was found".to_string(), ""),
            _ => (format!("the mirror serves {} with objects", all_of(count, "kind", "kinds")), "also "),
        };
        return Judged::pass(match hidden {
            0 => all,
            _ => format!(
                "{all}; the mirror {also}serves {} whose objects could not be listed in the source",
                counted(hidden, "kind", "kinds")
            ),
        });
    }
    Judged::warn(
        seen,
        "copy these objects in a version that both clusters serve: compare `kubectl api-resources`, and read the release notes",
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

/// Returns why the mirror does not serve a kind although its CustomResourceDefinition exists.
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
    format!(" (its CustomResourceDefinition exists but is not Established{reason})")
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

    fn used(all: &[(&str, &str)]) -> UsedKinds {
        let one = |(group, resource): &(&str, &str)| {
            (((*group).to_string(), (*resource).to_string()), Ok("shop/web".to_string()))
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn mirror_must_serve_every_used_kind() {
        let source = kinds(&[
            ("", "services", "Service", &["v1"]),
            ("example.com", "widgets", "Widget", &["v2", "v1"]),
            ("example.com", "gadgets", "Gadget", &["v1"]),
        ]);
        let mirror =
            kinds(&[("", "services", "Service", &["v1"]), ("example.com", "widgets", "Widget", &["v1"])]);
        let of = |used: &UsedKinds, mirror: &Kinds| judge(used, &source, mirror, &[]);
        assert_eq!(of(&used(&[("", "services")]), &mirror).observed, "the mirror serves 1 kind with objects");
        let older = of(&used(&[("example.com", "widgets")]), &mirror);
        assert_eq!(
            (older.verdict, older.observed.as_str()),
            (Verdict::Warn, "only in another version: example.com/v2 Widget (on the mirror: v1)")
        );
        let missing = of(&used(&[("example.com", "gadgets"), ("example.com", "widgets")]), &mirror);
        assert_eq!(missing.verdict, Verdict::Fail);
        assert_eq!(
            missing.observed,
            "the mirror does not serve example.com/v1 Gadget, for example `shop/web`; only in another version: example.com/v2 Widget (on the mirror: v1)"
        );
        assert_eq!(of(&used(&[("example.com", "widgets")]), &source).verdict, Verdict::Pass);
    }

    #[test]
    fn definition_that_is_not_established_fails() {
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
        assert!(of("False").contains("not Established: taken), for example `shop/web`"), "{}", of("False"));
        assert!(!of("True").contains("Established"), "{}", of("True"));
    }

    #[test]
    fn failed_discovery_and_listing_are_reported() {
        let mut source = kinds(&[("example.com", "widgets", "Widget", &["v1"])]);
        let mut mirror = source.clone();
        let refused = UsedKinds::from([(("example.com".into(), "widgets".into()), Err("forbidden".into()))]);
        assert_eq!(judge(&refused, &source, &Kinds::default(), &[]).verdict, Verdict::Unknown);
        let served = judge(&refused, &source, &mirror, &[]);
        assert_eq!(
            served.observed,
            "no object to copy was found; the mirror serves 1 kind whose objects could not be listed in the source"
        );
        assert_eq!(served.verdict, Verdict::Pass, "the mirror serves it, with or without objects");
        source.silent.insert("metrics.k8s.io".into(), "status 503".into());
        mirror.silent.insert("other.example.com".into(), "status 503".into());
        let of =
            |source: &Kinds, mirror: &Kinds| judge(&used(&[("example.com", "widgets")]), source, mirror, &[]);
        assert_eq!(of(&source, &mirror).verdict, Verdict::Pass, "no copied kind is in either group");
        source.silent.insert("other.example.com".into(), "status 503".into());
        let silent = of(&source, &mirror);
        assert_eq!(silent.observed, "discovery of `other.example.com` on the source failed: status 503");
        assert_eq!(silent.verdict, Verdict::Unknown);
        mirror = Kinds {
            all: BTreeMap::new(),
            silent: BTreeMap::from([("example.com".into(), "status 503".into())]),
        };
        source.silent.clear();
        assert_eq!(of(&source, &mirror).verdict, Verdict::Unknown);
    }
}
