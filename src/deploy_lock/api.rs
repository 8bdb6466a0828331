//! Finds, creates and deletes the deploy lock of a cluster, and verifies each change on every API server.
//!
//! If two `lock` commands run concurrently, only one of them can create the first object of the deploy lock. The other command
//! reads the holder from this object. To complete an interrupted `lock` or `unlock`, run the command again.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{DeployLock, Method, NAME, PART, policy, quota, timer};
use crate::kube_api::{ApiServerClient, Cluster, ClusterError, Collection, MANAGED_BY, ObjectRef};

/// First pause between two checks of the API servers. An API server applies a new policy after one to two seconds. It caches a
/// deleted quota for 30 s (`liveTTL`, `apiserver/pkg/admission/plugin/resourcequota/resource_access.go`, v1.36.3).
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Kinds of the objects of a deploy lock, in the order of deletion. The binding, which activates the lock, is created last and
/// deleted first.
const KINDS: [(&str, &str); 4] = [
    (policy::API_VERSION, "ValidatingAdmissionPolicyBinding"),
    (policy::API_VERSION, "ValidatingAdmissionPolicy"),
    ("v1", "ResourceQuota"),
    (timer::API_VERSION, timer::KIND),
];

/// Why a deploy lock could not be created or deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeployLockError {
    /// A request to the API failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Another holder has the deploy lock.
    #[error("already locked: {0}")]
    Held(String),
    /// The scope contains no existing namespace.
    #[error("the deploy lock would cover no namespace: {0}")]
    Nothing(String),
    /// Not every API server applied the change in time.
    #[error("{what}, but not every API server applied the change within {seconds} s: {seen}")]
    Behind {
        /// The completed change, for example `the deploy lock is created`.
        what: &'static str,
        /// The deadline, in seconds.
        seconds: u64,
        /// The last result of the check.
        seen: String,
    },
}

/// An object of a deploy lock, as stored in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    api_version: &'static str,
    kind: &'static str,
    namespace: Option<String>,
    name: String,
    uid: String,
    version: String,
    freeze: Option<DeployLock>,
    leaving: bool,
    /// Whether the object is an expired timer.
    ended: bool,
    /// Whether the object is a ResourceQuota that API servers enforce. API servers ignore a quota until the controller manager
    /// has written its status (`CheckRequest`, `apiserver/pkg/admission/plugin/resourcequota/controller.go`, v1.36.3).
    enforced: bool,
}

impl Object {
    fn reference(&self) -> ObjectRef<'_> {
        ObjectRef::new(self.api_version, self.kind, self.namespace.as_deref(), &self.name)
    }

    /// Returns the kind and name of the object, for example ``ResourceQuota `shop/netsurgeon-lock` ``.
    pub fn name(&self) -> String {
        self.reference().to_string()
    }
}

/// The objects of a deploy lock that exist in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeployLockObjects {
    /// The objects. The binding, which activates a policy, comes first.
    pub objects: Vec<Object>,
}

impl DeployLockObjects {
    /// Returns the deploy lock, read from the annotation of an object.
    pub fn freeze(&self) -> Option<&DeployLock> {
        self.objects.iter().find_map(|object| object.freeze.as_ref())
    }

    /// Returns whether the time limit of the deploy lock is over, because its timer has expired or was deleted.
    pub fn has_ended(&self) -> bool {
        let Some(freeze) = self.freeze().filter(|freeze| freeze.seconds.is_some()) else { return false };
        let name = timer::name(freeze);
        let runs = |object: &Object| {
            object.kind == timer::KIND && object.name == name && !object.ended && !object.leaving
        };
        !self.objects.iter().any(runs)
    }

    /// Returns whether the deploy lock has all objects that it needs to refuse changes.
    pub fn is_complete(&self) -> bool {
        let has = |kind: &str| self.objects.iter().any(|object| object.kind == kind && !object.leaving);
        has("ResourceQuota") || (has("ValidatingAdmissionPolicy") && has("ValidatingAdmissionPolicyBinding"))
    }
}

/// Creates and deletes the deploy lock of one cluster.
pub struct DeployLockApi<'a> {
    /// API of the cluster.
    pub cluster: &'a Cluster,
    /// Deadline for all API servers to apply a change.
    pub deadline: Duration,
    /// Whether to check every API server at its own address. Otherwise only the API server of the kubeconfig is checked.
    pub each: bool,
}

