//! Blocks of PEM text (RFC 7468); what stands between them is passed over.

use x509_cert::der::pem::{LineEnding, decode_vec, encode_string};

const BEGIN: &str = "-----BEGIN ";
const DASHES: &str = "-----";

/// A block of text, not decoded yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block<'a> {
    /// What it says it is: `CERTIFICATE`, `RSA PRIVATE KEY`, ...
    pub(super) label: &'a str,
    /// From its first dash to its last.
    pub(super) text: &'a str,
}

/// A block has no end; its number, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unfinished(pub(super) usize);

/// Returns all blocks, in their order.
pub(super) fn blocks(text: &str) -> Result<Vec<Block<'_>>, Unfinished> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(BEGIN) {
        let unfinished = Unfinished(found.len().saturating_add(1));
        let begun =
            rest.get(rest.len().saturating_sub(after.len()).saturating_sub(BEGIN.len())..).unwrap_or(after);
        let (label, _) = after.split_once(DASHES).ok_or(unfinished)?;
        let end = format!("-----END {label}{DASHES}");
        let (_, left) = after.split_once(&end).ok_or(unfinished)?;
        let text = begun.get(..begun.len().saturating_sub(left.len())).unwrap_or(begun);
        found.push(Block { label, text });
        rest = left;
    }
    Ok(found)
}

impl Block<'_> {
    /// Returns its bytes, or why there are none.
    pub(super) fn der(&self) -> Result<Vec<u8>, String> {
        decode_vec(self.text.as_bytes()).map(|(_, bytes)| bytes).map_err(|error| error.to_string())
    }
}

/// Writes a block, with the end of its last line.
pub(super) fn block(label: &str, der: &[u8]) -> String {
    // Fails for labels with other characters than letters and spaces only.
    encode_string(label, LineEnding::LF, der).unwrap_or_default()
}
