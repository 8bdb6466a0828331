//! Checks whether clients trust a certificate: its authority, its validity at a given time, and the names that it covers.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use time::OffsetDateTime;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::read::{Certificate, PublicKey};
use super::reissue::Name;

/// Why clients reject a certificate, or why netsurgeon cannot verify it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// No trusted authority signed the certificate (RFC 5280, section 6).
    #[error("it is not trusted: {0}")]
    Unsigned(String),
    /// The certificate is not valid at the given time, it is not a server certificate, or it uses an algorithm or a feature that
    /// netsurgeon or clients do not support.
    #[error("it is not trusted: {0}")]
    Chain(String),
    /// The certificate does not cover the name or address (RFC 6125).
    #[error("it does not cover `{0}`")]
    Name(String),
}

/// Signature algorithms that clients and netsurgeon verify. Go clients reject SHA-1 and MD5 (`crypto/x509`, Go 1.24).
const VERIFIED: [&str; 8] = [
    "RSA with SHA-256",
    "RSA with SHA-384",
    "RSA with SHA-512",
    "RSASSA-PSS",
    "ECDSA with SHA-256",
    "ECDSA with SHA-384",
    "ECDSA with SHA-512",
    "Ed25519",
];
/// The cryptographic library verifies signatures of RSA keys with at least this many bits.
const LEAST_RSA_BITS: usize = 2048;

/// Checks a server's certificate and its intermediate certificates against the authorities that clients trust. All certificates
/// are in DER.
pub fn is_trusted(
    certificate: &[u8],
    others: &[Vec<u8>],
    authorities: &[Vec<u8>],
    now: OffsetDateTime,
) -> Result<(), Distrust> {
    let chain = |error: webpki::Error| distrust(&error, certificate, others, authorities);
    let der = CertificateDer::from(certificate);
    let end = EndEntityCert::try_from(&der).map_err(chain)?;
    let trusted: Vec<CertificateDer<'_>> =
        authorities.iter().map(|one| CertificateDer::from(one.as_slice())).collect();
    let anchors: Vec<_> =
        trusted.iter().map(anchor_from_trusted_cert).collect::<Result<_, _>>().map_err(chain)?;
    let between: Vec<CertificateDer<'_>> =
        others.iter().map(|one| CertificateDer::from(one.as_slice())).collect();
    let seconds = u64::try_from(now.unix_timestamp()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let usage = KeyUsage::server_auth();
    end.verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &anchors, &between, now, usage, None, None)
        .map_err(chain)?;
    Ok(())
}

/// Returns the reason for an error of the library, in words.
fn distrust(
    error: &webpki::Error,
    certificate: &[u8],
    others: &[Vec<u8>],
    authorities: &[Vec<u8>],
) -> Distrust {
    use webpki::Error as E;
    let read = |der: &[u8]| Certificate::from_der(der.to_vec()).ok();
    let own = || std::iter::once(certificate).chain(others.iter().map(Vec::as_slice)).filter_map(read);
    let is_old = |one: &Certificate| one.version != 3;
    let is_weak = |one: &Certificate| !VERIFIED.contains(&one.signature.as_str());
    match error {
        E::UnknownIssuer => Distrust::Unsigned("no authority that clients trust has signed it".to_string()),
        E::InvalidSignatureForPublicKey => match short_key(certificate, authorities, others) {
            Some(reason) => Distrust::Chain(reason),
            None => {
                Distrust::Unsigned("its signature was not created with the key of its authority".to_string())
            }
        },
        E::UnsupportedCertVersion => Distrust::Chain(match own().find(is_old) {
            Some(one) => format!(
                "`{}` is an X.509 version {} certificate, and clients require version 3",
                one.subject, one.version
            ),
            None => "clients require X.509 version 3".to_string(),
        }),
        E::UnsupportedSignatureAlgorithmContext(_) => Distrust::Chain(match own().find(is_weak) {
            Some(one) => format!("`{}` is signed with {}, which clients reject", one.subject, one.signature),
            None => "it is signed with an algorithm that clients reject".to_string(),
        }),
        E::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => Distrust::Chain(match own().next() {
            Some(one) => format!(
                "it is signed with {} by a kind of key that netsurgeon does not support",
                one.signature
            ),
            None => "it is signed by a kind of key that netsurgeon does not support".to_string(),
        }),
        E::CertExpired { .. } => {
            Distrust::Chain("it, or a certificate of its chain, has expired".to_string())
        }
        E::CertNotValidYet { .. } => Distrust::Chain(
            "the validity of it, or of a certificate of its chain, starts in the future".to_string(),
        ),
        E::CaUsedAsEndEntity => {
            Distrust::Chain("it is the certificate of an authority, not of a server".to_string())
        }
        E::EndEntityUsedAsCa => Distrust::Chain("its issuer is not an authority".to_string()),
        E::RequiredEkuNotFoundContext(_) => {
            Distrust::Chain("its extended key usages do not include `serverAuth`".to_string())
        }
        other => Distrust::Chain(other.to_string()),
    }
}

/// Returns the reason if the certificate's authority has an RSA key that is too short for the library.
fn short_key(certificate: &[u8], authorities: &[Vec<u8>], others: &[Vec<u8>]) -> Option<String> {
    let own = Certificate::from_der(certificate.to_vec()).ok()?;
    let all = authorities.iter().chain(others).filter_map(|der| Certificate::from_der(der.clone()).ok());
    all.filter(|one| one.subject == own.issuer).find_map(|one| match one.key {
        PublicKey::Rsa(bits) if bits < LEAST_RSA_BITS => Some(format!(
            "its authority `{}` has an RSA key with {bits} bits, and netsurgeon verifies signatures only with {LEAST_RSA_BITS} bits or more",
            one.subject
        )),
        _ => None,
    })
}

/// Checks whether a server's certificate covers a name or an address.
pub fn is_valid_for(certificate: &[u8], name: &Name) -> Result<(), Distrust> {
    let der = CertificateDer::from(certificate);
    let end = EndEntityCert::try_from(&der).map_err(|error| distrust(&error, certificate, &[], &[]))?;
    let text = name.to_string();
    let server = ServerName::try_from(text.as_str()).map_err(|_| Distrust::Name(text.clone()))?;
    end.verify_is_valid_for_subject_name(&server).map_err(|_| Distrust::Name(text.clone()))
}
