//! Reads the current user and the user's permissions from reviews by the API server. Sends create requests as dry runs.

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

/// The user that the API server identifies from the credentials of netsurgeon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name, for example `kubernetes-admin` or `system:serviceaccount:ci:deployer`.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
}

impl Cluster {
    /// Returns the current user (`SelfSubjectReview`, Kubernetes 1.28 and later); `None` if the API server does not support the
    /// review.
    pub async fn user(&self) -> Result<Option<User>, ClusterError> {
        let answer = match self.ask(&SelfSubjectReview::default()).await {
            Err(ClusterError::NotFound { .. }) => return Ok(None),
            outcome => outcome?,
        };
        let info = answer.status.and_then(|status| status.user_info).unwrap_or_default();
        let groups = info.groups.unwrap_or_default();
        Ok(info.username.map(|name| User { name, groups }))
    }

    /// Checks whether the current user has a permission (`SelfSubjectAccessReview`): `verb` on `resource` in the API group
    /// `group`, in one namespace or in all namespaces. The resource can have a subresource (`nodes/proxy`), and the name
    /// of an object (`leases@netsurgeon`).
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

    /// Checks whether another user, given by user name and groups, has a permission in all namespaces (`SubjectAccessReview`).
    /// The API server stores nothing.
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

    /// Sends a review. Returns the review with the API server's answer. The API server does not store reviews.
    async fn ask<K: Typed + Serialize>(&self, question: &K) -> Result<K, ClusterError> {
        let body = serde_json::to_vec(question).unwrap_or_default();
        let request = Place::of::<K>(None)?.requests.create(&PostParams::default(), body);
        self.connection.json(&Call::new(Verb::Create, request, K::kind(&()))?).await
    }
}

impl ApiServerClient {
    /// Sends a create request to this API server as a dry run; see [`Cluster::try_create`].
    pub async fn try_create(&self, manifest: &Value) -> Result<Value, ClusterError> {
        self.connection().create(manifest, &PostParams { dry_run: true, ..PostParams::default() }).await
    }
}

/// Returns the attributes of an access review. The resource can have a subresource and the name of an object.
fn attributes(verb: &str, (group, resource): (&str, &str), namespace: Option<&str>) -> ResourceAttributes {
    let (resource, name) = resource.split_once('@').unwrap_or((resource, ""));
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    let some = |text: &str| Some(text.to_string());
    ResourceAttributes {
        verb: some(verb),
        group: some(group),
        resource: some(resource),
        subresource: some(part),
        name: some(name),
        namespace: namespace.map(str::to_string),
        ..Default::default()
    }
}
