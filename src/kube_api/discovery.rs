//! Discovery of the served kinds, group by group, because every version supports that (`aggregated discovery`, all at once,
//! exists since 1.26). The kinds of a group are cached.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIGroupList, APIResourceList};

use super::connection::{Call, Connection};
use super::error::message;
use super::kinds::{kinds, parts, root};
use super::{Cluster, ClusterError, Collection, ServedKind};

/// Timeout for one group: an unavailable aggregated API server must not delay the others.
const QUESTION: Duration = Duration::from_secs(10);

/// What an API serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServedKinds {
    /// The kinds, grouped by API group; of each kind the preferred version comes first.
    pub kinds: Vec<ServedKind>,
    /// Groups that did not answer in one of their versions, and why: an aggregated API server (`APIService`) that is down serves
    /// them.
    pub silent: Vec<(String, String)>,
}

impl Cluster {
    /// Returns every kind that is served (`/api`, `/apis`, and each group's versions; subresources are left out).
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

    /// Asks one group, once; the error is the reason why it did not answer.
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

    /// Returns whether the API serves a kind.
    pub async fn serves(&self, collection: &Collection<'_>) -> Result<bool, ClusterError> {
        match self.connection.kind(collection).await {
            Err(ClusterError::NotFound { .. }) => Ok(false),
            outcome => outcome.map(|_| true),
        }
    }
}

impl Connection {
    /// Returns the kind of a collection: a [`ClusterError::NotFound`] if it is not served.
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

/// The versions of a group, as in `apps/v1`: the preferred one first, then the others in the server's order, newest first.
fn versions(group: &APIGroup) -> Vec<String> {
    let preferred = group.preferred_version.as_ref().map(|version| &version.group_version);
    let mut versions: Vec<&String> = group.versions.iter().map(|version| &version.group_version).collect();
    // A stable sort.
    versions.sort_by_key(|version| Some(*version) != preferred);
    versions.into_iter().cloned().collect()
}
