//! `classes`: whether the mirror has the classes that objects refer to, such as an IngressClass. Classes are cluster-scoped and
//! are not copied, except PriorityClasses.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};

use super::Mirror;
use crate::inventory::pod_templates::Template;
use crate::kube_api::accessors::{annotation, name, subject};
use crate::mirror::rules::is_excluded;
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::all_of;

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "classes",
    why: "an object that names a missing class is rejected, or never becomes ready",
    needs: &[Source::Api, Source::Mirror],
    judge: |input| Box::pin(read(input)),
};

async fn read(input: &Mirror) -> Read<Judged> {
    let (ingresses, sets, claims) =
        tokio::try_join!(input.source.selected(), input.source.selected(), input.source.selected())?;
    let templates = input.source.templates().await?;
    let source = Classes::default().with::<IngressClass>(&input.source.reader.objects().await?);
    let (ingress, priority, runtime, storage) = tokio::try_join!(
        input.target.objects::<IngressClass>(),
        input.target.objects::<PriorityClass>(),
        input.target.objects::<RuntimeClass>(),
        input.target.objects::<StorageClass>()
    )?;
    let mut there = Classes::default().with(&ingress).with(&priority).with(&runtime).with(&storage);
    let missing = templates.iter().filter_map(|one| one.spec.priority_class_name.as_ref());
    let is_missing = |name: &&String| !there.all.contains(&("PriorityClass", (*name).clone()));
    if missing.filter(is_missing).count() > 0
        && !is_excluded(&input.config, "scheduling.k8s.io/priorityclasses", "PriorityClass")
    {
        // `mirror apply` copies them.
        there = there.with::<PriorityClass>(&input.source.reader.objects().await?);
    }
    Ok(judge(&ingresses, templates, &sets, &claims, &source, &there))
}

/// Annotation that marks the default IngressClass (`AnnotationIsDefaultIngressClass`,
/// `k8s.io/api/networking/v1/well_known_annotations.go`, v1.36.3).
const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
/// Annotation that selected the class before Kubernetes 1.18. Controllers still read it (`AnnotationIngressClass`, in
/// `k8s.io/api/networking/v1beta1`).
const OF_OLD: &str = "kubernetes.io/ingress.class";

