//! Creates the objects of a test, waits for the agents, and removes everything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease as Record;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod};
use serde_json::Value;
use thiserror::Error;
use tokio::time::{Instant, sleep};

use super::member::{Agent, Role};
use super::node_object::not_ready;
use super::objects::{COMPONENT, CREATED, KINDS, LEASE, RUN, Settings, selector};
use super::pod_state::{declined, ready, waiting};
use crate::kube_api::accessors::{annotation, label, name};
use crate::kube_api::{Cluster, ClusterError, Collection, Lease, LeaseState, MANAGED_BY, ObjectRef};
use crate::words::{brief, in_words};

/// The number of requests at the same time.
const AT_ONCE: usize = 16;
/// The pause between two lists of the Pods.
const PAUSE: Duration = Duration::from_millis(300);
/// The time after the last renewal during which no other test starts in the namespace.
const LEASE_DURATION: Duration = Duration::from_secs(20);
/// The pause between two renewals of the Lease.
const RENEWAL: Duration = Duration::from_secs(5);
/// The time after which a Pod is removed without its kubelet, which may be down.
const GRACE: Duration = Duration::from_secs(30);
/// The time for the removal of everything.
const REMOVAL: Duration = Duration::from_mins(2);

/// Why a test could not start, or could not be removed.
#[derive(Debug, Error)]
pub enum DeploymentError {
    /// A request to the API failed.
    #[error(transparent)]
    Api(#[from] ClusterError),
    /// Admission, a policy or a missing permission would reject an object of the test. Nothing was created.
    #[error("the cluster would not accept the {what}: {reason}")]
    Rejected {
        /// The kind of the object, and for Pods their role.
        what: String,
        /// The message of the API server.
        reason: String,
    },
    /// Another process tests the network.
    #[error("another process of netsurgeon uses the namespace `{namespace}`: {holder}")]
    Busy {
        /// The namespace.
        namespace: String,
        /// Who holds the Lease.
        holder: String,
    },
    /// The Lease of the test does not belong to it any more.
    #[error("this command ended early, because {how} in the namespace `{namespace}`")]
    LeaseLost {
        /// The namespace.
        namespace: String,
        /// Which process took the Lease, or that it was removed.
        how: String,
    },
    /// A node that was named does not exist, or is no Linux node.
    #[error("there is no Linux node `{0}`")]
    UnknownNode(String),
    /// No node can be tested.
    #[error("no node matches: the agents need Linux")]
    NoNodes,
    /// Some objects still exist.
    #[error("after {waited}, these objects still exist in `{namespace}`: {left}")]
    NotRemoved {
        /// The namespace.
        namespace: String,
        /// The time.
        waited: String,
        /// The objects.
        left: String,
    },
}

/// What a removal did.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Cleaned {
    /// The number of removed objects, by kind.
    pub removed: BTreeMap<String, usize>,
    /// Whether the namespace was removed, too.
    pub has_removed_namespace: bool,
}

/// The objects of a test in a cluster.
pub struct Deployment {
    cluster: Cluster,
    settings: Settings,
    holder: String,
    lease: tokio::sync::Mutex<Lease>,
}

/// How the Pods of a role started.
#[derive(Default)]
pub struct Started {
    /// The agents by the index of their node.
    pub agents: BTreeMap<usize, Agent>,
    /// Why a Pod did not start, by the index of its node.
    pub faults: BTreeMap<usize, String>,
    /// Nodes that do not take the Pod for a reason that is not their network, by their index.
    pub declined: BTreeSet<usize>,
    /// The time from the creation until the Pod was ready, by the index of its node.
    pub times: BTreeMap<usize, Duration>,
}

impl Deployment {
    /// Returns the objects of a test, without a request. `holder` tells this process from others.
    pub fn new(cluster: Cluster, settings: Settings, holder: &str) -> Self {
        let lease = Lease::new(cluster.clone(), &settings.namespace, LEASE, holder, LEASE_DURATION);
        Self { cluster, settings, holder: holder.to_string(), lease: tokio::sync::Mutex::new(lease) }
    }

