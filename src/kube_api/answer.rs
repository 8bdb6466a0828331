//! Answers of an API server.

use std::time::Duration;

use http::{HeaderMap, header};
use serde_json::Value;
use time::OffsetDateTime;

/// An HTTP answer of an API server.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// HTTP status.
    pub(super) code: u16,
    pub(super) body: Vec<u8>,
    /// Time to wait before a retry, as requested by the server.
    pub(super) retry_after: Option<Duration>,
    /// Time of the server (`Date`, RFC 9110, section 6.6.1), in whole seconds.
    pub(super) date: Option<OffsetDateTime>,
    /// Warnings of the server.
    pub(super) warnings: Vec<String>,
}

/// The answer to a dry run.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// The object as it would be stored.
    pub object: Value,
    /// The API server's warnings, without duplicates.
    pub warnings: Vec<String>,
}

/// Returns the texts of the warnings in the headers of an answer, without duplicates (RFC 7234, section 5.5). API servers name deprecated
/// versions, fields that are not stored, and Pods that PodSecurity would reject (`k8s.io/apiserver/pkg/warning`).
pub(super) fn warnings(headers: &HeaderMap) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for value in headers.get_all(header::WARNING) {
        let Some(text) = value.to_str().ok().and_then(text) else { continue };
        if !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

/// Returns the text of a warning `299 - "TEXT"`. A backslash escapes the next character.
fn text(value: &str) -> Option<String> {
    let (_, quoted) = value.split_once('"')?;
    let (mut text, mut rest) = (String::new(), quoted.chars());
    loop {
        match rest.next()? {
            '"' => return Some(text),
            '\\' => text.push(rest.next()?),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_unquoted_and_unique() {
        let mut headers = HeaderMap::new();
        for value in [
            r#"299 - "would violate PodSecurity \"restricted:latest\": a (b)""#,
            r#"299 - "unknown field \"x\\y\"" "Sun, 06 Nov 1994 08:49:37 GMT""#,
            r#"299 - "unknown field \"x\\y\"""#,
            "299 - torn",
            r#"299 - "torn"#,
        ] {
            headers.append(header::WARNING, value.parse().unwrap());
        }
        let expected = [r#"would violate PodSecurity "restricted:latest": a (b)"#, r#"unknown field "x\y""#];
        assert_eq!(warnings(&headers), expected);
    }
}
