//! The parts of a Service that netsurgeon needs, read in one pass over the stored message.
//!
//! A cluster has tens of thousands of Services. A plan needs only a third of their fields, and most of these are short texts. So
//! this reader is written by hand, and its result is compact. The field numbers are defined in
//! `k8s.io/api/core/v1/generated.proto` and `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`, v0.36.3. A test compares the
//! result with the result of the generated reader, which also reads JSON.

use std::net::IpAddr;

use compact_str::CompactString;

use super::objects::{Opened, Service, StoredKind, open};
use super::protobuf::fields;
use super::{Field, Pairs, Value, WireError, edit, generated};

/// A text of an API object. Up to 24 bytes are stored inline, which is enough for most names and all IPv4 addresses.
pub type Text = CompactString;

/// The parts of a Service that netsurgeon needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredService {
    /// `metadata.namespace`.
    pub namespace: Text,
    /// `metadata.name`.
    pub name: Text,
    /// `metadata.uid`.
    pub uid: Text,
    /// `metadata.labels`.
    pub labels: Pairs,
    /// Whether `metadata.deletionTimestamp` is set.
    pub is_being_deleted: bool,
    /// `metadata.finalizers`.
    pub finalizers: Vec<Text>,
    /// `spec`.
    pub spec: ServiceSpec,
}

/// The parts of a Service spec that netsurgeon needs. An `Option` distinguishes an absent field from an empty field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "named as in the API")]
pub struct ServiceSpec {
    pub ports: Vec<ServicePort>,
    pub selector: Pairs,
    pub cluster_ip: Option<Text>,
    pub r#type: Option<Text>,
    pub external_ips: Vec<Text>,
    pub session_affinity: Option<Text>,
    pub external_traffic_policy: Option<Text>,
    pub health_check_node_port: Option<i32>,
    pub publish_not_ready_addresses: Option<bool>,
    /// `sessionAffinityConfig.clientIP.timeoutSeconds`.
    pub client_ip_timeout_seconds: Option<i32>,
    pub cluster_ips: Vec<Text>,
    pub internal_traffic_policy: Option<Text>,
    pub traffic_distribution: Option<Text>,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "named as in the API")]
pub struct ServicePort {
    pub name: Option<Text>,
    pub protocol: Option<Text>,
    pub port: Option<i32>,
    pub target_port: TargetPort,
    pub node_port: Option<i32>,
    pub app_protocol: Option<Text>,
}

/// Target of a Service port: the number or the name of a Pod port.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum TargetPort {
    Number(i32),
    Name(Text),
}

impl Default for TargetPort {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl StoredService {
    /// Reads a stored Service.
    ///
    /// Fails in the same cases as [`super::objects::decode`].
    pub fn decode(value: &[u8]) -> Result<Self, WireError> {
        match open(value, Service::NAME)?.1 {
            Opened::Protobuf(raw) => Self::walk(raw),
            Opened::Json(text) => Ok(Self::from(Service::from_json(&text)?)),
        }
    }

    /// Reads one annotation of a stored Service. [`Self::decode`] omits annotations, because they are long and rarely needed.
    pub fn annotation(value: &[u8], key: &str) -> Result<Option<Text>, WireError> {
        Ok(match edit::read(value, &Field::annotation(key))? {
            Value::Text(text) => Some(text.into()),
            _ => None,
        })
    }

    fn walk(object: &[u8]) -> Result<Self, WireError> {
        let mut service = Self::default();
        for field in fields(object) {
            let field = field?;
            match field.number {
                1 => service.walk_metadata(field.message()?)?,
                2 => service.spec.walk(field.message()?)?,
                _ => {}
            }
        }
        Ok(service)
    }

    fn walk_metadata(&mut self, metadata: &[u8]) -> Result<(), WireError> {
        for field in fields(metadata) {
            let field = field?;
            match field.number {
                1 => self.name = field.text()?.into(),
                3 => self.namespace = field.text()?.into(),
                5 => self.uid = field.text()?.into(),
                9 => self.is_being_deleted = field.message().map(|_| true)?,
                11 => self.labels.take(field.message()?)?,
                14 => self.finalizers.push(field.text()?.into()),
                _ => {}
            }
        }
        Ok(())
    }
}

impl ServiceSpec {
    /// Returns the addresses in `clusterIPs`. If this list contains no address, returns the address in `clusterIP`, for objects
    /// that were last written before Kubernetes 1.20. A headless Service has no address. An ExternalName Service has none, even
    /// if the object still contains an old address.
    pub fn addresses(&self) -> Vec<IpAddr> {
        if self.r#type.as_deref() == Some("ExternalName") {
            return Vec::new();
        }
        let listed: Vec<IpAddr> = self.cluster_ips.iter().filter_map(|text| text.parse().ok()).collect();
        if listed.is_empty() {
            self.cluster_ip.iter().filter_map(|text| text.parse().ok()).collect()
        } else {
            listed
        }
    }

