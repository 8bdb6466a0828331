//! A TSIG key in the format of BIND's configuration. The key is never printed, because every client that has it can change a
//! zone.

use std::fmt;

use data_encoding::BASE64;
use hickory_proto::rr::{Name, TSigner, rdata::tsig::TsigAlgorithm};
use zeroize::Zeroizing;

use super::NameserverError;

/// Allowed difference between the clocks of client and server, in seconds (RFC 8945, section 10, recommends 300).
const FUDGE: u16 = 300;

/// A TSIG key that authenticates netsurgeon to a name server.
#[derive(Clone)]
pub struct Key {
    pub(super) signer: TSigner,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.name())
    }
}

impl Key {
    /// Reads a key in the format of `tsig-keygen` and of BIND's configuration: `key NAME { algorithm NAME; secret "BASE64"; };`.
    /// Supports the algorithms hmac-sha256, hmac-sha384 and hmac-sha512.
    pub fn parse(text: &str) -> Result<Self, NameserverError> {
        let words = words(text);
        let mut words = words.iter().map(String::as_str);
        let (mut name, mut algorithm, mut secret) = (None, None, None);
        while let Some(word) = words.next() {
            let place = match word {
                "key" if name.is_some() => return Err(bad("it contains several keys")),
                "key" => &mut name,
                "algorithm" => &mut algorithm,
                "secret" => &mut secret,
                _ => continue,
            };
            *place = words.next();
        }
        let name = name.ok_or_else(|| bad("it does not start with `key NAME {`"))?;
        let name = Name::from_ascii(name).map_err(|error| bad(&format!("its name: {error}")))?;
        let algorithm = algorithm.ok_or_else(|| bad("it has no `algorithm`"))?;
        let algorithm = match algorithm.to_ascii_lowercase().trim_end_matches('.') {
            "hmac-sha256" => TsigAlgorithm::HmacSha256,
            "hmac-sha384" => TsigAlgorithm::HmacSha384,
            "hmac-sha512" => TsigAlgorithm::HmacSha512,
            // The error does not show the unknown text, because the text may be the secret in the wrong place.
            _ => return Err(bad("its algorithm is not hmac-sha256, hmac-sha384 or hmac-sha512")),
        };
        let secret = secret.ok_or_else(|| bad("it has no `secret`"))?;
        let secret = BASE64.decode(secret.as_bytes()).map_err(|_| bad("its secret is not base64"))?;
        if secret.is_empty() {
            return Err(bad("its secret is empty"));
        }
        let signer = TSigner::new(secret, algorithm, name, FUDGE).map_err(|error| bad(&error.to_string()))?;
        Ok(Self { signer })
    }

    /// Returns the name of the key.
    pub fn name(&self) -> String {
        super::canonical(&self.signer.signer_name().to_ascii())
    }
}

fn bad(reason: &str) -> NameserverError {
    NameserverError::Key { reason: reason.to_string() }
}

/// Splits a BIND configuration into words. Drops punctuation, quotes and comments (`#`, `//`, `/* */`).
fn words(text: &str) -> Zeroizing<Vec<String>> {
    let mut words = Zeroizing::new(Vec::new());
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, end) = if first == '#' || rest.starts_with("//") {
            (None, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (None, rest.find("*/").map_or(rest.len(), |end| end.saturating_add(2)))
        } else if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"').unwrap_or(quoted.len());
            (quoted.get(..end), end.saturating_add(2))
        } else if matches!(first, '{' | '}' | ';') {
            (None, 1)
        } else {
            let is_end = |c: char| c.is_whitespace() || matches!(c, '{' | '}' | ';' | '"');
            let end = rest.find(is_end).unwrap_or(rest.len());
            (rest.get(..end), end)
        };
        words.extend(word.map(str::to_string));
        rest = rest.get(end..).unwrap_or_default().trim_start();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = "# made by a test\nkey \"mirror.example.com.\" {\n\talgorithm hmac-sha256;\n\tsecret \"c2VjcmV0\";\n};\n";

    #[test]
    fn generated_key_is_parsed() {
        let key = Key::parse(WRITTEN).unwrap();
        assert_eq!(key.name(), "mirror.example.com");
        assert_eq!(key.signer.key(), b"secret");
        assert_eq!(format!("{key:?}"), "Key(mirror.example.com)");
        let bare = "key mirror { secret c2VjcmV0; /* which */ algorithm HMAC-SHA512; }; // end";
        assert_eq!(Key::parse(bare).unwrap().signer.algorithm(), &TsigAlgorithm::HmacSha512);
    }

    #[test]
    fn invalid_key_error_has_the_reason_and_no_secret() {
        let reason = |text: &str| Key::parse(text).unwrap_err().to_string();
        assert!(reason("").contains("it does not start with"));
        assert!(reason("key k { secret \"c2VjcmV0\"; };").contains("no `algorithm`"));
        assert!(reason("key k { algorithm hmac-md5; secret \"c2VjcmV0\"; };").contains("is not hmac-sha256"));
        assert!(!reason("key k { secret hmac-sha256; algorithm aHVzaA==; };").contains("aHVzaA"));
        assert!(reason(&WRITTEN.repeat(2)).contains("several"));
        let broken = reason("key k { algorithm hmac-sha256; secret \"hush!\"; };");
        assert!(broken.contains("not base64") && !broken.contains("hush"), "{broken}");
        for end in 0..WRITTEN.len() {
            let _ = Key::parse(&WRITTEN[..end]);
        }
    }
}
