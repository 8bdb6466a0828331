//! The Pods that are made on the mirror, by the templates of what is copied; and what they need that is not copied.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::selectors::Labels;
use super::super::{Judged, first_few, is_alive, subject, text};
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
            spec: template.get("spec")?.clone(),
        })
    };
    objects.iter().filter(is_wanted).filter_map(template).collect()
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
        self.spec.pointer(path).and_then(Value::as_array).into_iter().flatten()
    }
}

/// What has data: it is not copied. `templates`: of Pods that are copied; `sets` and `claims`: StatefulSets and PersistentVolumeClaims.
pub fn stateless(templates: &[Template], sets: &[Value], claims: &[Value]) -> Judged {
    let holds =
        |template: &&Template, kind: &str| template.list("/volumes").any(|volume| volume.get(kind).is_some());
    let with = |kind: &str| -> Vec<String> {
        templates.iter().filter(|one| holds(one, kind)).map(|one| one.of.clone()).collect()
    };
    let lists: [(&str, Vec<String>); 4] = [
        ("StatefulSets", sets.iter().map(subject).collect()),
        ("PersistentVolumeClaims", claims.iter().map(subject).collect()),
        ("templates with a claim", with("persistentVolumeClaim")),
        ("templates with a `hostPath`", with("hostPath")),
    ];
    let told = lists.iter().filter(|(_, list)| !list.is_empty());
    let told: Vec<String> =
        told.map(|(what, list)| format!("{} {what}: {}", list.len(), first_few(list))).collect();
    if told.is_empty() {
        return Judged::pass("no StatefulSet, no claim, no volume of a host");
    }
    Judged::warn(
        told.join("; "),
        "neither they nor their data are copied: have both clusters use one database outside, move the data by its own means, or leave \
         the namespace out",
    )
}

/// Secrets for registries that are named must be in the source, where they are copied from. `accounts`: ServiceAccounts; `secrets`:
/// namespace and name of those that are there.
pub fn pull_secrets(
    templates: &[Template],
    accounts: &[Value],
    secrets: &BTreeSet<(String, String)>,
) -> Judged {
    let mut named: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    let mut name = |namespace: &str, secret: &Value, who: &str| {
        let secret = text(secret, "/name");
        if !secret.is_empty() {
            named.entry((namespace.to_string(), secret.to_string())).or_default().insert(who.to_string());
        }
    };
    for template in templates {
        template.list("/imagePullSecrets").for_each(|secret| name(&template.namespace, secret, &template.of));
    }
    for account in accounts {
        let list = account.get("imagePullSecrets").and_then(Value::as_array).into_iter().flatten();
        let (namespace, who) = (text(account, "/metadata/namespace"), subject(account));
        list.for_each(|secret| name(namespace, secret, &format!("ServiceAccount {who}")));
    }
    let missing = named.iter().filter(|(secret, _)| !secrets.contains(secret));
    let missing: Vec<String> = missing
        .map(|((namespace, name), who)| {
            format!("`{namespace}/{name}` ({})", first_few(&who.iter().cloned().collect::<Vec<_>>()))
        })
        .collect();
    if missing.is_empty() {
        return Judged::pass(format!("all {} that are named are there to be copied", named.len()));
    }
    Judged::fail(
        format!("{} Secrets are named and not in the source: {}", missing.len(), first_few(&missing)),
        "make them (`kubectl create secret docker-registry`), or take their names out: on the mirror every image is pulled anew",
    )
}

/// Whether a Pod is one that a copy would make anew, elsewhere than on every node.
pub fn is_of_copy(pod: &Value) -> bool {
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let controller = owners.into_iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true)));
    let kind = controller.map(|owner| text(owner, "/kind")).unwrap_or_default();
    is_alive(pod) && !matches!(kind, "" | "Node" | "DaemonSet" | "StatefulSet")
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
        assert_eq!(stateless(&plain, &[], &[]).verdict, Verdict::Pass);
        let volumes =
            json!({"volumes": [{"persistentVolumeClaim": {"claimName": "x"}}, {"hostPath": {"path": "/x"}}]});
        let kept = templates("Deployment", &[object("web", &volumes)]);
        let set = object("db", &json!({}));
        let judged = stateless(&kept, std::slice::from_ref(&set), std::slice::from_ref(&set));
        assert_eq!(
            judged.seen,
            "1 StatefulSets: `shop/db`; 1 PersistentVolumeClaims: `shop/db`; 1 templates with a claim: Deployment `shop/web`; 1 templates with a `hostPath`: Deployment `shop/web`"
        );
    }

    #[test]
    fn a_secret_that_is_named_is_there() {
        let of =
            templates("Deployment", &[object("web", &json!({"imagePullSecrets": [{"name": "registry"}]}))]);
        let account = json!({"metadata": {"namespace": "shop", "name": "ci"}, "imagePullSecrets": [{"name": "registry"}]});
        let there = BTreeSet::from([("shop".to_string(), "registry".to_string())]);
        assert_eq!(pull_secrets(&of, &[], &there).verdict, Verdict::Pass);
        let elsewhere = BTreeSet::from([("till".to_string(), "registry".to_string())]);
        let judged = pull_secrets(&of, &[account], &elsewhere);
        assert_eq!(
            judged.seen,
            "1 Secrets are named and not in the source: `shop/registry` (Deployment `shop/web`, ServiceAccount `shop/ci`)"
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
