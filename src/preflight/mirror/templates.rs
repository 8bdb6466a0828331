//! The Pod templates of copied objects, and which objects and data they need that are not copied.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{
    LocalObjectReference, PersistentVolumeClaim, Pod, PodSpec, PodTemplateSpec, Service, ServiceAccount,
    Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};

use super::super::objects::{controller, is_alive, name, namespace, subject};
use super::super::selectors::Labels;
use super::super::{Judged, first_few};
use super::is_made_anew;
use crate::words::counted;

/// A Pod template.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// Object that contains the template, as in ``Deployment `shop/web` ``.
    pub of: String,
    /// Kind of the object, as in `Deployment`.
    pub kind: &'static str,
    /// Namespace of the template's Pods.
    pub namespace: String,
    /// Labels of the template's Pods.
    pub labels: Labels,
    /// Whether the object runs no Pod in the source: no replicas, suspended, or no node selected.
    pub is_idle: bool,
    /// `spec` of the template's Pods.
    pub spec: PodSpec,
}

/// A kind whose objects have a Pod template.
pub trait Templated: Metadata<Ty = ObjectMeta> {
    /// Returns whether the object runs no Pod.
    fn is_idle(&self) -> bool;

    /// Returns whether the object has ended.
    fn is_over(&self) -> bool {
        false
    }

    /// Returns the Pod template of the object.
    fn template(self) -> Option<PodTemplateSpec>;
}

impl Templated for Deployment {
    fn is_idle(&self) -> bool {
        self.spec.as_ref().and_then(|spec| spec.replicas) == Some(0)
    }

    fn template(self) -> Option<PodTemplateSpec> {
        Some(self.spec?.template)
    }
}

impl Templated for DaemonSet {
    /// Also checks the observed generation: the number in the status is 0 until the controller has observed the DaemonSet.
    fn is_idle(&self) -> bool {
        let status = self.status.as_ref().filter(|status| status.observed_generation.is_some());
        status.is_some_and(|status| status.desired_number_scheduled == 0)
    }

    fn template(self) -> Option<PodTemplateSpec> {
        Some(self.spec?.template)
    }
}

impl Templated for Job {
    fn is_idle(&self) -> bool {
        self.spec.as_ref().and_then(|spec| spec.suspend) == Some(true)
    }

    /// Follows `IsJobFinished`, `pkg/controller/job/utils.go`, v1.36.3.
    fn is_over(&self) -> bool {
        let conditions = self.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut ends = conditions.filter(|one| matches!(one.type_.as_str(), "Complete" | "Failed"));
        ends.any(|one| one.status == "True")
    }

    fn template(self) -> Option<PodTemplateSpec> {
        Some(self.spec?.template)
    }
}

impl Templated for CronJob {
    fn is_idle(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    fn template(self) -> Option<PodTemplateSpec> {
        Some(self.spec.job_template.spec?.template)
    }
}

/// Returns the Pod templates of objects. Objects that a controller recreates are left out, and so are Jobs that have ended: a
/// copy would run a second time.
pub fn templates<K: Templated>(objects: Vec<K>) -> Vec<Template> {
    let template = |object: K| {
        let of = format!("{} {}", K::KIND, subject(&object));
        let (namespace, is_idle) = (namespace(&object).to_string(), object.is_idle());
        let PodTemplateSpec { metadata, spec } = object.template()?;
        let labels = metadata.and_then(|metadata| metadata.labels).unwrap_or_default();
        Some(Template { of, kind: K::KIND, namespace, labels, is_idle, spec: spec? })
    };
    let objects = objects.into_iter();
    objects
        .filter(|one| !is_made_anew(K::KIND, one.metadata()) && !one.is_over())
        .filter_map(template)
        .collect()
}

impl Template {
    /// Returns the volumes of the template's Pods.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.spec.volumes.iter().flatten()
    }
}

/// Objects of the source that are not copied, or only partly.
#[derive(Debug, Clone, Copy)]
pub struct Left<'a> {
    /// Templates of copied Pods.
    pub templates: &'a [Template],
    /// StatefulSets.
    pub sets: &'a [StatefulSet],
    /// PersistentVolumeClaims.
    pub claims: &'a [PersistentVolumeClaim],
    /// Services. Endpoints of a Service without a selector are written by hand.
    pub services: &'a [Service],
    /// Pods. Pods without a controller are reported.
    pub pods: &'a [Pod],
}

/// Volume types without their own data: the content is copied, recreated, or comes with an image (`VolumeSource`,
/// `k8s.io/api/core/v1/types.go`, v1.36.3). `persistentVolumeClaim` and `hostPath` are reported separately.
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
    "persistentVolumeClaim",
    "hostPath",
];

