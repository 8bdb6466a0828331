//! Reads and changes the stored form of Kubernetes objects. The functions work on bytes, without I/O.
//!
//! An API server stores an object in etcd as protobuf, JSON text, or CBOR, and can encrypt each of these formats. This module
//! recognizes all of them ([`envelope`]). It reads the kinds that netsurgeon needs ([`objects`]), and shows any kind as a tree
//! ([`tree`]). It changes single fields in place ([`edit`]) and copies every other byte, including fields that `proto/` does not
//! define. It never decodes an object of an API server to encode it again.
//!
//! Only this module uses `prost`.

mod address;
pub mod bitmap;
mod cbor;
pub mod edit;
pub mod envelope;
pub mod field;
mod json;
pub mod manifest;

/// Bytes as base64 text, for serde's `with`.
pub use json::base64_text;
pub mod objects;
mod pairs;
mod protobuf;
pub mod schema;
mod service;
pub mod texts;
pub mod tree;
pub mod yaml;
pub mod yaml_edit;

#[rustfmt::skip]
mod generated;

pub use address::StoredAddress;
pub use edit::{EditError, FieldEdit};
pub use envelope::{Envelope, TypeMeta};
pub use field::{Field, Segment, Value};
pub use objects::{IpAddressObject, RangeAllocation, Service, ServiceCidrObject};
pub use pairs::Pairs;
pub use service::{ServicePort, ServiceSpec, StoredService, TargetPort, Text};

/// Reason why bytes cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A protobuf message ends in the middle of a field, or a field is longer than its message.
    #[error("broken protobuf at byte {offset}: {reason}")]
    Protobuf {
        /// Offset in bytes within the message.
        offset: usize,
        /// Description of the error.
        reason: &'static str,
    },
    /// The JSON text cannot be parsed, or does not have the expected structure.
    #[error("broken JSON: {reason}")]
    Json {
        /// Message from the parser.
        reason: String,
    },
    /// A text in the object is not valid YAML.
    #[error("broken YAML: {reason}")]
    Yaml {
        /// Message from the parser.
        reason: String,
    },
    /// The value is encrypted, and no key was given.
    #[error("the value is encrypted (provider `{provider}`, key `{key}`)")]
    Encrypted {
        /// The encryption provider, for example `aescbc`.
        provider: String,
        /// Name of the key.
        key: String,
    },
    /// The CBOR value ends too early, or does not have the structure that an API server writes.
    #[error("broken CBOR: {reason}")]
    Cbor {
        /// Message from the parser.
        reason: String,
    },
    /// The value to change is CBOR, which netsurgeon only reads.
    #[error("the value is stored as CBOR, which netsurgeon can read but not change")]
    CborUnchanged,
    /// The value does not start like a value that an API server writes.
    #[error("the value is not a Kubernetes object: it starts with `{beginning}`")]
    Unrecognised {
        /// The first bytes, escaped.
        beginning: String,
    },
    /// The object is of another kind.
    #[error("expected the kind `{expected}`, found `{found}`")]
    WrongKind {
        /// The expected kind.
        expected: &'static str,
        /// The kind that was found.
        found: String,
    },
    /// A bitmap has bits outside its range.
    #[error("the bitmap has {bits} bits, but its range allows {capacity}")]
    BitmapTooLong {
        /// Position of the highest bit set, plus one.
        bits: u64,
        /// The capacity of the range.
        capacity: u64,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::envelope::{CBOR_MAGIC, PROTOBUF_MAGIC, wrap};

    /// The readers of stored values.
    const READERS: [fn(&[u8]); 5] = [
        |value| drop(Envelope::of(value)),
        |value| drop(tree::of(value)),
        |value| drop(texts::each(value, &mut |_, _| {})),
        |value| drop(StoredAddress::decode(value)),
        |value| drop(StoredService::decode(value)),
    ];

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let starts = [&b""[..], PROTOBUF_MAGIC, CBOR_MAGIC];
            let mut values: Vec<Vec<u8>> = starts.iter().map(|start| [start, &*bytes].concat()).collect();
            for kind in ["Deployment", "IPAddress", "Pod", "Secret", "Service"] {
                values.push(wrap(&TypeMeta { api_version: "v1".into(), kind: kind.into() }, &bytes));
            }
            for value in &values {
                for reader in READERS {
                    reader(value);
                }
            }
        }
    }
}
