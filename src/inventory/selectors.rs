//! Evaluates label selectors as the API server does.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::kube_api::accessors::Labels;

/// Returns whether a selector (`matchLabels` and `matchExpressions`, all of which must match) selects these labels.
///
/// An empty selector selects everything (`LabelSelectorAsSelector`, `apimachinery/pkg/apis/meta/v1/helpers.go`, v1.36.3). If a
/// webhook omits a selector, the selector counts as empty (`SetDefaults_ValidatingWebhook`,
/// `pkg/apis/admissionregistration/v1/defaults.go`). A selector with an unknown operator also selects everything.
pub fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let Some(selector) = selector else { return true };
    let is_equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let requirements = selector.match_expressions.iter().flatten();
    let met: Option<Vec<bool>> = requirements.map(|requirement| meets(requirement, labels)).collect();
    met.is_none_or(|met| is_equal && met.into_iter().all(|met| met))
}

/// Returns whether labels meet a requirement; `None` if the operator is unknown. A missing label is in no set
/// (`Requirement.Matches`, `apimachinery/pkg/labels/selector.go`, v1.36.3).
fn meets(requirement: &LabelSelectorRequirement, labels: &Labels) -> Option<bool> {
    let found = labels.get(&requirement.key);
    let is_in = || requirement.values.iter().flatten().any(|value| Some(value) == found);
    match requirement.operator.as_str() {
        "In" => Some(is_in()),
        "NotIn" => Some(!is_in()),
        "Exists" => Some(found.is_some()),
        "DoesNotExist" => Some(found.is_none()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string())).collect()
    }

    fn selects(selector: &Value, labels: &Labels) -> bool {
        let selector: Option<LabelSelector> = serde_json::from_value(selector.clone()).unwrap();
        super::selects(selector.as_ref(), labels)
    }

    /// Tests every operator with a missing label, a label with the value, and a label with another value.
    #[test]
    fn operators_match_the_api_server() {
        let all = [with(&[]), with(&[("tier", "web")]), with(&[("tier", "db")])];
        let cases = [
            ("In", json!(["web"]), [false, true, false]),
            ("In", json!(["web", "db"]), [false, true, true]),
            ("NotIn", json!(["web"]), [true, false, true]),
            ("NotIn", json!(["web", "db"]), [true, false, false]),
            ("Exists", json!([]), [false, true, true]),
            ("DoesNotExist", json!([]), [true, false, false]),
            ("Resembles", json!(["web"]), [true, true, true]),
        ];
        for (operator, values, expected) in cases {
            let requirement = json!({"key": "tier", "operator": operator, "values": values});
            let selector = json!({"matchExpressions": [requirement]});
            let found = all.each_ref().map(|labels| selects(&selector, labels));
            assert_eq!(found, expected, "{selector}");
        }
        let label = json!({"matchLabels": {"tier": "web"}});
        assert_eq!(all.each_ref().map(|labels| selects(&label, labels)), [false, true, false]);
    }

    /// Tests that opposite operators never match the same labels.
    #[test]
    fn opposite_operators_exclude_each_other() {
        let values = ["", "x", "y"];
        let of_own =
            |own| [with(&[]), with(&[("a", own)]), with(&[("b", own)]), with(&[("a", own), ("b", "x")])];
        for labels in values.into_iter().flat_map(of_own) {
            for (key, value) in ["a", "b"].into_iter().flat_map(|key| values.map(|value| (key, value))) {
                let by = |operator: &str, values: Value| {
                    let requirement = json!({"key": key, "operator": operator, "values": values});
                    selects(&json!({"matchExpressions": [requirement]}), &labels)
                };
                let is_in = by("In", json!([value]));
                assert_ne!(is_in, by("NotIn", json!([value])), "{key} {value} {labels:?}");
                assert_ne!(by("Exists", json!([])), by("DoesNotExist", json!([])), "{key} {labels:?}");
                assert!(!is_in || by("Exists", json!([])), "{key} {value} {labels:?}");
                let pair = json!({"matchLabels": {key: value}});
                assert_eq!(is_in, selects(&pair, &labels), "{key} {value} {labels:?}");
            }
        }
    }

    #[test]
    fn all_requirements_must_hold_and_empty_selector_selects_everything() {
        let labels = with(&[("app", "web"), ("env", "dev")]);
        for all in [json!(null), json!({}), json!({"matchExpressions": []})] {
            assert!(selects(&all, &labels) && selects(&all, &with(&[])), "{all}");
        }
        let both = |app: &str, operator: &str| {
            let requirement = json!({"key": "env", "operator": operator});
            let selector = json!({"matchLabels": {"app": app}, "matchExpressions": [requirement]});
            selects(&selector, &labels)
        };
        assert!(both("web", "Exists"));
        assert!(!both("db", "Exists") && !both("web", "DoesNotExist"));
    }
}
