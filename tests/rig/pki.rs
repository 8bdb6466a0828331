//! Certificates that are created at run time: a certificate authority, a server's pair, clients' pairs, and the key that signs
//! service account tokens. No secret is ever committed, and nothing expires.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use super::workspace::Workspace;

/// A certificate and its private key, as PEM files.
#[derive(Debug, Clone)]
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// A certificate authority, whose files are in a workspace.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The authority's certificate, PEM.
    pub certificate: PathBuf,
}

impl Authority {
    /// Creates an authority with that common name; its certificate goes to `FILE.crt` in the workspace, its key to `FILE.key`.
    pub fn create(workspace: &Workspace, common_name: &str, file: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key can be created");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("the authority signs itself");
        let certificate = workspace.write(&format!("{file}.crt"), issuer.pem());
        workspace.write(&format!("{file}.key"), issuer.key().serialize_pem());
        Self { issuer, certificate }
    }

    /// Issues a pair to a common name, in an organisation (Kubernetes reads it as the group), for these names and addresses,
    /// valid for servers and clients. Files: `NAME.crt` and `NAME.key`.
    pub fn issue(
        &self,
        workspace: &Workspace,
        file: &str,
        common_name: &str,
        organisation: Option<&str>,
        names: &[String],
    ) -> Pair {
        let mut params = CertificateParams::new(names).expect("names and addresses are well formed");
        params.distinguished_name.push(DnType::CommonName, common_name);
        if let Some(organisation) = organisation {
            params.distinguished_name.push(DnType::OrganizationName, organisation);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().expect("a key can be created");
        let certificate = params.signed_by(&key, &self.issuer).expect("the authority signs");
        Pair {
            certificate: workspace.write(&format!("{file}.crt"), certificate.pem()),
            key: workspace.write(&format!("{file}.key"), key.serialize_pem()),
        }
    }
}

/// Creates the key that signs service account tokens (`sa.key`) and its public half (`sa.pub`). It is an EC key, which is faster
/// to create than an RSA key; Kubernetes accepts both.
pub fn service_account_key(workspace: &Workspace) -> Pair {
    let key = KeyPair::generate().expect("a key can be created");
    Pair {
        certificate: workspace.write("sa.pub", key.public_key_pem()),
        key: workspace.write("sa.key", key.serialize_pem()),
    }
}

/// The names of a kubeadm serving certificate, with the first address of each CIDR.
pub fn serving_names(cidrs: &[&str]) -> Vec<String> {
    let names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "127.0.0.1",
    ];
    let first = |cidr: &str| -> IpAddr {
        match cidr.split('/').next().unwrap_or_default().parse().expect("a CIDR starts with an address") {
            IpAddr::V4(base) => Ipv4Addr::from_bits(base.to_bits() + 1).into(),
            IpAddr::V6(base) => Ipv6Addr::from_bits(base.to_bits() + 1).into(),
        }
    };
    let ranges = cidrs.iter().flat_map(|cidrs| cidrs.split(',')).filter(|cidr| !cidr.is_empty());
    let services = ranges.map(|cidr| first(cidr).to_string());
    names.iter().map(ToString::to_string).chain(services).collect()
}