/// Kind and name of a class.
type Class = (&'static str, String);

/// Objects that refer to each class.
type Uses = BTreeMap<Class, BTreeSet<String>>;

/// Classes that exist in a cluster.
#[derive(Debug, Clone, Default)]
struct Classes {
    all: BTreeSet<Class>,
    /// Whether one of the classes is the default IngressClass.
    has_default: bool,
}

impl Classes {
    /// Adds the classes of one kind.
    #[must_use]
    fn with<K: Metadata<Ty = ObjectMeta>>(mut self, classes: &[K]) -> Self {
        self.all.extend(classes.iter().map(|one| (K::KIND, name(one).to_string())));
        self.has_default |=
            K::KIND == IngressClass::KIND && classes.iter().any(|one| annotation(one, IS_DEFAULT) == "true");
        self
    }
}

fn note(asked: &mut Uses, kind: &'static str, class: Option<&str>, who: &str) {
    if let Some(class) = class.filter(|class| !class.is_empty()) {
        asked.entry((kind, class.to_string())).or_default().insert(who.to_string());
    }
}

/// Returns the classes that copied objects refer to, either in a field or in the old annotation. Also returns the Ingresses
/// without a class.
fn named(ingresses: &[Ingress], templates: &[Template]) -> (Uses, Uses, Vec<String>) {
    let (mut asked, mut of_old, mut without) = (Uses::new(), Uses::new(), Vec::new());
    for ingress in ingresses {
        let who = format!("Ingress {}", subject(ingress));
        let class = ingress.spec.as_ref().and_then(|spec| spec.ingress_class_name.as_deref());
        match (class.unwrap_or_default(), annotation(ingress, OF_OLD)) {
            ("", "") => without.push(who),
            ("", old) => note(&mut of_old, "IngressClass", Some(old), &who),
            (class, _) => note(&mut asked, "IngressClass", Some(class), &who),
        }
    }
    for template in templates {
        note(&mut asked, "PriorityClass", template.spec.priority_class_name.as_deref(), &template.of);
        note(&mut asked, "RuntimeClass", template.spec.runtime_class_name.as_deref(), &template.of);
        let ephemeral = template.volumes().filter_map(|volume| volume.ephemeral.as_ref());
        for claim in ephemeral.filter_map(|volume| volume.volume_claim_template.as_ref()) {
            note(&mut asked, "StorageClass", claim.spec.storage_class_name.as_deref(), &template.of);
        }
    }
    (asked, of_old, without)
}

/// Returns the classes that claims and StatefulSets refer to. Claims and StatefulSets are not copied, but if you move them, they
/// need their classes.
fn named_by_data(sets: &[StatefulSet], claims: &[PersistentVolumeClaim]) -> Uses {
    let mut asked = Uses::new();
    for claim in claims {
        let who = format!("PersistentVolumeClaim {}", subject(claim));
        note(&mut asked, "StorageClass", storage_class(claim), &who);
    }
    for set in sets {
        let claims = set.spec.iter().flat_map(|spec| spec.volume_claim_templates.iter().flatten());
        let who = format!("StatefulSet {}", subject(set));
        claims.for_each(|claim| note(&mut asked, "StorageClass", storage_class(claim), &who));
    }
    asked
}

fn storage_class(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.storage_class_name.as_deref()
}

fn missing(asked: &Uses, classes: &Classes) -> Vec<String> {
    let gone = asked.iter().filter(|(class, _)| !classes.all.contains(class));
    let askers = |who: &BTreeSet<String>| first_few(&who.iter().cloned().collect::<Vec<_>>());
    gone.map(|((kind, name), who)| format!("{kind} `{name}` ({})", askers(who))).collect()
}

/// Checks whether the mirror has every class that objects refer to. Some controllers serve the class in the old annotation,
/// although no object for this class exists. So for such a class, the mirror needs an object only if the source has an object.
fn judge(
    ingresses: &[Ingress],
    templates: &[Template],
    sets: &[StatefulSet],
    claims: &[PersistentVolumeClaim],
    source: &Classes,
    mirror: &Classes,
) -> Judged {
    let (mut asked, of_old, without) = named(ingresses, templates);
    let (as_objects, as_words): (Uses, Uses) =
        of_old.into_iter().partition(|(class, _)| source.all.contains(class));
    for (class, who) in as_objects {
        asked.entry(class).or_default().extend(who);
    }
    let mut wrong = missing(&asked, mirror);
    if !without.is_empty() && source.has_default && !mirror.has_default {
        wrong.push(format!("a default IngressClass ({})", first_few(&without)));
    }
    let unsure = [missing(&as_words, mirror), missing(&named_by_data(sets, claims), mirror)].concat();
    if !wrong.is_empty() {
        return Judged::fail(
            format!("not on the mirror: {}", first_few(&wrong)),
            "create them on the mirror as in the source (`kubectl get CLASS NAME -o yaml`), with the controllers that they name",
        );
    }
    if !unsure.is_empty() {
        return Judged::warn(
            format!("not on the mirror: {}", first_few(&unsure)),
            "for an IngressClass from an annotation, make sure that a controller on the mirror uses this class; create a StorageClass before \
             stateful workloads move",
        );
    }
    if asked.is_empty() {
        return Judged::pass("no class is missing on the mirror");
    }
    Judged::pass(format!(
        "the mirror has {} that the copied objects refer to",
        all_of(asked.len(), "class", "classes")
    ))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;
    use crate::inventory::pod_templates::templates;
    use crate::inventory::pod_templates::testing::typed;
    use crate::preflight::Verdict;

    fn of_ingress(name: &str, is_default: bool) -> Classes {
        let class = json!({"metadata": {"name": name, "annotations": {IS_DEFAULT: is_default.to_string()}}});
        Classes::default().with::<IngressClass>(&[typed(class)])
    }

    fn class<K: DeserializeOwned>(name: &str) -> K {
        typed(json!({"metadata": {"name": name}}))
    }

    fn ingress(class: &str, old: &str) -> Ingress {
        let mut found =
            json!({"metadata": {"namespace": "shop", "name": "web", "annotations": {}}, "spec": {}});
        if !class.is_empty() {
            found["spec"]["ingressClassName"] = json!(class);
        }
        if !old.is_empty() {
            found["metadata"]["annotations"][OF_OLD] = json!(old);
        }
        typed(found)
    }

    #[test]
    fn missing_ingress_class_fails() {
        let (there, by_default) = (of_ingress("nginx", false), of_ingress("nginx", true));
        let none = Classes::default();
        let of =
            |one: Ingress, source: &Classes, mirror: &Classes| judge(&[one], &[], &[], &[], source, mirror);
        assert_eq!(of(ingress("nginx", ""), &there, &there).verdict, Verdict::Pass);
        let gone = of(ingress("nginx", ""), &there, &none);
        assert_eq!(gone.observed, "not on the mirror: IngressClass `nginx` (Ingress `shop/web`)");
        assert_eq!(of(ingress("", "nginx"), &there, &none).verdict, Verdict::Fail);
        assert_eq!(
            of(ingress("", "nginx"), &none, &none).verdict,
            Verdict::Warn,
            "a controller may serve it"
        );
        assert_eq!(of(ingress("", "nginx"), &none, &there).verdict, Verdict::Pass);
        assert_eq!(of(ingress("", ""), &by_default, &by_default).verdict, Verdict::Pass);
        assert_eq!(of(ingress("", ""), &there, &none).verdict, Verdict::Pass);
        let gone = of(ingress("", ""), &by_default, &there);
        assert_eq!(gone.observed, "not on the mirror: a default IngressClass (Ingress `shop/web`)");
    }

    #[test]
    fn missing_classes_of_pods_and_volumes_are_reported() {
        let volume = json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}});
        let spec = json!({"priorityClassName": "high", "runtimeClassName": "gvisor", "volumes": [volume]});
        let object =
            json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": {"template": {"spec": spec}}});
        let templates = templates::<Deployment>(vec![typed(object)]);
        let judged = |mirror: &Classes| judge(&[], &templates, &[], &[], &Classes::default(), mirror);
        let none = Classes::default();
        let high = Classes::default().with::<PriorityClass>(&[class("high")]);
        let all =
            high.clone().with::<RuntimeClass>(&[class("gvisor")]).with::<StorageClass>(&[class("fast")]);
        assert_eq!(judged(&all).observed, "the mirror has all 3 classes that the copied objects refer to");
        let gone = judged(&high);
        assert_eq!(
            gone.observed,
            "not on the mirror: RuntimeClass `gvisor` (Deployment `shop/web`), StorageClass `fast` (Deployment `shop/web`)"
        );
        let claim =
            json!({"metadata": {"namespace": "shop", "name": "data"}, "spec": {"storageClassName": "fast"}});
        let set = json!({"metadata": {"namespace": "shop", "name": "db"}, "spec": {"volumeClaimTemplates": [claim]}});
        let warned = judge(&[], &[], &[typed(set)], &[typed(claim)], &none, &none);
        assert_eq!(warned.verdict, Verdict::Warn, "neither is copied");
        assert_eq!(
            warned.observed,
            "not on the mirror: StorageClass `fast` (PersistentVolumeClaim `shop/data`, StatefulSet `shop/db`)"
        );
    }
}
