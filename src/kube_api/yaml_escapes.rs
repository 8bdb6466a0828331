//! JSON that a YAML parser reads without a change.
//!
//! The API server parses the body of a server-side apply as YAML, also if it is JSON
//! (`apiserver/pkg/endpoints/handlers/patch.go`, v1.37.2). Its YAML parser refuses some characters that JSON allows, and silently
//! changes others: U+0085 becomes a space, and blanks around U+2028 and U+2029 are lost. So these characters are sent as escapes.

use std::fmt::Write as _;

use serde_json::Value;

/// Returns a value as JSON that a YAML parser reads without a change.
pub(super) fn as_yaml(value: &Value) -> String {
    let json = value.to_string();
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        match u32::from(letter) {
            code @ (0x7f..=0x9f | 0x2028 | 0x2029 | 0xfeff | 0xfffe | 0xffff) => {
                let _ = write!(text, "\\u{code:04x}");
            }
            _ => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn characters_that_yaml_changes_are_escaped() {
        let value = json!({"a": "x\u{85}y \u{2028} z\u{7f}\u{ffff}", "b": "é😀/\n\""});
        let text = as_yaml(&value);
        assert!(text.contains(r"x\u0085y \u2028 z\u007f\uffff"), "{text}");
        assert!(text.contains("é😀/"), "other characters stay as they are: {text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
