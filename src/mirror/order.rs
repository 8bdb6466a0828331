//! The order in which objects are created. Objects of one level do not need each other.

use super::strip::WEBHOOKS;

/// A level: its name, and what it contains.
pub(super) struct Level {
    /// Name of the stage.
    pub name: &'static str,
    /// Description for people.
    pub title: &'static str,
    /// Kinds, as `GROUP/PLURAL`.
    kinds: &'static [&'static str],
}

/// The level of kinds that no other level names, such as custom resources.
const OTHERS: &str = "others";

/// The levels, in the order of their creation. A quota comes after the objects that it counts, so parallel creations do not compete
/// for it (kubernetes/kubernetes#67761).
pub(super) const LEVELS: [Level; 10] = [
    Level { name: "namespaces", title: "create namespaces", kinds: &["/namespaces"] },
    Level {
        name: "definitions",
        title: "copy definitions of custom resources",
        kinds: &["apiextensions.k8s.io/customresourcedefinitions"],
    },
    Level {
        name: "accounts",
        title: "copy ServiceAccounts, Roles and PriorityClasses",
        kinds: &[
            "/serviceaccounts",
            "rbac.authorization.k8s.io/roles",
            "rbac.authorization.k8s.io/clusterroles",
            "scheduling.k8s.io/priorityclasses",
        ],
    },
    Level {
        name: "configuration",
        title: "copy configuration",
        kinds: &[
            "rbac.authorization.k8s.io/rolebindings",
            "rbac.authorization.k8s.io/clusterrolebindings",
            "/configmaps",
            "/secrets",
            "/limitranges",
            "networking.k8s.io/networkpolicies",
        ],
    },
    Level { name: "services", title: "copy Services", kinds: &["/services"] },
    Level {
        name: "workloads",
        title: "copy workloads",
        kinds: &[
            "apps/deployments",
            "apps/daemonsets",
            "apps/statefulsets",
            "apps/replicasets",
            "/replicationcontrollers",
            "batch/cronjobs",
            "batch/jobs",
        ],
    },
    Level { name: OTHERS, title: "copy other objects", kinds: &[] },
    Level {
        name: "traffic",
        title: "copy Ingresses, autoscalers and budgets",
        kinds: &[
            "networking.k8s.io/ingresses",
            "autoscaling/horizontalpodautoscalers",
            "policy/poddisruptionbudgets",
        ],
    },
    Level { name: "quotas", title: "copy quotas", kinds: &["/resourcequotas"] },
    // A webhook would reject other copies before its server is ready.
    Level { name: "webhooks", title: "copy webhooks", kinds: &WEBHOOKS },
];

/// Returns the level of a kind (`GROUP/PLURAL`).
pub(super) fn level(kind: &str) -> usize {
    let named = LEVELS.iter().position(|level| level.kinds.contains(&kind));
    let others = || LEVELS.iter().position(|level| level.name == OTHERS);
    named.or_else(others).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn needed_objects_come_first() {
        for (first, second) in [
            ("/namespaces", "/serviceaccounts"),
            ("/serviceaccounts", "apps/deployments"),
            ("/secrets", "apps/deployments"),
            ("/services", "apps/deployments"),
            ("rbac.authorization.k8s.io/roles", "rbac.authorization.k8s.io/rolebindings"),
            ("rbac.authorization.k8s.io/clusterroles", "rbac.authorization.k8s.io/clusterrolebindings"),
            ("apiextensions.k8s.io/customresourcedefinitions", "example.com/widgets"),
            ("scheduling.k8s.io/priorityclasses", "apps/deployments"),
            ("apps/deployments", "autoscaling/horizontalpodautoscalers"),
            ("/services", "networking.k8s.io/ingresses"),
            ("apps/deployments", "example.com/widgets"),
            // Otherwise cert-manager issues a certificate again, because it finds no Secret.
            ("/secrets", "cert-manager.io/certificates"),
            ("/secrets", "cert-manager.io/issuers"),
            ("example.com/widgets", "/resourcequotas"),
            ("/resourcequotas", "admissionregistration.k8s.io/mutatingwebhookconfigurations"),
        ] {
            assert!(level(first) < level(second), "{first} {second}");
        }
        let kinds: Vec<&str> = LEVELS.iter().flat_map(|level| level.kinds).copied().collect();
        assert_eq!(kinds.len(), kinds.iter().collect::<BTreeSet<_>>().len());
    }
}
