//! Finds and replaces a member in JSON text without changing any other byte. Also contains the code that reads Kubernetes JSON
//! into the generated types.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::WireError;
use super::generated::{IntOrString, Time};

/// One member of an object: the name, and the position of the value in the text.
struct Member<'a> {
    name: Cow<'a, str>,
    value: Range<usize>,
}

struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for InOrder<'a> {
            type Value = Members<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(name) = map.next_key::<Name<'de>>()? {
                    members.push((name.0, map.next_value::<&'de RawValue>()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder(std::marker::PhantomData))
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

fn members(text: &str) -> Result<Vec<Member<'_>>, WireError> {
    let parsed: Members<'_> =
        serde_json::from_str(text).map_err(|e| WireError::Json { reason: e.to_string() })?;
    let base = text.as_ptr() as usize;
    let place = |raw: &RawValue| {
        let start = (raw.get().as_ptr() as usize).saturating_sub(base);
        start..start.saturating_add(raw.get().len())
    };
    Ok(parsed.0.into_iter().map(|(name, raw)| Member { name, value: place(raw) }).collect())
}

/// Returns the text of the value at a path of member names; `None` if there is no such value, or if it is `null`.
///
/// If a name occurs twice, the last value is used, as in Go's decoder.
pub(super) fn get<'t>(text: &'t str, path: &[&str]) -> Result<Option<&'t str>, WireError> {
    let mut here = text;
    for name in path {
        let found = members(here)?.into_iter().rfind(|m| m.name == *name);
        match found.and_then(|member| here.get(member.value)) {
            Some("null") | None => return Ok(None),
            Some(value) => here = value,
        }
    }
    Ok(Some(here))
}

/// Returns the text after the value at a path is replaced, or added as the last member of its object. If `value` is `None`,
/// removes the member. Adds the objects of the path that are missing.
pub(super) fn set(text: &str, path: &[&str], value: Option<&str>) -> Result<String, WireError> {
    let Some((name, rest)) = path.split_first() else {
        return Ok(value.unwrap_or("null").to_string());
    };
    let all = members(text)?;
    let Some(index) = all.iter().rposition(|member| member.name == *name) else {
        return Ok(match value {
            Some(value) => insert(text, &all, name, &nested(rest, value)),
            None => text.to_string(),
        });
    };
    let place = all.get(index).map_or(0..0, |member| member.value.clone());
    if value.is_none() && rest.is_empty() {
        return remove_all(text, name);
    }
    let old = text.get(place.clone()).unwrap_or_default();
    let new = set(old, rest, value)?;
    Ok(splice(text, place, &new))
}

/// Builds `{"b":{"c":value}}` for the path b, c.
fn nested(path: &[&str], value: &str) -> String {
    path.iter().rev().fold(value.to_string(), |inner, name| format!("{{{}:{inner}}}", quote(name)))
}

fn insert(text: &str, all: &[Member<'_>], name: &str, value: &str) -> String {
    let member = format!("{}:{value}", quote(name));
    if let Some(last) = all.last() {
        return splice(text, last.value.end..last.value.end, &format!(",{member}"));
    }
    let open = text.find('{').map_or(0, |at| at.saturating_add(1));
    splice(text, open..open, &member)
}

/// Removes every member with this name. If only the last member were removed, an earlier member would be used instead.
fn remove_all(text: &str, name: &str) -> Result<String, WireError> {
    let mut text = text.to_string();
    loop {
        let all = members(&text)?;
        let Some(index) = all.iter().position(|member| member.name == name) else { return Ok(text) };
        text = remove(&text, &all, index);
    }
}

fn remove(text: &str, all: &[Member<'_>], index: usize) -> String {
    let end = all.get(index).map_or(0, |member| member.value.end);
    let before = index.checked_sub(1).and_then(|previous| all.get(previous));
    if let Some(before) = before {
        return splice(text, before.value.end..end, "");
    }
    let open = text.find('{').map_or(0, |at| at.saturating_add(1));
    // The first of several members is removed with the comma after it. A single member has no comma.
    let comma = text.get(end..).and_then(|rest| rest.find(',')).filter(|_| all.len() > 1);
    splice(text, open..comma.map_or(end, |at| end.saturating_add(at).saturating_add(1)), "")
}

fn splice(text: &str, place: Range<usize>, new: &str) -> String {
    let mut out = String::with_capacity(text.len().saturating_add(new.len()));
    out.push_str(text.get(..place.start).unwrap_or_default());
    out.push_str(new);
    out.push_str(text.get(place.end..).unwrap_or_default());
    out
}

/// Returns the text as a JSON string.
pub(super) fn quote(text: &str) -> String {
    serde_json::Value::String(text.to_string()).to_string()
}

/// Returns seconds since 1970 as RFC 3339 text in UTC, the format of `metav1.Time`.
pub(super) fn format_time(seconds: i64) -> String {
    OffsetDateTime::from_unix_timestamp(seconds)
        .ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_default()
}

pub(super) fn parse_time(text: &str) -> Option<i64> {
    OffsetDateTime::parse(text, &Rfc3339).ok().map(OffsetDateTime::unix_timestamp)
}

pub(super) fn decode_base64(text: &str) -> Result<Vec<u8>, WireError> {
    STANDARD.decode(text).map_err(|e| WireError::Json { reason: format!("base64: {e}") })
}

pub(super) fn encode_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Reads a `metav1.Time`: RFC 3339 text or null.
pub(super) fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Time>, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    let Some(text) = text else { return Ok(None) };
    match parse_time(&text) {
        Some(seconds) => Ok(Some(Time { seconds: Some(seconds), nanos: Some(0) })),
        None => Err(serde::de::Error::custom(format!("`{text}` is not an RFC 3339 time"))),
    }
}

/// Reads bytes from base64.
pub(super) fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    text.map(|text| STANDARD.decode(text).map_err(serde::de::Error::custom)).transpose()
}

