//! The stored form of Kubernetes objects: bytes in, bytes out, no I/O.
//!
//! What an API server keeps in etcd is an [`envelope`] around protobuf, or JSON text, or CBOR, or any of
//! them encrypted. This room recognises all, reads the kinds that netsurgeon works on ([`objects`]), shows
//! any other as a tree ([`tree`]), and changes single fields ([`edit`]) in place: every byte that was not
//! meant to change is copied as it was, fields that this program has never heard of included. An object
//! that the API server wrote is never decoded and encoded again.
//!
//! Only this room names `prost`.

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

#[rustfmt::skip]
mod generated;

pub use address::StoredAddress;
pub use edit::{EditError, FieldEdit};
pub use envelope::{Envelope, TypeMeta};
pub use field::{Field, Segment, Value};
pub use objects::{IpAddressObject, RangeAllocation, Service, ServiceCidrObject};
pub use pairs::Pairs;
pub use service::{ServicePort, ServiceSpec, StoredService, TargetPort, Text};

/// Why bytes could not be read as what they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A protobuf message ends in the middle of a field, or a field has a length beyond its message.
    #[error("broken protobuf at byte {offset}: {reason}")]
    Protobuf {
        /// Offset in bytes within the message that was being read.
        offset: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// The JSON text does not parse, or has not the expected shape.
    #[error("broken JSON: {reason}")]
    Json {
        /// The parser's words.
        reason: String,
    },
    /// A text in the object is no YAML, or cannot be taken for it.
    #[error("broken YAML: {reason}")]
    Yaml {
        /// The parser's words.
        reason: String,
    },
    /// The value is encrypted and no key was given.
    #[error("the value is encrypted (provider `{provider}`, key `{key}`)")]
    Encrypted {
        /// The encryption provider, as in `aescbc`.
        provider: String,
        /// The name of the key.
        key: String,
    },
    /// The CBOR ends too early, or has not the shape that an API server gives it.
    #[error("broken CBOR: {reason}")]
    Cbor {
        /// The parser's words.
        reason: String,
    },
    /// The value is to be changed, and is in CBOR, which is read and not changed.
    #[error("the value is stored as CBOR, which netsurgeon reads and does not change")]
    CborUnchanged,
    /// The value begins like nothing an API server stores.
    #[error("the value is no Kubernetes object: it begins with `{beginning}`")]
    Unrecognised {
        /// The first bytes, escaped.
        beginning: String,
    },
    /// The object is of another kind.
    #[error("expected a `{expected}`, found a `{found}`")]
    WrongKind {
        /// The kind that belongs there.
        expected: &'static str,
        /// The kind that was found.
        found: String,
    },
    /// A bitmap has bits that its range has not.
    #[error("the bitmap has {bits} bits, its range has room for {capacity}")]
    BitmapTooLong {
        /// Position of the highest bit set, plus one.
        bits: u64,
        /// What the range allows.
        capacity: u64,
    },
}
