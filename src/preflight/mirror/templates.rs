//! The Pods that are made on the mirror, by the templates of what is copied; and what they need that is not copied.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::selectors::Labels;
use super::super::{Judged, first_few, is_alive, list, subject, text};
use super::is_made_anew;

/// A template of Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Whose it is, as in ``Deployment `shop/web` ``.
    pub of: String,
    /// As in `Deployment`.
    pub kind: &'static str,
    /// Where its Pods are made.
    pub namespace: String,
    /// The labels of its Pods.
    pub labels: Labels,
    /// Whether nothing runs of it in the source: no replicas are wanted, it is suspended, or no node is selected.
    pub is_idle: bool,
    /// The `spec` of its Pods.
    pub spec: Value,
}

/// Returns the templates of objects of a kind: Deployment, DaemonSet, Job, CronJob or StatefulSet. Left out are what a controller makes
/// anew, and Jobs that have come to their end: they would run a second time.
pub fn templates(kind: &'static str, objects: &[Value]) -> Vec<Template> {
    let path = if kind == "CronJob" { "/spec/jobTemplate/spec/template" } else { "/spec/template" };
    let is_wanted = |object: &&Value| !(is_made_anew(kind, object) || kind == "Job" && is_over(object));
    let template = |object: &Value| {
        let template = object.pointer(path)?;
        Some(Template {
            of: format!("{kind} {}", subject(object)),
            kind,
            namespace: text(object, "/metadata/namespace").to_string(),
            labels: super::super::selectors::labels(template),
            is_idle: is_idle(kind, object),
            spec: template.get("spec")?.clone(),
        })
    };
    objects.iter().filter(is_wanted).filter_map(template).collect()
}

fn is_idle(kind: &str, object: &Value) -> bool {
    let number = |path: &str| object.pointer(path).and_then(Value::as_i64);
    match kind {
        // Before its controller has looked at it the status says nothing, and the number is 0 as well.
        "DaemonSet" => {
            number("/status/observedGeneration").is_some()
                && number("/status/desiredNumberScheduled") == Some(0)
        }
        "Job" | "CronJob" => object.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true),
        _ => number("/spec/replicas") == Some(0),
    }
}

/// Whether a Job has come to its end (`IsJobFinished`, `pkg/controller/job/utils.go`, v1.36.3).
fn is_over(job: &Value) -> bool {
    let list = job.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let is_end =
        |one: &Value| matches!(text(one, "/type"), "Complete" | "Failed") && text(one, "/status") == "True";
    list.into_iter().any(is_end)
}

impl Template {
    /// The list at a path of its spec.
    pub fn list(&self, path: &str) -> impl Iterator<Item = &Value> {
        list(&self.spec, path).iter()
    }
}

/// What of the source is not copied, or not whole.
#[derive(Debug, Clone, Copy)]
pub struct Left<'a> {
    /// The templates of Pods that are copied.
    pub templates: &'a [Template],
    /// StatefulSets.
    pub sets: &'a [Value],
    /// PersistentVolumeClaims.
    pub claims: &'a [Value],
    /// Services, of which those without a selector have endpoints that somebody has written.
    pub services: &'a [Value],
    /// Pods, of which those that nobody makes anew are looked for.
    pub pods: &'a [Value],
}

/// Volumes without data of their own: what they show is copied, made anew, or comes with an image (`VolumeSource`,
/// `k8s.io/api/core/v1/types.go`, v1.36.3). `persistentVolumeClaim` and `hostPath` are told by themselves.
const WITHOUT_DATA: [&str; 11] = [
    "name",
    "configMap",
    "secret",
    "emptyDir",
    "projected",
    "downwardAPI",
    "ephemeral",
    "image",
    "gitRepo",
    CLAIM,
    HOST_PATH,
];
const CLAIM: &str = "persistentVolumeClaim";
const HOST_PATH: &str = "hostPath";

/// What has data, or is made by hand: it is not copied.
pub fn stateless(left: &Left<'_>) -> Judged {
    let with = |kind: &str| -> Vec<String> {
        let holds = |template: &&Template| template.list("/volumes").any(|volume| volume.get(kind).is_some());
        left.templates.iter().filter(holds).map(|one| one.of.clone()).collect()
    };
    let bare = left.pods.iter().filter(|pod| is_alive(pod) && maker(pod).is_empty());
    let by_hand = left.services.iter().filter(|service| is_without_selector(service));
    let lists: [(&str, Vec<String>); 7] = [
        ("StatefulSets", left.sets.iter().map(subject).collect()),
        ("PersistentVolumeClaims", left.claims.iter().map(subject).collect()),
        ("templates with a claim", with(CLAIM)),
        ("templates with a `hostPath`", with(HOST_PATH)),
        ("templates with data elsewhere", left.templates.iter().filter_map(elsewhere).collect()),
        ("Pods that no controller makes", bare.map(subject).collect()),
        ("Services without a selector, whose endpoints are not copied", by_hand.map(subject).collect()),
    ];
    let told = lists.iter().filter(|(_, list)| !list.is_empty());
    let told: Vec<String> =
        told.map(|(what, list)| format!("{} {what}: {}", list.len(), first_few(list))).collect();
    if told.is_empty() {
        return Judged::pass("no StatefulSet, no claim, no volume with data, nothing that is made by hand");
    }
    Judged::warn(
        told.join("; "),
        "neither they nor their data are copied: have both clusters use one database outside, move the data by its own means, or leave \
         the namespace out; make Pods and endpoints that nobody makes anew by hand on the mirror (`kubectl apply`)",
    )
}

