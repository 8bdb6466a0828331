//! What an API serves, asked group by group: so every version answers (all at once, `aggregated discovery`, is of 1.26). And whether
//! there are objects of a kind, of which nothing but names, labels and owners is kept.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use super::connection::{Call, Verb};
use super::error::message;
use super::resource::{escaped, segment};
use super::{Cluster, ClusterError, Collection, MOST_LISTS};

/// How long one group may take to say what it serves: one behind an API server that is gone is not waited for.
const QUESTION: Duration = Duration::from_secs(10);

/// A kind that is served, in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedKind {
    /// As in `apps`; empty for the core group.
    pub group: String,
    /// As in `v1`.
    pub version: String,
    /// As in `Deployment`.
    pub kind: String,
    /// As in `deployments`.
    pub plural: String,
    /// Whether its objects have a namespace.
    pub is_namespaced: bool,
    /// What can be done with it, as in `list`.
    pub verbs: BTreeSet<String>,
}

/// What an API serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServedKinds {
    /// The kinds, those of one group together, of each the version first that clients prefer.
    pub kinds: Vec<ServedKind>,
    /// Groups in a version that did not answer, as (`apps`, `v1`), and why: an API that is served by somebody else (`APIService`) and is
    /// down.
    pub silent: Vec<(String, String, String)>,
}

impl Cluster {
    /// Returns every kind that is served (`/api`, `/apis`, and each group's versions; subresources are left out).
    pub async fn served_kinds(&self) -> Result<ServedKinds, ClusterError> {
        let call =
            Call { verb: Verb::Get, path: "/apis".to_string(), body: None, subject: "`/apis`".to_string() };
        let found = self.connection.json(&call).await?;
        let mut places = vec![(String::new(), "v1".to_string())];
        for group in list(&found, "/groups") {
            let name = text(group, "/name").to_string();
            let preferred = text(group, "/preferredVersion/version");
            let mut versions: Vec<&str> =
                list(group, "/versions").iter().map(|version| text(version, "/version")).collect();
            // Stable: the others stay in the server's order, newest first.
            versions.sort_by_key(|version| *version != preferred);
            places.extend(versions.into_iter().map(|version| (name.clone(), version.to_string())));
        }
        let answers =
            join_all(places.iter().map(async |(group, version)| self.kinds_of(group, version).await));
        let mut served = ServedKinds::default();
        for (answer, (group, version)) in answers.await.into_iter().zip(&places) {
            match answer {
                Ok(kinds) => served.kinds.extend(kinds),
                Err(why) => served.silent.push((group.clone(), version.clone(), why)),
            }
        }
        Ok(served)
    }

    async fn kinds_of(&self, group: &str, version: &str) -> Result<Vec<ServedKind>, String> {
        let path = root(group, version).map_err(|error| error.to_string())?;
        let call = Call { verb: Verb::Get, subject: format!("`{path}`"), path, body: None };
        let answer = self.connection.once(&call, QUESTION).await.map_err(|fault| fault.to_string())?;
        if answer.code != 200 {
            return Err(format!("status {}: {}", answer.code, message(&answer.body)));
        }
        let found: Value = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
        let kinds = list(&found, "/resources").iter().filter(|one| !text(one, "/name").contains('/'));
        let kind = |one: &Value| ServedKind {
            group: group.to_string(),
            version: version.to_string(),
            kind: text(one, "/kind").to_string(),
            plural: text(one, "/name").to_string(),
            is_namespaced: one.get("namespaced").and_then(Value::as_bool).unwrap_or_default(),
            verbs: list(one, "/verbs").iter().filter_map(Value::as_str).map(str::to_string).collect(),
        };
        Ok(kinds.map(kind).collect())
    }

