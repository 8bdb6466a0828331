//! Blocks of PEM text, read as Kubernetes reads them: this is the algorithm of `Decode` in Go's `encoding/pem` (Go 1.26). A block
//! starts at the start of a line. Lines have any length, and can contain blanks. Headers and text between blocks are skipped. A
//! block that is not valid is ignored, as Go ignores it; [`ignored`] returns the reason.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use x509_cert::der::pem::{LineEnding, encode_string};
use zeroize::Zeroizing;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "\n-----END ";
const DASHES: &str = "-----";
/// Go's `base64.StdEncoding` requires padding, and ignores unused bits at the end.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// A block of PEM text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block<'a> {
    /// The label: `CERTIFICATE`, `RSA PRIVATE KEY`, ...
    pub(super) label: &'a str,
    /// The headers, such as `Proc-Type` of an encrypted key.
    headers: Vec<(&'a str, &'a str)>,
    /// The text of the block, from its first dash to its last.
    pub(super) text: &'a str,
    /// The decoded content.
    pub(super) der: Zeroizing<Vec<u8>>,
}

impl<'a> Block<'a> {
    /// Returns the value of a header.
    pub(super) fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

/// A block that Go ignores, because it is not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoredBlock {
    /// The line of the block's first dash, counted from 1.
    pub line: usize,
    /// Why the block is not valid.
    pub reason: &'static str,
}

/// Returns all valid blocks, in order.
pub(super) fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((block, left)) = first(rest) {
        found.push(block);
        rest = left;
    }
    found
}

/// Returns the blocks that Go ignores.
pub fn ignored(text: &str) -> Vec<IgnoredBlock> {
    let valid = blocks(text);
    let mut found = Vec::new();
    let mut at = 0_usize;
    for (line, words) in (1..).zip(text.split_inclusive('\n')) {
        let is_valid = || valid.iter().any(|block| std::ptr::eq(block.text.as_ptr(), words.as_ptr()));
        if words.starts_with(BEGIN) && !is_valid() {
            found.push(IgnoredBlock { line, reason: reason(text.get(at..).unwrap_or_default()) });
        }
        at = at.saturating_add(words.len());
    }
    found
}

/// Returns why the block at the start of the text is not valid.
fn reason(text: &str) -> &'static str {
    let own = text.get(1..).and_then(|rest| rest.find("\n-----BEGIN ")).map(|end| end.saturating_add(1));
    let own = own.and_then(|end| text.get(..end)).unwrap_or(text);
    let (line, _) = line_at(own, BEGIN.len());
    match line.strip_suffix(DASHES) {
        None => "its first line does not end with five dashes",
        Some(label) if !own.contains(&format!("{END}{label}{DASHES}")) => "it has no end",
        Some(_) => "its content is not base64",
    }
}

/// Returns the first valid block, and the text after it.
fn first(mut rest: &str) -> Option<(Block<'_>, &str)> {
    let mut skipped = 0_usize;
    loop {
        // After an invalid block, the search continues behind the end of this block.
        rest = rest.get(skipped..)?;
        let end = rest.find(END)?;
        let trailer = end.saturating_add(END.len());
        skipped = trailer;
        let Some(begin) = rest.get(..end)?.rfind(BEGIN) else { continue };
        if begin > 0 && !rest.get(..begin)?.ends_with('\n') {
            continue;
        }
        let (line, mut at) = line_at(rest, begin.saturating_add(BEGIN.len()));
        let Some(label) = line.strip_suffix(DASHES) else { continue };
        let mut headers = Vec::new();
        loop {
            if at >= rest.len() {
                return None;
            }
            let (line, next) = line_at(rest, at);
            let Some((key, value)) = line.split_once(':') else { break };
            headers.push((key.trim(), value.trim()));
            at = next;
        }
        if !headers.is_empty() && end < at {
            continue;
        }
        let after = rest.get(trailer..)?.strip_prefix(label).and_then(|after| after.strip_prefix(DASHES));
        let Some(after) = after.filter(|after| line_at(after, 0).0.is_empty()) else { continue };
        let Some(der) = decoded(rest.get(at..end).unwrap_or_default()) else { continue };
        let length = rest.len().saturating_sub(after.len());
        let text = rest.get(begin..length)?;
        let (_, next) = line_at(rest, length);
        return Some((Block { label, headers, text, der }, rest.get(next..)?));
    }
}

