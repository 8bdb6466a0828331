//! Objects without a namespace that the copied objects need: definitions of custom resources, PriorityClasses, ClusterRoles and
//! ClusterRoleBindings. Other kinds without a namespace, such as StorageClasses, belong to the installation of a cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::decision::{Around, KindPair};
use super::entry::refuse;
use super::left_out::{self, Reason};
use super::reader::MirrorReader;
use super::refusal::is_of_object;
use super::work::{Entry, KindLeftOut, Planned, Reference};
use crate::inventory::{list, text};
use crate::kube_api::{ClusterError, Collection};
use crate::session::Failure;

/// A kind without a namespace: `GROUP/PLURAL`, API version and kind.
type ClusterKind = (&'static str, &'static str, &'static str);

pub(super) const DEFINITION: ClusterKind =
    ("apiextensions.k8s.io/customresourcedefinitions", "apiextensions.k8s.io/v1", "CustomResourceDefinition");
pub(super) const PRIORITY_CLASS: ClusterKind =
    ("scheduling.k8s.io/priorityclasses", "scheduling.k8s.io/v1", "PriorityClass");
pub(super) const CLUSTER_ROLE: ClusterKind =
    ("rbac.authorization.k8s.io/clusterroles", "rbac.authorization.k8s.io/v1", "ClusterRole");
pub(super) const CLUSTER_ROLE_BINDING: ClusterKind =
    ("rbac.authorization.k8s.io/clusterrolebindings", "rbac.authorization.k8s.io/v1", "ClusterRoleBinding");

/// Every such kind.
pub(super) const CLUSTER_KINDS: [ClusterKind; 4] =
    [DEFINITION, PRIORITY_CLASS, CLUSTER_ROLE, CLUSTER_ROLE_BINDING];

/// The names of objects without a namespace that copied objects refer to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    pub priority_classes: BTreeSet<String>,
    pub cluster_roles: BTreeSet<String>,
}

impl Needs {
    /// Adds what an object refers to.
    pub(super) fn add(&mut self, kind: &str, object: &Value) {
        let class = match kind {
            "batch/cronjobs" => text(object, "/spec/jobTemplate/spec/template/spec/priorityClassName"),
            _ => text(object, "/spec/template/spec/priorityClassName"),
        };
        // Every cluster has the classes of the system (SystemPriorityClasses, pkg/apis/scheduling/helpers.go).
        if !class.is_empty() && !class.starts_with("system-") {
            self.priority_classes.insert(class.to_string());
        }
        let role = text(object, "/roleRef/name");
        let is_binding = kind.starts_with("rbac.authorization.k8s.io/");
        if is_binding && text(object, "/roleRef/kind") == "ClusterRole" && !is_bootstrapped(role) {
            self.cluster_roles.insert(role.to_string());
        }
    }
}

/// Returns whether every cluster has a ClusterRole (plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go).
fn is_bootstrapped(role: &str) -> bool {
    role.starts_with("system:") || matches!(role, "cluster-admin" | "admin" | "edit" | "view")
}

/// Returns whether a ClusterRoleBinding names a ServiceAccount of these namespaces.
pub(super) fn binds_one_of(binding: &Value, namespaces: &[String]) -> bool {
    list(binding, "/subjects").iter().any(|subject| is_account_of(subject, namespaces))
}

fn is_account_of(subject: &Value, namespaces: &[String]) -> bool {
    let namespace = text(subject, "/namespace");
    text(subject, "/kind") == "ServiceAccount" && namespaces.iter().any(|name| name == namespace)
}

/// Returns why a needed object is not copied.
pub(super) fn why_not(kind: &str, object: &Value, namespaces: &[String]) -> Option<Reason> {
    match kind {
        // A copy would give permissions to users and to ServiceAccounts that the operator did not choose.
        kind if kind == CLUSTER_ROLE_BINDING.0 => {
            let mut subjects = list(object, "/subjects").iter();
            subjects.any(|subject| !is_account_of(subject, namespaces)).then_some(left_out::SHARED_BINDING)
        }
        // The API server cannot read any object of the kind until the webhook answers (kubernetes/kubernetes#123835).
        kind if kind == DEFINITION.0 => {
            (text(object, "/spec/conversion/strategy") == "Webhook").then_some(left_out::CONVERSION_WEBHOOK)
        }
        _ => None,
    }
}

