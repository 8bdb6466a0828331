//! Classes that objects name, and that belong to the cluster: they are not copied, and must be on the mirror.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::{Judged, first_few, subject, text};
use super::templates::Template;

/// Marks the IngressClass of what names none (`AnnotationIsDefaultIngressClass`, `k8s.io/api/networking/v1/well_known_annotations.go`,
/// v1.36.3).
const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
/// How Ingresses named their class before 1.18; controllers still obey it (`AnnotationIngressClass`, same folder of `v1beta1`).
const OF_OLD: &str = "kubernetes.io/ingress.class";

/// Who uses a class, by the kind and the name of the class.
type Uses = BTreeMap<(&'static str, String), BTreeSet<String>>;

/// Objects of the source that name classes.
#[derive(Debug, Clone, Copy)]
pub struct Users<'a> {
    /// The Ingresses.
    pub ingresses: &'a [Value],
    /// The templates of Pods that are copied.
    pub templates: &'a [Template],
    /// What is not copied: StatefulSets.
    pub sets: &'a [Value],
    /// What is not copied: PersistentVolumeClaims.
    pub claims: &'a [Value],
}

/// Classes that are there.
#[derive(Debug, Clone, Copy)]
pub struct Classes<'a> {
    /// IngressClasses.
    pub ingress: &'a [Value],
    /// PriorityClasses.
    pub priority: &'a [Value],
    /// RuntimeClasses.
    pub runtime: &'a [Value],
    /// StorageClasses.
    pub storage: &'a [Value],
}

impl Classes<'_> {
    fn has(&self, kind: &str, name: &str) -> bool {
        let list = match kind {
            "IngressClass" => self.ingress,
            "PriorityClass" => self.priority,
            "RuntimeClass" => self.runtime,
            _ => self.storage,
        };
        list.iter().any(|one| text(one, "/metadata/name") == name)
    }
}

fn annotation<'v>(object: &'v Value, name: &str) -> &'v str {
    let all = object.pointer("/metadata/annotations");
    all.and_then(|all| all.get(name)).and_then(Value::as_str).unwrap_or_default()
}

fn has_default(classes: &[Value]) -> bool {
    classes.iter().any(|one| annotation(one, IS_DEFAULT) == "true")
}

fn note(asked: &mut Uses, kind: &'static str, class: &str, who: &str) {
    if !class.is_empty() {
        asked.entry((kind, class.to_string())).or_default().insert(who.to_string());
    }
}

/// What is named by what is copied. Returns those that name no class of Ingress, too.
fn named(users: &Users<'_>) -> (Uses, Uses, Vec<String>) {
    let (mut asked, mut of_old, mut without) = (Uses::new(), Uses::new(), Vec::new());
    for ingress in users.ingresses {
        let who = format!("Ingress {}", subject(ingress));
        match (text(ingress, "/spec/ingressClassName"), annotation(ingress, OF_OLD)) {
            ("", "") => without.push(who),
            ("", old) => note(&mut of_old, "IngressClass", old, &who),
            (class, _) => note(&mut asked, "IngressClass", class, &who),
        }
    }
    for template in users.templates {
        note(&mut asked, "PriorityClass", text(&template.spec, "/priorityClassName"), &template.of);
        note(&mut asked, "RuntimeClass", text(&template.spec, "/runtimeClassName"), &template.of);
        for volume in template.list("/volumes") {
            let class = text(volume, "/ephemeral/volumeClaimTemplate/spec/storageClassName");
            note(&mut asked, "StorageClass", class, &template.of);
        }
    }
    (asked, of_old, without)
}

/// What is named by what has data: that is not copied, and needs its class all the same wherever it goes.
fn named_by_data(users: &Users<'_>) -> Uses {
    let mut asked = Uses::new();
    for claim in users.claims {
        let who = format!("PersistentVolumeClaim {}", subject(claim));
        note(&mut asked, "StorageClass", text(claim, "/spec/storageClassName"), &who);
    }
    for set in users.sets {
        let list = set.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array).into_iter().flatten();
        let who = format!("StatefulSet {}", subject(set));
        list.for_each(|claim| note(&mut asked, "StorageClass", text(claim, "/spec/storageClassName"), &who));
    }
    asked
}

fn missing(asked: &Uses, classes: &Classes<'_>) -> Vec<String> {
    let gone = asked.iter().filter(|((kind, name), _)| !classes.has(kind, name));
    let askers = |who: &BTreeSet<String>| first_few(&who.iter().cloned().collect::<Vec<_>>());
    gone.map(|((kind, name), who)| format!("{kind} `{name}` ({})", askers(who))).collect()
}