    /// Returns the cluster.
    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Checks with dry runs that the cluster accepts the objects, creates the namespace, takes the Lease, and removes what an earlier
    /// test left behind. If the cluster would reject an object, nothing remains.
    pub async fn prepare(&self, first_node: &str, roles: &[Role]) -> Result<(), DeploymentError> {
        let namespace = self.settings.namespace();
        let exists = self.cluster.object::<Namespace>(None, &self.settings.namespace).await?.is_some();
        if !exists {
            self.cluster.try_create(&namespace).await.map_err(|error| rejected("Namespace", &error))?;
            self.cluster.create(&namespace).await?;
        }
        let tried = self.try_objects(first_node, roles).await;
        if tried.is_err() && !exists {
            self.remove_namespace().await?;
        }
        tried?;
        self.take_lease().await?;
        self.remove_objects(None).await.map(drop)
    }

    async fn try_objects(&self, node: &str, roles: &[Role]) -> Result<(), DeploymentError> {
        for role in roles.iter().copied() {
            let tried = self.cluster.try_create(&self.settings.pod(0, node, role)).await;
            tried.map_err(|error| rejected(&format!("Pod of the role `{}`", role.name()), &error))?;
        }
        if roles == [Role::Reader] {
            return Ok(());
        }
        for service in self.settings.services() {
            self.cluster.try_create(&service).await.map_err(|error| rejected("Service", &error))?;
        }
        let policy = self.settings.policy("trial", &serde_json::json!({"policyTypes": ["Ingress"]}));
        let tried = self.cluster.try_create(&policy).await;
        tried.map(drop).map_err(|error| rejected("NetworkPolicy", &error))
    }

    /// Takes the Lease; waits for that of a process that was killed.
    async fn take_lease(&self) -> Result<(), DeploymentError> {
        let started = Instant::now();
        loop {
            match self.lease.lock().await.hold().await? {
                LeaseState::Ours => return Ok(()),
                LeaseState::Other { name, .. } if started.elapsed() > LEASE_DURATION.saturating_mul(2) => {
                    return Err(DeploymentError::Busy {
                        namespace: self.settings.namespace.clone(),
                        holder: name,
                    });
                }
                LeaseState::Other { .. } => sleep(PAUSE).await,
            }
        }
    }

    /// Renews the Lease until the future is dropped, or another process has taken it.
    pub async fn keep_lease(&self) -> DeploymentError {
        loop {
            sleep(RENEWAL).await;
            let namespace = self.settings.namespace.clone();
            // A renewal creates a Lease that does not exist. But `network clean --force` removes it so that the test ends.
            if let Ok(None) = self.cluster.object::<Record>(Some(&namespace), LEASE).await {
                return DeploymentError::LeaseLost { namespace, how: "its Lease was removed".to_string() };
            }
            // Without an answer, the next renewal shows whether another process has taken the Lease meanwhile.
            if let Ok(LeaseState::Other { name, .. }) = self.lease.lock().await.renew().await {
                let how = format!("another process took its Lease: `{name}`");
                return DeploymentError::LeaseLost { namespace, how };
            }
        }
    }

    /// Creates the Services, and returns them as they are stored.
    pub(super) async fn create_services(&self) -> Result<Vec<Value>, DeploymentError> {
        let mut created = Vec::new();
        for service in self.settings.services() {
            created.push(self.cluster.create(&service).await?);
        }
        Ok(created)
    }

    /// Creates a NetworkPolicy.
    pub(super) async fn create_policy(&self, name: &str, spec: &Value) -> Result<(), ClusterError> {
        self.cluster.create(&self.settings.policy(name, spec)).await.map(drop)
    }

    /// Removes a NetworkPolicy.
    pub(super) async fn remove_policy(&self, name: &str) -> Result<(), ClusterError> {
        let name = format!("nt-{}-{name}", self.settings.run);
        let namespace = Some(self.settings.namespace.as_str());
        self.cluster
            .delete(&ObjectRef::new("networking.k8s.io/v1", "NetworkPolicy", namespace, &name), None)
            .await
    }

