//! What Pods request of a node, and what nodes have to give: CPU, memory, Pods, and whatever else is counted.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource;

use super::quantity::Quantity;

/// From this share on, in percent, there is no room for a node that fails or a rollout that takes more for a while.
pub const CLOSE: i128 = 80;

/// Amounts by resource, as `cpu`, `pods` and `nvidia.com/gpu`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Room(BTreeMap<String, Quantity>);

impl Room {
    /// Reads the amounts of a list, as `requests` is one; what is no quantity is left out.
    fn at(list: Option<&BTreeMap<String, resource::Quantity>>) -> Self {
        let read = |(name, amount): (&String, &resource::Quantity)| {
            Some((name.clone(), Quantity::parse(&amount.0)?))
        };
        Self(list.into_iter().flatten().filter_map(read).collect())
    }

    /// What a node has to give.
    pub fn given(node: &Node) -> Self {
        Self::at(node.status.as_ref().and_then(|status| status.allocatable.as_ref()))
    }

    /// Room for so many Pods, and nothing else.
    pub fn pods(count: usize) -> Self {
        let one = Quantity::parse("1").unwrap_or_default();
        Self(BTreeMap::from([("pods".to_string(), one.times(count))]))
    }

    /// How much of one resource there is.
    pub fn of(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Each amount of the two, put together.
    #[must_use]
    fn both(mut self, other: &Self, of: impl Fn(Quantity, Quantity) -> Quantity) -> Self {
        for (name, amount) in &other.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = of(*own, *amount);
        }
        self
    }

    /// What is left of it without another; of nothing less than nothing.
    #[must_use]
    pub fn without(self, other: &Self) -> Self {
        self.both(other, Quantity::without)
    }

    /// The largest share of another that it is, in percent, and of what.
    pub fn closest(&self, of: &Self) -> Option<(i128, &str)> {
        let shares =
            self.0.iter().filter_map(|(name, amount)| Some((amount.percent_of(of.of(name))?, name.as_str())));
        shares.max()
    }

    /// CPU and memory, to tell which of two is the larger.
    pub fn size(&self) -> (Quantity, Quantity) {
        (self.of("cpu"), self.of("memory"))
    }

    /// The sum of the two.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        self.both(other, Quantity::plus)
    }

    /// With another's amounts of what it has none of.
    fn or(mut self, other: Self) -> Self {
        for (name, amount) in other.0 {
            self.0.entry(name).or_insert(amount);
        }
        self
    }

    /// What there is more of than in another, by name.
    pub fn more_than(&self, other: &Self) -> Vec<String> {
        let more = self.0.iter().filter(|(name, amount)| **amount > other.of(name));
        more.map(|(name, _)| format!("`{name}`")).collect()
    }

    /// In words: CPU, memory and Pods, and of what else is asked for.
    pub fn told(&self, asked: &Self) -> String {
        let mut parts = vec![
            format!("{} cores", self.of("cpu").cores()),
            self.of("memory").bytes(),
            format!("{} Pods", self.of("pods").cores()),
        ];
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

/// What a Pod requests (`PodRequests`, `k8s.io/component-helpers/resource/helpers.go`, v1.36.3): the sum of its containers, or what it
/// needs while it is initialised if that is more; what the Pod itself says in place of that; its overhead; and itself as one of the Pods
/// that a node takes. A limit is the request where none is said (`SetDefaults_Pod`, `pkg/apis/core/v1/defaults.go`): an API server has
/// written that down in Pods, and not in templates.
pub fn requested(spec: &PodSpec) -> Room {
    let add = |sum: Room, container: &Container| {
        let [requests, limits] = amounts(container.resources.as_ref());
        sum.plus(&requests.or(limits))
    };
    let running = spec.containers.iter().fold(Room::default(), add);
    let (mut beside, mut most) = (Room::default(), Room::default());
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
    requests.or(sum).or(limits).plus(&Room::at(spec.overhead.as_ref())).plus(&Room::pods(1))
}

/// Requests and limits.
fn amounts(resources: Option<&ResourceRequirements>) -> [Room; 2] {
    let lists = resources.map(|told| [told.requests.as_ref(), told.limits.as_ref()]);
    lists.unwrap_or_default().map(Room::at)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn requested(spec: &Value) -> Room {
        super::requested(&serde_json::from_value(spec.clone()).unwrap())
    }

    fn container(cpu: &str, memory: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    fn room(cpu: &str, memory: &str) -> Room {
        let list = [("cpu", cpu), ("memory", memory), ("pods", "1")];
        let list = list.map(|(name, amount)| (name.to_string(), resource::Quantity(amount.to_string())));
        Room::at(Some(&list.into()))
    }

    #[test]
    fn a_pod_requests_what_it_needs_at_most() {
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
        assert_eq!(requested(&said), room("3.01", "1035Mi"), "the Pod itself says its CPU");
        assert_eq!(requested(&json!({"containers": [{}]})), Room::pods(1));
        let limited = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}});
        assert_eq!(requested(&json!({"containers": [{"resources": limited}]})), room("1", "1Gi"));
        let whole = json!({"limits": {"cpu": "2", "memory": "1Gi"}});
        assert_eq!(requested(&json!({"containers": [{}], "resources": whole})), room("2", "1Gi"));
    }
}