/// Reads a map of base64 texts.
pub(super) fn map_of_bytes<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Vec<u8>>, D::Error> {
    let texts: Option<BTreeMap<String, String>> = Option::deserialize(deserializer)?;
    let decode = |(key, text): (String, String)| {
        STANDARD.decode(text).map(|bytes| (key, bytes)).map_err(serde::de::Error::custom)
    };
    texts.unwrap_or_default().into_iter().map(decode).collect()
}

/// Reads an `intstr.IntOrString`: a number or a text.
pub(super) fn int_or_string<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<IntOrString>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(i32),
        Text(String),
    }
    Ok(Option::<Either>::deserialize(deserializer)?.map(|either| match either {
        Either::Number(number) => {
            IntOrString { r#type: Some(0), int_val: Some(number), str_val: Some(String::new()) }
        }
        Either::Text(text) => IntOrString { r#type: Some(1), int_val: Some(0), str_val: Some(text) },
    }))
}

/// Bytes as base64 text, for serde's `with`.
pub mod base64_text {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes bytes as base64 text.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    /// Reads bytes from base64 text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn members_are_replaced_added_and_removed_in_place() {
        let text = "{ \"a\" : 1,\n \"b\":{\"c\":[1, 2], \"d\\u0065\":null}}\n";
        assert_eq!(get(text, &["b", "c"]).unwrap(), Some("[1, 2]"));
        assert_eq!(get(text, &["b", "de"]).unwrap(), None);
        assert_eq!(
            set(text, &["b", "c"], Some("7")).unwrap(),
            "{ \"a\" : 1,\n \"b\":{\"c\":7, \"d\\u0065\":null}}\n"
        );
        assert_eq!(set(text, &["a"], None).unwrap(), "{\n \"b\":{\"c\":[1, 2], \"d\\u0065\":null}}\n");
        assert_eq!(set(text, &["b", "c"], None).unwrap(), "{ \"a\" : 1,\n \"b\":{ \"d\\u0065\":null}}\n");
        assert_eq!(set("{}", &["a", "b"], Some("\"x\"")).unwrap(), "{\"a\":{\"b\":\"x\"}}");
        assert_eq!(set("{}", &["a", "b"], None).unwrap(), "{}");
        assert_eq!(set("{\"a\":1}", &["a"], None).unwrap(), "{}");
    }

    #[test]
    fn last_of_duplicate_members_counts_and_all_are_removed() {
        let text = r#"{"a":1,"b":2,"a":3}"#;
        assert_eq!(get(text, &["a"]).unwrap(), Some("3"));
        assert_eq!(set(text, &["a"], Some("4")).unwrap(), r#"{"a":1,"b":2,"a":4}"#);
        assert_eq!(set(text, &["a"], None).unwrap(), r#"{"b":2}"#);
    }

    #[test]
    fn value_that_looks_like_a_name_is_not_a_name() {
        let text = r#"{"x":"clusterIP\":","clusterIP":"10.0.0.1"}"#;
        assert_eq!(
            set(text, &["clusterIP"], Some("\"10.0.0.2\"")).unwrap(),
            r#"{"x":"clusterIP\":","clusterIP":"10.0.0.2"}"#
        );
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let text = format!("{{\"a\":{}}}", "[".repeat(100_000));
        assert!(get(&text, &["a"]).is_err());
    }

    proptest! {
        #[test]
        fn adding_and_removing_again_restores_every_byte(
            keys in proptest::collection::btree_map("[a-z]{1,5}", "[a-z\\\\ü\" ]{0,8}", 0..6),
        ) {
            let text = serde_json::to_string(&serde_json::json!({"spec": keys})).unwrap() + "\n";
            let added = set(&text, &["spec", "ADDED"], Some("[\"10.0.0.1\"]")).unwrap();
            prop_assert_eq!(get(&added, &["spec", "ADDED"]).unwrap(), Some("[\"10.0.0.1\"]"));
            prop_assert_eq!(set(&added, &["spec", "ADDED"], None).unwrap(), text);
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,80}") {
            let _ = get(&text, &["a", "b"]);
            let _ = set(&text, &["a"], None);
            let _ = set(&text, &["a", "b"], Some("1"));
        }
    }
}
