//! The kinds that netsurgeon reads, in every stored encoding, and the few kinds that it creates.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use prost::Message;
use serde::de::DeserializeOwned;

use super::envelope::{self, Envelope, TypeMeta};
use super::{WireError, cbor, generated, json};
use crate::ip::Family;

pub use generated::{
    ApiService, ConfigMap, Container, CustomResourceDefinition, CustomResourceDefinitionV1beta1,
    IpAddress as IpAddressObject, Lease, MutatingWebhookConfiguration, Namespace, Node, ObjectMeta,
    ParentReference, Pod, RangeAllocation, Service, ServiceCidr as ServiceCidrObject, ServiceReference,
    StartedPod, SystemPod, ValidatingWebhookConfiguration, Webhook, WebhookClientConfig,
};

/// Label that the API server's allocator and repair loop use to recognize their own IPAddress objects
/// (`k8s.io/api/networking/v1/well_known_labels.go`, v0.36.3).
pub const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
/// Label with the address family (defined in the same file).
pub const IP_FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
/// Value of [`MANAGED_BY`] on IPAddress objects that the allocator creates
/// (`pkg/registry/core/service/ipallocator/cidrallocator.go`, v1.36.3).
pub const ALLOCATOR: &str = "ipallocator.k8s.io";
/// Value of the label `app.kubernetes.io/managed-by` on Services that netsurgeon creates.
pub const NETSURGEON: &str = "netsurgeon";
/// Finalizer of a Service and of its shadow while both have the same address during a renumbering.
pub const MOVING: &str = "netsurgeon.io/moving";

/// A kind that can be read from a stored value.
pub trait StoredKind: Message + Default + DeserializeOwned {
    /// Name of the kind, for example `Service`.
    const NAME: &'static str;

    /// Reads the JSON text of an object.
    fn from_json(text: &str) -> Result<Self, WireError> {
        serde_json::from_str(text).map_err(|e| WireError::Json { reason: e.to_string() })
    }
}

macro_rules! kinds {
    ($($type:ident = $name:literal),* $(,)?) => {
        $(impl StoredKind for $type { const NAME: &'static str = $name; })*
    };
}
kinds! {
    ApiService = "APIService", ConfigMap = "ConfigMap", CustomResourceDefinition = "CustomResourceDefinition",
    CustomResourceDefinitionV1beta1 = "CustomResourceDefinition",
    IpAddressObject = "IPAddress", Lease = "Lease", MutatingWebhookConfiguration = "MutatingWebhookConfiguration",
    Namespace = "Namespace", Node = "Node", Pod = "Pod", RangeAllocation = "RangeAllocation",
    Service = "Service", ServiceCidrObject = "ServiceCIDR", StartedPod = "Pod", SystemPod = "Pod",
    ValidatingWebhookConfiguration = "ValidatingWebhookConfiguration",
}

/// Reads a stored value as this kind.
///
/// Fails if the value is of another kind, broken, or encrypted. Fields that `proto/` does not define are skipped.
pub fn decode<K: StoredKind>(value: &[u8]) -> Result<K, WireError> {
    decode_opened(open(value, K::NAME)?.1)
}

/// Reads a value of any kind as the kind `K`. Reads only the fields that both kinds have in common.
pub(super) fn decode_any<K: StoredKind>(value: &[u8]) -> Result<K, WireError> {
    decode_opened(recognise(value)?.1)
}

fn decode_opened<K: StoredKind>(opened: Opened<'_>) -> Result<K, WireError> {
    match opened {
        Opened::Json(text) => K::from_json(&text),
        Opened::Protobuf(raw) => K::decode(raw)
            .map_err(|_| WireError::Protobuf { offset: 0, reason: "a field has an unexpected type" }),
    }
}

/// Returns the API version and the kind of a stored value.
pub fn type_of(value: &[u8]) -> Result<TypeMeta<'_>, WireError> {
    recognise(value).map(|(type_meta, _)| type_meta)
}

/// An object without its envelope.
pub(super) enum Opened<'a> {
    Protobuf(&'a [u8]),
    Json(Cow<'a, str>),
}

/// Removes the envelope from an object. Fails if the object is of another kind.
pub(super) fn open<'a>(value: &'a [u8], kind: &'static str) -> Result<(TypeMeta<'a>, Opened<'a>), WireError> {
    let (type_meta, opened) = recognise(value)?;
    if type_meta.kind != kind {
        return Err(WireError::WrongKind { expected: kind, found: type_meta.kind.into_owned() });
    }
    Ok((type_meta, opened))
}

fn recognise(value: &[u8]) -> Result<(TypeMeta<'_>, Opened<'_>), WireError> {
    match Envelope::of(value)? {
        Envelope::Protobuf { type_meta, raw } => Ok((type_meta, Opened::Protobuf(raw))),
        Envelope::Json(text) => of_json(text.into()),
        Envelope::Cbor => of_json(cbor::to_json(value)?.into()),
        Envelope::Encrypted { provider, key } => Err(WireError::Encrypted { provider, key }),
    }
}

fn of_json(text: Cow<'_, str>) -> Result<(TypeMeta<'_>, Opened<'_>), WireError> {
    let part = |name: &str| -> Result<String, WireError> {
        Ok(json::get(&text, &[name])?.unwrap_or_default().trim_matches('"').to_string())
    };
    let type_meta = TypeMeta { api_version: part("apiVersion")?.into(), kind: part("kind")?.into() };
    Ok((type_meta, Opened::Json(text)))
}

/// The encoding of a new object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// The prefix `k8s\0` and protobuf.
    #[default]
    Protobuf,
    /// JSON text with a newline at the end.
    Json,
}