/// A template with volumes of other kinds that have data, and which.
fn elsewhere(template: &Template) -> Option<String> {
    let volumes = template.list("/volumes").filter_map(Value::as_object).flat_map(|volume| volume.keys());
    let kinds: BTreeSet<String> = volumes
        .filter(|kind| !WITHOUT_DATA.contains(&kind.as_str()))
        .map(|kind| format!("`{kind}`"))
        .collect();
    let kinds: Vec<String> = kinds.into_iter().collect();
    (!kinds.is_empty()).then(|| format!("{} ({})", template.of, kinds.join(", ")))
}

fn is_without_selector(service: &Value) -> bool {
    let selector = service.pointer("/spec/selector").and_then(Value::as_object);
    selector.is_none_or(serde_json::Map::is_empty)
        && text(service, "/spec/type") != "ExternalName"
        && !is_made_anew("Service", service)
}

/// Where Secrets for registries are named, and where they are.
#[derive(Debug, Clone, Copy)]
pub struct Pulling<'a> {
    /// The templates of Pods that are copied.
    pub templates: &'a [Template],
    /// ServiceAccounts of the chosen namespaces in the source.
    pub accounts: &'a [Value],
    /// ServiceAccounts of these namespaces that the mirror has already.
    pub on_mirror: &'a [Value],
    /// Namespace and name of each Secret in the source.
    pub secrets: &'a BTreeSet<(String, String)>,
}

/// Secrets for registries that are named must be in the source, where they are copied from; and not be named by the ServiceAccount
/// `default` alone, which every namespace of the mirror has of its own.
pub fn pull_secrets(pulling: &Pulling<'_>) -> Judged {
    let mut named: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    let mut name = |namespace: &str, secret: &str, who: &str| {
        named.entry((namespace.to_string(), secret.to_string())).or_default().insert(who.to_string());
    };
    for template in pulling.templates {
        for secret in template.list("/imagePullSecrets").map(|secret| text(secret, "/name")) {
            if !secret.is_empty() {
                name(&template.namespace, secret, &template.of);
            }
        }
    }
    for account in pulling.accounts {
        let (namespace, who) = (text(account, "/metadata/namespace"), subject(account));
        for secret in named_by(account) {
            name(namespace, secret, &format!("ServiceAccount {who}"));
        }
    }
    let missing = named.iter().filter(|(secret, _)| !pulling.secrets.contains(secret));
    let missing: Vec<String> = missing
        .map(|((namespace, name), who)| {
            format!("`{namespace}/{name}` ({})", first_few(&who.iter().cloned().collect::<Vec<_>>()))
        })
        .collect();
    if !missing.is_empty() {
        return Judged::fail(
            format!("{} Secrets are named and not in the source: {}", missing.len(), first_few(&missing)),
            "make them (`kubectl create secret docker-registry`), or take their names out: on the mirror every image is pulled anew",
        );
    }
    let lost = lost(pulling);
    if !lost.is_empty() {
        return Judged::warn(
            format!("named by a ServiceAccount `default` that is not copied: {}", first_few(&lost)),
            "name them in the templates (`imagePullSecrets`), or on the mirror: `kubectl patch serviceaccount default -n NAMESPACE -p \
             '{\"imagePullSecrets\": [{\"name\": \"SECRET\"}]}'`",
        );
    }
    Judged::pass(format!("all {} that are named are there to be copied", named.len()))
}

fn named_by(account: &Value) -> BTreeSet<&str> {
    let list = account.get("imagePullSecrets").and_then(Value::as_array).into_iter().flatten();
    list.map(|secret| text(secret, "/name")).filter(|name| !name.is_empty()).collect()
}

