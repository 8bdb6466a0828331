//! Describes why a TLS handshake failed, in the words of X.509 and not of the TLS library.

use std::io;

use tokio_rustls::rustls::{CertificateError, Error};

/// Returns why a TLS handshake failed.
pub(super) fn reason(error: &io::Error) -> String {
    match error.get_ref().and_then(|source| source.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(error)) => of_certificate(error),
        _ => error.to_string(),
    }
}

/// Returns why a certificate is not valid.
fn of_certificate(error: &CertificateError) -> String {
    use CertificateError as Cause;
    let fixed = match error {
        Cause::NotValidForNameContext { expected, presented } => {
            let expected = expected.to_str();
            // The library formats each name as `DnsName("www.example.com")`.
            let names =
                presented.iter().filter_map(|name| name.split('"').nth(1)).map(|name| format!("`{name}`"));
            let names: Vec<String> = names.take(NAMES).collect();
            let covered = if names.is_empty() { "no name".to_string() } else { names.join(", ") };
            let more = presented.len().saturating_sub(NAMES);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            return format!("the certificate does not cover `{expected}`; it covers {covered}{more}");
        }
        Cause::Other(error) => return of_library(&error.to_string()),
        Cause::NotValidForName => "the certificate does not cover the name",
        Cause::Expired | Cause::ExpiredContext { .. } => "the certificate has expired",
        Cause::NotValidYet | Cause::NotValidYetContext { .. } => {
            "the certificate is not valid yet, or a clock is wrong"
        }
        Cause::UnknownIssuer => {
            "the issuer of the certificate is not trusted, or the server does not send the intermediate certificate (`--probe-ca`)"
        }
        Cause::BadSignature => "the signature of the certificate does not match its issuer",
        Cause::BadEncoding => "the certificate cannot be parsed",
        Cause::Revoked => "the certificate is revoked",
        Cause::UnhandledCriticalExtension => {
            "the certificate has a critical extension that clients do not know"
        }
        Cause::InvalidPurpose | Cause::InvalidPurposeContext { .. } => {
            "the certificate is not for servers (`serverAuth` is not in its extended key usage)"
        }
        Cause::UnsupportedSignatureAlgorithmContext { .. }
        | Cause::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "the certificate is signed with an algorithm that clients no longer accept, for example SHA-1"
        }
        Cause::UnknownRevocationStatus
        | Cause::ExpiredRevocationList
        | Cause::ExpiredRevocationListContext { .. }
        | Cause::InvalidOcspResponse => "the revocation status of the certificate is unknown",
        other => return format!("the certificate is not valid: {}", in_words(&format!("{other:?}"))),
    };
    fixed.to_string()
}

/// Number of covered names to print.
const NAMES: usize = 3;

/// Describes an error of the library that verifies certificates. The library has no texts, only the names of its errors
/// (`rustls-webpki` 0.103, `src/error.rs`).
fn of_library(name: &str) -> String {
    let known = [
        (
            "CaUsedAsEndEntity",
            "the server presents a CA certificate (`CA:TRUE`) as its own; it needs a certificate with `CA:FALSE`",
        ),
        ("EndEntityUsedAsCa", "the certificate was issued by a certificate that is not a CA"),
        ("PathLenConstraintViolated", "the chain has more CAs than a CA of the chain allows"),
        ("NameConstraintViolation", "a CA of the chain is not allowed to issue certificates for this name"),
        ("UnsupportedCertVersion", "the certificate has a version other than X.509 v3"),
        ("EmptyEkuExtension", "the extended key usage of the certificate is empty"),
        ("InvalidCertValidity", "the validity period of the certificate ends before it starts"),
        ("InvalidSerialNumber", "the serial number of the certificate is not valid"),
        ("MaximumPathBuildCallsExceeded", "the chain of the certificate is too complex"),
        ("MaximumSignatureChecksExceeded", "the chain of the certificate is too complex"),
        ("MaximumPathDepthExceeded", "the chain of the certificate is too long"),
    ];
    match known.iter().find(|(start, _)| name.starts_with(start)) {
        Some((_, words)) => (*words).to_string(),
        None => format!("the certificate is not valid: {}", in_words(name)),
    }
}

/// Separates the words in the name of an error: `BadDerTime` becomes `bad der time`. Omits the data of the error.
fn in_words(name: &str) -> String {
    let name = name.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_of_a_certificate_is_a_sentence() {
        let ca = of_library("CaUsedAsEndEntity");
        assert!(ca.starts_with("the server presents a CA certificate"), "{ca}");
        assert_eq!(of_library("BadDerTime"), "the certificate is not valid: bad der time");
        let expected = rustls_pki_types::ServerName::try_from("www.example.com").unwrap();
        let presented = vec!["DnsName(\"default.local\")".to_string()];
        let other = CertificateError::NotValidForNameContext { expected, presented };
        assert_eq!(
            of_certificate(&other),
            "the certificate does not cover `www.example.com`; it covers `default.local`"
        );
        for error in [
            CertificateError::UnknownIssuer,
            CertificateError::Expired,
            CertificateError::BadSignature,
            CertificateError::InvalidPurpose,
            CertificateError::ApplicationVerificationFailure,
        ] {
            let text = of_certificate(&error);
            assert!(text.contains("certificate") && !text.contains("Failure"), "{text}");
        }
    }
}
