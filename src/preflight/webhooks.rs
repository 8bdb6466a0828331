//! Admission webhooks that are asked about Services: one that does not answer stops a move where its failure is a refusal.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::{Judged, first_few};
use crate::ip::ServiceCidr;

/// A webhook, as far as a move meets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// As in `ValidatingWebhookConfiguration policies, webhook check.example`.
    pub name: String,
    /// Whether it is asked when a Service is made, changed or deleted.
    pub on_services: bool,
    /// Whether what it cannot be asked about is refused (`failurePolicy: Fail`, the default of `v1`).
    pub refuses: bool,
    /// Namespace and name of the Service that it is reached through.
    pub service: Option<(String, String)>,
    /// The URL that it is reached at instead.
    pub url: Option<String>,
}

/// Who refuses later updates of Services by rules of their own, and by what the names of their webhooks are known.
const ENGINES: [(&str, &str); 2] = [("kyverno", "Kyverno"), ("gatekeeper", "Gatekeeper")];

fn texts<'v>(rule: &'v Value, name: &str) -> Vec<&'v str> {
    rule.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether a rule is about Services themselves (`matchesResource` and its neighbours,
/// `apiserver/pkg/admission/plugin/webhook/predicates/rules/rules.go`, v1.36.3).
fn is_on_services(rule: &Value) -> bool {
    let has = |name: &str, wanted: &[&str]| texts(rule, name).iter().any(|text| wanted.contains(text));
    has("apiGroups", &["", "*"])
        && has("apiVersions", &["v1", "*"])
        && has("resources", &["services", "*", "*/*"])
        && has("operations", &["CREATE", "UPDATE", "DELETE", "*"])
        && rule.get("scope").and_then(Value::as_str) != Some("Cluster")
}

/// Returns the webhooks of configurations of one kind.
pub fn called(kind: &str, configurations: &[Value]) -> Vec<Called> {
    let mut found = Vec::new();
    for configuration in configurations {
        let text = |value: &Value, path: &str| {
            value.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_string)
        };
        let of = text(configuration, "/metadata/name").unwrap_or_default();
        let webhooks = configuration.get("webhooks").and_then(Value::as_array);
        found.extend(webhooks.into_iter().flatten().map(|webhook| {
            Called {
                name: format!("{kind} `{of}`, webhook `{}`", text(webhook, "/name").unwrap_or_default()),
                on_services: webhook
                    .get("rules")
                    .and_then(Value::as_array)
                    .is_some_and(|rules| rules.iter().any(is_on_services)),
                refuses: text(webhook, "/failurePolicy").as_deref() != Some("Ignore"),
                service: text(webhook, "/clientConfig/service/namespace")
                    .zip(text(webhook, "/clientConfig/service/name")),
                url: text(webhook, "/clientConfig/url"),
            }
        }));
    }
    found
}

impl Called {
    /// Whether its Service must answer for a move to go on.
    pub fn is_needed(&self) -> bool {
        self.on_services && self.refuses
    }

    /// Returns the address in its URL, if it is one.
    fn address(&self) -> Option<IpAddr> {
        let (_, rest) = self.url.as_deref()?.split_once("://")?;
        let place = rest.split(['/', '?']).next()?;
        let host = match place.strip_prefix('[') {
            Some(rest) => rest.split(']').next()?,
            None => place.split(':').next()?,
        };
        host.parse().ok()
    }

    fn engine(&self) -> Option<&'static str> {
        ENGINES.iter().find(|(part, _)| self.name.contains(part)).map(|(_, name)| *name)
    }
}

/// Counts the endpoints in the EndpointSlices of a Service that are ready.
pub fn ready(slices: &[Value]) -> usize {
    let list = |slice: &Value| slice.get("endpoints").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_ready = |one: &Value| one.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false);
    slices.iter().flat_map(list).filter(is_ready).count()
}