/// What the ServiceAccounts `default` name and the mirror's do not, and which templates have it from there: those that name no Secret
/// themselves (`Admit`, `plugin/pkg/admission/serviceaccount/admission.go`, v1.36.3).
fn lost(pulling: &Pulling<'_>) -> Vec<String> {
    let of_default = |list: &'_ [Value], namespace: &str| -> BTreeSet<String> {
        let is_it = |one: &&Value| {
            text(one, "/metadata/name") == DEFAULT && text(one, "/metadata/namespace") == namespace
        };
        list.iter().filter(is_it).flat_map(named_by).map(str::to_string).collect()
    };
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for template in pulling.templates {
        let account = |name: &str| Some(text(&template.spec, name)).filter(|name| !name.is_empty());
        let account = account("/serviceAccountName").or_else(|| account("/serviceAccount"));
        if account.unwrap_or(DEFAULT) != DEFAULT || template.list("/imagePullSecrets").next().is_some() {
            continue;
        }
        let there = of_default(pulling.on_mirror, &template.namespace);
        for secret in of_default(pulling.accounts, &template.namespace).difference(&there) {
            let place = format!("`{}/{secret}`", template.namespace);
            users.entry(place).or_default().push(template.of.clone());
        }
    }
    users.into_iter().map(|(secret, who)| format!("{secret} ({})", first_few(&who))).collect()
}

/// The ServiceAccount of every namespace, and of Pods that name none.
const DEFAULT: &str = "default";

/// The kind of the controller that has made a Pod; empty if none has.
fn maker(pod: &Value) -> &str {
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let controller = owners.into_iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true)));
    controller.map(|owner| text(owner, "/kind")).unwrap_or_default()
}

/// Whether a Pod is one of a DaemonSet.
pub fn is_of_daemon_set(pod: &Value) -> bool {
    maker(pod) == "DaemonSet"
}