    /// Creates the Pods of some roles on nodes, and waits until each is ready or the time is over.
    pub async fn start(
        &self,
        nodes: &[String],
        role: Role,
        patience: Duration,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Started, DeploymentError> {
        let started = Instant::now();
        let created = nodes.iter().enumerate().map(async |(index, node)| {
            let created = self.cluster.create(&self.settings.pod(index, node, role)).await;
            created.err().map(|error| (index, error.to_string()))
        });
        let faults: Vec<Option<(usize, String)>> =
            stream::iter(created).buffer_unordered(AT_ONCE).collect().await;
        let refused: BTreeMap<usize, String> = faults.into_iter().flatten().collect();
        let awaited = nodes.len().saturating_sub(refused.len());
        let mut found = Started { faults: refused, ..Started::default() };
        let mut reported = None;
        loop {
            let pods = self.pods(role).await?;
            for (index, pod) in nodes.iter().enumerate().filter_map(|(index, _)| {
                pods.get(&self.settings.pod_name(index, role)).map(|pod| (index, pod))
            }) {
                if !found.agents.contains_key(&index)
                    && let Some(agent) = ready(pod)
                {
                    found.agents.insert(index, agent);
                    found.times.insert(index, started.elapsed());
                } else if let Some(reason) = declined(pod) {
                    found.faults.insert(index, reason);
                    found.declined.insert(index);
                }
            }
            if reported != Some(found.agents.len()) {
                reported = Some(found.agents.len());
                progress(found.agents.len(), nodes.len());
            }
            let ended = found.agents.len().saturating_add(found.declined.len());
            let is_over = ended == awaited || started.elapsed() > patience;
            if is_over {
                self.explain(nodes, role, &pods, &mut found).await;
                return Ok(found);
            }
            sleep(PAUSE).await;
        }
    }

    async fn pods(&self, role: Role) -> Result<BTreeMap<String, Pod>, DeploymentError> {
        let labels = format!("{RUN}={},{}={}", self.settings.run, super::objects::ROLE, role.name());
        let pods: Vec<Pod> = self.cluster.objects(Some(&self.settings.namespace), Some(&labels)).await?;
        Ok(pods.into_iter().map(|pod| (name(&pod).to_string(), pod)).collect())
    }

    /// Finds out why Pods are not ready.
    async fn explain(&self, nodes: &[String], role: Role, pods: &BTreeMap<String, Pod>, found: &mut Started) {
        let missing: Vec<usize> = (0..nodes.len())
            .filter(|index| !found.agents.contains_key(index) && !found.faults.contains_key(index))
            .collect();
        if missing.is_empty() {
            return;
        }
        let down = self.nodes().await.unwrap_or_default();
        for index in missing {
            let pod_name = self.settings.pod_name(index, role);
            let pod = pods.get(&pod_name);
            let reason = match (nodes.get(index).and_then(|node| down.get(node)), pod) {
                (None, _) => Some("the Node left the cluster".to_string()),
                (Some(node), _) if let Some(reason) = not_ready(node) => Some(format!("the Node: {reason}")),
                (Some(_), None) => Some("its Pod was removed".to_string()),
                (Some(_), Some(_)) => None,
            };
            let reason = match reason {
                Some(reason) => {
                    found.declined.insert(index);
                    reason
                }
                None => self.reason(&pod_name, pod).await,
            };
            found.faults.insert(index, reason);
        }
    }

    /// Finds out why a Pod is not ready: from the events of the kubelet, or from its status.
    async fn reason(&self, pod_name: &str, pod: Option<&Pod>) -> String {
        let events: Vec<Event> =
            self.cluster.objects(Some(&self.settings.namespace), None).await.unwrap_or_default();
        let from_events = events
            .iter()
            .filter(|event| event.involved_object.name.as_deref() == Some(pod_name))
            .filter(|event| event.type_.as_deref() == Some("Warning"))
            .filter_map(|event| event.message.as_deref())
            .next_back();
        let from_status = pod.and_then(waiting);
        let reason = from_events.map(str::to_string).or(from_status);
        let reason = reason.unwrap_or_else(|| "the kubelet reported nothing about it".to_string());
        brief(&reason).into_owned()
    }

    async fn nodes(&self) -> Result<BTreeMap<String, Node>, ClusterError> {
        let nodes: Vec<Node> = self.cluster.objects(None, None).await?;
        Ok(nodes.into_iter().map(|node| (name(&node).to_string(), node)).collect())
    }

    /// Returns all Nodes, and the Pods of the run, by name.
    pub(super) async fn nodes_and_pods(
        &self,
    ) -> Result<(BTreeMap<String, Node>, BTreeMap<String, Pod>), ClusterError> {
        let labels = format!("{RUN}={}", self.settings.run);
        let pods: Vec<Pod> = self.cluster.objects(Some(&self.settings.namespace), Some(&labels)).await?;
        let pods = pods.into_iter().map(|pod| (name(&pod).to_string(), pod)).collect();
        Ok((self.nodes().await?, pods))
    }

    /// Returns why the Pod of an agent is not ready.
    pub(super) async fn not_started(&self, node: usize, role: Role, pod: Option<&Pod>) -> String {
        self.reason(&self.settings.pod_name(node, role), pod).await
    }

    /// Creates the Pod of an agent again. Returns whether it was accepted. Creates nothing if the Lease belongs to another process.
    pub(super) async fn create_pod(&self, (node, role): (usize, Role), node_name: &str) -> bool {
        let holder = self.lease.lock().await.holder().await;
        if !matches!(holder, Ok(Some((holder, _))) if holder == self.holder) {
            return false;
        }
        self.cluster.create(&self.settings.pod(node, node_name, role)).await.is_ok()
    }

    /// Removes the Pod of an agent, so that it can be created again. Without success, the next round does it.
    pub(super) async fn remove_pod(&self, (node, role): (usize, Role), uid: &str) {
        let name = self.settings.pod_name(node, role);
        let pod = ObjectRef::new("v1", "Pod", Some(&self.settings.namespace), &name);
        let _ = self.cluster.delete(&pod, Some(uid)).await;
    }

    /// Removes the objects of this run, and the namespace if netsurgeon created it and no other process uses it.
    pub async fn clean(&self) -> Result<Cleaned, DeploymentError> {
        let mut cleaned = self.remove_objects(Some(&self.settings.run)).await?;
        let holder = self.lease.lock().await.holder().await?;
        if holder.is_some_and(|(holder, _)| holder != self.holder) {
            return Ok(cleaned);
        }
        // The Lease is removed with the namespace, so no other process takes it before.
        cleaned.has_removed_namespace = self.remove_namespace().await?;
        if !cleaned.has_removed_namespace {
            self.lease.lock().await.release().await?;
        }
        Ok(cleaned)
    }

    /// Removes everything that network tests left behind in a namespace, and the namespace if a test created it. Fails if a test
    /// runs there, unless `is_forced`.
    pub async fn clean_all(
        cluster: &Cluster,
        namespace: &str,
        is_forced: bool,
    ) -> Result<Cleaned, DeploymentError> {
        let settings = Settings {
            namespace: namespace.to_string(),
            image: String::new(),
            pull_secret: None,
            run: String::new(),
            token: String::new(),
            port: 0,
            host_port: 0,
            longest: 0,
        };
        if cluster.object::<Namespace>(None, namespace).await?.is_none() {
            return Ok(Cleaned::default());
        }
        let deployment = Self::new(cluster.clone(), settings, "network clean");
        let holder = deployment.lease.lock().await.holder().await?;
        if let Some((holder, _)) = holder {
            if !is_forced {
                return Err(DeploymentError::Busy { namespace: namespace.to_string(), holder });
            }
            // A test that still runs ends, and creates nothing again.
            deployment.lease.lock().await.seize(&holder).await?;
        }
        let mut cleaned = deployment.remove_objects(None).await?;
        let lease = ObjectRef::new("coordination.k8s.io/v1", "Lease", Some(namespace), LEASE);
        cluster.delete(&lease, None).await?;
        cleaned.has_removed_namespace = deployment.remove_namespace().await?;
        Ok(cleaned)
    }

    /// Removes the objects of one run or of all runs, and waits until they are gone. Continues after an error, until the time is over.
    async fn remove_objects(&self, run: Option<&str>) -> Result<Cleaned, DeploymentError> {
        let labels = run.map_or_else(selector, |run| format!("{},{RUN}={run}", selector()));
        let (mut cleaned, started) = (Cleaned::default(), Instant::now());
        loop {
            let is_late = started.elapsed() > REMOVAL;
            match self.remove_once(&labels, started.elapsed() > GRACE, &mut cleaned).await {
                Ok(left) if left.is_empty() => return Ok(cleaned),
                Ok(left) if is_late => return Err(self.not_removed(&crate::words::first_few(&left))),
                Err(error) if is_late || !error.is_transient() => return Err(error.into()),
                _ => sleep(PAUSE).await,
            }
        }
    }

    /// Requests the removal of all objects that are left; returns their names.
    async fn remove_once(
        &self,
        labels: &str,
        at_once: bool,
        cleaned: &mut Cleaned,
    ) -> Result<Vec<String>, ClusterError> {
        let mut left = Vec::new();
        for (api_version, kind) in KINDS {
            let collection = Collection::new(api_version, kind, Some(&self.settings.namespace));
            let objects = self.cluster.list(&collection, Some(labels)).await?;
            let removals = objects.iter().map(async |object| {
                let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
                let reference = ObjectRef { collection, name: text("/metadata/name") };
                let is_ending = !text("/metadata/deletionTimestamp").is_empty();
                let uid = text("/metadata/uid");
                if is_ending && at_once && kind == "Pod" {
                    // The kubelet of its node does not confirm it.
                    gone(self.cluster.delete_at_once(&reference, uid).await)?;
                } else if !is_ending {
                    gone(self.cluster.delete(&reference, Some(uid)).await)?;
                }
                Ok::<_, ClusterError>((format!("{kind} `{}`", reference.name), !is_ending))
            });
            let removed: Vec<(String, bool)> =
                stream::iter(removals).buffer_unordered(AT_ONCE).try_collect().await?;
            let count = removed.iter().filter(|(_, is_new)| *is_new).count();
            if count > 0 {
                let of_kind = cleaned.removed.entry(kind.to_string()).or_default();
                *of_kind = of_kind.saturating_add(count);
            }
            left.extend(removed.into_iter().map(|(name, _)| name));
        }
        Ok(left)
    }

    fn not_removed(&self, left: &str) -> DeploymentError {
        DeploymentError::NotRemoved {
            namespace: self.settings.namespace.clone(),
            waited: in_words(REMOVAL),
            left: left.to_string(),
        }
    }

    /// Removes the namespace if a test created it.
    async fn remove_namespace(&self) -> Result<bool, DeploymentError> {
        let namespace = &self.settings.namespace;
        let Some(found) = self.cluster.object::<Namespace>(None, namespace).await? else { return Ok(false) };
        let is_own = [MANAGED_BY, COMPONENT].iter().all(|(name, value)| label(&found, name) == Some(value));
        if !is_own || annotation(&found, CREATED) != "true" {
            return Ok(false);
        }
        let object = ObjectRef::new("v1", "Namespace", None, namespace);
        self.cluster.delete(&object, found.metadata.uid.as_deref()).await?;
        let started = Instant::now();
        while self.cluster.object::<Namespace>(None, namespace).await?.is_some() {
            if started.elapsed() > REMOVAL {
                return Err(self.not_removed(&format!("Namespace `{namespace}`")));
            }
            sleep(PAUSE).await;
        }
        Ok(true)
    }
}

/// An object that was removed and created again meanwhile is not ours.
fn gone(outcome: Result<(), ClusterError>) -> Result<(), ClusterError> {
    match outcome {
        Err(ClusterError::Conflict { .. }) => Ok(()),
        outcome => outcome,
    }
}

fn rejected(what: &str, error: &ClusterError) -> DeploymentError {
    DeploymentError::Rejected { what: what.to_string(), reason: error.to_string() }
}
