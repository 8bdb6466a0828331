//! The envelope of a stored object: its encoding and its kind.
//!
//! A protobuf value is the magic `k8s\0` followed by a `runtime.Unknown`
//! (`k8s.io/apimachinery/pkg/runtime/serializer/protobuf/protobuf.go`, v0.36.3). JSON values are text that starts with `{`. CBOR
//! values start with the self-described tag `d9 d9 f7` (RFC 8949, section 3.4.6). Encrypted values start with
//! `k8s:enc:PROVIDER:VERSION:KEY:` (`k8s.io/apiserver/pkg/server/options/encryptionconfig/config.go`, v0.36.3).

use std::borrow::Cow;

use super::WireError;
use super::protobuf::{self, RawField, field};

/// Four bytes at the start of a protobuf value.
pub const PROTOBUF_MAGIC: &[u8] = b"k8s\0";
/// Self-described tag at the start of a CBOR value.
pub const CBOR_MAGIC: &[u8] = &[0xd9, 0xd9, 0xf7];
/// Prefix of every value that is encrypted at rest.
pub const ENCRYPTION_PREFIX: &[u8] = b"k8s:enc:";

/// Field numbers of `runtime.Unknown`.
const TYPE_META: u32 = 1;
const RAW: u32 = 2;

/// API version and kind of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypeMeta<'a> {
    /// API version, for example `v1` or `networking.k8s.io/v1`.
    pub api_version: Cow<'a, str>,
    /// StoredKind, for example `Service`.
    pub kind: Cow<'a, str>,
}

/// A stored value whose encoding is recognized. The object in the envelope is not parsed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Envelope<'a> {
    /// A protobuf object.
    Protobuf {
        /// API version and kind of the object.
        type_meta: TypeMeta<'a>,
        /// Protobuf message of the object.
        raw: &'a [u8],
    },
    /// JSON text.
    Json(&'a str),
    /// A CBOR object.
    Cbor,
    /// A value that is encrypted at rest.
    Encrypted {
        /// Encryption provider, for example `aescbc`, `aesgcm`, `secretbox`, `kms`.
        provider: String,
        /// Name of the key or of the KMS plug-in.
        key: String,
    },
}

impl<'a> Envelope<'a> {
    /// Recognizes the encoding of a stored value.
    ///
    /// Fails if the value has an unknown prefix, a protobuf envelope is damaged, or the JSON is not UTF-8.
    pub fn of(value: &'a [u8]) -> Result<Self, WireError> {
        if let Some(unknown) = value.strip_prefix(PROTOBUF_MAGIC) {
            return Self::protobuf(unknown);
        }
        if let Some(rest) = value.strip_prefix(ENCRYPTION_PREFIX) {
            return Ok(Self::encrypted(rest));
        }
        if value.starts_with(CBOR_MAGIC) {
            return Ok(Self::Cbor);
        }
        if value.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
            let text = std::str::from_utf8(value).map_err(|e| WireError::Json { reason: e.to_string() })?;
            return Ok(Self::Json(text));
        }
        let beginning = value.get(..value.len().min(12)).unwrap_or_default().escape_ascii().to_string();
        Err(WireError::Unrecognised { beginning })
    }

    /// Returns the name of the encoding, for messages and JSON output.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Protobuf { .. } => "protobuf",
            Self::Json(_) => "json",
            Self::Cbor => "cbor",
            Self::Encrypted { .. } => "encrypted",
        }
    }

    fn protobuf(unknown: &'a [u8]) -> Result<Self, WireError> {
        let mut type_meta = TypeMeta::default();
        let mut raw: &[u8] = &[];
        for field in protobuf::fields(unknown) {
            match field? {
                RawField { number: TYPE_META, content: protobuf::Content::Bytes(message), .. } => {
                    type_meta = read_type_meta(message)?;
                }
                RawField { number: RAW, content: protobuf::Content::Bytes(bytes), .. } => raw = bytes,
                _ => {}
            }
        }
        Ok(Self::Protobuf { type_meta, raw })
    }

    fn encrypted(rest: &[u8]) -> Self {
        let mut parts = rest.splitn(4, |byte| *byte == b':');
        let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
        let provider = text();
        let _version = text();
        Self::Encrypted { provider, key: text() }
    }
}

fn read_type_meta(message: &[u8]) -> Result<TypeMeta<'_>, WireError> {
    let mut type_meta = TypeMeta::default();
    for field in protobuf::fields(message) {
        let field = field?;
        let text = || String::from_utf8_lossy(field.bytes().unwrap_or_default());
        match field.number {
            1 => type_meta.api_version = text(),
            2 => type_meta.kind = text(),
            _ => {}
        }
    }
    Ok(type_meta)
}

/// Returns the value with the object's message replaced. The other bytes of the envelope are kept.
pub(super) fn with_raw(value: &[u8], raw: &[u8]) -> Result<Vec<u8>, WireError> {
    let unknown = value.strip_prefix(PROTOBUF_MAGIC).unwrap_or(value);
    Ok([PROTOBUF_MAGIC, &protobuf::replace(unknown, RAW, &field(RAW, raw))?].concat())
}

/// Returns a new protobuf value in the form that the API server writes. Fields 3 and 4 of `runtime.Unknown` (content encoding and
/// content type) are present but empty.
pub(super) fn wrap(type_meta: &TypeMeta<'_>, raw: &[u8]) -> Vec<u8> {
    let meta = [field(1, &*type_meta.api_version), field(2, &*type_meta.kind)].concat();
    let magic = PROTOBUF_MAGIC.to_vec();
    [magic, field(TYPE_META, meta), field(RAW, raw), field(3, ""), field(4, "")].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn encodings_are_recognised() {
        let meta = TypeMeta { api_version: "v1".into(), kind: "Service".into() };
        let value = wrap(&meta, b"\x0a\x00");
        assert_eq!(Envelope::of(&value).unwrap(), Envelope::Protobuf { type_meta: meta, raw: b"\x0a\x00" });
        assert_eq!(Envelope::of(b" {}\n").unwrap(), Envelope::Json(" {}\n"));
        assert_eq!(Envelope::of(b"\xd9\xd9\xf7\xa0").unwrap(), Envelope::Cbor);
        assert_eq!(
            Envelope::of(b"k8s:enc:aescbc:v1:key:1\x00\xff").unwrap(),
            Envelope::Encrypted { provider: "aescbc".into(), key: "key".into() }
        );
        assert_eq!(
            Envelope::of(b"k8s:enc:kms:v2:plugin:\x0a").unwrap(),
            Envelope::Encrypted { provider: "kms".into(), key: "plugin".into() }
        );
        assert!(matches!(Envelope::of(b"compact_rev_key"), Err(WireError::Unrecognised { .. })));
        assert!(Envelope::of(b"").is_err());
    }

    proptest! {
        #[test]
        fn replacing_the_object_keeps_the_rest(
            unknown in super::super::protobuf::tests::any_message(),
            raw in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut value = PROTOBUF_MAGIC.to_vec();
            value.extend_from_slice(&unknown);
            let edited = with_raw(&value, &raw).unwrap();
            let others = |v: &[u8]| -> Vec<Vec<u8>> {
                protobuf::fields(&v[4..]).map(Result::unwrap)
                    .filter(|f| f.number != RAW).map(|f| f.whole.to_vec()).collect()
            };
            prop_assert_eq!(others(&value), others(&edited));
        }
    }
}
