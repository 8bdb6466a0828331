//! The Pod templates of copied objects.

use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::kinds::is_made_anew;
use crate::inventory::pod::TrimmedPodSpec;
use crate::kube_api::accessors::{Labels, namespace, subject};

/// A Pod template.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// Object that contains the template, for example ``Deployment `shop/web` ``.
    pub of: String,
    /// Kind of the object, for example `Deployment`.
    pub kind: &'static str,
    /// Namespace of the template's Pods.
    pub namespace: String,
    /// Labels of the template's Pods.
    pub labels: Labels,
    /// Whether the object runs no Pod in the source, because it has no replicas, is suspended, or selects no node.
    pub is_idle: bool,
    /// `spec` of the template's Pods.
    pub spec: TrimmedPodSpec,
}

/// A kind of object that has a Pod template.
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
    /// Also checks the observed generation, because the number in the status is 0 until the controller has observed the
    /// DaemonSet.
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

    /// Same rule as `IsJobFinished` (`pkg/controller/job/utils.go`, v1.36.3).
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

/// Returns the Pod templates of objects. Omits objects that a controller recreates. Also omits Jobs that have ended, because a
/// copy of such a Job would run a second time.
pub fn templates<K: Templated>(objects: Vec<K>) -> Vec<Template> {
    let template = |object: K| {
        let of = format!("{} {}", K::KIND, subject(&object));
        let (namespace, is_idle) = (namespace(&object).to_string(), object.is_idle());
        let PodTemplateSpec { metadata, spec } = object.template()?;
        let labels = metadata.and_then(|metadata| metadata.labels).unwrap_or_default();
        Some(Template { of, kind: K::KIND, namespace, labels, is_idle, spec: spec?.into() })
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

#[cfg(test)]
pub(crate) mod testing {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    pub fn typed<K: DeserializeOwned>(object: Value) -> K {
        serde_json::from_value(object).unwrap()
    }

    pub fn deployed(spec: &Value) -> Vec<Template> {
        templates::<Deployment>(typed(json!([object("web", spec)])))
    }

    pub fn object(name: &str, spec: &Value) -> Value {
        json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"template": {"metadata": {"labels": {"app": name}}, "spec": spec}}})
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::testing::{deployed, object, typed};
    use super::*;

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
        let spec = json!({"nodeName": "x"});
        let nightly =
            json!({"metadata": {}, "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}});
        assert_eq!(templates::<CronJob>(vec![typed(nightly)])[0].spec, typed(spec));
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
}