    fn walk(&mut self, spec: &[u8]) -> Result<(), WireError> {
        for field in fields(spec) {
            let field = field?;
            match field.number {
                1 => self.ports.push(ServicePort::walk(field.message()?)?),
                2 => self.selector.take(field.message()?)?,
                3 => self.cluster_ip = Some(field.text()?.into()),
                4 => self.r#type = Some(field.text()?.into()),
                5 => self.external_ips.push(field.text()?.into()),
                7 => self.session_affinity = Some(field.text()?.into()),
                11 => self.external_traffic_policy = Some(field.text()?.into()),
                12 => self.health_check_node_port = Some(field.int32()?),
                13 => self.publish_not_ready_addresses = Some(field.varint()? != 0),
                14 => self.walk_affinity(field.message()?)?,
                18 => self.cluster_ips.push(field.text()?.into()),
                22 => self.internal_traffic_policy = Some(field.text()?.into()),
                23 => self.traffic_distribution = Some(field.text()?.into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn walk_affinity(&mut self, config: &[u8]) -> Result<(), WireError> {
        for field in fields(config) {
            let field = field?;
            if field.number != 1 {
                continue;
            }
            for part in fields(field.message()?) {
                let part = part?;
                if part.number == 1 {
                    self.client_ip_timeout_seconds = Some(part.int32()?);
                }
            }
        }
        Ok(())
    }
}

impl ServicePort {
    fn walk(message: &[u8]) -> Result<Self, WireError> {
        let mut port = Self::default();
        let (mut kind, mut number, mut name) = (0, 0, "");
        for field in fields(message) {
            let field = field?;
            match field.number {
                1 => port.name = Some(field.text()?.into()),
                2 => port.protocol = Some(field.text()?.into()),
                3 => port.port = Some(field.int32()?),
                4 => {
                    for target in fields(field.message()?) {
                        let target = target?;
                        match target.number {
                            1 => kind = target.varint()?,
                            2 => number = target.int32()?,
                            3 => name = target.text()?,
                            _ => {}
                        }
                    }
                }
                5 => port.node_port = Some(field.int32()?),
                6 => port.app_protocol = Some(field.text()?.into()),
                _ => {}
            }
        }
        port.target_port = if kind == 1 { TargetPort::Name(name.into()) } else { TargetPort::Number(number) };
        Ok(port)
    }
}

impl From<Service> for StoredService {
    fn from(service: Service) -> Self {
        let metadata = service.metadata.unwrap_or_default();
        let spec = service.spec.unwrap_or_default();
        let all = |texts: Vec<String>| texts.into_iter().map(Text::from).collect();
        let known = |text: Option<String>| text.map(Text::from);
        Self {
            namespace: metadata.namespace.unwrap_or_default().into(),
            name: metadata.name.unwrap_or_default().into(),
            uid: metadata.uid.unwrap_or_default().into(),
            labels: metadata.labels.into_iter().collect(),
            is_being_deleted: metadata.deletion_timestamp.is_some(),
            finalizers: all(metadata.finalizers),
            spec: ServiceSpec {
                ports: spec.ports.into_iter().map(ServicePort::from).collect(),
                selector: spec.selector.into_iter().collect(),
                cluster_ip: known(spec.cluster_ip),
                r#type: known(spec.r#type),
                external_ips: all(spec.external_ips),
                session_affinity: known(spec.session_affinity),
                external_traffic_policy: known(spec.external_traffic_policy),
                health_check_node_port: spec.health_check_node_port,
                publish_not_ready_addresses: spec.publish_not_ready_addresses,
                client_ip_timeout_seconds: spec
                    .session_affinity_config
                    .and_then(|config| config.client_ip?.timeout_seconds),
                cluster_ips: all(spec.cluster_ips),
                internal_traffic_policy: known(spec.internal_traffic_policy),
                traffic_distribution: known(spec.traffic_distribution),
            },
        }
    }
}

impl From<generated::ServicePort> for ServicePort {
    fn from(port: generated::ServicePort) -> Self {
        let target = port.target_port.unwrap_or_default();
        Self {
            name: port.name.map(Text::from),
            protocol: port.protocol.map(Text::from),
            port: port.port,
            target_port: match target.r#type {
                Some(1) => TargetPort::Name(target.str_val.unwrap_or_default().into()),
                _ => TargetPort::Number(target.int_val.unwrap_or_default()),
            },
            node_port: port.node_port,
            app_protocol: port.app_protocol.map(Text::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::super::protobuf::field;
    use super::super::protobuf::tests::any_message_with_maps;
    use super::*;

    fn text() -> impl Strategy<Value = Option<String>> {
        prop::option::of(prop_oneof![Just("ClusterIP".to_string()), Just(String::new()), "[a-z0-9.:]{1,9}"])
    }

    prop_compose! {
        fn port()(
            name in text(), protocol in text(), app_protocol in text(), str_val in text(),
            numbers in prop::array::uniform3(prop::option::of(any::<i32>())),
            r#type in prop::option::of(0_i64..3), target in any::<bool>(),
        ) -> generated::ServicePort {
            let to = generated::IntOrString { r#type, int_val: numbers[0], str_val };
            generated::ServicePort {
                name, protocol, port: numbers[1], target_port: target.then_some(to), node_port: numbers[2], app_protocol,
            }
        }
    }

    prop_compose! {
        fn spec()(
            ports in prop::collection::vec(port(), 0..3),
            selector in prop::collection::btree_map("[a-c]", "[a-z]{0,3}", 0..3),
            words in prop::array::uniform6(text()),
            external_ips in prop::collection::vec("[0-9.]{1,5}", 0..3),
            cluster_ips in prop::collection::vec("[0-9.]{1,5}", 0..3),
            number in prop::option::of(any::<i32>()),
            publish_not_ready_addresses in prop::option::of(any::<bool>()),
        ) -> generated::ServiceSpec {
            let [cluster_ip, r#type, session_affinity, external_traffic_policy, internal_traffic_policy,
                traffic_distribution] = words;
            let client_ip = Some(generated::ClientIpConfig { timeout_seconds: number });
            generated::ServiceSpec {
                ports, selector, cluster_ip, r#type, external_ips, session_affinity, external_traffic_policy,
                health_check_node_port: number, publish_not_ready_addresses,
                session_affinity_config: number.map(|_| generated::SessionAffinityConfig { client_ip }),
                cluster_ips, internal_traffic_policy, traffic_distribution,
            }
        }
    }

    prop_compose! {
        fn service()(
            texts in prop::array::uniform3(text()),
            labels in prop::collection::btree_map("[a-c]", "[a-z]{0,3}", 0..3),
            finalizers in prop::collection::vec("[a-c]", 0..3),
            seconds in prop::option::of(any::<i64>()),
            spec in prop::option::of(spec()),
        ) -> Service {
            let [name, namespace, uid] = texts;
            let deletion_timestamp = seconds.map(|seconds| generated::Time { seconds: Some(seconds), nanos: None });
            let metadata = generated::ObjectMeta {
                name, namespace, uid, labels, finalizers, deletion_timestamp, ..Default::default()
            };
            Service { metadata: Some(metadata), spec }
        }
    }

    proptest! {
        /// The hand-written reader returns the same result as the generated reader, also for messages with parts that occur twice
        /// and for messages with unknown fields.
        #[test]
        fn reader_agrees_with_the_generated_one(
            one in service(), two in service(), noise in any_message_with_maps(&[2, 11, 12]), number in 1_u32..3,
        ) {
            let twice = [one.encode_to_vec(), two.encode_to_vec()].concat();
            let noisy = [one.encode_to_vec(), field(number, &noise)].concat();
            for object in [one.encode_to_vec(), twice, noisy, [noise, two.encode_to_vec()].concat()] {
                if let Ok(read) = Service::decode(&*object) {
                    let walked = StoredService::walk(&object).unwrap();
                    prop_assert_eq!(walked, StoredService::from(read));
                }
            }
        }
    }

    #[test]
    fn addresses_of_headless_external_and_old_services_are_read() {
        let spec = |kind: &str, single: &str, listed: &[&str]| {
            let spec = ServiceSpec {
                r#type: Some(kind.into()),
                cluster_ip: Some(single.into()),
                cluster_ips: listed.iter().copied().map(Text::from).collect(),
                ..ServiceSpec::default()
            };
            spec.addresses().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(spec("ClusterIP", "10.96.0.1", &["10.96.0.1", "fd00::1"]), ["10.96.0.1", "fd00::1"]);
        assert_eq!(spec("ClusterIP", "10.96.0.1", &[]), ["10.96.0.1"]);
        assert!(spec("ClusterIP", "None", &["None"]).is_empty());
        assert!(spec("ExternalName", "10.96.0.1", &["10.96.0.1"]).is_empty());
    }
}
