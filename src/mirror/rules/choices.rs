//! Which workloads the configuration makes passive, and which run in the mirror although no Service selects them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::replicas::SCALABLE;
use super::uses::Uses;
use crate::inventory::selectors::selects;
use crate::inventory::{list, text};
use crate::kube_api::accessors::Labels;
use crate::mirror::config::{Config, parse_selector};
use crate::mirror::left_out::{self, Reason};

/// Kinds that are left out unless the configuration or `--run` chooses an object.
const ONLY_CHOSEN: [&str; 2] = ["apps/statefulsets", "apps/replicasets"];

/// Returns whether objects of a kind are left out unless they are chosen.
pub(in crate::mirror) fn is_only_chosen(kind: &str) -> bool {
    ONLY_CHOSEN.contains(&kind)
}

/// What the configuration says about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mirror) enum Choice {
    /// Nothing.
    Open,
    /// It runs in the mirror.
    Run,
    /// It has 0 replicas in the mirror.
    Passive,
    /// It is not copied.
    LeftOut(Reason),
}

/// A workload of the source, for the decision about budgets.
#[derive(Debug, Clone)]
pub(in crate::mirror) struct Workload {
    pub namespace: String,
    /// Kind and name, for example `Deployment` and `web`.
    pub name: (String, String),
    /// Labels of its Pods.
    pub labels: Labels,
    pub is_passive: bool,
}

/// The selectors of the configuration.
#[derive(Debug, Clone, Default)]
pub(in crate::mirror) struct Choices {
    passive: Vec<LabelSelector>,
    run: Vec<LabelSelector>,
    /// Names of workloads to run, as `NAMESPACE/NAME`.
    names: BTreeSet<String>,
    /// The workloads that are in the mirror, if the configuration makes some of them passive.
    pub workloads: Vec<Workload>,
}

impl Choices {
    /// Returns the choices of a configuration. `names`: workloads to run.
    pub fn new(config: &Config, names: &[String]) -> Result<Self, String> {
        let parse =
            |texts: &[String]| texts.iter().map(|text| parse_selector(text)).collect::<Result<_, _>>();
        Ok(Self {
            passive: parse(&config.passive.workloads)?,
            run: parse(&config.run)?,
            names: names.iter().cloned().collect(),
            workloads: Vec::new(),
        })
    }

    /// Returns whether objects of a kind that is otherwise left out can be chosen.
    pub fn reads(&self, kind: &str) -> bool {
        let chooses = !self.passive.is_empty() || !self.run.is_empty() || !self.names.is_empty();
        ONLY_CHOSEN.contains(&kind) && chooses
    }

    /// Returns whether a workload can be passive.
    pub fn has_passive(&self) -> bool {
        !self.passive.is_empty()
    }

