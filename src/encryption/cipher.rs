//! Encryption with one key: AES-CBC with PKCS #7 padding, AES-GCM, and NaCl's secretbox.
//!
//! A stored value consists of the nonce and the ciphertext. AES-GCM also authenticates the etcd key, so a value that was copied
//! to another etcd key cannot be decrypted. The other ciphers do not authenticate the etcd key
//! (`pkg/storage/value/encrypt/{aes/aes.go, secretbox/secretbox.go}` of `k8s.io/apiserver` v0.36.3; `authenticatedDataString` in
//! `pkg/storage/etcd3/store.go`).

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockModeDecrypt, BlockModeEncrypt, InnerIvInit};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::aes::cipher::consts::U12;
use aes_gcm::{AesGcm, Nonce};
use crypto_secretbox::XSalsa20Poly1305;
use crypto_secretbox::aead::{Aead as SecretboxAead, KeyInit as SecretboxInit};

use super::Fill;

/// Size of an AES block and of a CBC initialization vector, in bytes.
const BLOCK: usize = 16;
/// Size of a GCM nonce, in bytes.
const GCM_NONCE: usize = 12;
/// Size of a secretbox nonce, in bytes.
const SECRETBOX_NONCE: usize = 24;

/// AES with a key of 16, 24 or 32 bytes.
pub(super) enum Aes {
    Short(Box<Aes128>),
    Middle(Box<Aes192>),
    Long(Box<Aes256>),
}

impl Aes {
    /// Creates AES from a key of 16, 24 or 32 bytes.
    fn new(key: &[u8]) -> Option<Self> {
        match key.len() {
            16 => Aes128::new_from_slice(key).ok().map(|cipher| Self::Short(Box::new(cipher))),
            24 => Aes192::new_from_slice(key).ok().map(|cipher| Self::Middle(Box::new(cipher))),
            32 => Aes256::new_from_slice(key).ok().map(|cipher| Self::Long(Box::new(cipher))),
            _ => None,
        }
    }
}

/// Evaluates an expression with the cipher for any of the three key lengths.
macro_rules! with_aes {
    ($aes:expr, $cipher:ident => $done:expr) => {
        match $aes {
            Aes::Short($cipher) => $done,
            Aes::Middle($cipher) => $done,
            Aes::Long($cipher) => $done,
        }
    };
}

/// A cipher with its key.
pub(super) enum Cipher {
    Cbc(Aes),
    Gcm(Aes),
    Secretbox(Box<XSalsa20Poly1305>),
}

impl Cipher {
    /// Creates AES-CBC from a key of 16, 24 or 32 bytes.
    pub(super) fn cbc(key: &[u8]) -> Option<Self> {
        Aes::new(key).map(Self::Cbc)
    }

    /// Creates AES-GCM from a key of 16, 24 or 32 bytes.
    pub(super) fn gcm(key: &[u8]) -> Option<Self> {
        Aes::new(key).map(Self::Gcm)
    }

    /// Creates secretbox from a key of 32 bytes.
    pub(super) fn secretbox(key: &[u8]) -> Option<Self> {
        let cipher = <XSalsa20Poly1305 as SecretboxInit>::new_from_slice(key).ok()?;
        Some(Self::Secretbox(Box::new(cipher)))
    }

    /// Decrypts the bytes that follow the key's name in a stored value; `None` if this key cannot decrypt them.
    pub(super) fn open(&self, etcd_key: &[u8], stored: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Cbc(aes) => {
                let (vector, sealed) = stored.split_at_checked(BLOCK)?;
                let vector = vector.try_into().ok()?;
                with_aes!(aes, cipher => cbc::Decryptor::inner_iv_init(cipher.as_ref().clone(), &vector)
                    .decrypt_padded_vec::<Pkcs7>(sealed).ok())
            }
            Self::Gcm(aes) => {
                let (nonce, sealed) = stored.split_at_checked(GCM_NONCE)?;
                let nonce: Nonce<U12> = nonce.try_into().ok()?;
                let payload = Payload { msg: sealed, aad: etcd_key };
                with_aes!(aes, cipher => AesGcm::<_, U12>::from(cipher.as_ref().clone()).decrypt(&nonce, payload).ok())
            }
            Self::Secretbox(cipher) => {
                let (nonce, sealed) = stored.split_at_checked(SECRETBOX_NONCE)?;
                SecretboxAead::decrypt(cipher.as_ref(), nonce.into(), sealed).ok()
            }
        }
    }

    /// Encrypts an object and returns the nonce and the ciphertext; `None` if the object is too long for the cipher (many
    /// gigabytes).
    pub(super) fn seal(&self, etcd_key: &[u8], plain: &[u8], fill: Fill) -> Option<Vec<u8>> {
        Some(match self {
            Self::Cbc(aes) => {
                let mut vector = [0; BLOCK];
                fill(&mut vector);
                let sealed = with_aes!(aes, cipher => cbc::Encryptor::inner_iv_init(cipher.as_ref().clone(), &vector.into())
                    .encrypt_padded_vec::<Pkcs7>(plain));
                [vector.as_slice(), &sealed].concat()
            }
            Self::Gcm(aes) => {
                let mut nonce = [0; GCM_NONCE];
                fill(&mut nonce);
                let payload = Payload { msg: plain, aad: etcd_key };
                let sealed = with_aes!(aes, cipher => AesGcm::<_, U12>::from(cipher.as_ref().clone())
                    .encrypt(&nonce.into(), payload));
                [nonce.as_slice(), &sealed.ok()?].concat()
            }
            Self::Secretbox(cipher) => {
                let mut nonce = [0; SECRETBOX_NONCE];
                fill(&mut nonce);
                let sealed = SecretboxAead::encrypt(cipher.as_ref(), &nonce.into(), plain);
                [nonce.as_slice(), &sealed.ok()?].concat()
            }
        })
    }
}
