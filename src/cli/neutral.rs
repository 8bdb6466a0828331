//! Makes text from the cluster safe to print on a terminal. Tenants choose names, messages and addresses. A terminal interprets
//! some characters as commands. Other characters change the order of the text on the screen.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// All colour sequences that this program prints (ECMA-48, 8.3.117).
const COLOURS: [&str; 6] =
    ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[1;31m"];

/// Returns the text with every harmful character escaped in JSON notation (`\u001b`, RFC 8259, section 7), so that a JSON text
/// keeps its value. Keeps line ends and tabs. With `has_colours`, also keeps the program's own colours.
pub(super) fn neutral(text: &str, has_colours: bool) -> Cow<'_, str> {
    let is_plain = |byte: u8| matches!(byte, b'\n' | b'\t' | b' '..=b'~');
    if text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let (mut made, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(next) = rest.chars().next() {
        let colour = COLOURS.iter().find(|colour| has_colours && rest.starts_with(**colour));
        let length = colour.map_or(next.len_utf8(), |colour| colour.len());
        match colour {
            Some(colour) => made.push_str(colour),
            None if is_harmful(next) => escape(&mut made, next),
            None => made.push(next),
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    Cow::Owned(made)
}

/// Escapes harmful characters as [`neutral`] does, and also escapes line ends and tabs. Used for one line of text or one table
/// cell.
pub(super) fn neutral_line(text: &str, has_colours: bool) -> Cow<'_, str> {
    match neutral(text, has_colours) {
        text if text.contains(['\n', '\t']) => Cow::Owned(text.replace('\n', "\\n").replace('\t', "\\t")),
        text => text,
    }
}

/// Returns whether a character is harmful. Harmful characters are control characters, characters that change the direction of
/// text (Unicode Standard Annex 9, table 4), other line separators, and invisible characters. Invisible characters are zero-width
/// characters, tags, other characters that are ignored in display (`Default_Ignorable_Code_Point`, DerivedCoreProperties of
/// Unicode 16), and the empty braille cell.
fn is_harmful(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{00ad}'
        | '\u{034f}'
        | '\u{061c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fff8}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' => true,
        other => other.is_control(),
    }
}

fn escape(text: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        let _ = write!(text, "\\u{unit:04x}");
    }
}

/// A writer for JSON that escapes harmful characters with [`neutral`].
pub(super) struct Neutral<W>(pub(super) W);

impl<W: Write> Write for Neutral<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.0.write_all(neutral(text, false).as_bytes())?,
            Err(_) => self.0.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmful_characters_are_escaped() {
        let cases = [
            ("plain, één naam\n\tnext", "plain, één naam\n\tnext"),
            ("\u{1b}]0;title\u{7}", "\\u001b]0;title\\u0007"),
            ("\u{1b}[2Jgone\r", "\\u001b[2Jgone\\u000d"),
            ("\u{9b}31m", "\\u009b31m"),
            ("a\u{202e}txt.exe", "a\\u202etxt.exe"),
            ("x\u{2066}y\u{2069}\u{200b}", "x\\u2066y\\u2069\\u200b"),
            ("\u{e0041}", "\\udb40\\udc41"),
            ("shop\u{ad}\u{34f}\u{3164}\u{fe0f}", "shop\\u00ad\\u034f\\u3164\\ufe0f"),
            ("\u{1b}[1;31mred\u{1b}[0m", "\\u001b[1;31mred\\u001b[0m"),
        ];
        for (text, expected) in cases {
            assert_eq!(neutral(text, false), expected);
        }
        let ours = "\u{1b}[1;31mred\u{1b}[0m";
        assert_eq!(neutral(ours, true), ours);
        assert_eq!(neutral("\u{1b}[8mhidden\u{1b}[0m", true), "\\u001b[8mhidden\u{1b}[0m");
        assert_eq!(neutral_line("a\nerror: b", true), "a\\nerror: b");
    }

    #[test]
    fn escaped_json_keeps_its_value() {
        let value = serde_json::json!({"a": "\u{1b}[2J\u{9b}\u{202e}\u{e0041}\n", "é\u{7f}": 1});
        let mut made = Vec::new();
        serde_json::to_writer_pretty(Neutral(&mut made), &value).unwrap();
        let text = String::from_utf8(made).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        assert!(!text.chars().any(is_harmful), "{text}");
    }
}