    /// Returns what the configuration says about an object.
    pub fn of(&self, kind: &str, object: &Value, uses: &Uses) -> Choice {
        if kind == "policy/poddisruptionbudgets" {
            return self.of_budget(object);
        }
        if kind == "keda.sh/scaledobjects" {
            return self.of_scaler(object);
        }
        if !SCALABLE.contains(&kind) && kind != "apps/daemonsets" {
            return Choice::Open;
        }
        let labels = labels(object);
        let matched = |selectors: &[LabelSelector], rules: &'static str| {
            let found: Vec<usize> = (0..)
                .zip(selectors)
                .filter(|(_, one)| selects(Some(one), &labels))
                .map(|(at, _)| at)
                .collect();
            for index in &found {
                uses.mark(rules, *index);
            }
            !found.is_empty()
        };
        let (is_passive, is_selected) =
            (matched(&self.passive, "passive.workloads"), matched(&self.run, "run"));
        let subject = format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let is_run = is_selected || self.names.contains(&subject);
        if is_passive && is_run {
            let finding = "both `passive` and `run` select a workload; it is passive".to_string();
            uses.note(finding, format!("{} {subject}", text(object, "/kind")));
        }
        match kind {
            "apps/daemonsets" if is_passive => Choice::LeftOut(left_out::PASSIVE_DAEMON_SET),
            "apps/statefulsets" if (is_passive || is_run) && has_claims(object) => {
                Choice::LeftOut(left_out::WITH_DATA)
            }
            _ if is_passive => Choice::Passive,
            _ if is_run => Choice::Run,
            kind if ONLY_CHOSEN.contains(&kind) => Choice::LeftOut(left_out::NOT_CHOSEN),
            _ => Choice::Open,
        }
    }

    /// A budget whose Pods are all of passive workloads allows no eviction, and there is no Pod that it protects.
    fn of_budget(&self, budget: &Value) -> Choice {
        let namespace = text(budget, "/metadata/namespace");
        let selector = budget.pointer("/spec/selector").cloned().unwrap_or_default();
        let Ok(Some(selector)) = serde_json::from_value::<Option<LabelSelector>>(selector) else {
            return Choice::Open;
        };
        let own = self.workloads.iter().filter(|one| one.namespace == namespace);
        let protected: Vec<&Workload> = own.filter(|one| selects(Some(&selector), &one.labels)).collect();
        if protected.is_empty() || protected.iter().any(|one| !one.is_passive) {
            return Choice::Open;
        }
        Choice::LeftOut(left_out::PASSIVE_BUDGET)
    }

    /// KEDA starts Pods of a workload with 0 replicas, unlike an autoscaler of Kubernetes (keda.sh `ScaledObjectSpec`,
    /// `apis/keda/v1alpha1/scaledobject_types.go`).
    fn of_scaler(&self, scaler: &Value) -> Choice {
        let kind = text(scaler, "/spec/scaleTargetRef/kind");
        let kind = if kind.is_empty() { "Deployment" } else { kind };
        let name = (kind.to_string(), text(scaler, "/spec/scaleTargetRef/name").to_string());
        let namespace = text(scaler, "/metadata/namespace");
        let mut own = self.workloads.iter().filter(|one| one.namespace == namespace && one.name == name);
        if own.any(|one| one.is_passive) { Choice::LeftOut(left_out::PASSIVE_SCALER) } else { Choice::Open }
    }
}

/// Returns the labels of a workload, and those of its Pods. The workload's own value counts if both have a label.
fn labels(object: &Value) -> Labels {
    let mut found = pod_labels(object);
    found.extend(labels_at(object, "/metadata/labels"));
    found
}

/// Returns the labels of a workload's Pods.
pub(in crate::mirror) fn pod_labels(object: &Value) -> Labels {
    labels_at(object, "/spec/template/metadata/labels")
}

fn labels_at(object: &Value, place: &str) -> BTreeMap<String, String> {
    let map = object.pointer(place).and_then(Value::as_object);
    let pair = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_string()));
    map.into_iter().flatten().filter_map(pair).collect()
}

