//! Resources that Pods request and nodes offer: CPU, memory, Pods, and others.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource;

use super::quantity::Quantity;
use crate::inventory::pod::{TrimmedContainer, TrimmedPodSpec};

/// Highest accepted usage in percent. A higher usage leaves no room for the failure of a node, or for the extra Pods of a
/// rollout.
pub const CLOSE: i128 = 80;

/// Amounts of resources, such as `cpu`, `pods` and `nvidia.com/gpu`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources(BTreeMap<String, Quantity>);

impl Resources {
    /// Reads the amounts in a list such as `requests`. Invalid amounts are dropped.
    fn at(list: Option<&BTreeMap<String, resource::Quantity>>) -> Self {
        let read = |(name, amount): (&String, &resource::Quantity)| {
            Some((name.clone(), Quantity::parse(&amount.0)?))
        };
        Self(list.into_iter().flatten().filter_map(read).collect())
    }

    /// Returns the allocatable resources of a node.
    pub fn given(node: &Node) -> Self {
        Self::at(node.status.as_ref().and_then(|status| status.allocatable.as_ref()))
    }

    /// Returns the given number of Pods, and no other resource.
    pub fn pods(count: usize) -> Self {
        let one = Quantity::parse("1").unwrap_or_default();
        Self(BTreeMap::from([("pods".to_string(), one.times(count))]))
    }

    /// Returns the amount of one resource.
    pub fn of(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Combines each amount with the amount of the same resource in `other`.
    #[must_use]
    fn both(mut self, other: &Self, of: impl Fn(Quantity, Quantity) -> Quantity) -> Self {
        for (name, amount) in &other.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = of(*own, *amount);
        }
        self
    }

    /// Subtracts the amounts in `other`. No amount goes below zero.
    #[must_use]
    pub fn without(self, other: &Self) -> Self {
        self.both(other, Quantity::without)
    }

    /// Compares each amount with the amount of the same resource in `of`. Returns the largest share in percent, and the resource.
    pub fn closest(&self, of: &Self) -> Option<(i128, &str)> {
        let shares =
            self.0.iter().filter_map(|(name, amount)| Some((amount.percent_of(of.of(name))?, name.as_str())));
        shares.max()
    }

    /// Returns CPU and memory, to compare two Pods by size.
    pub fn size(&self) -> (Quantity, Quantity) {
        (self.of("cpu"), self.of("memory"))
    }

    /// Returns the sum of both amounts for each resource.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        self.both(other, Quantity::plus)
    }

    /// Adds the amounts from `other` for resources that are missing here.
    fn or(mut self, other: Self) -> Self {
        for (name, amount) in other.0 {
            self.0.entry(name).or_insert(amount);
        }
        self
    }

    /// Returns the names of the resources that have a larger amount here than in `other`.
    pub fn more_than(&self, other: &Self) -> Vec<String> {
        let more = self.0.iter().filter(|(name, amount)| **amount > other.of(name));
        more.map(|(name, _)| format!("`{name}`")).collect()
    }

    /// Returns the amounts as text: CPU, memory, Pods, and the other resources that `asked` contains.
    pub fn told(&self, asked: &Self) -> String {
        let pods = match self.of("pods").cores().as_str() {
            "1" => "1 Pod".to_string(),
            count => format!("{count} Pods"),
        };
        let mut parts = vec![format!("{} cores", self.of("cpu").cores()), self.of("memory").bytes(), pods];
        let others = asked.0.iter().filter(|(name, amount)| {
            **amount > Quantity::default() && !matches!(name.as_str(), "cpu" | "memory" | "pods")
        });
        parts.extend(others.map(|(name, _)| {
            let amount = self.of(name);
            let is_bytes = name == "ephemeral-storage" || name.starts_with("hugepages-");
            format!("{} `{name}`", if is_bytes { amount.bytes() } else { amount.cores() })
        }));
        parts.join(", ")
    }
}

/// Returns the requests of a Pod (`PodRequests`, `k8s.io/component-helpers/resource/helpers.go`, v1.36.3).
///
/// The requests of a Pod are the sum of the requests of its containers. If its init containers need more, their requests count
/// instead. If the Pod itself has requests, these count instead. The overhead of the Pod is added, and the resource `pods` is 1.
/// If there is no request for a resource, its limit counts. The API server sets this default in Pods, but not in templates
/// (`SetDefaults_Pod`, `pkg/apis/core/v1/defaults.go`).
pub fn requested(spec: &TrimmedPodSpec) -> Resources {
    let add = |sum: Resources, container: &TrimmedContainer| {
        let [requests, limits] = amounts(container.resources.as_ref());
        sum.plus(&requests.or(limits))
    };
    let running = spec.containers.iter().fold(Resources::default(), add);
    let (mut beside, mut most) = (Resources::default(), Resources::default());
    for container in spec.init_containers.iter().flatten() {
        let now = add(beside.clone(), container);
        if container.restart_policy.as_deref() == Some("Always") {
            beside = now.clone();
        }
        most = most.both(&now, Ord::max);
    }
    let sum = running.plus(&beside).both(&most, Ord::max);
    let [requests, limits] = amounts(spec.resources.as_ref()).map(|mut room| {
        room.0.retain(|name, _| matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-"));
        room
    });
    requests.or(sum).or(limits).plus(&Resources::at(spec.overhead.as_ref())).plus(&Resources::pods(1))
}

/// Returns the requests and the limits.
fn amounts(resources: Option<&ResourceRequirements>) -> [Resources; 2] {
    let lists = resources.map(|told| [told.requests.as_ref(), told.limits.as_ref()]);
    lists.unwrap_or_default().map(Resources::at)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn requested(spec: &Value) -> Resources {
        super::requested(&serde_json::from_value(spec.clone()).unwrap())
    }

    fn container(cpu: &str, memory: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    fn room(cpu: &str, memory: &str) -> Resources {
        let list = [("cpu", cpu), ("memory", memory), ("pods", "1")];
        let list = list.map(|(name, amount)| (name.to_string(), resource::Quantity(amount.to_string())));
        Resources::at(Some(&list.into()))
    }

    #[test]
    fn requests_include_initialisation_sidecars_and_overhead() {
        let mut sidecar = container("50m", "10Mi");
        sidecar["restartPolicy"] = json!("Always");
        let spec = json!({
            "containers": [container("100m", "64Mi"), container("1", "0")],
            "initContainers": [container("2", "1Mi"), sidecar, container("100m", "1Gi")],
            "overhead": {"cpu": "10m", "memory": "1Mi"},
        });
        assert_eq!(requested(&spec), room("2.01", "1035Mi"));
        let mut said = spec;
        said["resources"] = json!({"requests": {"cpu": "3"}, "limits": {"memory": "8Gi"}});
        assert_eq!(requested(&said), room("3.01", "1035Mi"), "the Pod itself sets its CPU");
        assert_eq!(requested(&json!({"containers": [{}]})), Resources::pods(1));
        let limited = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}});
        assert_eq!(requested(&json!({"containers": [{"resources": limited}]})), room("1", "1Gi"));
        let whole = json!({"limits": {"cpu": "2", "memory": "1Gi"}});
        assert_eq!(requested(&json!({"containers": [{}], "resources": whole})), room("2", "1Gi"));
    }
}
