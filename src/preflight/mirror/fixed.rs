//! Addresses and ports that are written down, and that two clusters cannot have at once.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::{Judged, first_few, subject, text};
use super::templates::Template;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Services of the source, what is on the mirror, and templates of Pods that are copied.
pub fn judge(services: &[Value], on_mirror: &[Value], templates: &[Template]) -> Judged {
    let mut taken: BTreeMap<u64, &Value> = BTreeMap::new();
    for service in on_mirror {
        taken.extend(ports(service).map(|port| (port, service)));
    }
    let (mut wrong, mut shared) = (Vec::new(), Vec::new());
    for service in services {
        let who = subject(service);
        for port in pinned(service) {
            if let Some(other) = taken.get(&port).filter(|other| subject(other) != who) {
                wrong.push(format!("nodePort {port} of {who} is that of {} there", subject(other)));
            }
        }
        let address = text(service, "/spec/loadBalancerIP");
        if !address.is_empty() {
            shared.push(format!("{who} (`loadBalancerIP` {address})"));
        }
        let list = service.pointer("/spec/externalIPs").and_then(Value::as_array).into_iter().flatten();
        let list: Vec<&str> = list.filter_map(Value::as_str).collect();
        if !list.is_empty() {
            shared.push(format!("{who} (`externalIPs` {})", list.join(", ")));
        }
    }
    shared.extend(templates.iter().filter_map(on_the_host));
    if !wrong.is_empty() {
        return Judged::fail(
            first_few(&wrong),
            "free that port on the mirror, or take another one in the source: the copy is refused",
        );
    }
    if shared.is_empty() {
        return Judged::pass("none is written down");
    }
    Judged::warn(
        format!("{} are written down: {}", shared.len(), first_few(&shared)),
        "in one network the address of a load balancer and an external IP can lead to one cluster alone: give the mirror others; ports of \
         hosts must be free on its nodes, and reached through their addresses",
    )
}

fn on_the_host(template: &Template) -> Option<String> {
    if template.spec.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
        return Some(format!("{} (`hostNetwork`)", template.of));
    }
    let containers = template.list("/containers").chain(template.list("/initContainers"));
    let ports = containers.filter_map(|one| one.get("ports")?.as_array()).flatten();
    let ports = ports.filter_map(|port| port.get("hostPort")?.as_u64()).filter(|port| *port != 0);
    let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
    (!ports.is_empty()).then(|| format!("{} (`hostPort` {})", template.of, ports.join(", ")))
}

fn ports(service: &Value) -> impl Iterator<Item = u64> {
    let list = service.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|port| port.get("nodePort")?.as_u64()).filter(|port| *port != 0)
}

/// The node ports that somebody chose: field managers own them, or kubectl's annotation has them. Nobody owns what the API server
/// allocated (`structured-merge-diff` sees what a client sent).
fn pinned(service: &Value) -> Vec<u64> {
    let entries = service.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten();
    let keys = entries.filter_map(|entry| entry.pointer("/fieldsV1/f:spec/f:ports")?.as_object()).flatten();
    let owned = keys.filter(|(_, fields)| fields.get("f:nodePort").is_some());
    let owned: Vec<Value> =
        owned.filter_map(|(key, _)| serde_json::from_str(key.strip_prefix("k:")?).ok()).collect();
    let annotations = service.pointer("/metadata/annotations");
    let applied = annotations.and_then(|all| all.get(LAST_APPLIED)).and_then(Value::as_str);
    let applied = applied.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let applied: Vec<u64> = applied.iter().flat_map(ports).collect();
    let list = service.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
    let is_owned = |port: &&Value| {
        let has = |key: &Value, name: &str| key.get(name).is_none_or(|value| port.get(name) == Some(value));
        owned.iter().any(|key| has(key, "port") && has(key, "protocol"))
    };
    let number = |port: &Value| port.get("nodePort").and_then(Value::as_u64).filter(|port| *port != 0);
    let mut found: Vec<u64> = list.filter(is_owned).filter_map(number).collect();
    found.extend(ports(service).filter(|port| applied.contains(port)));
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::templates::templates;
    use super::*;
    use crate::preflight::Verdict;

    fn service(name: &str, is_pinned: bool) -> Value {
        let fields = if is_pinned { json!({"f:port": {}, "f:nodePort": {}}) } else { json!({"f:port": {}}) };
        let managed = json!([{"fieldsV1": {"f:spec": {"f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": fields}}}}]);
        json!({
            "metadata": {"namespace": "shop", "name": name, "managedFields": managed},
            "spec": {"ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 443, "protocol": "TCP", "nodePort": 30443}]},
        })
    }

    #[test]
    fn a_port_that_somebody_chose_is_free() {
        assert_eq!(pinned(&service("web", true)), [30080]);
        assert_eq!(pinned(&service("web", false)), Vec::<u64>::new());
        let taken = judge(&[service("web", true)], &[service("other", false)], &[]);
        assert_eq!(taken.seen, "nodePort 30080 of `shop/web` is that of `shop/other` there");
        assert_eq!(taken.verdict, Verdict::Fail);
        assert_eq!(judge(&[service("web", false)], &[service("other", false)], &[]).verdict, Verdict::Pass);
        assert_eq!(judge(&[service("web", true)], &[service("web", true)], &[]).verdict, Verdict::Pass);
        let mut applied = service("web", false);
        applied["metadata"]["annotations"] =
            json!({LAST_APPLIED: "{\"spec\": {\"ports\": [{\"nodePort\": 30443}]}}"});
        assert_eq!(pinned(&applied), [30443]);
    }

    #[test]
    fn what_leads_to_one_cluster_is_named() {
        let mut pinned = service("web", false);
        pinned["spec"]["loadBalancerIP"] = json!("192.0.2.7");
        pinned["spec"]["externalIPs"] = json!(["192.0.2.8", "192.0.2.9"]);
        let deployment = |name: &str, spec: Value| json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"template": {"spec": spec}}});
        let of = templates(
            "Deployment",
            &[
                deployment("a", json!({"hostNetwork": true, "containers": [{"ports": [{"hostPort": 1}]}]})),
                deployment("b", json!({"containers": [{"ports": [{"hostPort": 53}, {"hostPort": 0}]}]})),
                deployment("c", json!({"containers": [{"ports": [{"containerPort": 53}]}]})),
            ],
        );
        let judged = judge(&[pinned], &[], &of);
        assert_eq!(judged.verdict, Verdict::Warn);
        assert_eq!(
            judged.seen,
            "4 are written down: `shop/web` (`loadBalancerIP` 192.0.2.7), `shop/web` (`externalIPs` 192.0.2.8, 192.0.2.9), Deployment `shop/a` (`hostNetwork`), and 1 more"
        );
    }
}
