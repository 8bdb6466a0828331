//! `fixed-addresses`: whether objects explicitly set addresses or ports that two clusters cannot use at the same time.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::Mirror;
use crate::inventory::list;
use crate::inventory::pod_templates::Template;
use crate::inventory::service::{NodePort, TrimmedService, TrimmedServiceSpec};
use crate::kube_api::accessors::{annotation, subject};
use crate::preflight::{Check, Judged, Read, Source, first_few};

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "fixed-addresses",
    why: "two clusters cannot use the same address or the same port",
    needs: &[Source::Api, Source::Mirror],
    judge: |input| Box::pin(read(input)),
};

async fn read(input: &Mirror) -> Read<Judged> {
    let services = input.source.selected().await?;
    Ok(judge(&services, input.target.services().await?, input.source.templates().await?))
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Compares the Services of the source with the Services of the mirror, and checks the templates of copied Pods.
fn judge(services: &[TrimmedService], on_mirror: &[TrimmedService], templates: &[Template]) -> Judged {
    let mut taken: BTreeMap<i32, &TrimmedService> = BTreeMap::new();
    for service in on_mirror {
        taken.extend(node_ports(service).map(|port| (port, service)));
    }
    let (mut wrong, mut shared) = (Vec::new(), Vec::new());
    for service in services {
        let who = subject(service);
        for port in pinned(service) {
            if let Some(other) = taken.get(&port).copied().filter(|other| subject(*other) != who) {
                wrong.push(format!("nodePort {port} of {who}: {} uses it on the mirror", subject(other)));
            }
        }
        let Some(TrimmedServiceSpec { load_balancer_ip, external_ips, .. }) = &service.spec else { continue };
        if let Some(address) = load_balancer_ip.as_ref().filter(|address| !address.is_empty()) {
            shared.push(format!("{who} (`loadBalancerIP` {address})"));
        }
        if let Some(list) = external_ips.as_ref().filter(|list| !list.is_empty()) {
            shared.push(format!("{who} (`externalIPs` {})", list.join(", ")));
        }
    }
    shared.extend(templates.iter().filter_map(on_the_host));
    if !wrong.is_empty() {
        return Judged::fail(
            first_few(&wrong),
            "free the port on the mirror, or choose another one in the source: otherwise the API server rejects the copy",
        );
    }
    if shared.is_empty() {
        return Judged::pass(
            "no load balancer address, external IP or host port is set explicitly, and no explicit node port conflicts with the mirror",
        );
    }
    Judged::warn(
        format!(
            "addresses, ports or host networks that are set explicitly ({}): {}",
            shared.len(),
            first_few(&shared)
        ),
        "in one network, a load balancer's address or an external IP can belong to only one cluster: give \
         the mirror different addresses; host ports must be free on its nodes, and clients must use the \
         addresses of these nodes",
    )
}

fn on_the_host(template: &Template) -> Option<String> {
    if template.spec.host_network == Some(true) {
        return Some(format!("{} (`hostNetwork`)", template.of));
    }
    let containers = template.spec.containers.iter().chain(template.spec.init_containers.iter().flatten());
    let ports = containers.flat_map(|one| one.ports.iter().flatten()).filter_map(|port| port.host_port);
    let ports: Vec<String> = ports.filter(|port| *port != 0).map(|port| port.to_string()).collect();
    (!ports.is_empty()).then(|| format!("{} (`hostPort` {})", template.of, ports.join(", ")))
}

fn ports(service: &TrimmedService) -> impl Iterator<Item = &NodePort> {
    service.spec.iter().flat_map(|spec| &spec.node_ports)
}

fn node_ports(service: &TrimmedService) -> impl Iterator<Item = i32> {
    ports(service).map(|port| port.node_port)
}

fn node_port(port: &Value) -> Option<i32> {
    i32::try_from(port.get("nodePort")?.as_i64()?).ok()
}

/// Key of a Service port in `managedFields`.
#[derive(Deserialize)]
struct Key {
    port: Option<i32>,
    protocol: Option<String>,
}

/// Returns the node ports that a client chose. A field manager owns such a port, or kubectl's annotation contains it. A port that
/// the API server allocated has no owner, because `structured-merge-diff` compares only the fields that a client sent.
fn pinned(service: &TrimmedService) -> Vec<i32> {
    let entries = service.metadata.managed_fields.iter().flatten();
    let fields =
        entries.filter_map(|entry| entry.fields_v1.as_ref()?.0.pointer("/f:spec/f:ports")?.as_object());
    let owned = fields.flatten().filter(|(_, fields)| fields.get("f:nodePort").is_some());
    let owned: Vec<Key> =
        owned.filter_map(|(key, _)| serde_json::from_str(key.strip_prefix("k:")?).ok()).collect();
    // A client writes this annotation, so its structure can be invalid.
    let applied: Value = serde_json::from_str(annotation(service, LAST_APPLIED)).unwrap_or_default();
    let applied: Vec<i32> = list(&applied, "/spec/ports").iter().filter_map(node_port).collect();
    let is_owned = |port: &&NodePort| {
        owned.iter().any(|key| {
            key.port.is_none_or(|number| number == port.port)
                && (key.protocol.is_none() || key.protocol == port.protocol)
        })
    };
    let mut found: Vec<i32> = ports(service).filter(is_owned).map(|port| port.node_port).collect();
    found.extend(node_ports(service).filter(|port| applied.contains(port)));
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use serde_json::json;

    use super::*;
    use crate::inventory::pod_templates::templates;
    use crate::preflight::Verdict;

    fn service(name: &str, is_pinned: bool) -> TrimmedService {
        let fields = if is_pinned { json!({"f:port": {}, "f:nodePort": {}}) } else { json!({"f:port": {}}) };
        let managed = json!([{"fieldsV1": {"f:spec": {"f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": fields}}}}]);
        let service = json!({
            "metadata": {"namespace": "shop", "name": name, "managedFields": managed},
            "spec": {"ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 443, "protocol": "TCP", "nodePort": 30443}]},
        });
        serde_json::from_value(service).unwrap()
    }

    #[test]
    fn node_port_set_by_a_client_must_be_free() {
        assert_eq!(pinned(&service("web", true)), [30080]);
        assert_eq!(pinned(&service("web", false)), Vec::<i32>::new());
        let taken = judge(&[service("web", true)], &[service("other", false)], &[]);
        assert_eq!(taken.observed, "nodePort 30080 of `shop/web`: `shop/other` uses it on the mirror");
        assert_eq!(taken.verdict, Verdict::Fail);
        assert_eq!(judge(&[service("web", false)], &[service("other", false)], &[]).verdict, Verdict::Pass);
        assert_eq!(judge(&[service("web", true)], &[service("web", true)], &[]).verdict, Verdict::Pass);
        let mut applied = service("web", false);
        let last = "{\"metadata\": {\"annotations\": {\"note\": null}}, \"spec\": {\"ports\": [{\"nodePort\": 30443}]}}";
        applied.metadata.annotations = Some([(LAST_APPLIED.to_string(), last.to_string())].into());
        assert_eq!(pinned(&applied), [30443]);
    }

    #[test]
    fn addresses_of_one_cluster_are_a_warning() {
        let mut pinned = service("web", false);
        let addresses = json!({"loadBalancerIP": "192.0.2.7", "externalIPs": ["192.0.2.8", "192.0.2.9"]});
        pinned.spec = serde_json::from_value(addresses).unwrap();
        let deployment = |name: &str, spec: Value| {
            let metadata = json!({"namespace": "shop", "name": name});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"template": {"spec": spec}}}))
                .unwrap()
        };
        let of = templates::<Deployment>(vec![
            deployment("a", json!({"hostNetwork": true, "containers": [{"ports": [{"hostPort": 1}]}]})),
            deployment("b", json!({"containers": [{"ports": [{"hostPort": 53}, {"hostPort": 0}]}]})),
            deployment("c", json!({"containers": [{"ports": [{"containerPort": 53}]}]})),
        ]);
        let judged = judge(&[pinned], &[], &of);
        assert_eq!(judged.verdict, Verdict::Warn);
        assert_eq!(
            judged.observed,
            "addresses, ports or host networks that are set explicitly (4): `shop/web` (`loadBalancerIP` 192.0.2.7), `shop/web` (`externalIPs` 192.0.2.8, 192.0.2.9), Deployment `shop/a` (`hostNetwork`), and 1 more"
        );
    }
}
