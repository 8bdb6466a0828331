//! Connection settings for etcd: endpoints, certificates, user, time limits.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_client::{Certificate, Identity, TlsOptions};

use crate::store::StoreError;

/// Connection settings for an etcd cluster. [`EtcdOptions::new`] sets the default time limits.
#[derive(Clone)]
pub struct EtcdOptions {
    /// Client URLs, `https://HOST:2379` or `http://…`. The default scheme is `https` if a CA certificate is given.
    pub endpoints: Vec<String>,
    /// PEM file with the certificate of the CA that signed the server certificates; required for `https`.
    pub ca_cert: Option<PathBuf>,
    /// PEM file with the client certificate, for servers that require a client certificate.
    pub cert: Option<PathBuf>,
    /// PEM file with the private key of the client certificate. The key must not be encrypted.
    pub key: Option<PathBuf>,
    /// User name and password.
    pub user: Option<(String, String)>,
    /// Time limit to connect to one endpoint. [`super::EtcdStore::connect`] fails after this time multiplied by the number of
    /// endpoints.
    pub connect_timeout: Duration,
    /// Time limit of one request.
    pub request_timeout: Duration,
    /// How long a read is retried while members fail or elect a leader.
    pub retry_for: Duration,
    /// Number of keys per page of a scan.
    pub page_size: i64,
}

/// Default time limits. They are longer than the election of a leader, which takes a few seconds (election timeout 1 s).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_FOR: Duration = Duration::from_secs(30);
/// Default number of keys per page: 500, as for kubectl (`--chunk-size`). Values have at most 1.5 MB (etcd's request limit), so a
/// page stays below the 2 GB limit of gRPC.
const PAGE_SIZE: i64 = 500;

impl EtcdOptions {
    /// Returns options with the default time limits, without certificates or a user.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            ca_cert: None,
            cert: None,
            key: None,
            user: None,
            connect_timeout: CONNECT_TIMEOUT,
            request_timeout: REQUEST_TIMEOUT,
            retry_for: RETRY_FOR,
            page_size: PAGE_SIZE,
        }
    }

    /// Returns the endpoints as URLs.
    pub(super) fn urls(&self) -> Result<Vec<String>, StoreError> {
        if self.endpoints.is_empty() {
            return configuration("the etcd endpoints", "no endpoint is given");
        }
        self.endpoints.iter().map(|endpoint| self.url(endpoint)).collect()
    }

    fn url(&self, endpoint: &str) -> Result<String, StoreError> {
        let endpoint = endpoint.trim().trim_end_matches('/');
        if endpoint.contains('@') {
            let reason =
                "it contains a user name or a password: give these in ETCDCTL_USER and ETCDCTL_PASSWORD";
            return configuration("an etcd endpoint", reason);
        }
        let what = format!("the etcd endpoint `{endpoint}`");
        match endpoint.split_once("://") {
            None if endpoint.is_empty() => configuration("an etcd endpoint", "it is empty"),
            None if self.ca_cert.is_some() => Ok(format!("https://{endpoint}")),
            None => Ok(format!("http://{endpoint}")),
            Some(("http", _)) if self.ca_cert.is_some() || self.cert.is_some() => {
                configuration(&what, "certificates are given, but its scheme is http")
            }
            Some(("https", _)) if self.ca_cert.is_none() => {
                configuration(&what, "its scheme is https, which needs the CA certificate of etcd")
            }
            Some(("http" | "https", _)) => Ok(endpoint.to_string()),
            Some((scheme, _)) => configuration(&what, &format!("scheme `{scheme}`, expected http or https")),
        }
    }

    /// Loads the certificates; `None` if no certificate is given.
    pub(super) fn tls(&self) -> Result<Option<TlsOptions>, StoreError> {
        let Some(ca_cert) = &self.ca_cert else {
            if self.cert.is_some() || self.key.is_some() {
                return configuration("the client certificate", "the CA certificate of etcd is missing");
            }
            return Ok(None);
        };
        let authority = load("the CA certificate", ca_cert, "CERTIFICATE")?;
        let tls = TlsOptions::new().ca_certificate(Certificate::from_pem(authority));
        match (&self.cert, &self.key) {
            (None, None) => Ok(Some(tls)),
            (Some(cert), Some(key)) => {
                let cert = load("the client certificate", cert, "CERTIFICATE")?;
                let key = load("the client key", key, "PRIVATE KEY")?;
                Ok(Some(tls.identity(Identity::from_pem(cert, key))))
            }
            (Some(_), None) => configuration("the client certificate", "its key is missing"),
            (None, Some(_)) => configuration("the client key", "its certificate is missing"),
        }
    }
}

/// Formats the options without the password.
impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("ca_cert", &self.ca_cert)
            .field("cert", &self.cert)
            .field("key", &self.key)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .finish_non_exhaustive()
    }
}

/// Reads a PEM file. Fails if no block of the file has a label that ends with `label`. Errors never show the content of the file.
fn load(what: &str, path: &Path, label: &str) -> Result<Vec<u8>, StoreError> {
    let what = format!("{what} `{}`", path.display());
    let pem = match std::fs::read(path) {
        Ok(pem) => pem,
        Err(error) => return configuration(&what, &error.to_string()),
    };
    let text = String::from_utf8_lossy(&pem);
    let begins =
        |line: &str| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&format!("{label}-----"));
    match text.lines().find(|line| begins(line)) {
        None => configuration(&what, &format!("it has no PEM block `{label}`")),
        Some(line) if line.contains("ENCRYPTED") => configuration(&what, "it is encrypted"),
        Some(_) => Ok(pem),
    }
}

fn configuration<T>(what: &str, reason: &str) -> Result<T, StoreError> {
    Err(StoreError::Configuration { what: what.to_string(), reason: reason.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_become_urls() {
        let plain = EtcdOptions::new(["10.0.0.1:2379", "http://a:2379/", " https://b:2379"]);
        assert_eq!(plain.url("10.0.0.1:2379").unwrap(), "http://10.0.0.1:2379");
        assert_eq!(plain.url("http://a:2379/").unwrap(), "http://a:2379");
        assert!(plain.urls().unwrap_err().to_string().contains("CA certificate"));
        let secure = EtcdOptions { ca_cert: Some("ca.pem".into()), ..plain };
        assert_eq!(secure.url("10.0.0.1:2379").unwrap(), "https://10.0.0.1:2379");
        let named = secure.url("https://root:swordfish@a:2379").unwrap_err().to_string();
        assert!(named.contains("ETCDCTL_PASSWORD") && !named.contains("swordfish"), "{named}");
        for wrong in ["http://a:2379", "unix:///run/etcd.sock", ""] {
            assert!(matches!(secure.url(wrong), Err(StoreError::Configuration { .. })), "{wrong}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let user = Some(("root".to_string(), "swordfish".to_string()));
        let shown = format!("{:?}", EtcdOptions { user, ..EtcdOptions::new(["a"]) });
        assert!(shown.contains("root") && !shown.contains("swordfish"), "{shown}");
    }
}