    /// Returns the first object of a kind that is wanted, as [`Cluster::list_metadata`] has it: in one namespace, or everywhere but in
    /// those that are left out. Pages of a hundred are read until there is one.
    pub async fn first_of(
        &self,
        kind: &ServedKind,
        namespace: Option<&str>,
        without: &[&str],
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Result<Option<Value>, ClusterError> {
        let within = match namespace {
            Some(namespace) => format!("namespaces/{}/", segment(namespace)?),
            None => String::new(),
        };
        // Every kind can be selected by its namespace, custom resources too.
        let others: Vec<String> = without.iter().map(|name| format!("metadata.namespace!={name}")).collect();
        let selector = if others.is_empty() {
            String::new()
        } else {
            format!("&fieldSelector={}", escaped(&others.join(",")))
        };
        let all = format!(
            "{}/{within}{}?limit=100{selector}",
            root(&kind.group, &kind.version)?,
            segment(&kind.plural)?
        );
        let subject = format!("{} objects", kind.kind);
        let (mut from, mut attempts) = (String::new(), 1);
        loop {
            let path = format!("{all}{from}");
            let call = Call { verb: Verb::ListMetadata, path, body: None, subject: subject.clone() };
            let page = match self.connection.json(&call).await {
                // The revision of the pages read so far is gone.
                Err(ClusterError::Server { code: 410, .. }) if attempts < MOST_LISTS => {
                    attempts = attempts.saturating_add(1);
                    from.clear();
                    continue;
                }
                outcome => outcome?,
            };
            let found = list(&page, "/items").iter().map(bare).find(|one| is_wanted(one));
            match text(&page, "/metadata/continue") {
                "" => return Ok(found),
                _ if found.is_some() => return Ok(found),
                token => from = format!("&continue={}", escaped(token)),
            }
        }
    }

    /// Reads the metadata of all objects of a kind, and nothing else of them: the way to list Secrets. Kept are names, uid, labels and
    /// owners, and of annotations the one by which tokens of ServiceAccounts are known: what `kubectl apply` has annotated a Secret with
    /// (`kubectl.kubernetes.io/last-applied-configuration`) holds all of it, and is dropped with the page that brought it.
    pub async fn list_metadata(&self, collection: &Collection<'_>) -> Result<Vec<Value>, ClusterError> {
        self.list_each(Verb::ListMetadata, collection, None, &|object| Some(bare(&object))).await
    }
}

/// What is kept of metadata.
const KEPT: [&str; 5] = ["namespace", "name", "uid", "labels", "ownerReferences"];
/// `ServiceAccountNameKey`, `k8s.io/api/core/v1/types.go`, v1.36.3.
const ACCOUNT: &str = "kubernetes.io/service-account.name";

/// Returns of an object what is kept of its metadata.
pub(super) fn bare(object: &Value) -> Value {
    let of = |name: &str| Some((name.to_string(), object.get("metadata")?.get(name)?.clone()));
    let mut metadata: Map<String, Value> = KEPT.iter().filter_map(|name| of(name)).collect();
    let annotations = object.pointer("/metadata/annotations");
    if let Some(account) = annotations.and_then(|all| all.get(ACCOUNT)) {
        metadata.insert("annotations".to_string(), json!({ACCOUNT: account}));
    }
    json!({"metadata": metadata})
}

/// Returns the path of a group's version, as in `/apis/apps/v1`.
fn root(group: &str, version: &str) -> Result<String, ClusterError> {
    if group.is_empty() {
        return Ok(format!("/api/{}", segment(version)?));
    }
    Ok(format!("/apis/{}/{}", segment(group)?, segment(version)?))
}

fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn list<'v>(value: &'v Value, path: &str) -> &'v [Value] {
    value.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_metadata_brings_along_is_dropped() {
        let annotations = json!({
            "kubectl.kubernetes.io/last-applied-configuration": "{\"data\": \"planted\"}", ACCOUNT: "web", "note": "planted",
        });
        let owners = json!([{"kind": "Job", "controller": true}]);
        let kept = json!({"namespace": "shop", "name": "x", "uid": "1", "labels": {"a": "b"}, "ownerReferences": owners});
        let mut metadata = kept.clone();
        metadata["annotations"] = annotations;
        metadata["managedFields"] = json!([{"fieldsV1": {"f:data": {"f:planted": {}}}}]);
        let mut expected = kept.clone();
        expected["annotations"] = json!({ACCOUNT: "web"});
        assert_eq!(bare(&json!({"kind": "x", "metadata": metadata})), json!({"metadata": expected}));
        assert_eq!(bare(&json!({"metadata": kept})), json!({"metadata": kept}));
    }
}
