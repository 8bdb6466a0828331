//! Pods in memory. They have only the fields that are read: environment variables, commands and probes of the containers are
//! dropped, because any tenant can create many large Pods. Code that needs another field adds it here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, LocalObjectReference, Pod, PodSpec, PodStatus, ResourceRequirements,
    Toleration, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::retention::trimmed;

/// A Pod. It has no `managedFields`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(from = "Pod")]
pub struct TrimmedPod {
    /// Metadata of the Pod.
    pub metadata: ObjectMeta,
    /// What the Pod runs.
    pub spec: Option<TrimmedPodSpec>,
    /// State of the Pod.
    pub status: Option<PodStatus>,
}

/// What a Pod runs: the fields of `PodSpec` that are read.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(from = "PodSpec")]
#[allow(missing_docs, reason = "the fields have the names and the meaning of `PodSpec`")]
pub struct TrimmedPodSpec {
    pub affinity: Option<Affinity>,
    pub containers: Vec<TrimmedContainer>,
    pub host_network: Option<bool>,
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    pub init_containers: Option<Vec<TrimmedContainer>>,
    pub node_name: Option<String>,
    pub node_selector: Option<BTreeMap<String, String>>,
    pub overhead: Option<BTreeMap<String, Quantity>>,
    pub priority: Option<i32>,
    pub priority_class_name: Option<String>,
    pub resources: Option<ResourceRequirements>,
    pub runtime_class_name: Option<String>,
    pub service_account: Option<String>,
    pub service_account_name: Option<String>,
    pub tolerations: Option<Vec<Toleration>>,
    pub volumes: Option<Vec<Volume>>,
}

/// A container: the fields of `Container` that are read.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs, reason = "the fields have the names and the meaning of `Container`")]
pub struct TrimmedContainer {
    pub name: String,
    pub ports: Option<Vec<ContainerPort>>,
    pub resources: Option<ResourceRequirements>,
    pub restart_policy: Option<String>,
}

impl From<Pod> for TrimmedPod {
    fn from(pod: Pod) -> Self {
        let metadata = ObjectMeta { managed_fields: None, ..pod.metadata };
        Self { metadata, spec: pod.spec.map(TrimmedPodSpec::from), status: pod.status }
    }
}

impl From<PodSpec> for TrimmedPodSpec {
    fn from(spec: PodSpec) -> Self {
        let trimmed = |list: Vec<Container>| list.into_iter().map(TrimmedContainer::from).collect();
        Self {
            affinity: spec.affinity,
            containers: trimmed(spec.containers),
            host_network: spec.host_network,
            image_pull_secrets: spec.image_pull_secrets,
            init_containers: spec.init_containers.map(trimmed),
            node_name: spec.node_name,
            node_selector: spec.node_selector,
            overhead: spec.overhead,
            priority: spec.priority,
            priority_class_name: spec.priority_class_name,
            resources: spec.resources,
            runtime_class_name: spec.runtime_class_name,
            service_account: spec.service_account,
            service_account_name: spec.service_account_name,
            tolerations: spec.tolerations,
            volumes: spec.volumes,
        }
    }
}

impl From<Container> for TrimmedContainer {
    fn from(container: Container) -> Self {
        let Container { name, ports, resources, restart_policy, .. } = container;
        Self { name, ports, resources, restart_policy }
    }
}

trimmed!(TrimmedPod, Pod);

/// Returns whether a Pod can still run. A Pod with the phase Succeeded or Failed does not run again.
pub fn is_alive(pod: &TrimmedPod) -> bool {
    !matches!(phase(pod), "Succeeded" | "Failed")
}

/// Returns the phase of a Pod, for example `Running`; empty if the Pod has no phase.
pub fn phase(pod: &TrimmedPod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Returns the name of a Pod's node; empty if the Pod is not scheduled.
pub fn node_of(pod: &TrimmedPod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// Returns whether a Pod is ready.
pub fn is_ready(pod: &TrimmedPod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}
