//! Removes the parts of objects that no check reads. This saves memory: an object is much larger in memory than in etcd, and any
//! tenant can create many objects.

use std::any::Any;

use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};

/// Removes the parts of an object that no check reads: `metadata.managedFields` (for Services, only a part of it), Service ports
/// without a node port, and the environment variables of a Pod's containers.
pub fn kept<K: Metadata<Ty = ObjectMeta> + Any>(mut object: K) -> K {
    let any: &mut dyn Any = &mut object;
    if let Some(service) = any.downcast_mut() {
        of_service(service);
        return object;
    }
    if let Some(pod) = any.downcast_mut() {
        of_pod(pod);
    }
    object.metadata_mut().managed_fields = None;
    object
}

fn of_pod(pod: &mut Pod) {
    let Some(spec) = &mut pod.spec else { return };
    let containers = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
    containers.for_each(|container| container.env = None);
}

fn of_service(service: &mut Service) {
    if let Some(ports) = service.spec.as_mut().and_then(|spec| spec.ports.as_mut()) {
        ports.retain(|port| port.node_port.is_some_and(|port| port != 0));
        ports.shrink_to_fit();
    }
    let entries = service.metadata.managed_fields.iter_mut().flatten();
    for fields in entries.filter_map(|entry| entry.fields_v1.as_mut()) {
        let spec = fields.0.get_mut("f:spec").map(Value::take).unwrap_or_default();
        let owned = spec.as_object().into_iter().flatten().map(|(field, below)| {
            let below = if field == "f:ports" { node_ports(below) } else { Map::new() };
            (field.clone(), Value::Object(below))
        });
        let owned: Map<String, Value> = owned.collect();
        fields.0 = serde_json::json!({"f:spec": owned});
    }
}

/// Returns the ports whose node port has an owner in `managedFields`.
fn node_ports(ports: &Value) -> Map<String, Value> {
    let ports = ports.as_object().into_iter().flatten();
    let owned = ports.filter(|(_, fields)| fields.get("f:nodePort").is_some());
    owned.map(|(key, _)| (key.clone(), serde_json::json!({"f:nodePort": {}}))).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::networking::v1::Ingress;
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    fn typed<K: DeserializeOwned>(object: Value) -> K {
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn service_keeps_node_ports_and_their_owners() {
        let port = |number: u64| json!({"name": format!("p{number}"), "port": number, "protocol": "TCP", "targetPort": number});
        let mut ports: Vec<Value> = (1..1000).map(port).collect();
        ports[6]["nodePort"] = json!(30007);
        ports[7]["nodePort"] = json!(0);
        let owned = |with: &[&str]| -> Value {
            json!({"f:port": {}, "f:name": {}, with.first().copied().unwrap_or("f:targetPort"): {}})
        };
        let service = json!({
            "metadata": {"name": "web", "labels": {"a": "b"}, "managedFields": [{
                "manager": "kubectl", "operation": "Apply",
                "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {
                    "f:clusterIP": {}, "f:selector": {"f:app": {}},
                    "f:ports": {"k:{\"port\":7,\"protocol\":\"TCP\"}": owned(&["f:nodePort"]), "k:{\"port\":8,\"protocol\":\"TCP\"}": owned(&[])},
                }},
            }]},
            "spec": {"clusterIP": "10.96.0.7", "ports": ports},
        });
        let mut expected = service.clone();
        expected["spec"]["ports"] = json!([ports[6]]);
        expected["metadata"]["managedFields"][0]["fieldsV1"] = json!({"f:spec": {
            "f:clusterIP": {}, "f:selector": {}, "f:ports": {"k:{\"port\":7,\"protocol\":\"TCP\"}": {"f:nodePort": {}}},
        }});
        assert_eq!(kept(typed::<Service>(service)), typed(expected));
    }

    #[test]
    fn other_kinds_lose_managed_fields_and_environments() {
        let pod = json!({
            "metadata": {"name": "a", "managedFields": [{}]},
            "spec": {"containers": [{"name": "c", "env": [{"name": "X"}], "ports": [{"hostPort": 80}]}]},
        });
        let expected = json!({
            "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]},
        });
        assert_eq!(kept(typed::<Pod>(pod)), typed(expected));
        let other = json!({"metadata": {"managedFields": [{}]}, "spec": {"rules": [{"host": "a"}]}});
        let expected = json!({"metadata": {}, "spec": {"rules": [{"host": "a"}]}});
        assert_eq!(kept(typed::<Ingress>(other)), typed(expected));
    }
}
