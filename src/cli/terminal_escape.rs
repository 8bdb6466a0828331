//! Makes text from the cluster safe to print on a terminal. Tenants choose names, messages and addresses. A terminal interprets
//! some characters as commands. Other characters change the order of the text on the screen.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// All colour sequences that this program prints (ECMA-48, 8.3.117).
const COLOURS: [&str; 6] =
    ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[1;31m"];

/// Bytes that [`Neutral`] checks and writes at once. It equals the size of a pipe's buffer.
const BLOCK: usize = 64 * 1024;
/// Bytes that are checked without a branch, because most texts contain only plain bytes.
const LANE: usize = 32;

/// Returns the text with every harmful character escaped in JSON notation (`\u001b`, RFC 8259, section 7), so that a JSON text
/// keeps its value. Keeps line ends and tabs. With `has_colours`, also keeps the program's own colours.
pub(super) fn neutral(text: &str, has_colours: bool) -> Cow<'_, str> {
    let mut plain = plain_length(text.as_bytes());
    if plain == text.len() {
        return Cow::Borrowed(text);
    }
    let (mut made, mut rest) = (String::with_capacity(text.len()), text);
    loop {
        let (kept, from) = rest.split_at(plain);
        made.push_str(kept);
        let Some(next) = from.chars().next() else { return Cow::Owned(made) };
        let colour = COLOURS.iter().find(|colour| has_colours && from.starts_with(**colour));
        let length = colour.map_or(next.len_utf8(), |colour| colour.len());
        match colour {
            Some(colour) => made.push_str(colour),
            None if is_harmful(next) => escape(&mut made, next),
            None => made.push(next),
        }
        rest = from.get(length..).unwrap_or_default();
        plain = plain_length(rest.as_bytes());
    }
}

/// Returns how many bytes at the start are printable ASCII, line ends or tabs.
fn plain_length(bytes: &[u8]) -> usize {
    let is_plain = |byte: u8| matches!(byte, b'\n' | b'\t' | b' '..=b'~');
    let lanes = bytes.chunks(LANE);
    let whole = lanes.take_while(|lane| lane.iter().fold(true, |all, byte| all & is_plain(*byte)));
    let length: usize = whole.map(<[u8]>::len).sum();
    let rest = bytes.get(length..).unwrap_or_default().iter();
    length.saturating_add(rest.take_while(|byte| is_plain(**byte)).count())
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

/// A writer for JSON that escapes harmful characters with [`neutral`]. It collects the small pieces of a serializer, and checks
/// them in blocks. A character can be in two pieces: its start waits for the rest. Replaces bytes that are not UTF-8. Flush it at
/// the end.
pub(super) struct Neutral<W> {
    to: W,
    /// Bytes that are not yet checked.
    held: Vec<u8>,
}

impl<W: Write> Neutral<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, held: Vec::with_capacity(BLOCK) }
    }

    /// Writes the bytes that are held, except the start of a last character.
    fn pass(&mut self) -> io::Result<()> {
        // Most blocks are text without a torn character. This check takes a tenth of the time that the chunks take.
        if let Ok(text) = std::str::from_utf8(&self.held) {
            self.to.write_all(neutral(text, false).as_bytes())?;
            self.held.clear();
            return Ok(());
        }
        let mut done = 0_usize;
        for chunk in self.held.utf8_chunks() {
            self.to.write_all(neutral(chunk.valid(), false).as_bytes())?;
            done = done.saturating_add(chunk.valid().len());
            let is_start = done.saturating_add(chunk.invalid().len()) == self.held.len()
                && std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none());
            if is_start {
                break;
            }
            if !chunk.invalid().is_empty() {
                self.to.write_all("\u{fffd}".as_bytes())?;
            }
            done = done.saturating_add(chunk.invalid().len());
        }
        self.held.drain(..done);
        Ok(())
    }
}

impl<W: Write> Write for Neutral<W> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    // A serializer calls this for pieces of a few bytes. The default loops over `write`.
    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.held.extend_from_slice(bytes);
        if self.held.len() < BLOCK { Ok(()) } else { self.pass() }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass()?;
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

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
        let mut writer = Neutral::new(&mut made);
        serde_json::to_writer_pretty(&mut writer, &value).unwrap();
        writer.flush().unwrap();
        let text = String::from_utf8(made).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        assert!(!text.chars().any(is_harmful), "{text}");
    }

    /// Texts with harmful characters of every length in UTF-8.
    fn texts() -> impl Strategy<Value = String> {
        let harmful =
            ["\u{1b}", "\u{7f}", "\u{9b}", "\u{202e}", "\u{2066}", "\u{feff}", "\u{e0041}", "\u{1b}[31m"];
        let part = prop_oneof![
            proptest::sample::select(harmful.to_vec()).prop_map(str::to_string),
            ".{0,4}",
            "[ -~\n\t]{0,80}",
        ];
        vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    /// Writes the bytes in pieces of these lengths, repeatedly, and the rest at once.
    fn written(bytes: &[u8], pieces: &[usize], flushes: bool) -> String {
        let (mut made, mut rest) = (Vec::new(), bytes);
        let mut writer = Neutral::new(&mut made);
        for piece in pieces {
            let (now, then) = rest.split_at(rest.len().min(*piece));
            writer.write_all(now).unwrap();
            if flushes {
                writer.flush().unwrap();
            }
            rest = then;
        }
        writer.write_all(rest).unwrap();
        writer.flush().unwrap();
        String::from_utf8(made).unwrap()
    }

    proptest! {
        #[test]
        fn a_text_is_escaped_alike_however_it_is_split(
            text in texts(), repeats in 1_usize..2_000, pieces in vec(0_usize..9, 0..200), flushes: bool
        ) {
            let text = text.repeat(repeats);
            let expected: String = text.chars().fold(String::new(), |mut made, next| {
                if is_harmful(next) { escape(&mut made, next) } else { made.push(next) }
                made
            });
            prop_assert_eq!(&neutral(&text, false), &expected);
            prop_assert_eq!(&written(text.as_bytes(), &pieces, flushes), &expected);
            prop_assert!(!expected.chars().any(is_harmful));
        }

        #[test]
        fn bytes_that_are_no_text_are_replaced(
            bytes in vec(any::<u8>(), 0..64), pieces in vec(0_usize..9, 0..20), flushes: bool
        ) {
            let made = written(&bytes, &pieces, flushes);
            prop_assert!(!made.chars().any(is_harmful), "{:?}", made);
        }
    }
}
