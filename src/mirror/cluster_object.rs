//! Objects without a namespace that the copied objects need ([`super::cluster_kind`]).

use serde_json::Value;

use super::class::{self, Classes};
use super::cluster_kind::{
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ClusterKind, DEFINITION, PRIORITY_CLASS, WEBHOOKS, binds_one_of,
    calls_one_of, why_not,
};
use super::decision::{Around, KindPair};
use super::reader::{Definitions, MirrorReader};
use super::refusal::{is_of_object, reason_and_advice};
use super::rules::Uses;
use super::work::{Entry, KindLeftOut, Planned, Reference};
use crate::inventory::text;
use crate::kube_api::{ClusterError, Collection, with_kind};
use crate::session::Failure;

/// Returns whether an object without a namespace belongs to the objects of these namespaces.
type Chooses = fn(&Value, &[String]) -> bool;

impl MirrorReader {
    /// Returns the definitions in the source of kinds that the mirror does not serve. Leaves out definitions that the user is not
    /// allowed to read: their objects then cannot be copied.
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
        let bindings = (CLUSTER_ROLE_BINDING, binds_one_of as Chooses);
        for (kind, chooses) in
            WEBHOOKS.map(|kind| (kind, calls_one_of as Chooses)).into_iter().chain([bindings])
        {
            if is_excluded(kind, left_out) {
                continue;
            }
            let of_namespaces = |object: Value| chooses(&object, &self.options.namespaces).then_some(object);
            let found = self.source.list_as(&Collection::new(kind.1, kind.2, None), &of_namespaces).await;
            let found = or_left_out(found, kind, left_out)?.unwrap_or_default();
            self.add(objects, kind, found, around).await?;
        }
        let needs = self.needs();
        self.note_missing_classes(needs.classes, &around.uses).await?;
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
        for object in found {
            let object = with_kind(object, kind.1, kind.2);
            let reference = reference(kind, text(&object, "/metadata/name"));
            let entry = if let Some(reason) = why_not(kind.0, &object, &self.options.namespaces) {
                let uid = text(&object, "/metadata/uid").to_string();
                let mut entry = Entry { uid, ..Entry::new(reference) };
                entry.refuse(Planned::LeftOut, reason);
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

impl MirrorReader {
    /// Notes the classes that copied objects refer to and that the mirror does not have.
    pub(super) async fn note_missing_classes(&self, classes: Classes, uses: &Uses) -> Result<(), Failure> {
        for (kind, version) in class::KINDS {
            let of_kind = classes.iter().filter(|((class, _), _)| *class == kind);
            let asked: Vec<_> = of_kind.map(|((_, name), objects)| (name, objects)).collect();
            if asked.is_empty() {
                continue;
            }
            let found = match self.mirror.list_metadata(&Collection::new(version, kind, None)).await {
                Ok(found) => found,
                Err(error) if is_of_object(&error) => {
                    let finding =
                        format!("the mirror was not asked for these objects of the kind {kind}: {error}");
                    for (name, _) in &asked {
                        uses.note(finding.clone(), (*name).clone());
                    }
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let has = |name: &String| found.iter().any(|one| one.name.as_ref() == Some(name));
            for (name, objects) in asked.into_iter().filter(|(name, _)| !has(name)) {
                let finding =
                    format!("the mirror has no {kind} `{name}`, so these objects do not work there");
                for object in objects {
                    uses.note(finding.clone(), object.clone());
                }
            }
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
            let (resource, reason) = (kind.0.to_string(), reason_and_advice(&error, false));
            if !left_out.iter().any(|known| known.resource == resource) {
                left_out.push(KindLeftOut { resource, reason });
            }
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