/// Judges the webhooks. `backends`: how many endpoints of a Service, by namespace and name, are ready; `None` if there is no
/// such Service. `old`: the ranges that Services leave.
pub fn judge(
    webhooks: &[Called],
    backends: &BTreeMap<(String, String), Option<usize>>,
    old: &[ServiceCidr],
) -> Judged {
    let is_old = |address: IpAddr| old.iter().any(|range| range.contains(address));
    let fixed = webhooks.iter().filter_map(|webhook| {
        let address = webhook.address().filter(|address| is_old(*address))?;
        Some(format!("{} is called at `{address}`, an address of the old range", webhook.name))
    });
    let dead = webhooks.iter().filter(|webhook| webhook.is_needed()).filter_map(|webhook| {
        let service = webhook.service.as_ref()?;
        let what = match backends.get(service)? {
            None => "which does not exist",
            Some(0) => "which has no ready endpoint",
            Some(_) => return None,
        };
        Some(format!("{} needs Service `{}/{}`, {what}", webhook.name, service.0, service.1))
    });
    let wrong: Vec<String> = fixed.chain(dead).collect();
    if !wrong.is_empty() {
        return Judged::fail(
            first_few(&wrong),
            "bring what serves it back, or delete the configuration: changes of Services are refused without it; name a Service \
             (`clientConfig.service`) instead of an address",
        );
    }
    let needed: Vec<&Called> = webhooks.iter().filter(|webhook| webhook.is_needed()).collect();
    if needed.is_empty() {
        return Judged::pass("none must answer for a Service to be changed");
    }
    let names: Vec<String> = needed.iter().map(|webhook| webhook.name.clone()).collect();
    let mut engines: Vec<&str> = needed.iter().filter_map(|webhook| webhook.engine()).collect();
    engines.sort_unstable();
    engines.dedup();
    let mut todo = "see that what serves it runs on more than one node and stays during the move".to_string();
    if !engines.is_empty() {
        todo = format!(
            "{todo}; {} may refuse later updates of Services that are held by an external IP: exempt them, or `--hold shadow`",
            engines.join(" and ")
        );
    }
    Judged::warn(
        format!("{} must answer for a Service to be changed: {}", names.len(), first_few(&names)),
        todo,
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;

    fn configured(rules: &Value, more: &Value) -> Vec<Called> {
        let mut webhook = json!({"name": "check.example", "rules": rules});
        for (name, value) in more.as_object().unwrap() {
            webhook[name] = value.clone();
        }
        called(
            "ValidatingWebhookConfiguration",
            &[json!({"metadata": {"name": "policies"}, "webhooks": [webhook]})],
        )
    }

    fn rules(resource: &str, operation: &str) -> Value {
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "operations": [operation]}])
    }

    #[test]
    fn rules_are_about_services_or_not() {
        let meets = |rules: Value| configured(&rules, &json!({}))[0].on_services;
        assert!(
            meets(rules("services", "UPDATE")) && meets(rules("*", "*")) && meets(rules("*/*", "CREATE"))
        );
        assert!(!meets(rules("services/status", "UPDATE")) && !meets(rules("pods", "*")));
        assert!(!meets(rules("services", "CONNECT")));
        assert!(!meets(
            json!([{"apiGroups": ["apps"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}])
        ));
        assert!(!meets(json!(null)));
    }

    #[test]
    fn a_webhook_that_is_needed_must_be_served() {
        let key = ("shop".to_string(), "check".to_string());
        let service = json!({"clientConfig": {"service": {"namespace": "shop", "name": "check"}}});
        let needed = configured(&rules("services", "*"), &service);
        let judged = |ready: Option<usize>| judge(&needed, &BTreeMap::from([(key.clone(), ready)]), &[]);
        assert_eq!(judged(Some(2)).verdict, Verdict::Warn);
        assert!(judged(Some(0)).seen.ends_with("Service `shop/check`, which has no ready endpoint"));
        assert_eq!(judged(None).verdict, Verdict::Fail);
        let mut ignored = service.clone();
        ignored["failurePolicy"] = json!("Ignore");
        let ignored = configured(&rules("services", "*"), &ignored);
        assert_eq!(judge(&ignored, &BTreeMap::from([(key, None)]), &[]).verdict, Verdict::Pass);
    }

    #[test]
    fn addresses_of_the_old_range_are_found_in_urls() {
        let old = ["10.96.0.0/16".parse().unwrap(), "fd00::/112".parse().unwrap()];
        let at = |url: &str| {
            let webhooks = configured(&rules("pods", "*"), &json!({"clientConfig": {"url": url}}));
            judge(&webhooks, &BTreeMap::new(), &old).verdict
        };
        assert_eq!(at("https://10.96.0.7:8443/validate"), Verdict::Fail);
        assert_eq!(at("https://[fd00::7]/validate"), Verdict::Fail);
        assert_eq!(at("https://10.97.0.7/validate"), Verdict::Pass);
        assert_eq!(at("https://hooks.example.com/10.96.0.7"), Verdict::Pass);
    }

    #[test]
    fn policy_engines_are_named() {
        let webhooks = [Called {
            name: "ValidatingWebhookConfiguration `kyverno-resource-validating-webhook-cfg`".into(),
            on_services: true,
            refuses: true,
            service: None,
            url: None,
        }];
        let judged = judge(&webhooks, &BTreeMap::new(), &[]);
        assert!(judged.todo.contains("Kyverno may refuse"), "{}", judged.todo);
    }
}
