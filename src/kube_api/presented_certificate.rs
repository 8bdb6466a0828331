//! Reads the certificate that a server presents, without verifying its names or its issuer. The server must prove that it has the
//! certificate's key, because the certificate itself is public.

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

/// Timeout for a server to present its certificate.
const LIMIT: Duration = Duration::from_secs(5);

/// Returns the certificate chain that a server at `HOST:PORT` presents, as DER, with the server's own certificate first. Sends
/// `name` as the server name (RFC 6066, section 3). If `name` is `None`, sends no server name, like a client that dials an IP
/// address. Sends only the TLS handshake.
pub async fn presented_certificate(at: &str, name: Option<&str>) -> Result<Vec<Vec<u8>>, String> {
    let handshake = async {
        let mut addresses = lookup_host(at).await.map_err(|error| error.to_string())?;
        let address = addresses.next().ok_or_else(|| "the host name has no address".to_string())?;
        handshake(address, name).await
    };
    timeout(LIMIT, handshake).await.map_err(|_| format!("no answer within {} s", LIMIT.as_secs()))?
}

async fn handshake(address: SocketAddr, name: Option<&str>) -> Result<Vec<Vec<u8>>, String> {
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let looking = Looking(provider.signature_verification_algorithms);
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(looking))
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

/// Accepts every certificate if the server proves that it has the certificate's key. The caller checks the certificate.
struct Looking(crypto::WebPkiSupportedAlgorithms);

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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls_pki_types::PrivateKeyDer;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
    use tokio_rustls::rustls::sign::CertifiedKey as Signing;

    use super::*;

    /// Presents a certificate, and signs with a key that might not match it.
    #[derive(Debug)]
    struct Presents(Arc<Signing>);

    impl ResolvesServerCert for Presents {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<Signing>> {
            Some(self.0.clone())
        }
    }

    async fn looked_at(
        certificate: &CertifiedKey<rcgen::KeyPair>,
        key: &rcgen::KeyPair,
    ) -> Result<Vec<Vec<u8>>, String> {
        let provider = Arc::new(crypto::aws_lc_rs::default_provider());
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let key = provider.key_provider.load_private_key(key).unwrap();
        let presents = Presents(Arc::new(Signing::new(vec![certificate.cert.der().clone()], key)));
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_cert_resolver(Arc::new(presents));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let serve = async {
            let (stream, _) = listener.accept().await.unwrap();
            drop(TlsAcceptor::from(Arc::new(config)).accept(stream).await);
        };
        tokio::join!(presented_certificate(&at, None), serve).0
    }

    /// A server that presents a certificate without having its key must be rejected.
    #[tokio::test]
    async fn a_replayed_certificate_is_not_served() {
        let [own, other] =
            [1, 2].map(|number| generate_simple_self_signed([format!("api-{number}")]).unwrap());
        assert_eq!(looked_at(&own, &own.signing_key).await, Ok(vec![own.cert.der().to_vec()]));
        let refused = looked_at(&own, &other.signing_key).await.unwrap_err();
        assert!(refused.contains("BadSignature"), "{refused}");
    }
}
