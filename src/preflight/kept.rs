//! What is kept of the objects that checks read: what an object takes in memory is many times what whoever made it has sent,
//! and any tenant may make many.

use serde_json::{Map, Value};

/// Takes out of an object of a list what no check reads: who owns which field, but for a Service's (`metadata.managedFields`); ports of
/// a Service that have no node port, and the environments of a Pod's containers.
pub fn kept(kind: &str, mut object: Value) -> Value {
    match kind {
        "Service" => of_service(&mut object),
        "Pod" => {
            without(&mut object, "/metadata", "managedFields");
            for list in ["/spec/containers", "/spec/initContainers"] {
                let containers = object.pointer_mut(list).and_then(Value::as_array_mut);
                containers.into_iter().flatten().for_each(|one| without(one, "", "env"));
            }
        }
        _ => without(&mut object, "/metadata", "managedFields"),
    }
    object
}

fn of_service(service: &mut Value) {
    if let Some(ports) = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut) {
        ports.retain(|port| port.get("nodePort").and_then(Value::as_u64).is_some_and(|port| port != 0));
        ports.shrink_to_fit();
    }
    let entries = service.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten() {
        let spec = entry.pointer_mut("/fieldsV1/f:spec").map(Value::take).unwrap_or_default();
        let owned = spec.as_object().into_iter().flatten().map(|(field, below)| {
            let below = if field == "f:ports" { node_ports(below) } else { Map::new() };
            (field.clone(), Value::Object(below))
        });
        let owned: Map<String, Value> = owned.collect();
        if let Some(fields) = entry.get_mut("fieldsV1") {
            *fields = serde_json::json!({"f:spec": owned});
        }
    }
}

/// The ports whose node port somebody owns.
fn node_ports(ports: &Value) -> Map<String, Value> {
    let ports = ports.as_object().into_iter().flatten();
    let owned = ports.filter(|(_, fields)| fields.get("f:nodePort").is_some());
    owned.map(|(key, _)| (key.clone(), serde_json::json!({"f:nodePort": {}}))).collect()
}

fn without(object: &mut Value, path: &str, name: &str) {
    if let Some(members) = object.pointer_mut(path).and_then(Value::as_object_mut) {
        members.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_service_what_checks_read_is_kept() {
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
        assert_eq!(kept("Service", service), expected);
    }

    #[test]
    fn of_others_less_is_left_out() {
        let pod = json!({
            "metadata": {"name": "a", "managedFields": [{}]},
            "spec": {"containers": [{"name": "c", "env": [{"name": "X"}], "ports": [{"hostPort": 80}]}]},
        });
        let expected = json!({
            "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]},
        });
        assert_eq!(kept("Pod", pod), expected);
        let other = json!({"metadata": {"managedFields": [{}]}, "spec": {"ports": [1]}});
        assert_eq!(kept("Ingress", other), json!({"metadata": {}, "spec": {"ports": [1]}}));
    }
}
