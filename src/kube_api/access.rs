//! Access reviews and dry runs: changes that the API server only checks, the current user, and permissions.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use serde::Serialize;
use serde_json::Value;

use super::connection::{Call, Verb};
use super::objects::{Place, Typed};
use super::{ApiServerClient, Cluster, ClusterError};

/// The user as which the API server knows netsurgeon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name, as in `kubernetes-admin` or `system:serviceaccount:ci:deployer`.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
}

impl Cluster {
    /// Asks for the current user (`SelfSubjectReview`, 1.28 and later); `None` where the API server cannot answer.
    pub async fn user(&self) -> Result<Option<User>, ClusterError> {
        let answer = match self.ask(&SelfSubjectReview::default()).await {
            Err(ClusterError::NotFound { .. }) => return Ok(None),
            outcome => outcome?,
        };
        let info = answer.status.and_then(|status| status.user_info).unwrap_or_default();
        let groups = info.groups.unwrap_or_default();
        Ok(info.username.map(|name| User { name, groups }))
    }

    /// Asks whether the current user has a permission (`SelfSubjectAccessReview`): `verb` on `resource` of `group`, which may
    /// have a subresource (`nodes/proxy`), everywhere or in one namespace.
    pub async fn may(
        &self,
        verb: &str,
        (group, resource): (&str, &str),
        namespace: Option<&str>,
    ) -> Result<bool, ClusterError> {
        let resource_attributes = Some(attributes(verb, (group, resource), namespace));
        let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..Default::default() };
        let answer = self.ask(&SelfSubjectAccessReview { spec, ..Default::default() }).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    /// Asks whether another user has a permission everywhere (`SubjectAccessReview`), by user name and groups. Nothing is stored.
    pub async fn may_somebody(
        &self,
        (user, groups): (&str, &[&str]),
        verb: &str,
        (group, resource): (&str, &str),
    ) -> Result<bool, ClusterError> {
        let spec = SubjectAccessReviewSpec {
            user: Some(user.to_string()),
            groups: Some(groups.iter().map(ToString::to_string).collect()),
            resource_attributes: Some(attributes(verb, (group, resource), None)),
            ..Default::default()
        };
        let answer = self.ask(&SubjectAccessReview { spec, ..Default::default() }).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    /// Sends a review, which is stored nowhere, and returns it with its answer.
    async fn ask<K: Typed + Serialize>(&self, question: &K) -> Result<K, ClusterError> {
        let body = serde_json::to_vec(question).unwrap_or_default();
        let request = Place::of::<K>(None)?.requests.create(&PostParams::default(), body);
        self.connection.json(&Call::new(Verb::Create, request, K::kind(&()))?).await
    }
}

impl ApiServerClient {
    /// Asks this API server for a dry run of a create; see [`Cluster::try_create`].
    pub async fn try_create(&self, manifest: &Value) -> Result<Value, ClusterError> {
        self.connection().create(manifest, true).await
    }
}

/// The attributes of an access review; the resource may have a subresource.
fn attributes(verb: &str, (group, resource): (&str, &str), namespace: Option<&str>) -> ResourceAttributes {
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    let some = |text: &str| Some(text.to_string());
    ResourceAttributes {
        verb: some(verb),
        group: some(group),
        resource: some(resource),
        subresource: some(part),
        namespace: namespace.map(str::to_string),
        ..Default::default()
    }
}
