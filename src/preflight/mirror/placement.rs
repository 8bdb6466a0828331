//! `placement`: whether every Pod template matches a node of the mirror. The check compares node selectors, required affinity and
//! taints.

use k8s_openapi::api::core::v1::Node;

use super::Mirror;
use crate::inventory::node_fit::{is_wanted, required, takes, untolerated};
use crate::inventory::pod::TrimmedPodSpec;
use crate::inventory::pod_templates::Template;
use crate::kube_api::accessors::{is_closed, name};
use crate::preflight::{Check, Judged, Source, first_few};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "placement",
    why: "an unschedulable Pod stays Pending",
    needs: &[Source::Api, Source::Mirror],
    judge: |input| {
        Box::pin(async { Ok(judge(input.source.templates().await?, input.target.nodes().await?)) })
    },
};

/// Checks whether every template matches a schedulable node. Templates without Pods in the source are skipped.
fn judge(templates: &[Template], nodes: &[Node]) -> Judged {
    let idle = templates.iter().filter(|one| one.is_idle).count();
    let templates: Vec<&Template> = templates.iter().filter(|one| !one.is_idle).collect();
    let open: Vec<&Node> = nodes.iter().filter(|node| !is_closed(node)).collect();
    let homeless = templates.iter().filter_map(|template| {
        let mut fitting = open.iter().filter(|node| is_wanted(&template.spec, node)).peekable();
        if fitting.peek().is_none() {
            return Some(format!("{} ({})", template.of, wish(&template.spec)));
        }
        let repelled = fitting.find_map(|node| Some((name(*node), untolerated(&template.spec, node)?)));
        let is_taken = open.iter().any(|node| takes(node, &template.spec));
        let (node, taint) = repelled.filter(|_| !is_taken)?;
        Some(format!("{} (does not tolerate the taint `{}` of `{node}`)", template.of, taint.key))
    });
    let homeless: Vec<String> = homeless.collect();
    if homeless.is_empty() {
        let without = match idle {
            0 => String::new(),
            _ => format!(
                "; {} no Pod in the source",
                counted(
                    idle,
                    "template was skipped, because it runs",
                    "templates were skipped, because they run"
                )
            ),
        };
        return Judged::pass(format!(
            "every template matches a node ({}, {}){without}",
            counted(templates.len(), "template", "templates"),
            counted(open.len(), "node", "nodes")
        ));
    }
    Judged::fail(
        format!(
            "templates without a matching node on the mirror ({} of {}): {}",
            homeless.len(),
            templates.len(),
            first_few(&homeless)
        ),
        "label the mirror's nodes like the source's (`kubectl label node`), remove taints, or add matching nodes",
    )
}

