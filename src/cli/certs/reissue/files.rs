//! Finds, reads and checks the files of a certificate and its CA.

use std::path::{Path, PathBuf};

use clap::Args;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::certs::{Authority, Certificate, PrivateKey, belongs, certificates};
use crate::cli::certs::places::{Serving, nowhere};
use crate::cli::file::{Readers, at, create_file};
use crate::session::{Failure, pasted};

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
        let (text, certificate) = first_certificate(&files.certificate)?;
        let (_, key) = key(&files.key)?;
        belongs(&key, &certificate).map_err(at(&files.key))?;
        Ok(Loaded { files, text, certificate, key })
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
        let (_, certificate) = first_certificate(file)?;
        if !key_file.exists() {
            let text = format!("the CA's private key `{}` does not exist", key_file.display());
            return Err(Failure::refused(text).hint(
                "give it with `--ca-key`; if the CA is elsewhere, write a signing request for it with `--csr-out`",
            ));
        }
        let password = self.ca_key_password_file.as_deref().map(read).transpose()?;
        let password = password.as_deref().map(|text| text.trim_end_matches(['\r', '\n']));
        let key = PrivateKey::from_pem(&read(key_file)?, password).map_err(|error| {
            let failure = at(key_file)(error);
            if password.is_none() {
                failure.hint("if the key is encrypted, give `--ca-key-password-file`")
            } else {
                failure
            }
        })?;
        Authority::new(certificate, key, now).map_err(|error| {
            Failure::refused(format!("`{}`, `{}`: {error}", file.display(), key_file.display()))
        })
    }
}

fn read(file: &Path) -> Result<Zeroizing<String>, Failure> {
    let bytes = std::fs::read(file).map_err(at(file))?;
    let bytes = Zeroizing::new(bytes);
    Ok(Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Reads the first certificate of a file. Returns the text of the file and the certificate.
pub(super) fn first_certificate(file: &Path) -> Result<(String, Certificate), Failure> {
    let text = read(file)?;
    let first = certificates(&text).map_err(at(file))?.into_iter().next();
    let first = first.ok_or("it contains no certificate").map_err(at(file))?;
    Ok((text.to_string(), first))
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
