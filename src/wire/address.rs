//! The parts of an IPAddress object that a survey needs, read without copying.
//!
//! A cluster has an IPAddress for every address of every Service. A survey needs only four texts and a time from each object, so
//! only these fields are read from the stored message. The field numbers are defined in
//! `k8s.io/api/networking/v1/generated.proto` and `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`, v0.36.3. A test
//! compares the result with the result of the generated reader.

use std::borrow::Cow;

use super::WireError;
use super::objects::{IpAddressObject, MANAGED_BY, Opened, StoredKind, open};
use super::protobuf::{fields, map_entry};

/// The parts of an IPAddress object that a survey needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredAddress<'a> {
    /// API version, for example `networking.k8s.io/v1`.
    pub api_version: Cow<'a, str>,
    /// `metadata.name`: the address.
    pub name: Cow<'a, str>,
    /// Value of the label [`MANAGED_BY`].
    pub managed_by: Cow<'a, str>,
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub created: Option<i64>,
    /// `spec.parentRef.namespace`.
    pub parent_namespace: Cow<'a, str>,
    /// `spec.parentRef.name`.
    pub parent_name: Cow<'a, str>,
}

impl<'a> StoredAddress<'a> {
    /// Reads a stored IPAddress.
    ///
    /// Fails in the same cases as [`super::objects::decode`].
    pub fn decode(value: &'a [u8]) -> Result<Self, WireError> {
        let (type_meta, opened) = open(value, IpAddressObject::NAME)?;
        let mut address = match opened {
            Opened::Protobuf(raw) => Self::walk(raw)?,
            Opened::Json(text) => Self::from(IpAddressObject::from_json(&text)?),
        };
        address.api_version = type_meta.api_version;
        Ok(address)
    }

    fn walk(object: &'a [u8]) -> Result<Self, WireError> {
        let mut address = Self::default();
        for field in fields(object) {
            let field = field?;
            match field.number {
                1 => address.walk_metadata(field.message()?)?,
                2 => address.walk_spec(field.message()?)?,
                _ => {}
            }
        }
        Ok(address)
    }

    fn walk_metadata(&mut self, metadata: &'a [u8]) -> Result<(), WireError> {
        for field in fields(metadata) {
            let field = field?;
            match field.number {
                1 => self.name = field.text()?.into(),
                8 => self.walk_time(field.message()?)?,
                11 => {
                    let (key, text) = map_entry(field.message()?)?;
                    if key == MANAGED_BY {
                        self.managed_by = text.into();
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn walk_time(&mut self, time: &'a [u8]) -> Result<(), WireError> {
        for field in fields(time) {
            let field = field?;
            if field.number == 1 {
                self.created = Some(field.varint()?.cast_signed());
            }
        }
        Ok(())
    }

    fn walk_spec(&mut self, spec: &'a [u8]) -> Result<(), WireError> {
        for field in fields(spec) {
            let field = field?;
            if field.number != 1 {
                continue;
            }
            for part in fields(field.message()?) {
                let part = part?;
                match part.number {
                    3 => self.parent_namespace = part.text()?.into(),
                    4 => self.parent_name = part.text()?.into(),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl From<IpAddressObject> for StoredAddress<'_> {
    fn from(object: IpAddressObject) -> Self {
        let mut metadata = object.metadata.unwrap_or_default();
        let parent = object.spec.and_then(|spec| spec.parent_ref).unwrap_or_default();
        Self {
            api_version: Cow::default(),
            name: metadata.name.unwrap_or_default().into(),
            created: metadata.creation_timestamp.and_then(|time| time.seconds),
            managed_by: metadata.labels.remove(MANAGED_BY).unwrap_or_default().into(),
            parent_namespace: parent.namespace.unwrap_or_default().into(),
            parent_name: parent.name.unwrap_or_default().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::envelope::Envelope;
    use super::super::objects::{ALLOCATOR, Encoding, IP_FAMILY, NewIpAddress, decode};
    use super::super::protobuf::tests::any_message_with_maps;
    use super::super::protobuf::{field, replace};
    use super::*;

    fn sample(encoding: Encoding) -> Vec<u8> {
        let new = NewIpAddress {
            api_version: "networking.k8s.io/v1",
            address: "fd00:10:96::a".parse().unwrap(),
            parent: ("kube-system", "kube-dns"),
            uid: "7adac09e-fea0-4c10-a3f2-0349c8f576a7",
            created: 1_795_247_950,
        };
        new.encode(encoding)
    }

    #[test]
    fn both_encodings_have_the_same_result() {
        let (protobuf, json) = (sample(Encoding::Protobuf), sample(Encoding::Json));
        let address = StoredAddress::decode(&protobuf).unwrap();
        assert_eq!(address, StoredAddress::decode(&json).unwrap());
        assert_eq!((&*address.name, &*address.managed_by), ("fd00:10:96::a", ALLOCATOR));
        assert_eq!(address.created, Some(1_795_247_950));
        assert_eq!((&*address.parent_namespace, &*address.parent_name), ("kube-system", "kube-dns"));
        assert_eq!(address.api_version, "networking.k8s.io/v1");
        for value in [&protobuf, &json] {
            let object: IpAddressObject = decode(value).unwrap();
            assert_eq!(object.metadata.unwrap().labels[IP_FAMILY], "IPv6");
        }
    }

    proptest! {
        /// The hand-written reader returns the same result as the generated reader, also for messages that occur twice and for
        /// messages with unknown fields. It accepts every message that the generated reader accepts.
        #[test]
        fn reader_agrees_with_the_generated_one(
            noise in any_message_with_maps(&[11]), number in 1_u32..3, label in ".{0,4}", is_ours in any::<bool>(),
        ) {
            let value = sample(Encoding::Protobuf);
            let Envelope::Protobuf { raw, .. } = Envelope::of(&value).unwrap() else { unreachable!() };
            let entry = [field(1, if is_ours { MANAGED_BY } else { "other" }), field(2, label)].concat();
            let noisy = field(number, &noise);
            let twice = [raw, &field(1, field(11, entry)), &noisy].concat();
            for object in [twice.clone(), replace(raw, number, &noisy).unwrap(), [noise.clone(), twice].concat()] {
                let generated = <IpAddressObject as prost::Message>::decode(&*object);
                if let Ok(object_read) = generated {
                    prop_assert_eq!(StoredAddress::walk(&object).unwrap(), StoredAddress::from(object_read));
                }
            }
            prop_assert!(decode::<IpAddressObject>(&value).is_ok());
        }
    }
}