/// Whether a Pod is one that a copy would make anew, elsewhere than on every node.
pub fn is_of_copy(pod: &Value) -> bool {
    is_alive(pod) && !matches!(maker(pod), "" | "Node" | "DaemonSet" | "StatefulSet")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;

    fn object(name: &str, spec: &Value) -> Value {
        json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"template": {"metadata": {"labels": {"app": name}}, "spec": spec}}})
    }

    #[test]
    fn templates_are_those_of_what_is_copied() {
        let found = templates("Deployment", &[object("web", &json!({"nodeName": "a"}))]);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].of.as_str(), &found[0].spec),
            ("Deployment `shop/web`", &json!({"nodeName": "a"}))
        );
        assert_eq!(found[0].labels["app"], "web");
        let mut job = object("once", &json!({}));
        assert_eq!(templates("Job", std::slice::from_ref(&job)).len(), 1);
        job["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        assert!(templates("Job", &[job]).is_empty(), "it would run again");
        let nightly =
            json!({"metadata": {}, "spec": {"jobTemplate": {"spec": {"template": {"spec": {"x": 1}}}}}});
        assert_eq!(templates("CronJob", &[nightly])[0].spec, json!({"x": 1}));
    }

    #[test]
    fn what_has_data_is_named() {
        let plain = templates("Deployment", &[object("web", &json!({"volumes": [{"configMap": {}}]}))]);
        let left = Left { templates: &plain, sets: &[], claims: &[], services: &[], pods: &[] };
        assert_eq!(stateless(&left).verdict, Verdict::Pass);
        let volumes =
            json!({"volumes": [{"persistentVolumeClaim": {"claimName": "x"}}, {"hostPath": {"path": "/x"}}]});
        let kept = templates("Deployment", &[object("web", &volumes)]);
        let set = object("db", &json!({}));
        let sets = std::slice::from_ref(&set);
        let judged = stateless(&Left { templates: &kept, sets, claims: sets, ..left });
        assert_eq!(
            judged.seen,
            "1 StatefulSets: `shop/db`; 1 PersistentVolumeClaims: `shop/db`; 1 templates with a claim: Deployment `shop/web`; 1 templates with a `hostPath`: Deployment `shop/web`"
        );
    }

    #[test]
    fn what_nobody_makes_anew_is_named() {
        let nfs = json!({"volumes": [{"name": "a", "nfs": {}}, {"name": "b", "ephemeral": {}}, {"name": "c", "csi": {}}]});
        let kept = templates("Deployment", &[object("web", &nfs)]);
        let service =
            |name: &str, spec: Value| json!({"metadata": {"namespace": "shop", "name": name}, "spec": spec});
        let mut own = service("kubernetes", json!({}));
        own["metadata"]["namespace"] = json!("default");
        let services = [
            service("db", json!({"type": "ClusterIP"})),
            service("none", json!({"selector": {}})),
            service("web", json!({"selector": {"app": "web"}})),
            service("out", json!({"type": "ExternalName"})),
            own,
        ];
        let mut pods =
            ["bare", "made", "over"].map(|name| json!({"metadata": {"namespace": "shop", "name": name}}));
        pods[1]["metadata"]["ownerReferences"] = json!([{"kind": "ReplicaSet", "controller": true}]);
        pods[2]["status"] = json!({"phase": "Succeeded"});
        let left = Left { templates: &kept, sets: &[], claims: &[], services: &services, pods: &pods };
        assert_eq!(
            stateless(&left).seen,
            "1 templates with data elsewhere: Deployment `shop/web` (`csi`, `nfs`); 1 Pods that no controller makes: `shop/bare`; \
             2 Services without a selector, whose endpoints are not copied: `shop/db`, `shop/none`"
        );
    }

    #[test]
    fn what_runs_nothing_is_told_apart() {
        let idle = |kind: &'static str, spec: Value, status: Value| {
            let mut spec = spec;
            spec["template"] = json!({"spec": {}});
            spec["jobTemplate"] = json!({"spec": {"template": {"spec": {}}}});
            templates(kind, &[json!({"metadata": {}, "spec": spec, "status": status})])[0].is_idle
        };
        let none = || json!({});
        assert!(idle("Deployment", json!({"replicas": 0}), none()) && !idle("Deployment", none(), none()));
        for kind in ["Job", "CronJob"] {
            assert!(
                idle(kind, json!({"suspend": true}), none())
                    && !idle(kind, json!({"suspend": false}), none())
            );
        }
        let seen = |count: u32| json!({"observedGeneration": 1, "desiredNumberScheduled": count});
        assert!(idle("DaemonSet", none(), seen(0)) && !idle("DaemonSet", none(), seen(1)));
        assert!(
            !idle("DaemonSet", none(), json!({"desiredNumberScheduled": 0})),
            "nobody has looked at it yet"
        );
    }

    fn account(name: &str) -> Value {
        json!({"metadata": {"namespace": "shop", "name": name}, "imagePullSecrets": [{"name": "registry"}]})
    }

    #[test]
    fn a_secret_that_is_named_is_there() {
        let of =
            templates("Deployment", &[object("web", &json!({"imagePullSecrets": [{"name": "registry"}]}))]);
        let there = BTreeSet::from([("shop".to_string(), "registry".to_string())]);
        let pulling = Pulling { templates: &of, accounts: &[], on_mirror: &[], secrets: &there };
        assert_eq!(pull_secrets(&pulling).verdict, Verdict::Pass);
        let elsewhere = BTreeSet::from([("till".to_string(), "registry".to_string())]);
        let judged = pull_secrets(&Pulling { accounts: &[account("ci")], secrets: &elsewhere, ..pulling });
        assert_eq!(
            judged.seen,
            "1 Secrets are named and not in the source: `shop/registry` (Deployment `shop/web`, ServiceAccount `shop/ci`)"
        );
    }

    /// The mirror's `default` has none, unless somebody has patched it.
    #[test]
    fn the_account_of_every_namespace_is_not_copied() {
        let there = BTreeSet::from([("shop".to_string(), "registry".to_string())]);
        let of = |spec: Value, accounts: &[Value], on_mirror: &[Value]| {
            let templates = templates("Deployment", &[object("web", &spec)]);
            pull_secrets(&Pulling { templates: &templates, accounts, on_mirror, secrets: &there })
        };
        let bare = json!({"metadata": {"namespace": "shop", "name": "default"}});
        let lost = of(json!({}), &[account("default")], &[bare]);
        assert_eq!(
            (lost.verdict, lost.seen.as_str()),
            (
                Verdict::Warn,
                "named by a ServiceAccount `default` that is not copied: `shop/registry` (Deployment `shop/web`)"
            )
        );
        let deprecated = json!({"serviceAccount": "default"});
        assert_eq!(of(deprecated, &[account("default")], &[]).verdict, Verdict::Warn);
        assert_eq!(of(json!({}), &[account("default")], &[account("default")]).verdict, Verdict::Pass);
        let own = json!({"imagePullSecrets": [{"name": "registry"}]});
        assert_eq!(of(own, &[account("default")], &[]).verdict, Verdict::Pass, "it names the Secret itself");
        let other = json!({"serviceAccountName": "ci"});
        assert_eq!(
            of(other, &[account("default"), account("ci")], &[]).verdict,
            Verdict::Pass,
            "that is copied"
        );
    }

    #[test]
    fn pods_that_are_made_anew_are_counted() {
        let pod = |kind: &str, phase: &str| json!({"metadata": {"ownerReferences": [{"kind": kind, "controller": true}]}, "status": {"phase": phase}});
        assert!(is_of_copy(&pod("ReplicaSet", "Running")) && is_of_copy(&pod("Job", "Pending")));
        assert!(!is_of_copy(&pod("Job", "Succeeded")) && !is_of_copy(&pod("StatefulSet", "Running")));
        assert!(!is_of_copy(&pod("DaemonSet", "Running")) && !is_of_copy(&json!({"metadata": {}})));
    }
}