/// Checks for objects that contain data or are created by hand. They are not copied.
pub fn stateless(left: &Left<'_>) -> Judged {
    let with = |is_it: fn(&Volume) -> bool| -> Vec<String> {
        let holding = left.templates.iter().filter(|template| template.volumes().any(is_it));
        holding.map(|one| one.of.clone()).collect()
    };
    let bare = left.pods.iter().filter(|pod| is_alive(pod) && maker(pod).is_empty());
    let by_hand = left.services.iter().filter(|service| is_without_selector(service));
    let lists: [(&str, Vec<String>); 7] = [
        ("StatefulSets", left.sets.iter().map(subject).collect()),
        ("PersistentVolumeClaims", left.claims.iter().map(subject).collect()),
        ("templates with a claim", with(|volume| volume.persistent_volume_claim.is_some())),
        ("templates with a `hostPath`", with(|volume| volume.host_path.is_some())),
        ("templates with an external volume", left.templates.iter().filter_map(elsewhere).collect()),
        ("Pods without a controller", bare.map(subject).collect()),
        ("Services without a selector, whose endpoints are not copied", by_hand.map(subject).collect()),
    ];
    let told = lists.iter().filter(|(_, list)| !list.is_empty());
    let told: Vec<String> =
        told.map(|(what, list)| format!("{what} ({}): {}", list.len(), first_few(list))).collect();
    if told.is_empty() {
        return Judged::pass("no StatefulSet, claim, volume with data, or object created by hand");
    }
    Judged::warn(
        told.join("; "),
        "neither they nor their data are copied: let both clusters use one external database, move the data with its own tools, or exclude \
         the namespace; create Pods without a controller, and endpoints, by hand on the mirror (`kubectl apply`)",
    )
}

/// Returns a template with other types of volumes that contain data, and these types. In JSON the field of a volume is named
/// after the type.
fn elsewhere(template: &Template) -> Option<String> {
    let volumes = serde_json::to_value(&template.spec.volumes).unwrap_or_default();
    let volumes = volumes.as_array().into_iter().flatten().filter_map(Value::as_object);
    let kinds = volumes.flat_map(Map::keys).filter(|kind| !WITHOUT_DATA.contains(&kind.as_str()));
    let kinds: BTreeSet<String> = kinds.map(|kind| format!("`{kind}`")).collect();
    let kinds: Vec<String> = kinds.into_iter().collect();
    (!kinds.is_empty()).then(|| format!("{} ({})", template.of, kinds.join(", ")))
}

fn is_without_selector(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.selector.as_ref()).is_none_or(Labels::is_empty)
        && spec.and_then(|spec| spec.type_.as_deref()) != Some("ExternalName")
        && !is_made_anew("Service", &service.metadata)
}

/// Secrets for image registries: the references to them, and the existing Secrets.
#[derive(Debug, Clone, Copy)]
pub struct Pulling<'a> {
    /// Templates of copied Pods.
    pub templates: &'a [Template],
    /// ServiceAccounts of the chosen namespaces in the source.
    pub accounts: &'a [ServiceAccount],
    /// ServiceAccounts of these namespaces on the mirror.
    pub on_mirror: &'a [ServiceAccount],
    /// Namespace and name of each Secret in the source.
    pub secrets: &'a BTreeSet<(String, String)>,
}

/// Checks the Secrets for image registries to which objects refer. Each must exist in the source. If only the ServiceAccount
/// `default`, which is not copied, refers to the Secret, this is a warning.
pub fn pull_secrets(pulling: &Pulling<'_>) -> Judged {
    let mut named: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    let mut name = |namespace: &str, secret: &str, who: &str| {
        named.entry((namespace.to_string(), secret.to_string())).or_default().insert(who.to_string());
    };
    for template in pulling.templates {
        for secret in named_by(template.spec.image_pull_secrets.as_ref()) {
            name(&template.namespace, secret, &template.of);
        }
    }
    for account in pulling.accounts {
        let who = format!("ServiceAccount {}", subject(account));
        for secret in named_by(account.image_pull_secrets.as_ref()) {
            name(namespace(account), secret, &who);
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
            format!(
                "{} named but missing in the source: {}",
                counted(missing.len(), "Secret is", "Secrets are"),
                first_few(&missing)
            ),
            "create them (`kubectl create secret docker-registry`), or remove the references: the mirror pulls every image",
        );
    }
    let lost = lost(pulling);
    if !lost.is_empty() {
        return Judged::warn(
            format!("named by a ServiceAccount `default` that is not copied: {}", first_few(&lost)),
            "name them in the templates (`imagePullSecrets`), or in the mirror's ServiceAccount: `kubectl patch serviceaccount default -n NAMESPACE -p \
             '{\"imagePullSecrets\": [{\"name\": \"SECRET\"}]}'`",
        );
    }
    Judged::pass(format!("all {} that are referenced exist in the source", named.len()))
}