/// Every class that is named must be on the mirror. An old annotation names a class that a controller may know without any object: it
/// must be there where it is an object in the source.
pub fn judge(users: &Users<'_>, source: &Classes<'_>, mirror: &Classes<'_>) -> Judged {
    let (mut asked, of_old, without) = named(users);
    let (as_objects, as_words): (Uses, Uses) =
        of_old.into_iter().partition(|((kind, name), _)| source.has(kind, name));
    for (class, who) in as_objects {
        asked.entry(class).or_default().extend(who);
    }
    let mut wrong = missing(&asked, mirror);
    if !without.is_empty() && has_default(source.ingress) && !has_default(mirror.ingress) {
        wrong.push(format!("a default IngressClass ({})", first_few(&without)));
    }
    let unsure = [missing(&as_words, mirror), missing(&named_by_data(users), mirror)].concat();
    if !wrong.is_empty() {
        return Judged::fail(
            format!("not on the mirror: {}", first_few(&wrong)),
            "make them there as they are in the source (`kubectl get CLASS NAME -o yaml`), with the controllers that they name",
        );
    }
    if !unsure.is_empty() {
        return Judged::warn(
            format!("not on the mirror: {}", first_few(&unsure)),
            "a class of an Ingress's annotation: see that a controller there is started with it; a StorageClass is needed once what has \
             data is moved as well",
        );
    }
    Judged::pass(format!("all {} that are named are there", asked.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::templates::templates;
    use super::*;
    use crate::preflight::Verdict;

    fn class(name: &str, is_default: bool) -> Value {
        json!({"metadata": {"name": name, "annotations": {IS_DEFAULT: is_default.to_string()}}})
    }

    fn classes<'a>(ingress: &'a [Value], others: &'a [Value]) -> Classes<'a> {
        Classes { ingress, priority: others, runtime: others, storage: others }
    }

    fn ingress(class: &str, old: &str) -> Value {
        let mut found =
            json!({"metadata": {"namespace": "shop", "name": "web", "annotations": {}}, "spec": {}});
        if !class.is_empty() {
            found["spec"]["ingressClassName"] = json!(class);
        }
        if !old.is_empty() {
            found["metadata"]["annotations"][OF_OLD] = json!(old);
        }
        found
    }

    #[test]
    fn an_ingress_finds_its_class() {
        let (nginx, default) = ([class("nginx", false)], [class("nginx", true)]);
        let none = classes(&[], &[]);
        let of = |one: Value, source: &Classes<'_>, mirror: &Classes<'_>| {
            let users = Users { ingresses: &[one], templates: &[], sets: &[], claims: &[] };
            judge(&users, source, mirror)
        };
        let there = classes(&nginx, &[]);
        assert_eq!(of(ingress("nginx", ""), &there, &there).verdict, Verdict::Pass);
        let gone = of(ingress("nginx", ""), &there, &none);
        assert_eq!(gone.seen, "not on the mirror: IngressClass `nginx` (Ingress `shop/web`)");
        assert_eq!(of(ingress("", "nginx"), &there, &none).verdict, Verdict::Fail);
        assert_eq!(of(ingress("", "nginx"), &none, &none).verdict, Verdict::Warn, "a controller may know it");
        assert_eq!(of(ingress("", "nginx"), &none, &there).verdict, Verdict::Pass);
        let by_default = classes(&default, &[]);
        assert_eq!(of(ingress("", ""), &by_default, &by_default).verdict, Verdict::Pass);
        assert_eq!(of(ingress("", ""), &there, &none).verdict, Verdict::Pass);
        let gone = of(ingress("", ""), &by_default, &there);
        assert_eq!(gone.seen, "not on the mirror: a default IngressClass (Ingress `shop/web`)");
    }

    #[test]
    fn pods_and_volumes_find_theirs() {
        let volume = json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}});
        let spec = json!({"priorityClassName": "high", "runtimeClassName": "gvisor", "volumes": [volume]});
        let object =
            json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": {"template": {"spec": spec}}});
        let templates = templates("Deployment", &[object]);
        let users = Users { ingresses: &[], templates: &templates, sets: &[], claims: &[] };
        let all = [class("high", false), class("gvisor", false), class("fast", false)];
        let none = classes(&[], &[]);
        assert_eq!(judge(&users, &none, &classes(&[], &all)).seen, "all 3 that are named are there");
        let gone = judge(&users, &none, &classes(&[], &all[..1]));
        assert_eq!(
            gone.seen,
            "not on the mirror: RuntimeClass `gvisor` (Deployment `shop/web`), StorageClass `fast` (Deployment `shop/web`)"
        );
        let claim =
            json!({"metadata": {"namespace": "shop", "name": "data"}, "spec": {"storageClassName": "fast"}});
        let set = json!({"metadata": {"namespace": "shop", "name": "db"}, "spec": {"volumeClaimTemplates": [claim]}});
        let of_data = Users { ingresses: &[], templates: &[], sets: &[set], claims: &[claim] };
        let warned = judge(&of_data, &none, &none);
        assert_eq!(warned.verdict, Verdict::Warn, "neither is copied");
        assert_eq!(
            warned.seen,
            "not on the mirror: StorageClass `fast` (PersistentVolumeClaim `shop/data`, StatefulSet `shop/db`)"
        );
    }
}
