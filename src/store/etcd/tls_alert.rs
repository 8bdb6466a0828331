//! Asks a server why it ends TLS connections. A server checks the client certificate after the handshake (RFC 8446, section 4.4.2.4),
//! so its alert arrives while the client already sends a request. The request then often fails only with "broken pipe".

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::EtcdOptions;

/// Time limit for the answer of the server.
const LIMIT: Duration = Duration::from_secs(2);

/// Returns the fatal alert with which a server at this URL refuses the connection; `None` if the server sends no alert. Sends no
/// request.
pub(super) async fn tls_alert(url: &str, options: &EtcdOptions) -> Option<String> {
    let answer = timeout(LIMIT, first_answer(url, options)).await.ok()?;
    answer.err().filter(|reason| reason.contains("received fatal alert: "))
}

/// Connects, and waits for the first byte of the server.
async fn first_answer(url: &str, options: &EtcdOptions) -> Result<(), String> {
    let url: Uri = url.parse().map_err(|error| format!("{error}"))?;
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_string();
    let server = ServerName::try_from(host.clone()).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(config(options)?));
    let stream = TcpStream::connect((host, url.port_u16().unwrap_or(443))).await;
    let stream = connector.connect(server, stream.map_err(|error| error.to_string())?).await;
    let read = stream.map_err(|error| error.to_string())?.read_u8().await;
    read.map(drop).map_err(|error| error.to_string())
}

fn config(options: &EtcdOptions) -> Result<ClientConfig, String> {
    let certificates = |path: &std::path::Path| -> Result<Vec<CertificateDer<'static>>, String> {
        let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        found.map_err(|error| error.to_string())
    };
    let mut roots = RootCertStore::empty();
    if let Some(authority) = &options.ca_cert {
        roots.add_parsable_certificates(certificates(authority)?);
    }
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let mut config = match (&options.cert, &options.key) {
        (Some(cert), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| error.to_string())?;
            config.with_client_auth_cert(certificates(cert)?, key).map_err(|error| error.to_string())?
        }
        _ => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use rcgen::generate_simple_self_signed;
    use rustls_pki_types::PrivateKeyDer;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::server::WebPkiClientVerifier;

    use super::*;

    /// Asks a server. It answers, or it demands a client certificate.
    async fn asked(demands: bool) -> Option<String> {
        let own = generate_simple_self_signed(["localhost".to_string()]).unwrap();
        let provider = Arc::new(crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let verifier = if demands {
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap()
        } else {
            WebPkiClientVerifier::no_client_auth()
        };
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let authority = directory.path().join("ca.pem");
        std::fs::write(&authority, own.cert.pem()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let serve = async {
            let (stream, _) = listener.accept().await.unwrap();
            drop(TlsAcceptor::from(Arc::new(config)).accept(stream).await);
        };
        let options = EtcdOptions { ca_cert: Some(authority), ..EtcdOptions::new([url.clone()]) };
        tokio::join!(tls_alert(&url, &options), serve).0
    }

    #[tokio::test]
    async fn server_that_demands_a_certificate_says_so() {
        let alert = asked(true).await.unwrap_or_default();
        assert!(alert.contains("CertificateRequired"), "{alert}");
        assert_eq!(asked(false).await, None);
    }
}
