//! What the API would do, and for whom: changes tried without being made, who we are, what is served.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::connection::{Call, Connection, Verb};
use super::{ApiServerClient, Cluster, ClusterError, Collection, ObjectRef};

/// Who the API server takes us for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name, as in `kubernetes-admin` or `system:serviceaccount:ci:deployer`.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
}

impl Cluster {
    /// Asks what would come of making an object (`dryRun=All`): everything is looked at, admission included,
    /// and nothing is stored.
    pub async fn try_create(&self, manifest: &Value) -> Result<Value, ClusterError> {
        try_create(&self.connection, manifest).await
    }

    /// Asks who we are (`SelfSubjectReview`, 1.28 and later); `None` where the API server cannot say.
    pub async fn user(&self) -> Result<Option<User>, ClusterError> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let call = Call {
            verb: Verb::Create,
            path: "/apis/authentication.k8s.io/v1/selfsubjectreviews".to_string(),
            body: Some(&review),
            subject: "SelfSubjectReview".to_string(),
        };
        let answer = match self.connection.json(&call).await {
            Err(ClusterError::NotFound { .. }) => return Ok(None),
            outcome => outcome?,
        };
        let info = answer.pointer("/status/userInfo");
        let name = info.and_then(|info| info.get("username")).and_then(Value::as_str);
        let groups = info.and_then(|info| info.get("groups")).and_then(Value::as_array).into_iter().flatten();
        Ok(name.map(|name| User {
            name: name.to_string(),
            groups: groups.filter_map(Value::as_str).map(str::to_string).collect(),
        }))
    }

    /// Asks whether we may do something (`SelfSubjectAccessReview`): `verb` with `resource` of `group`, which may have a
    /// subresource (`nodes/proxy`), everywhere or in one namespace.
    pub async fn may(
        &self,
        verb: &str,
        (group, resource): (&str, &str),
        namespace: Option<&str>,
    ) -> Result<bool, ClusterError> {
        let spec = json!({"resourceAttributes": attributes(verb, (group, resource), namespace)});
        self.review("SelfSubjectAccessReview", spec).await
    }

    /// Asks whether somebody else may do something everywhere (`SubjectAccessReview`): a user, by name and groups. Nothing is stored.
    pub async fn may_somebody(
        &self,
        (user, groups): (&str, &[&str]),
        verb: &str,
        (group, resource): (&str, &str),
    ) -> Result<bool, ClusterError> {
        let attributes = attributes(verb, (group, resource), None);
        let spec = json!({"user": user, "groups": groups, "resourceAttributes": attributes});
        self.review("SubjectAccessReview", spec).await
    }

    async fn review(&self, kind: &str, spec: Value) -> Result<bool, ClusterError> {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
        let call = Call {
            verb: Verb::Create,
            path: format!("/apis/authorization.k8s.io/v1/{}s", kind.to_lowercase()),
            body: Some(&review),
            subject: kind.to_string(),
        };
        let answer = self.connection.json(&call).await?;
        Ok(answer.pointer("/status/allowed").and_then(Value::as_bool).unwrap_or_default())
    }

    /// Returns the API groups that are served; the core group has no name and is not among them.
    pub async fn groups(&self) -> Result<BTreeSet<String>, ClusterError> {
        let call =
            Call { verb: Verb::Get, path: "/apis".to_string(), body: None, subject: "`/apis`".to_string() };
        let found = self.connection.json(&call).await?;
        let groups = found.get("groups").and_then(Value::as_array).into_iter().flatten();
        Ok(groups.filter_map(|group| group.get("name")?.as_str()).map(str::to_string).collect())
    }

    /// Tells whether the API serves a kind, by its discovery document.
    pub async fn serves(&self, collection: &Collection<'_>) -> Result<bool, ClusterError> {
        let path = collection.group_path()?;
        let call = Call { verb: Verb::Get, subject: format!("`{path}`"), path, body: None };
        let found = match self.connection.json(&call).await {
            Err(ClusterError::NotFound { .. }) => return Ok(false),
            outcome => outcome?,
        };
        let kinds = found.get("resources").and_then(Value::as_array).into_iter().flatten();
        Ok(kinds.filter_map(|resource| resource.get("kind")).any(|kind| kind == collection.kind))
    }
}

impl ApiServerClient {
    /// Asks this API server what would come of making an object; see [`Cluster::try_create`].
    pub async fn try_create(&self, manifest: &Value) -> Result<Value, ClusterError> {
        try_create(self.connection(), manifest).await
    }
}

/// What is asked about in a review of access; the resource may have a subresource.
fn attributes(verb: &str, (group, resource): (&str, &str), namespace: Option<&str>) -> Value {
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    json!({
        "verb": verb, "group": group, "resource": resource, "subresource": part,
        "namespace": namespace.unwrap_or_default(),
    })
}

async fn try_create(connection: &Connection, manifest: &Value) -> Result<Value, ClusterError> {
    let object = ObjectRef::of(manifest)?;
    object.path()?;
    let call = Call {
        verb: Verb::Create,
        path: format!("{}?dryRun=All", object.collection.path()?),
        body: Some(manifest),
        subject: object.to_string(),
    };
    connection.json(&call).await
}