fn has_claims(object: &Value) -> bool {
    !list(object, "/spec/volumeClaimTemplates").is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mirror::config::Passive;

    fn choices() -> Choices {
        let config = Config {
            passive: Passive { workloads: vec!["tier=worker".to_string()] },
            run: vec!["app=poller".to_string()],
            ..Config::default()
        };
        Choices::new(&config, &["shop/named".to_string()]).unwrap()
    }

    fn workload(name: &str, own: &Value, of_pods: &Value, claims: &Value) -> Value {
        json!({"kind": "X", "metadata": {"namespace": "shop", "name": name, "labels": own},
               "spec": {"template": {"metadata": {"labels": of_pods}}, "volumeClaimTemplates": claims}})
    }

    #[test]
    fn workloads_are_chosen_by_labels_and_names() {
        let worker = json!({"tier": "worker"});
        let (none, claims) = (json!({}), json!([{"metadata": {"name": "data"}}]));
        for (kind, object, expected) in [
            ("apps/deployments", workload("a", &worker, &none, &Value::Null), Choice::Passive),
            ("apps/deployments", workload("a", &none, &worker, &Value::Null), Choice::Passive),
            ("apps/deployments", workload("a", &json!({"tier": "web"}), &worker, &Value::Null), Choice::Open),
            ("apps/deployments", workload("a", &json!({"app": "poller"}), &none, &Value::Null), Choice::Run),
            (
                "apps/deployments",
                workload("a", &json!({"app": "poller", "tier": "worker"}), &none, &Value::Null),
                Choice::Passive,
            ),
            ("apps/deployments", workload("named", &none, &none, &Value::Null), Choice::Run),
            ("apps/deployments", workload("a", &none, &none, &Value::Null), Choice::Open),
            (
                "apps/daemonsets",
                workload("a", &worker, &none, &Value::Null),
                Choice::LeftOut(left_out::PASSIVE_DAEMON_SET),
            ),
            ("apps/daemonsets", workload("named", &none, &none, &Value::Null), Choice::Run),
            ("apps/statefulsets", workload("a", &worker, &none, &Value::Null), Choice::Passive),
            (
                "apps/statefulsets",
                workload("a", &worker, &none, &claims),
                Choice::LeftOut(left_out::WITH_DATA),
            ),
            (
                "apps/statefulsets",
                workload("named", &none, &none, &claims),
                Choice::LeftOut(left_out::WITH_DATA),
            ),
            ("apps/statefulsets", workload("named", &none, &none, &json!([])), Choice::Run),
            (
                "apps/statefulsets",
                workload("a", &none, &none, &Value::Null),
                Choice::LeftOut(left_out::NOT_CHOSEN),
            ),
            ("apps/replicasets", workload("a", &worker, &none, &Value::Null), Choice::Passive),
            ("batch/cronjobs", workload("a", &worker, &none, &Value::Null), Choice::Open),
        ] {
            let uses = Uses::default();
            assert_eq!(choices().of(kind, &object, &uses), expected, "{kind} {object}");
        }
        assert!(choices().reads("apps/statefulsets") && !choices().reads("/services"));
        assert!(!Choices::default().reads("apps/statefulsets"));
    }

    #[test]
    fn budget_and_scaler_of_passive_workloads_are_left_out() {
        let mut choices = choices();
        let workload = |app: &str, is_passive| Workload {
            namespace: "shop".to_string(),
            name: ("Deployment".to_string(), app.to_string()),
            labels: [("app".to_string(), app.to_string()), ("all".to_string(), "1".to_string())].into(),
            is_passive,
        };
        choices.workloads = vec![workload("worker", true), workload("web", false)];
        let budget = |namespace: &str, selector: Value| json!({"metadata": {"namespace": namespace, "name": "b"}, "spec": {"selector": selector}});
        let left_out = Choice::LeftOut(left_out::PASSIVE_BUDGET);
        for (object, expected) in [
            (budget("shop", json!({"matchLabels": {"app": "worker"}})), left_out),
            (budget("shop", json!({"matchLabels": {"app": "web"}})), Choice::Open),
            (budget("shop", json!({"matchLabels": {"all": "1"}})), Choice::Open),
            (budget("shop", json!({"matchLabels": {"app": "none"}})), Choice::Open),
            (budget("pay", json!({"matchLabels": {"app": "worker"}})), Choice::Open),
            (budget("shop", Value::Null), Choice::Open),
        ] {
            assert_eq!(
                choices.of("policy/poddisruptionbudgets", &object, &Uses::default()),
                expected,
                "{object}"
            );
        }
        let passive = Choice::LeftOut(left_out::PASSIVE_SCALER);
        for (namespace, target, expected) in [
            ("shop", json!({"name": "worker"}), passive),
            ("shop", json!({"kind": "Deployment", "name": "worker"}), passive),
            ("shop", json!({"kind": "StatefulSet", "name": "worker"}), Choice::Open),
            ("shop", json!({"name": "web"}), Choice::Open),
            ("pay", json!({"name": "worker"}), Choice::Open),
        ] {
            let scaler = json!({"metadata": {"namespace": namespace, "name": "s"}, "spec": {"scaleTargetRef": target}});
            assert_eq!(choices.of("keda.sh/scaledobjects", &scaler, &Uses::default()), expected, "{scaler}");
        }
    }
}
