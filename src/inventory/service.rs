//! Services in memory. They have only the fields that are read, because any tenant can create many large Services. A port
//! without a node port is dropped, and `managedFields` has only the fields of `spec`, without their values. Code that needs another
//! field adds it here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServiceSpec, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::retention::trimmed;

/// A Service.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(from = "Service")]
pub struct TrimmedService {
    /// Metadata of the Service. `managedFields` has only the owners of the fields of `spec` and of node ports.
    pub metadata: ObjectMeta,
    /// What the Service is.
    pub spec: Option<TrimmedServiceSpec>,
    /// State of the Service.
    pub status: Option<ServiceStatus>,
}

/// What a Service is: the fields of `ServiceSpec` that are read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "ServiceSpec")]
#[allow(missing_docs, reason = "the fields have the names and the meaning of `ServiceSpec`")]
pub struct TrimmedServiceSpec {
    pub cluster_ips: Option<Vec<String>>,
    pub external_ips: Option<Vec<String>>,
    pub load_balancer_ip: Option<String>,
    /// The ports with a node port.
    pub node_ports: Vec<NodePort>,
    pub selector: Option<BTreeMap<String, String>>,
    pub type_: Option<String>,
}

/// A port of a Service that has a node port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePort {
    /// Port of the Service.
    pub port: i32,
    /// Protocol of the port.
    pub protocol: Option<String>,
    /// The node port.
    pub node_port: i32,
}

impl From<Service> for TrimmedService {
    fn from(service: Service) -> Self {
        let mut metadata = service.metadata;
        let entries = metadata.managed_fields.iter_mut().flatten();
        for fields in entries.filter_map(|entry| entry.fields_v1.as_mut()) {
            let spec = fields.0.get_mut("f:spec").map(Value::take).unwrap_or_default();
            let owned = spec.as_object().into_iter().flatten().map(|(field, below)| {
                let below = if field == "f:ports" { node_ports(below) } else { Map::new() };
                (field.clone(), Value::Object(below))
            });
            let owned: Map<String, Value> = owned.collect();
            fields.0 = json!({"f:spec": owned});
        }
        Self { metadata, spec: service.spec.map(TrimmedServiceSpec::from), status: service.status }
    }
}

impl From<ServiceSpec> for TrimmedServiceSpec {
    fn from(spec: ServiceSpec) -> Self {
        let with_node_port = spec.ports.into_iter().flatten().filter_map(|port| {
            let node_port = port.node_port.filter(|port| *port != 0)?;
            Some(NodePort { port: port.port, protocol: port.protocol, node_port })
        });
        Self {
            node_ports: with_node_port.collect(),
            cluster_ips: spec.cluster_ips,
            external_ips: spec.external_ips,
            load_balancer_ip: spec.load_balancer_ip,
            selector: spec.selector,
            type_: spec.type_,
        }
    }
}

/// Returns the ports whose node port has an owner in `managedFields`.
fn node_ports(ports: &Value) -> Map<String, Value> {
    let ports = ports.as_object().into_iter().flatten();
    let owned = ports.filter(|(_, fields)| fields.get("f:nodePort").is_some());
    owned.map(|(key, _)| (key.clone(), json!({"f:nodePort": {}}))).collect()
}

trimmed!(TrimmedService, Service);

#[cfg(test)]
mod tests {
    use super::*;

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
        let trimmed: TrimmedService = serde_json::from_value(service).unwrap();
        let spec = trimmed.spec.unwrap();
        assert_eq!(spec.node_ports, [NodePort { port: 7, protocol: Some("TCP".into()), node_port: 30007 }]);
        assert_eq!(trimmed.metadata.labels, Some([("a".to_string(), "b".to_string())].into()));
        let fields = trimmed.metadata.managed_fields.unwrap().remove(0).fields_v1.unwrap().0;
        let owned = json!({"f:spec": {
            "f:clusterIP": {}, "f:selector": {}, "f:ports": {"k:{\"port\":7,\"protocol\":\"TCP\"}": {"f:nodePort": {}}},
        }});
        assert_eq!(fields, owned);
    }
}