/// Returns the requirements of a Pod for its node, as text.
fn wish(spec: &TrimmedPodSpec) -> String {
    let pairs = spec.node_selector.iter().flatten().map(|(key, value)| format!("`{key}={value}`"));
    let terms = required(spec).into_iter().flat_map(|required| &required.node_selector_terms);
    let requirements =
        terms.flat_map(|term| term.match_expressions.iter().chain(&term.match_fields).flatten());
    let requirements = requirements.map(|one| {
        let values = one.values.iter().filter(|values| !values.is_empty());
        let words: Vec<String> = [one.key.clone(), one.operator.clone()]
            .into_iter()
            .chain(values.map(|all| all.join("|")))
            .collect();
        format!("`{}`", words.join(" "))
    });
    let parts: Vec<String> = pairs.chain(requirements).collect();
    match (parts.is_empty(), spec.node_name.as_deref().unwrap_or_default()) {
        (false, _) => format!("requires {}", first_few(&parts)),
        (true, "") => "no schedulable node".to_string(),
        (true, name) => format!("requires node `{name}`"),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use serde_json::{Value, json};

    use super::*;
    use crate::inventory::pod_templates::templates;
    use crate::inventory::pod_templates::testing::typed;
    use crate::kube_api::accessors::Labels;
    use crate::preflight::Verdict;

    fn node(labels: &Value, taints: &Value) -> Node {
        typed(json!({"metadata": {"name": "a", "labels": labels}, "spec": {"taints": taints}}))
    }

    fn of(spec: Value, nodes: &[Node]) -> Judged {
        let template = Template {
            of: "Deployment `shop/web`".into(),
            kind: "Deployment",
            namespace: "shop".into(),
            labels: Labels::new(),
            is_idle: false,
            spec: typed(spec),
        };
        judge(&[template], nodes)
    }

    #[test]
    fn template_must_match_a_schedulable_node() {
        let (plain, gpu) = (node(&json!({}), &json!([])), node(&json!({"pool": "gpu"}), &json!([])));
        let wants = || json!({"nodeSelector": {"pool": "gpu"}});
        assert_eq!(of(wants(), &[plain.clone(), gpu.clone()]).verdict, Verdict::Pass);
        assert_eq!(
            of(wants(), std::slice::from_ref(&plain)).observed,
            "templates without a matching node on the mirror (1 of 1): Deployment `shop/web` (requires `pool=gpu`)"
        );
        let mut closed = gpu;
        closed.spec = typed(json!({"unschedulable": true}));
        assert_eq!(of(wants(), &[closed]).verdict, Verdict::Fail);
        assert_eq!(of(json!({"nodeName": "b"}), &[plain]).verdict, Verdict::Fail);
        assert_eq!(of(json!({}), &[]).verdict, Verdict::Fail);
    }

    #[test]
    fn idle_template_is_skipped() {
        let spec = json!({"template": {"spec": {"nodeSelector": {"pool": "gpu"}}}, "replicas": 0});
        let found = templates::<Deployment>(vec![typed(json!({"metadata": {}, "spec": spec}))]);
        let judged = judge(&found, &[node(&json!({}), &json!([]))]);
        assert_eq!(
            (judged.verdict, judged.observed.as_str()),
            (
                Verdict::Pass,
                "every template matches a node (0 templates, 1 node); 1 template was skipped, because it runs no Pod in the source"
            )
        );
    }

    /// Tests every operator with two nodes: one node has the label with the value 5, and the other does not have the label.
    #[test]
    fn affinity_operators_match_the_scheduler() {
        let cases = [
            ("In", json!(["5", "6"]), [true, false]),
            ("NotIn", json!(["5"]), [false, true]),
            ("Exists", json!([]), [true, false]),
            ("DoesNotExist", json!([]), [false, true]),
            ("Gt", json!(["4"]), [true, false]),
            ("Gt", json!(["5"]), [false, false]),
            ("Lt", json!(["6"]), [true, false]),
            ("Lt", json!(["x"]), [false, false]),
            ("Near", json!(["5"]), [false, false]),
        ];
        let nodes = [node(&json!({"rack": "5"}), &json!([])), node(&json!({}), &json!([]))];
        for (operator, values, expected) in cases {
            let one = json!({"key": "rack", "operator": operator, "values": values});
            let terms = json!([{"matchExpressions": [one]}, {}]);
            let rule =
                json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
            let spec = json!({"affinity": {"nodeAffinity": rule}});
            let found = nodes
                .each_ref()
                .map(|node| of(spec.clone(), std::slice::from_ref(node)).verdict == Verdict::Pass);
            assert_eq!(found, expected, "{operator} {values}");
        }
        let fields = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]);
        let rule = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": fields}});
        assert_eq!(of(json!({"affinity": {"nodeAffinity": rule}}), &nodes).verdict, Verdict::Pass);
    }

    #[test]
    fn template_must_tolerate_taints() {
        let taint = json!([{"key": "only", "value": "db", "effect": "NoSchedule"}]);
        let tainted = [node(&json!({}), &taint)];
        let with = |toleration: Value| of(json!({"tolerations": [toleration]}), &tainted).verdict;
        assert_eq!(
            of(json!({}), &tainted).observed,
            "templates without a matching node on the mirror (1 of 1): Deployment `shop/web` (does not tolerate the taint `only` of `a`)"
        );
        assert_eq!(with(json!({"operator": "Exists"})), Verdict::Pass);
        assert_eq!(with(json!({"key": "only", "value": "db"})), Verdict::Pass);
        assert_eq!(with(json!({"key": "only", "value": "db", "effect": "NoExecute"})), Verdict::Fail);
        assert_eq!(with(json!({"key": "only", "operator": "Exists", "effect": "NoSchedule"})), Verdict::Pass);
        assert_eq!(with(json!({"key": "only", "value": "web"})), Verdict::Fail);
        let soft = node(&json!({}), &json!([{"key": "only", "effect": "PreferNoSchedule"}]));
        assert_eq!(of(json!({}), &[soft]).verdict, Verdict::Pass);
    }
}
