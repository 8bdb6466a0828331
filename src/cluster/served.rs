//! What a server presents as its certificate, whoever signed it: looked at, and nothing more.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme, crypto};

/// How long a server may take to present its certificate.
const LIMIT: Duration = Duration::from_secs(5);

/// Returns the certificates that a server at `HOST:PORT` presents, its own first, as DER: to a client that names no server,
/// as one does that dials an address, or to one that asks for this name (RFC 6066, section 3). Nothing is sent but the
/// handshake.
pub async fn served(at: &str, name: Option<&str>) -> Result<Vec<Vec<u8>>, String> {
    let handshake = async {
        let mut addresses = lookup_host(at).await.map_err(|error| error.to_string())?;
        let address = addresses.next().ok_or_else(|| "it has no address".to_string())?;
        handshake(address, name).await
    };
    timeout(LIMIT, handshake).await.map_err(|_| format!("no answer within {} s", LIMIT.as_secs()))?
}

async fn handshake(address: SocketAddr, name: Option<&str>) -> Result<Vec<Vec<u8>>, String> {
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Looking))
        .with_no_client_auth();
    let server = match name {
        Some(name) => ServerName::try_from(name.to_string()).map_err(|error| error.to_string())?,
        None => ServerName::IpAddress(address.ip().into()),
    };
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(Arc::new(config)).connect(server, stream).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    Ok(certificates.iter().map(|one| one.to_vec()).collect())
}

/// Takes every certificate: whether it is any good is judged afterwards, by who knows what for.
struct Looking;

impl fmt::Debug for Looking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("looking only")
    }
}

impl ServerCertVerifier for Looking {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    /// All that Go signs with (`crypto/tls`, 1.26), so that no server fails for the kind of its key.
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ECDSA_NISTP521_SHA512,
            SignatureScheme::ED25519,
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
        ]
    }
}