/// Returns the line that starts at an offset, without blanks and the line break at its end, and the offset of the next line.
fn line_at(text: &str, at: usize) -> (&str, usize) {
    let rest = text.get(at..).unwrap_or_default();
    let (line, length) = match rest.split_once('\n') {
        Some((line, _)) => (line.strip_suffix('\r').unwrap_or(line), line.len().saturating_add(1)),
        None => (rest, rest.len()),
    };
    (line.trim_end_matches([' ', '\t']), at.saturating_add(length))
}

/// Decodes base64 as Go does: skips blanks and line breaks.
fn decoded(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let is_content = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let content: Zeroizing<Vec<u8>> = Zeroizing::new(text.bytes().filter(is_content).collect());
    BASE64.decode(content.as_slice()).ok().map(Zeroizing::new)
}

/// Returns a block of PEM text, with a line break at its end.
pub(super) fn block(label: &str, der: &[u8]) -> String {
    // Fails only for labels with characters other than letters and spaces.
    encode_string(label, LineEnding::LF, der).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each expectation is what `pem.Decode` of Go 1.26 returns, called until it returns no block: label and content.
    #[test]
    fn blocks_are_those_that_go_decodes() {
        let block = |body: &str| format!("-----BEGIN X-----\n{body}\n-----END X-----\n");
        let abc = ("X", &b"abc"[..]);
        let long = "A".repeat(200);
        let zeros = [0_u8; 150];
        for (text, wanted) in [
            (block("YWJj"), vec![abc]),
            (block("YW\nJj"), vec![abc]),
            (block(" YW\t Jj "), vec![abc]),
            (block("YWJj").replace('\n', "\r\n"), vec![abc]),
            (block(&long), vec![("X", &zeros[..])]),
            (block(""), vec![("X", &b""[..])]),
            ("-----BEGIN X-----\n-----END X-----".to_string(), vec![("X", &b""[..])]),
            (format!("text\n{}text: 1\n{}", block("YWJj"), block("YWJj")), vec![abc, abc]),
            (block("Proc-Type: 4,ENCRYPTED\nA: b\n\nYWJj"), vec![abc]),
            (block("A: b\nYWJj"), vec![abc]),
            (format!("-----BEGIN X-----\n{}", block("YWJj")), vec![abc]),
            (format!("x {}", block("YWJj")), vec![]),
            (format!("{}{}", block("YW*j"), block("YWJj")), vec![abc]),
            (block("YWJ"), vec![]),
            (block("YWI="), vec![("X", &b"ab"[..])]),
            (block("YWJ="), vec![("X", &b"ab"[..])]),
            (block("YWJj").replace("-----\n-----END X-----", "-----\n-----END Y-----"), vec![abc]),
            (block("YWJj").replace("END X", "END Y"), vec![]),
            (block("YWJj").replace("END X-----", "END X----- "), vec![abc]),
            (block("YWJj").replace("END X-----", "END X-----x"), vec![]),
            (block("YWJj").replace("BEGIN X-----", "BEGIN X----- \t"), vec![abc]),
            (block("YWJj").replace("BEGIN X-----", "BEGIN X"), vec![]),
            ("-----BEGIN X-----\nYWJj".to_string(), vec![]),
        ] {
            let found = blocks(&text);
            let found: Vec<(&str, &[u8])> = found.iter().map(|one| (one.label, one.der.as_slice())).collect();
            assert_eq!(found, wanted, "{text:?}");
        }
        let text = block("Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nYWJj");
        assert_eq!(blocks(&text)[0].header("DEK-Info"), Some("AES-128-CBC,00"));
    }

    #[test]
    fn ignored_blocks_have_a_line_and_a_reason() {
        let block = |label: &str, body: &str| format!("-----BEGIN X-----\n{body}\n-----END {label}-----\n");
        let text = format!("a\n{}{}{}", block("X", "YW*j"), block("Y", "YWJj"), block("X", "YWJj"));
        let found: Vec<(usize, &str)> = ignored(&text).iter().map(|one| (one.line, one.reason)).collect();
        assert_eq!(found, [(2, "its content is not base64"), (5, "it has no end")]);
        let first = ignored("-----BEGIN X\n").pop().unwrap();
        assert_eq!(first.reason, "its first line does not end with five dashes");
        assert_eq!(ignored(&block("X", "YWJj")), []);
    }
}
