//! Discovers the served kinds, group by group. Every Kubernetes version supports this; aggregated discovery of all groups exists
//! only since 1.26. The kinds of a group are cached.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIGroupList, APIResourceList};

use super::connection::{Call, Connection};
use super::error::message;
use super::kinds::{kinds, parts, root};
use super::{Cluster, ClusterError, Collection, ServedKind};

/// Timeout for one group. An unavailable aggregated API server must not delay the other groups.
const QUESTION: Duration = Duration::from_secs(10);

/// The kinds that an API server serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServedKinds {
    /// The kinds, grouped by API group. The preferred version of each kind comes first.
    pub kinds: Vec<ServedKind>,
    /// API groups for which the kinds of a version could not be read, each with the reason. Usually the aggregated API server
    /// (`APIService`) of the group is down.
    pub silent: Vec<(String, String)>,
}

impl Cluster {
    /// Returns all served kinds without subresources (`/api`, `/apis`, and the versions of each group).
    pub async fn served_kinds(&self) -> Result<ServedKinds, ClusterError> {
        let groups = self.api_groups().await?;
        let places: Vec<String> =
            std::iter::once("v1".to_string()).chain(groups.iter().flat_map(versions)).collect();
        let answers = join_all(places.iter().map(async |place| self.kinds_of(place).await)).await;
        let mut served = ServedKinds::default();
        for (answer, place) in answers.into_iter().zip(places) {
            match answer {
                Ok(kinds) => served.kinds.extend(kinds),
                Err(why) => served.silent.push((parts(&place).0.to_string(), why)),
            }
        }
        Ok(served)
    }

    /// Reads the kinds of one group version with a single request. The error is the reason why the kinds could not be read.
    async fn kinds_of(&self, api_version: &str) -> Result<Vec<ServedKind>, String> {
        let call = root(api_version).and_then(|path| Call::read(&path)).map_err(|error| error.to_string())?;
        let answer = self.connection.once(&call, QUESTION).await.map_err(|fault| fault.to_string())?;
        if answer.code != 200 {
            return Err(format!("status {}: {}", answer.code, message(&answer.body)));
        }
        let found: APIResourceList =
            serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
        Ok(kinds(found))
    }

    /// Returns the served API groups, without the core group, which has no name.
    pub async fn groups(&self) -> Result<BTreeSet<String>, ClusterError> {
        Ok(self.api_groups().await?.into_iter().map(|group| group.name).collect())
    }

    async fn api_groups(&self) -> Result<Vec<APIGroup>, ClusterError> {
        let found: APIGroupList = self.connection.json(&Call::read("/apis")?).await?;
        Ok(found.groups)
    }

    /// Checks whether the API server serves a kind.
    pub async fn serves(&self, collection: &Collection<'_>) -> Result<bool, ClusterError> {
        match self.connection.kind(collection).await {
            Err(ClusterError::NotFound { .. }) => Ok(false),
            outcome => outcome.map(|_| true),
        }
    }
}

impl Connection {
    /// Returns the kind of a collection, or [`ClusterError::NotFound`] if the kind is not served.
    pub(super) async fn kind(&self, collection: &Collection<'_>) -> Result<ServedKind, ClusterError> {
        if let Some(known) = self.kinds().find(collection) {
            return Ok(known);
        }
        let found = self.json(&Call::read(&root(collection.api_version)?)?).await?;
        self.kinds().learn(collection.api_version, kinds(found));
        self.kinds().find(collection).ok_or_else(|| ClusterError::NotFound {
            subject: collection.to_string(),
            reason: format!("no kind `{}` is in `{}`", collection.kind, collection.api_version),
        })
    }
}

/// Returns the versions of a group, for example `apps/v1`. The preferred version comes first. The other versions follow in the
/// server's order, newest first.
fn versions(group: &APIGroup) -> Vec<String> {
    let preferred = group.preferred_version.as_ref().map(|version| &version.group_version);
    let mut versions: Vec<&String> = group.versions.iter().map(|version| &version.group_version).collect();
    // The sort is stable, so the other versions keep their order.
    versions.sort_by_key(|version| Some(*version) != preferred);
    versions.into_iter().cloned().collect()
}