impl DeployLockApi<'_> {
    /// Returns the best mechanism that this cluster supports.
    pub async fn method(&self) -> Result<Method, DeployLockError> {
        let policies = Collection::new(policy::API_VERSION, "ValidatingAdmissionPolicy", None);
        Ok(if self.cluster.serves(&policies).await? { Method::Policy } else { Method::Quota })
    }

    /// Finds all objects of netsurgeon's deploy lock.
    pub async fn find(&self) -> Result<DeployLockObjects, DeployLockError> {
        let selector = format!("{}={},{}={}", MANAGED_BY.0, MANAGED_BY.1, PART.0, PART.1);
        let mut standing = DeployLockObjects::default();
        for (api_version, kind) in KINDS {
            let namespace = (kind == timer::KIND).then_some(timer::NAMESPACE);
            let collection = Collection::new(api_version, kind, namespace);
            let list = match self.cluster.list(&collection, Some(&selector)).await {
                // The API server does not serve admission policies.
                Err(ClusterError::NotFound { .. }) => Vec::new(),
                outcome => outcome?,
            };
            standing.objects.extend(list.iter().filter_map(|found| object(api_version, kind, found)));
        }
        Ok(standing)
    }

    /// Returns the objects of a deploy lock, in the order of their creation.
    pub async fn manifests(&self, freeze: &DeployLock) -> Result<Vec<Value>, DeployLockError> {
        let namespaces = self.namespaces(freeze).await?;
        Ok(match freeze.method {
            Method::Policy => {
                let timer = timer::timer(freeze);
                timer.into_iter().chain([policy::policy(freeze), policy::binding(freeze)]).collect()
            }
            Method::Quota => namespaces.iter().map(|name| quota::quota(freeze, name)).collect(),
        })
    }

    /// Creates or changes the objects of a deploy lock, and deletes existing objects that the lock does not need.
    pub async fn put(
        &self,
        freeze: &DeployLock,
        standing: &DeployLockObjects,
    ) -> Result<(), DeployLockError> {
        let manifests = self.manifests(freeze).await?;
        let mut kept = BTreeSet::new();
        for manifest in &manifests {
            let wanted = ObjectRef::of(manifest)?;
            kept.insert(wanted.to_string());
            let present =
                standing.objects.iter().find(|object| object.reference() == wanted && !object.leaving);
            let outcome = match present {
                Some(object) => {
                    let mut change = manifest.clone();
                    // If the object has changed since it was read, the patch must fail with a conflict.
                    if let Some(metadata) = change.get_mut("metadata").and_then(Value::as_object_mut) {
                        metadata.insert("resourceVersion".to_string(), object.version.as_str().into());
                    }
                    self.cluster.merge(&wanted, &change).await
                }
                None => self.cluster.create(manifest).await,
            };
            match outcome {
                Ok(_) => {}
                Err(ClusterError::AlreadyExists { .. }) => {
                    let now = self.find().await?;
                    let by = now.freeze().map_or_else(|| format!("{wanted} exists"), DeployLock::says);
                    return Err(DeployLockError::Held(by));
                }
                Err(error) => return Err(error.into()),
            }
        }
        for object in standing.objects.iter().filter(|object| !kept.contains(&object.name())) {
            self.cluster.delete(&object.reference(), Some(&object.uid)).await?;
        }
        Ok(())
    }

    /// Deletes the objects of a deploy lock.
    pub async fn remove(&self, standing: &DeployLockObjects) -> Result<(), DeployLockError> {
        for object in &standing.objects {
            self.cluster.delete(&object.reference(), Some(&object.uid)).await?;
        }
        Ok(())
    }

    /// Waits until every API server refuses changes. Returns the checked API servers.
    pub async fn wait_until_in_force(&self, freeze: &DeployLock) -> Result<Vec<String>, DeployLockError> {
        let namespaces = self.probed(freeze).await?;
        let refused = match freeze.method {
            Method::Policy => policy::in_force(freeze),
            // Quotas are checked last in admission, so this message does not appear while a policy of netsurgeon is active.
            Method::Quota => format!("quota: {NAME}"),
        };
        let why = match freeze.method {
            Method::Policy => "",
            Method::Quota => {
                ": it ignores a ResourceQuota until the controller manager has counted the objects"
            }
        };
        let judge = |outcome: Result<Value, ClusterError>| match outcome {
            Err(ClusterError::Refused { reason, .. }) if reason.contains(&refused) => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(_) => Err(format!("the API server still accepts the change{why}")),
        };
        self.ask_all(freeze, &namespaces, judge, "the deploy lock is created").await
    }

    /// Waits until every API server accepts changes again. Returns the checked API servers.
    pub async fn wait_until_gone(&self, freeze: &DeployLock) -> Result<Vec<String>, DeployLockError> {
        let namespaces = match self.probed(freeze).await {
            // Deleted namespaces are not locked.
            Err(DeployLockError::Nothing(_)) => return Ok(Vec::new()),
            outcome => outcome?,
        };
        let judge = |outcome: Result<Value, ClusterError>| match outcome {
            Err(ClusterError::Refused { reason, .. }) if reason.contains(NAME) => Err(reason),
            Err(error) if error.is_transient() => Err(error.to_string()),
            // Any other error comes from another component, not from the deploy lock.
            _ => Ok(()),
        };
        self.ask_all(freeze, &namespaces, judge, "the deploy lock is deleted").await
    }

    /// Sends the probe as a dry run in each namespace to every API server. Repeats this until `judge` accepts all answers.
    async fn ask_all(
        &self,
        freeze: &DeployLock,
        namespaces: &[String],
        judge: impl Fn(Result<Value, ClusterError>) -> Result<(), String>,
        what: &'static str,
    ) -> Result<Vec<String>, DeployLockError> {
        let started = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let seen = match self.ask_once(freeze, namespaces, &judge).await {
                Ok(servers) => return Ok(servers),
                Err(seen) => seen,
            };
            if started.elapsed().saturating_add(pause) >= self.deadline {
                return Err(DeployLockError::Behind { what, seconds: self.deadline.as_secs(), seen });
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    async fn ask_once(
        &self,
        freeze: &DeployLock,
        namespaces: &[String],
        judge: &impl Fn(Result<Value, ClusterError>) -> Result<(), String>,
    ) -> Result<Vec<String>, String> {
        if !self.each {
            for namespace in namespaces {
                judge(self.cluster.try_create(&freeze.probe(namespace)).await)?;
            }
            return Ok(vec![self.cluster.server().to_string()]);
        }
        let mut servers = Vec::new();
        for client in self.clients().await.map_err(|error| error.to_string())? {
            let server = client.server().to_string();
            for namespace in namespaces {
                judge(client.try_create(&freeze.probe(namespace)).await)
                    .map_err(|seen| format!("API server `{server}`: {seen}"))?;
            }
            servers.push(server);
        }
        Ok(servers)
    }

    async fn clients(&self) -> Result<Vec<ApiServerClient>, ClusterError> {
        let mut clients = Vec::new();
        for server in self.cluster.api_servers().await? {
            clients.push(self.cluster.dial(server).await?);
        }
        Ok(clients)
    }

    /// Returns the locked namespaces in which no ResourceQuota of the deploy lock is enforced, for example because `lock` was
    /// interrupted, a namespace was created later, or no controller manager runs. With a policy, the list is empty.
    pub async fn uncovered(&self, standing: &DeployLockObjects) -> Result<Vec<String>, DeployLockError> {
        let Some(freeze) = standing.freeze().filter(|freeze| freeze.method == Method::Quota) else {
            return Ok(Vec::new());
        };
        let namespaces = self.present().await?.into_iter().filter(|name| freeze.scope.has(name));
        let quotas = standing.objects.iter().filter(|object| object.enforced && !object.leaving);
        let covered: BTreeSet<&str> = quotas.filter_map(|object| object.namespace.as_deref()).collect();
        Ok(namespaces.filter(|name| !covered.contains(name.as_str())).collect())
    }

    /// Returns the namespaces that receive the probe. With quotas, these are all locked namespaces. With a policy, one locked
    /// namespace is enough.
    async fn probed(&self, freeze: &DeployLock) -> Result<Vec<String>, DeployLockError> {
        let mut namespaces = self.namespaces(freeze).await?;
        if freeze.method == Method::Policy {
            let one = namespaces.iter().position(|name| name == "default").unwrap_or_default();
            namespaces = namespaces.into_iter().skip(one).take(1).collect();
        }
        Ok(namespaces)
    }

    /// Returns all namespaces that are not being deleted, sorted by name.
    async fn present(&self) -> Result<BTreeSet<String>, DeployLockError> {
        let staying = |Namespace { metadata, .. }| {
            if metadata.deletion_timestamp.is_none() { metadata.name } else { None }
        };
        Ok(self.cluster.objects_as(None, &staying).await?.into_iter().collect())
    }

    /// Returns the locked namespaces that are not being deleted, sorted by name.
    async fn namespaces(&self, freeze: &DeployLock) -> Result<Vec<String>, DeployLockError> {
        let present = self.present().await?;
        let missing = freeze.scope.only.iter().find(|name| !present.contains(*name));
        if let Some(missing) = missing {
            return Err(DeployLockError::Nothing(format!("namespace `{missing}` does not exist")));
        }
        let namespaces: Vec<String> = present.into_iter().filter(|name| freeze.scope.has(name)).collect();
        if namespaces.is_empty() {
            return Err(DeployLockError::Nothing(format!("no namespace matches {}", freeze.scope)));
        }
        Ok(namespaces)
    }
}

/// Parses an object from a list. Ignores objects with names that netsurgeon does not use, even if their labels match.
fn object(api_version: &'static str, kind: &'static str, found: &Value) -> Option<Object> {
    let metadata = found.get("metadata")?;
    let text = |name: &str| metadata.get(name).and_then(Value::as_str).map(str::to_string);
    let (name, freeze) = (text("name").unwrap_or_default(), DeployLock::of(found));
    let is_timer = kind == timer::KIND && freeze.as_ref().is_some_and(|freeze| timer::name(freeze) == name);
    let conditions = found.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let has_ended = |condition: &Value| {
        let is = |name: &str, values: &[&str]| {
            condition.get(name).and_then(Value::as_str).is_some_and(|value| values.contains(&value))
        };
        is("type", &["Failed", "FailureTarget", "Complete"]) && is("status", &["True"])
    };
    let ended = is_timer && conditions.into_iter().any(has_ended);
    let limits =
        |path: &str| found.pointer(path).and_then(Value::as_object).map(|limits| limits.keys().collect());
    let (wanted, counted): (Option<BTreeSet<_>>, Option<BTreeSet<_>>) =
        (limits("/spec/hard"), limits("/status/hard"));
    let enforced = kind == "ResourceQuota" && counted.is_some() && wanted == counted;
    (name == NAME || is_timer).then(|| Object {
        api_version,
        kind,
        namespace: text("namespace"),
        name,
        uid: text("uid").unwrap_or_default(),
        version: text("resourceVersion").unwrap_or_default(),
        freeze,
        leaving: text("deletionTimestamp").is_some(),
        ended,
        enforced,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::freeze;
    use super::*;

    fn standing(kinds: &[usize]) -> DeployLockObjects {
        let found = policy::policy(&freeze());
        let objects = kinds.iter().filter_map(|index| object(KINDS[*index].0, KINDS[*index].1, &found));
        DeployLockObjects { objects: objects.collect() }
    }

    #[test]
    fn a_policy_without_its_binding_refuses_nothing() {
        assert!(standing(&[0, 1]).is_complete());
        assert!(!standing(&[1]).is_complete() && !standing(&[0]).is_complete());
        assert!(standing(&[2]).is_complete() && !standing(&[]).is_complete());
        assert_eq!(standing(&[1]).freeze(), Some(&freeze()));
    }

    #[test]
    fn object_with_another_name_is_ignored() {
        let mut found = policy::policy(&freeze());
        found["metadata"]["name"] = json!("netsurgeon-lock-2");
        assert_eq!(object("v1", "ResourceQuota", &found), None);
    }

    #[test]
    fn lock_has_ended_once_its_timer_has_expired_or_is_deleted() {
        let freeze = DeployLock { seconds: Some(60), ..freeze() };
        let timer = timer::timer(&freeze).unwrap();
        let standing = |timer: Option<&Value>| {
            let policy = policy::policy(&freeze);
            let objects = [Some((&policy, KINDS[1])), timer.map(|timer| (timer, KINDS[3]))];
            let objects = objects.into_iter().flatten();
            DeployLockObjects {
                objects: objects
                    .filter_map(|(found, (version, kind))| object(version, kind, found))
                    .collect(),
            }
        };
        assert!(!standing(Some(&timer)).has_ended());
        let mut failed = timer.clone();
        failed["status"] = json!({"conditions": [{"type": "Failed", "status": "True"}]});
        assert!(standing(Some(&failed)).has_ended() && standing(None).has_ended());
        assert!(!super::tests::standing(&[0, 1]).has_ended(), "a lock without an end does not end");
    }
}
