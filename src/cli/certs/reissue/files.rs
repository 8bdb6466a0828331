//! Finds, reads and checks the files of a certificate and its CA.

use std::path::{Path, PathBuf};

use clap::Args;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::certs::{Authority, Certificate, KeyError, PrivateKey, belongs, certificates};
use crate::cli::certs::places::{Serving, nowhere};
use crate::cli::file::{Readers, at, create_file};
use crate::session::Failure;
use crate::words::pasted;

/// The files to use.
#[derive(Debug, Clone, Args)]
pub(super) struct FileArgs {
    /// A folder with the layout of kubeadm, K3s, RKE2 or kOps [default: the first such folder on this host]
    #[arg(long, value_name = "FOLDER", conflicts_with = "cert")]
    pki: Option<PathBuf>,
    /// The certificate to reissue
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The private key of the certificate in `--cert`
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The certificate of the CA
    #[arg(long, value_name = "FILE")]
    ca_cert: Option<PathBuf>,
    /// The private key of the CA
    #[arg(long, value_name = "FILE")]
    ca_key: Option<PathBuf>,
    /// A file with the password of the CA's key, if the key is encrypted
    #[arg(long, value_name = "FILE")]
    ca_key_password_file: Option<PathBuf>,
}

/// A certificate and its key, with their files.
pub(super) struct Loaded {
    pub(super) files: Serving,
    /// The content of the certificate's file.
    pub(super) text: String,
    pub(super) certificate: Certificate,
    /// The certificates after the first, as DER: the intermediate certificates.
    pub(super) others: Vec<Vec<u8>>,
    pub(super) key: PrivateKey,
}

impl Loaded {
    /// Creates a key of the same kind as the current key.
    pub(super) fn new_key(&self) -> Result<PrivateKey, Failure> {
        self.key.another(&self.certificate.key).map_err(|error| Failure::refused(error.to_string()))
    }
}

impl FileArgs {
    /// Returns a `certs reissue` command. It contains the options of this run that select the files of the certificate, the CA
    /// and their keys, and no other options.
    pub(super) fn command(&self) -> String {
        let given = [
            ("--pki", &self.pki),
            ("--cert", &self.cert),
            ("--key", &self.key),
            ("--ca-cert", &self.ca_cert),
            ("--ca-key", &self.ca_key),
        ];
        let words =
            given.iter().filter_map(|(flag, file)| Some(format!(" {flag} {}", pasted(file.as_ref()?))));
        words.fold("netsurgeon certs reissue".to_string(), |command, word| command + &word)
    }

    /// Finds and reads the certificate and its key. Fails if the key does not match the certificate.
    pub(super) fn load(&self) -> Result<Loaded, Failure> {
        let files = self.serving()?;
        let Chain { text, first: certificate, others } = chain(&files.certificate)?;
        let (_, key) = key(&files.key)?;
        belongs(&key, &certificate).map_err(at(&files.key))?;
        let others = others.into_iter().map(|one| one.der).collect();
        Ok(Loaded { files, text, certificate, others, key })
    }

    fn serving(&self) -> Result<Serving, Failure> {
        let or = |given: &Option<PathBuf>, found: PathBuf| given.clone().unwrap_or(found);
        if let (Some(certificate), Some(key)) = (&self.cert, &self.key) {
            let beside = |name: &str| certificate.with_file_name(name);
            let authority = or(&self.ca_cert, beside("ca.crt"));
            let authority_key = or(&self.ca_key, beside("ca.key"));
            return Ok(Serving {
                certificate: certificate.clone(),
                key: key.clone(),
                authority,
                authority_key,
            });
        }
        let found = Serving::find(self.pki.as_deref()).ok_or_else(|| match &self.pki {
            Some(folder) => {
                let text = format!("no API server certificate in `{}`", folder.display());
                Failure::usage(text).hint("give the files: `--cert`, `--key`, `--ca-cert`, `--ca-key`")
            }
            None => nowhere(),
        })?;
        let (authority, authority_key) =
            (or(&self.ca_cert, found.authority), or(&self.ca_key, found.authority_key));
        Ok(Serving { key: or(&self.key, found.key), authority, authority_key, ..found })
    }