/// A new IPAddress object (`networking.k8s.io`, `IPAddress`). It has the same labels as the objects that the allocator creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewIpAddress<'a> {
    /// API version, for example `networking.k8s.io/v1`.
    pub api_version: &'a str,
    /// Address. Its canonical text is the name of the object.
    pub address: IpAddr,
    /// Namespace and name of the Service that has the address.
    pub parent: (&'a str, &'a str),
    /// uid of the object.
    pub uid: &'a str,
    /// Time of creation, in seconds since 1970.
    pub created: i64,
}

impl NewIpAddress<'_> {
    /// Returns the object as it is stored.
    pub fn encode(&self, encoding: Encoding) -> Vec<u8> {
        let name = self.address.to_string();
        let family = Family::of(self.address).to_string();
        if encoding == Encoding::Json {
            let value = serde_json::json!({
                "kind": "IPAddress", "apiVersion": self.api_version,
                "metadata": {
                    "name": name, "uid": self.uid, "creationTimestamp": json::format_time(self.created),
                    "labels": { IP_FAMILY: family, MANAGED_BY: ALLOCATOR },
                },
                "spec": {"parentRef": {"resource": "services", "namespace": self.parent.0, "name": self.parent.1}},
            });
            return format!("{value}\n").into_bytes();
        }
        let empty = || Some(String::new());
        let object = IpAddressObject {
            metadata: Some(ObjectMeta {
                name: Some(name),
                generate_name: empty(),
                namespace: empty(),
                uid: Some(self.uid.to_string()),
                resource_version: empty(),
                generation: Some(0),
                creation_timestamp: Some(generated::Time { seconds: Some(self.created), nanos: Some(0) }),
                labels: BTreeMap::from([
                    (IP_FAMILY.to_string(), family),
                    (MANAGED_BY.to_string(), ALLOCATOR.to_string()),
                ]),
                ..ObjectMeta::default()
            }),
            spec: Some(generated::IpAddressSpec {
                parent_ref: Some(ParentReference {
                    group: empty(),
                    resource: Some("services".into()),
                    namespace: Some(self.parent.0.to_string()),
                    name: Some(self.parent.1.to_string()),
                }),
            }),
        };
        let meta = TypeMeta { api_version: self.api_version.into(), kind: "IPAddress".into() };
        envelope::wrap(&meta, &object.encode_to_vec())
    }
}

/// Returns a new RangeAllocation, as the API server creates it: protobuf with empty metadata.
pub fn new_range_allocation(range: &str, data: Vec<u8>) -> Vec<u8> {
    let object = RangeAllocation {
        metadata: Some(ObjectMeta::default()),
        range: Some(range.to_string()),
        data: Some(data),
    };
    envelope::wrap(
        &TypeMeta { api_version: "v1".into(), kind: RangeAllocation::NAME.into() },
        &object.encode_to_vec(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::StoredAddress;

    #[test]
    fn another_kind_is_refused() {
        let value = new_range_allocation("10.96.0.0/16", vec![1]);
        assert!(matches!(decode::<Service>(&value), Err(WireError::WrongKind { .. })));
        assert!(matches!(StoredAddress::decode(&value), Err(WireError::WrongKind { .. })));
        assert_eq!(decode::<RangeAllocation>(&value).unwrap().range.as_deref(), Some("10.96.0.0/16"));
        let json = br#"{"kind":"Pod","apiVersion":"v1"}"#;
        assert!(matches!(decode::<Service>(json), Err(WireError::WrongKind { .. })));
    }
}
