//! Reads CBOR values as JSON text.
//!
//! An API server with the alpha gate `CBORServingAndStorage` stores only custom resources in CBOR (`--storage-media-type` does
//! not offer CBOR; see `storageMediaTypes` in `pkg/server/options/etcd.go` of `k8s.io/apiserver` v0.36.3). netsurgeon reads these
//! values, but never changes them.
//!
//! Text is stored as byte strings. Bytes are stored with the tag 22, "expected to be base64"
//! (`pkg/runtime/serializer/cbor/internal/modes` of `k8s.io/apimachinery` v0.36.3; RFC 8949, section 3.4.5.2).

use minicbor::data::{Tag, Type};
use minicbor::decode::{Decoder, Error};
use serde_json::{Map, Value};

use super::WireError;
use super::json::encode_base64;

/// Self-described tag at the start of stored values.
const SELF_DESCRIBED: Tag = Tag::new(55_799);
/// Tag for bytes that are written as base64 in JSON.
const BASE64: Tag = Tag::new(22);
/// Maximum nesting depth of values. Go's decoder, as configured in the API server, accepts 64 levels.
const DEEPEST: usize = 64;

/// Converts a stored CBOR value to JSON text.
pub(super) fn to_json(value: &[u8]) -> Result<String, WireError> {
    let mut decoder = Decoder::new(value);
    let read = item(&mut decoder, DEEPEST).map_err(|error| WireError::Cbor { reason: error.to_string() })?;
    if decoder.position() < value.len() {
        let reason = format!("extra bytes follow the object, from byte {}", decoder.position());
        return Err(WireError::Cbor { reason });
    }
    Ok(read.to_string())
}

fn item(decoder: &mut Decoder<'_>, depth: usize) -> Result<Value, Error> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Error::message("values are nested too deep"));
    };
    Ok(match decoder.datatype()? {
        Type::Null => decoder.null().map(|()| Value::Null)?,
        Type::Bool => decoder.bool()?.into(),
        Type::F16 => f64::from(decoder.f16()?).into(),
        Type::F32 => f64::from(decoder.f32()?).into(),
        Type::F64 => decoder.f64()?.into(),
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => decoder.u64()?.into(),
        Type::I8 | Type::I16 | Type::I32 | Type::I64 => decoder.i64()?.into(),
        Type::Bytes | Type::String => text(decoder)?.into(),
        Type::Array => {
            let length = definite(decoder.array()?)?;
            (0..length).map(|_| item(decoder, depth)).collect::<Result<Vec<_>, _>>()?.into()
        }
        Type::Map => {
            let mut map = Map::new();
            for _ in 0..definite(decoder.map()?)? {
                map.insert(text(decoder)?, item(decoder, depth)?);
            }
            map.into()
        }
        Type::Tag => match decoder.tag()? {
            SELF_DESCRIBED => item(decoder, depth)?,
            BASE64 => encode_base64(decoder.bytes()?).into(),
            other => {
                return Err(Error::message(format!(
                    "the API server does not use the tag {}",
                    other.as_u64()
                )));
            }
        },
        other => return Err(Error::type_mismatch(other)),
    })
}

/// Reads a byte string or a text string as text.
fn text(decoder: &mut Decoder<'_>) -> Result<String, Error> {
    if decoder.datatype()? == Type::String {
        return decoder.str().map(str::to_string);
    }
    // If a text is not UTF-8, the API server cannot show it as JSON either.
    String::from_utf8(decoder.bytes()?.to_vec()).map_err(|_| Error::message("a string is not valid UTF-8"))
}

fn definite(length: Option<u64>) -> Result<u64, Error> {
    length.ok_or_else(|| Error::message("a list or map has an indefinite length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_written_by_the_api_server_is_read() {
        // {"kind": "Web", "a": [1, -2, 1.5, true, null], "b": tag 22 of two bytes, "text": "ü" as a text string}
        let value = [
            b"\xd9\xd9\xf7\xa4\x44kind\x43Web\x41a\x85\x01\x21\xf9\x3e\x00\xf5\xf6\x41b\xd6\x42\xff\x00\x44text\x62".as_slice(),
            "ü".as_bytes(),
        ]
        .concat();
        assert_eq!(
            to_json(&value).unwrap(),
            r#"{"kind":"Web","a":[1,-2,1.5,true,null],"b":"/wA=","text":"ü"}"#
        );
    }

    #[test]
    fn broken_or_unknown_cbor_is_refused() {
        for (value, reason) in [
            (b"\xd9\xd9\xf7\xa1".as_slice(), "end of input"),
            (b"\xd9\xd9\xf7\xa0\x00", "bytes follow"),
            (b"\xd9\xd9\xf7\xbf\xff", "Map"),
            (b"\xd9\xd9\xf7\x41\xff", "valid UTF-8"),
            (b"\xd9\xd9\xf7\xc1\x00", "tag 1"),
        ] {
            let error = to_json(value).unwrap_err().to_string();
            assert!(error.to_lowercase().contains(&reason.to_lowercase()), "{error}: {reason}");
        }
        let deep = [b"\xd9\xd9\xf7".as_slice(), &vec![0x81; 100_000], b"\x00"].concat();
        assert!(to_json(&deep).unwrap_err().to_string().contains("deep"));
        // A length that exceeds the value does not allocate memory.
        assert!(to_json(b"\xd9\xd9\xf7\x9b\xff\xff\xff\xff\xff\xff\xff\xff").is_err());
    }
}