fn named_by(secrets: Option<&Vec<LocalObjectReference>>) -> impl Iterator<Item = &str> {
    secrets.into_iter().flatten().map(|secret| secret.name.as_str()).filter(|name| !name.is_empty())
}

/// Returns the Secrets to which only the source's ServiceAccount `default` refers, with the templates that need them. These
/// templates name no Secret themselves (`Admit`, `plugin/pkg/admission/serviceaccount/admission.go`, v1.36.3).
fn lost(pulling: &Pulling<'_>) -> Vec<String> {
    let of_default = |list: &[ServiceAccount], place: &str| -> BTreeSet<String> {
        let its = list.iter().filter(|one| name(*one) == DEFAULT && namespace(*one) == place);
        its.flat_map(|one| named_by(one.image_pull_secrets.as_ref())).map(str::to_string).collect()
    };
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for template in pulling.templates {
        let spec = &template.spec;
        let mut accounts = [&spec.service_account_name, &spec.service_account].into_iter().flatten();
        let is_of_another = accounts.find(|name| !name.is_empty()).is_some_and(|name| name != DEFAULT);
        if is_of_another || spec.image_pull_secrets.as_ref().is_some_and(|secrets| !secrets.is_empty()) {
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

/// The ServiceAccount that every namespace has, and that Pods use by default.
const DEFAULT: &str = "default";

/// Returns the kind of a Pod's controller; empty if it has none.
fn maker(pod: &Pod) -> &str {
    controller(pod).map(|owner| owner.kind.as_str()).unwrap_or_default()
}

/// Returns whether a Pod belongs to a DaemonSet.
pub fn is_of_daemon_set(pod: &Pod) -> bool {
    maker(pod) == "DaemonSet"
}

/// Returns whether a copied object other than a DaemonSet recreates the Pod.
pub fn is_of_copy(pod: &Pod) -> bool {
    is_alive(pod) && !matches!(maker(pod), "" | "Node" | "DaemonSet" | "StatefulSet")
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;

    fn typed<K: DeserializeOwned>(object: Value) -> K {
        serde_json::from_value(object).unwrap()
    }

    fn deployed(spec: &Value) -> Vec<Template> {
        templates::<Deployment>(typed(json!([object("web", spec)])))
    }

    fn object(name: &str, spec: &Value) -> Value {
        json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"template": {"metadata": {"labels": {"app": name}}, "spec": spec}}})
    }

    #[test]
    fn templates_of_copied_objects_are_returned() {
        let found = deployed(&json!({"nodeName": "a"}));
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].of.as_str(), &found[0].spec),
            ("Deployment `shop/web`", &typed(json!({"nodeName": "a"})))
        );
        assert_eq!(found[0].labels["app"], "web");
        let mut job = object("once", &json!({}));
        assert_eq!(templates::<Job>(typed(json!([job]))).len(), 1);
        job["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        assert!(templates::<Job>(typed(json!([job]))).is_empty(), "it would run again");
        let spec = json!({"hostname": "x"});
        let nightly =
            json!({"metadata": {}, "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}});
        assert_eq!(templates::<CronJob>(vec![typed(nightly)])[0].spec, typed(spec));
    }

    #[test]
    fn objects_with_data_are_a_warning() {
        let plain = deployed(&json!({"volumes": [{"configMap": {}}]}));
        let left = Left { templates: &plain, sets: &[], claims: &[], services: &[], pods: &[] };
        assert_eq!(stateless(&left).verdict, Verdict::Pass);
        let volumes =
            json!({"volumes": [{"persistentVolumeClaim": {"claimName": "x"}}, {"hostPath": {"path": "/x"}}]});
        let kept = deployed(&volumes);
        let named = json!({"metadata": {"namespace": "shop", "name": "db"}});
        let (sets, claims) = ([typed(named.clone())], [typed(named)]);
        let judged = stateless(&Left { templates: &kept, sets: &sets, claims: &claims, ..left });
        assert_eq!(
            judged.observed,
            "StatefulSets (1): `shop/db`; PersistentVolumeClaims (1): `shop/db`; templates with a claim (1): Deployment `shop/web`; templates with a `hostPath` (1): Deployment `shop/web`"
        );
    }

    #[test]
    fn objects_that_no_controller_recreates_are_a_warning() {
        let nfs = json!({"volumes": [{"name": "a", "nfs": {}}, {"name": "b", "ephemeral": {}}, {"name": "c", "csi": {}}]});
        let kept = deployed(&nfs);
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
        ]
        .map(typed);
        let mut pods =
            ["bare", "made", "over"].map(|name| json!({"metadata": {"namespace": "shop", "name": name}}));
        pods[1]["metadata"]["ownerReferences"] = json!([{"kind": "ReplicaSet", "controller": true}]);
        pods[2]["status"] = json!({"phase": "Succeeded"});
        let pods = pods.map(typed);
        let left = Left { templates: &kept, sets: &[], claims: &[], services: &services, pods: &pods };
        assert_eq!(
            stateless(&left).observed,
            "templates with an external volume (1): Deployment `shop/web` (`csi`, `nfs`); Pods without a controller (1): `shop/bare`; \
             Services without a selector, whose endpoints are not copied (2): `shop/db`, `shop/none`"
        );
    }

    #[test]
    fn idle_templates_are_recognized() {
        fn idle<K: Templated + DeserializeOwned>(mut spec: Value, status: &Value) -> bool {
            spec["template"] = json!({"spec": {}});
            spec["jobTemplate"] = json!({"spec": {"template": {"spec": {}}}});
            templates::<K>(typed(json!([{"metadata": {}, "spec": spec, "status": status}])))[0].is_idle
        }
        let none = || json!({});
        assert!(idle::<Deployment>(json!({"replicas": 0}), &none()) && !idle::<Deployment>(none(), &none()));
        let suspended = |is_suspended: bool| json!({"suspend": is_suspended});
        assert!(idle::<Job>(suspended(true), &none()) && !idle::<Job>(suspended(false), &none()));
        assert!(idle::<CronJob>(suspended(true), &none()) && !idle::<CronJob>(suspended(false), &none()));
        let seen = |count: u32| json!({"observedGeneration": 1, "desiredNumberScheduled": count});
        assert!(idle::<DaemonSet>(none(), &seen(0)) && !idle::<DaemonSet>(none(), &seen(1)));
        assert!(
            !idle::<DaemonSet>(none(), &json!({"desiredNumberScheduled": 0})),
            "its controller has not observed it yet"
        );
    }

    fn account(name: &str) -> ServiceAccount {
        typed(
            json!({"metadata": {"namespace": "shop", "name": name}, "imagePullSecrets": [{"name": "registry"}]}),
        )
    }

    #[test]
    fn pull_secret_must_be_in_the_source() {
        let of = deployed(&json!({"imagePullSecrets": [{"name": "registry"}]}));
        let there = BTreeSet::from([("shop".to_string(), "registry".to_string())]);
        let pulling = Pulling { templates: &of, accounts: &[], on_mirror: &[], secrets: &there };
        assert_eq!(pull_secrets(&pulling).verdict, Verdict::Pass);
        let elsewhere = BTreeSet::from([("till".to_string(), "registry".to_string())]);
        let judged = pull_secrets(&Pulling { accounts: &[account("ci")], secrets: &elsewhere, ..pulling });
        assert_eq!(
            judged.observed,
            "1 Secret is named but missing in the source: `shop/registry` (Deployment `shop/web`, ServiceAccount `shop/ci`)"
        );
    }

    /// The mirror's ServiceAccount `default` refers to no Secret unless it was patched.
    #[test]
    fn pull_secret_of_the_default_account_is_a_warning() {
        let there = BTreeSet::from([("shop".to_string(), "registry".to_string())]);
        let of = |spec: Value, accounts: &[ServiceAccount], on_mirror: &[ServiceAccount]| {
            let templates = deployed(&spec);
            pull_secrets(&Pulling { templates: &templates, accounts, on_mirror, secrets: &there })
        };
        let bare = typed(json!({"metadata": {"namespace": "shop", "name": "default"}}));
        let lost = of(json!({}), &[account("default")], &[bare]);
        assert_eq!(
            (lost.verdict, lost.observed.as_str()),
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
            "the account is copied"
        );
    }

    #[test]
    fn only_pods_that_a_copy_recreates_count() {
        let pod = |kind: &str, phase: &str| {
            let owners = json!([{"kind": kind, "controller": true}]);
            typed(json!({"metadata": {"ownerReferences": owners}, "status": {"phase": phase}}))
        };
        assert!(is_of_copy(&pod("ReplicaSet", "Running")) && is_of_copy(&pod("Job", "Pending")));
        assert!(!is_of_copy(&pod("Job", "Succeeded")) && !is_of_copy(&pod("StatefulSet", "Running")));
        assert!(!is_of_copy(&pod("DaemonSet", "Running")) && !is_of_copy(&Pod::default()));
    }
}
