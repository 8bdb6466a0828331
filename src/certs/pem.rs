//! Blocks of PEM text (RFC 7468). Text between blocks is ignored.

use x509_cert::der::pem::{LineEnding, decode_vec, encode_string};

const BEGIN: &str = "-----BEGIN ";
const DASHES: &str = "-----";

/// A block of PEM text, not decoded yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block<'a> {
    /// The label: `CERTIFICATE`, `RSA PRIVATE KEY`, ...
    pub(super) label: &'a str,
    /// The text of the block, from its first dash to its last.
    pub(super) text: &'a str,
}

/// The number of a block that has no end, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unfinished(pub(super) usize);

/// Returns all blocks, in order.
pub(super) fn blocks(text: &str) -> Result<Vec<Block<'_>>, Unfinished> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(BEGIN) {
        let unfinished = Unfinished(found.len().saturating_add(1));
        let from_begin =
            rest.get(rest.len().saturating_sub(after.len()).saturating_sub(BEGIN.len())..).unwrap_or(after);
        let (label, _) = after.split_once(DASHES).ok_or(unfinished)?;
        let end = format!("-----END {label}{DASHES}");
        let (_, left) = after.split_once(&end).ok_or(unfinished)?;
        let text = from_begin.get(..from_begin.len().saturating_sub(left.len())).unwrap_or(from_begin);
        found.push(Block { label, text });
        rest = left;
    }
    Ok(found)
}

impl Block<'_> {
    /// Returns the decoded bytes of the block, or the reason why they cannot be decoded.
    pub(super) fn der(&self) -> Result<Vec<u8>, String> {
        decode_vec(self.text.as_bytes()).map(|(_, bytes)| bytes).map_err(|error| error.to_string())
    }
}

/// Returns a block of PEM text, with a line break at its end.
pub(super) fn block(label: &str, der: &[u8]) -> String {
    // Fails only for labels with characters other than letters and spaces.
    encode_string(label, LineEnding::LF, der).unwrap_or_default()
}
