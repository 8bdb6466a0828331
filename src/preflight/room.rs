//! What Pods request of a node, and what nodes have to give: CPU, memory, Pods, and whatever else is counted.

use std::collections::BTreeMap;

use serde_json::Value;

use super::quantity::Quantity;
use super::text;

/// From this share on, in percent, there is no room for a node that fails or a rollout that takes more for a while.
pub const CLOSE: i128 = 80;

/// Amounts by resource, as `cpu`, `pods` and `nvidia.com/gpu`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Room(BTreeMap<String, Quantity>);

impl Room {
    /// Reads the amounts of a list, as `requests` is one; what is no quantity is left out.
    pub fn at(value: Option<&Value>) -> Self {
        let list = value.and_then(Value::as_object).into_iter().flatten();
        let read = |(name, amount): (&String, &Value)| {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_string);
            Some((name.clone(), Quantity::parse(&text)?))
        };
        Self(list.filter_map(read).collect())
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
pub fn requested(spec: &Value) -> Room {
    let list = |name: &str| spec.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let at = |name: &str, of: &Value| Room::at(of.pointer(&format!("/resources/{name}")));
    let of = |container: &Value| at("requests", container).or(at("limits", container));
    let add = |sum: Room, container: &Value| sum.plus(&of(container));
    let running = list("containers").iter().fold(Room::default(), add);
    let (mut beside, mut most) = (Room::default(), Room::default());
    for container in list("initContainers") {
        let now = add(beside.clone(), container);
        if text(container, "/restartPolicy") == "Always" {
            beside = now.clone();
        }
        most = most.both(&now, Ord::max);
    }
    let sum = running.plus(&beside).both(&most, Ord::max);
    let said = |name: &str| {
        let mut room = at(name, spec);
        room.0.retain(|name, _| matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-"));
        room
    };
    said("requests").or(sum).or(said("limits")).plus(&Room::at(spec.get("overhead"))).plus(&Room::pods(1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(cpu: &str, memory: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    fn room(cpu: &str, memory: &str) -> Room {
        Room::at(Some(&json!({"cpu": cpu, "memory": memory, "pods": 1})))
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
