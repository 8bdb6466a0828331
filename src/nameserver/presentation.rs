//! The presentation format of names and texts (RFC 1035, section 5.1). Records are bytes, but plans are JSON. This format keeps
//! every byte: a byte that is not printable is written as `\DDD`, in decimal.

use std::fmt::Write as _;

use hickory_proto::rr::Name;

use super::NameserverError;

/// Maximum length of one string of a TXT record, in bytes (RFC 1035, section 3.3).
const LONGEST: usize = 255;

/// Returns the data of a TXT record with these strings: `"part one " "part two"`.
pub fn quoted<S: AsRef<[u8]>>(strings: &[S]) -> String {
    let one = |string: &S| format!("\"{}\"", escaped(string.as_ref(), b"\"\\"));
    strings.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Returns the data of a TXT record with this text. A long text is divided into several strings.
pub fn quoted_text(text: &[u8]) -> String {
    if text.is_empty() { quoted(&[text]) } else { quoted(&text.chunks(LONGEST).collect::<Vec<_>>()) }
}

/// Returns the strings of a TXT record; `None` if the text does not have the format of [`quoted`].
pub fn strings(data: &str) -> Option<Vec<Vec<u8>>> {
    let mut rest = data.bytes();
    let mut found = Vec::new();
    while let Some(first) = rest.next() {
        match first {
            b' ' | b'\t' => continue,
            b'"' => {}
            _ => return None,
        }
        let mut string = Vec::new();
        loop {
            match rest.next()? {
                b'"' => break,
                b'\\' => string.push(unescaped(&mut rest)?),
                byte => string.push(byte),
            }
        }
        if string.len() > LONGEST {
            return None;
        }
        found.push(string);
    }
    (!found.is_empty()).then_some(found)
}

/// Returns the text of a TXT record: its strings, joined.
pub fn text(data: &str) -> Option<String> {
    String::from_utf8(strings(data)?.concat()).ok()
}

/// Returns a name without its last dot. The case of its letters is kept.
pub(super) fn spelled(name: &Name) -> String {
    name.iter().map(|label| escaped(label, b".\\\"; ()@$")).collect::<Vec<_>>().join(".")
}

/// Parses a domain name. An asterisk within a label is an ordinary character (RFC 2181, section 11). ExternalDNS creates names
/// with an asterisk for wildcards.
pub(super) fn name_of(text: &str) -> Result<Name, NameserverError> {
    let bad = |reason: String| NameserverError::Name { name: text.to_string(), reason };
    let mut labels = vec![Vec::new()];
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match (byte, labels.last_mut()) {
            (b'.', _) => labels.push(Vec::new()),
            (b'\\', Some(label)) => {
                label.push(unescaped(&mut rest).ok_or_else(|| bad("an escape is incomplete".to_string()))?);
            }
            (byte, Some(label)) => label.push(byte),
            (_, None) => {}
        }
    }
    // The last dot stands for the root.
    while labels.last().is_some_and(Vec::is_empty) {
        labels.pop();
    }
    if labels.is_empty() {
        return Ok(Name::root());
    }
    Name::from_labels(labels.iter().map(Vec::as_slice)).map_err(|error| bad(error.to_string()))
}

/// Writes bytes as text. `special`: printable characters that get a backslash.
fn escaped(bytes: &[u8], special: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            _ if special.contains(byte) && *byte != b' ' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' if !special.contains(byte) => text.push(char::from(*byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(text, "\\{byte:03}")),
        }
    }
    text
}

/// Returns the byte after a backslash: three decimal digits, or one character.
fn unescaped(rest: &mut std::str::Bytes<'_>) -> Option<u8> {
    let first = rest.next()?;
    let digit = |byte: u8| char::from(byte).to_digit(10);
    let Some(hundreds) = digit(first) else { return Some(first) };
    let (tens, ones) = (digit(rest.next()?)?, digit(rest.next()?)?);
    u8::try_from(hundreds.checked_mul(100)?.checked_add(tens.checked_mul(10)?)?.checked_add(ones)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_text_is_kept() {
        let all: Vec<u8> = (0..=255).collect();
        let (one, two) = all.split_at(200);
        for parts in [vec![one, two], vec![b"".as_slice()], vec![b"part one ".as_slice(), b"part two"]] {
            let data = quoted(&parts);
            assert!(data.is_ascii() && !data.contains('\n'), "{data}");
            assert_eq!(strings(&data).unwrap(), parts, "{data}");
        }
        assert_eq!(quoted(&["part one ", "a\"b\\c"]), r#""part one " "a\"b\\c""#);
        assert_eq!(quoted(&["caf\u{e9}"]), r#""caf\195\169""#);
        assert_eq!(text(&quoted_text("x".repeat(300).as_bytes())).unwrap(), "x".repeat(300));
        for bad in ["", "heritage=external-dns", "\"open", "\"a\\", "\"a\\25\"", "\"\\256\"", "\"a\" b"] {
            assert_eq!(strings(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_byte_of_a_name_is_kept() {
        let all: Vec<u8> = (0..=255).collect();
        for label in all.chunks(63) {
            let name = Name::from_labels([label, b"Example".as_slice(), b"com"]).unwrap();
            let read = name_of(&spelled(&name)).unwrap();
            assert!(name.iter().eq(read.iter()), "{}", spelled(&name));
        }
        assert_eq!(spelled(&name_of("A-*.Example.com.").unwrap()), "A-*.Example.com");
        assert_eq!(spelled(&name_of("a\\.b.example.com").unwrap()), "a\\.b.example.com");
        assert_eq!((spelled(&Name::root()), name_of("").unwrap()), (String::new(), Name::root()));
        assert!(name_of("a..b").is_err() && name_of("a\\").is_err() && name_of(".a").is_err());
    }
}