/// Definitions of kinds that the mirror does not serve, by the name of the kind (`GROUP/PLURAL`).
pub(super) type Definitions = BTreeMap<String, Value>;

impl MirrorReader {
    /// Returns the definitions in the source of kinds that the mirror does not serve. Leaves out definitions that the user may not
    /// read: their objects then cannot be copied.
    pub(super) async fn definitions(
        &self,
        kinds: &[KindPair],
        left_out: &[KindLeftOut],
    ) -> Result<Definitions, Failure> {
        let mut found = Definitions::new();
        let is_excluded = left_out.iter().any(|one| one.resource == DEFINITION.0);
        for pair in kinds.iter().filter(|pair| !pair.is_served && !is_excluded) {
            let name = format!("{}.{}", pair.kind.plural, pair.kind.group);
            let reference = reference(DEFINITION, &name);
            let object = reference.object();
            match tokio::try_join!(self.source.get(&object), self.mirror.get(&object)) {
                // If the mirror has a definition, it does not serve the version of the source.
                Ok((Some(definition), None)) => drop(found.insert(pair.resource.clone(), definition)),
                Ok(_) => {}
                Err(error) if is_of_object(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        found.retain(|_, definition| why_not(DEFINITION.0, definition, &[]).is_none());
        Ok(found)
    }

    /// Adds the objects without a namespace that the objects of a plan need. `definitions`: of kinds that the mirror does not serve.
    pub(super) async fn add_cluster_scoped(
        &self,
        objects: &mut Vec<Entry>,
        left_out: &mut Vec<KindLeftOut>,
        (around, definitions): (&Around, &Definitions),
    ) -> Result<(), Failure> {
        let is_used = |kind: &str| {
            objects.iter().any(|entry| entry.action.is_copied() && entry.object.resource == kind)
        };
        let used = definitions.iter().filter(|(kind, _)| is_used(kind));
        let used: Vec<Value> = used.map(|(_, definition)| definition.clone()).collect();
        self.add(objects, DEFINITION, used, around).await?;
        let of_accounts =
            |binding: Value| binds_one_of(&binding, &self.options.namespaces).then_some(binding);
        if !is_excluded(CLUSTER_ROLE_BINDING, left_out) {
            let bindings = Collection::new(CLUSTER_ROLE_BINDING.1, CLUSTER_ROLE_BINDING.2, None);
            let found = self.source.list_as(&bindings, &of_accounts).await;
            let found = or_left_out(found, CLUSTER_ROLE_BINDING, left_out)?.unwrap_or_default();
            self.add(objects, CLUSTER_ROLE_BINDING, found, around).await?;
        }
        let needs = self.needs();
        for (kind, names) in [(PRIORITY_CLASS, needs.priority_classes), (CLUSTER_ROLE, needs.cluster_roles)] {
            let mut found = Vec::new();
            let names = names.into_iter().filter(|_| !is_excluded(kind, left_out)).collect::<Vec<_>>();
            for name in names {
                let one = self.source.get(&reference(kind, &name).object()).await;
                found.extend(or_left_out(one, kind, left_out)?.flatten());
            }
            self.add(objects, kind, found, around).await?;
        }
        Ok(())
    }

    async fn add(
        &self,
        objects: &mut Vec<Entry>,
        kind: ClusterKind,
        found: Vec<Value>,
        around: &Around,
    ) -> Result<(), Failure> {
        for mut object in found {
            // The items of a list have no `kind` or `apiVersion`.
            if let Some(fields) = object.as_object_mut() {
                fields.insert("apiVersion".to_string(), kind.1.into());
                fields.insert("kind".to_string(), kind.2.into());
            }
            let reference = reference(kind, text(&object, "/metadata/name"));
            let entry = if let Some(reason) = why_not(kind.0, &object, &self.options.namespaces) {
                let uid = text(&object, "/metadata/uid").to_string();
                let mut entry = Entry { uid, ..Entry::new(reference) };
                refuse(&mut entry, Planned::LeftOut, reason);
                entry
            } else {
                let live = match self.mirror.get(&reference.object()).await {
                    Err(error) if is_of_object(&error) => None,
                    found => found?,
                };
                self.entry(reference, &object, live.as_ref(), around, true).await?
            };
            objects.push(entry);
        }
        Ok(())
    }
}

fn is_excluded(kind: ClusterKind, left_out: &[KindLeftOut]) -> bool {
    left_out.iter().any(|one| one.resource == kind.0)
}

fn reference((resource, api_version, kind): ClusterKind, name: &str) -> Reference {
    Reference {
        resource: resource.to_string(),
        api_version: api_version.to_string(),
        kind: kind.to_string(),
        namespace: None,
        name: name.to_string(),
    }
}

/// Notes that a kind could not be read, unless the error concerns other kinds as well.
fn or_left_out<T>(
    found: Result<T, ClusterError>,
    kind: ClusterKind,
    left_out: &mut Vec<KindLeftOut>,
) -> Result<Option<T>, Failure> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_of_object(&error) => {
            let (resource, reason) = (kind.0.to_string(), error.to_string());
            if !left_out.iter().any(|known| known.resource == resource) {
                left_out.push(KindLeftOut { resource, reason });
            }
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_collected() {
        let mut needs = Needs::default();
        let with = |class: &str| json!({"spec": {"template": {"spec": {"priorityClassName": class}}}});
        let role = |kind: &str, name: &str| json!({"roleRef": {"kind": kind, "name": name}});
        needs.add("apps/deployments", &with("high"));
        needs.add("apps/deployments", &with("system-cluster-critical"));
        needs.add("batch/cronjobs", &json!({"spec": {"jobTemplate": {"spec": with("low")["spec"]}}}));
        let bindings = "rbac.authorization.k8s.io/rolebindings";
        for (kind, name) in
            [("ClusterRole", "reader"), ("Role", "own"), ("ClusterRole", "view"), ("ClusterRole", "system:x")]
        {
            needs.add(bindings, &role(kind, name));
        }
        needs.add("example.com/widgets", &role("ClusterRole", "other"));
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect::<BTreeSet<_>>();
        assert_eq!(needs.priority_classes, names(&["high", "low"]));
        assert_eq!(needs.cluster_roles, names(&["reader"]));
    }

    #[test]
    fn shared_objects_are_not_copied() {
        let account =
            |namespace: &str| json!({"kind": "ServiceAccount", "namespace": namespace, "name": "a"});
        let group = json!({"kind": "Group", "name": "dev"});
        let namespaces = ["shop".to_string()];
        for (subjects, binds, reason) in [
            (json!([account("shop")]), true, None),
            (json!([account("shop"), account("pay")]), true, Some("shared-binding")),
            (json!([account("shop"), group]), true, Some("shared-binding")),
            (json!([account("pay")]), false, Some("shared-binding")),
        ] {
            let binding = json!({"subjects": subjects});
            assert_eq!(binds_one_of(&binding, &namespaces), binds, "{binding}");
            let found = why_not(CLUSTER_ROLE_BINDING.0, &binding, &namespaces).map(|reason| reason.code);
            assert_eq!(found, reason, "{binding}");
        }
        let definition = |strategy: &str| json!({"spec": {"conversion": {"strategy": strategy}}});
        assert_eq!(why_not(DEFINITION.0, &definition("None"), &namespaces), None);
        let refused = why_not(DEFINITION.0, &definition("Webhook"), &namespaces);
        assert_eq!(refused, Some(left_out::CONVERSION_WEBHOOK));
    }
}