    /// Reads the certificate and the key of the CA.
    pub(super) fn authority(&self, loaded: &Loaded, now: OffsetDateTime) -> Result<Authority, Failure> {
        let (file, key_file) = (&loaded.files.authority, &loaded.files.authority_key);
        let Chain { first, others, .. } = chain(file)?;
        let certificates: Vec<Certificate> = std::iter::once(first).chain(others).collect();
        if !key_file.exists() {
            let text = format!("the CA's private key `{}` does not exist", key_file.display());
            return Err(Failure::refused(text).hint(
                "give it with `--ca-key`; if the CA is elsewhere, write a signing request for it with `--csr-out`",
            ));
        }
        let password = self.ca_key_password_file.as_deref().map(read).transpose()?;
        let password = password.as_deref().map(|text| text.trim_end_matches(['\r', '\n']));
        let key = PrivateKey::from_pem(&read(key_file)?, password).map_err(|error| {
            let hint = match &error {
                KeyError::NeedsPassword => {
                    Some("give the password: `--ca-key-password-file FILE`".to_string())
                }
                KeyError::Cipher(cipher) => Some(conversion(key_file, cipher)),
                _ => None,
            };
            at(key_file)(error).hints(hint)
        })?;
        Authority::new(certificates, key, now).map_err(|error| {
            Failure::refused(format!("`{}`, `{}`: {error}", file.display(), key_file.display()))
        })
    }
}

fn read(file: &Path) -> Result<Zeroizing<String>, Failure> {
    let bytes = std::fs::read(file).map_err(at(file))?;
    let bytes = Zeroizing::new(bytes);
    Ok(Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Returns the hint with the command that converts an encrypted key. OpenSSL 3 needs another provider for ciphers that are no longer
/// secure.
fn conversion(file: &Path, cipher: &str) -> String {
    let cipher = cipher.to_lowercase();
    let is_legacy = ["md2", "md5", "rc2", "rc4"].iter().any(|name| cipher.contains(name))
        || cipher.starts_with("des-cbc")
        || cipher.ends_with("anddes-cbc");
    let provider = if is_legacy { " -provider legacy -provider default" } else { "" };
    let new = PathBuf::from(format!("{}.pkcs8", file.display()));
    format!(
        "convert it: `openssl pkcs8 -topk8 -v2 aes-256-cbc -in {} -out {new}{provider}`, then give `--ca-key {new}` and `--ca-key-password-file FILE`",
        pasted(file),
        new = pasted(&new),
    )
}

/// All certificates of a file.
pub(super) struct Chain {
    /// The content of the file.
    pub(super) text: String,
    pub(super) first: Certificate,
    /// The certificates after the first.
    pub(super) others: Vec<Certificate>,
}

/// Reads all certificates of a file. Fails if it has none.
pub(super) fn chain(file: &Path) -> Result<Chain, Failure> {
    let text = read(file)?;
    let mut all = certificates(&text).map_err(at(file))?.into_iter();
    let first = all.next().ok_or("it contains no certificate").map_err(at(file))?;
    Ok(Chain { text: text.to_string(), first, others: all.collect() })
}

/// Reads an unencrypted private key, such as the key of an API server. Returns the text of the file and the key.
pub(super) fn key(file: &Path) -> Result<(Zeroizing<String>, PrivateKey), Failure> {
    let text = read(file)?;
    let key = PrivateKey::from_pem(&text, None);
    let key = key.map_err(at(file))?;
    Ok((text, key))
}

/// Writes a new key to a file that only its owner can read.
pub(super) fn write_key(file: &Path, key: &PrivateKey) -> Result<(), Failure> {
    let text = key.to_pem().map_err(|error| Failure::refused(error.to_string()))?;
    create_file(file, text.as_bytes(), Readers::Owner).map_err(at(file))
}
