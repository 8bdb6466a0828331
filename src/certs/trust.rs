//! Checks whether clients trust a certificate: its authority, its validity at a given time, and the names that it covers.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use time::OffsetDateTime;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::reissue::Name;

/// Why clients reject a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// No trusted authority signed the certificate, the certificate is not valid at the given time, or it is not a server
    /// certificate (RFC 5280, section 6).
    #[error("it is not trusted: {0}")]
    Chain(String),
    /// The certificate does not cover the name or address (RFC 6125).
    #[error("it does not cover `{0}`")]
    Name(String),
}

/// Checks a server's certificate and its intermediate certificates against the authorities that clients trust. All certificates
/// are in DER.
pub fn is_trusted(
    certificate: &[u8],
    others: &[Vec<u8>],
    authorities: &[Vec<u8>],
    now: OffsetDateTime,
) -> Result<(), Distrust> {
    let chain = |error: webpki::Error| Distrust::Chain(error.to_string());
    let der = CertificateDer::from(certificate);
    let end = EndEntityCert::try_from(&der).map_err(chain)?;
    let authorities: Vec<CertificateDer<'_>> =
        authorities.iter().map(|one| CertificateDer::from(one.as_slice())).collect();
    let anchors: Vec<_> =
        authorities.iter().map(anchor_from_trusted_cert).collect::<Result<_, _>>().map_err(chain)?;
    let others: Vec<CertificateDer<'_>> =
        others.iter().map(|one| CertificateDer::from(one.as_slice())).collect();
    let seconds = u64::try_from(now.unix_timestamp()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let usage = KeyUsage::server_auth();
    end.verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &anchors, &others, now, usage, None, None)
        .map_err(chain)?;
    Ok(())
}

/// Checks whether a server's certificate covers a name or an address.
pub fn is_valid_for(certificate: &[u8], name: &Name) -> Result<(), Distrust> {
    let der = CertificateDer::from(certificate);
    let end = EndEntityCert::try_from(&der).map_err(|error| Distrust::Chain(error.to_string()))?;
    let text = name.to_string();
    let server = ServerName::try_from(text.as_str()).map_err(|_| Distrust::Name(text.clone()))?;
    end.verify_is_valid_for_subject_name(&server).map_err(|_| Distrust::Name(text.clone()))
}
