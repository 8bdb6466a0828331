//! A certificate, split into pieces of DER. Unchanged pieces are written exactly as they were read.

use x509_cert::der::asn1::{Any, ObjectIdentifier, OctetString};
use x509_cert::der::{Decode, Encode, Error, Reader, Result, SliceReader, Tag, TagNumber};
use x509_cert::ext::Extension;

const VERSION: Tag = context(0);
const EXTENSIONS: Tag = context(3);

/// The `TBSCertificate` of RFC 5280, section 4.1: each piece with its tag and length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Body {
    /// The version, absent from certificates of version 1.
    version: Option<Vec<u8>>,
    pub(super) serial: Vec<u8>,
    pub(super) signature: Vec<u8>,
    pub(super) issuer: Vec<u8>,
    pub(super) validity: Vec<u8>,
    pub(super) subject: Vec<u8>,
    pub(super) key: Vec<u8>,
    /// Unique ids of issuer and subject, which are obsolete.
    ids: Vec<Vec<u8>>,
    /// The extensions; each piece is one `Extension`.
    pub(super) extensions: Vec<Vec<u8>>,
}

impl Body {
    /// Splits a certificate into its pieces.
    pub(super) fn of(certificate: &[u8]) -> Result<Self> {
        let tbs = pieces(certificate)?.into_iter().next().unwrap_or_default();
        let mut rest = pieces(&tbs)?.into_iter().peekable();
        let version = rest.next_if(|piece| tag(piece).is_ok_and(|tag| tag == VERSION));
        let mut next = || rest.next().ok_or_else(|| Error::from(Tag::Sequence.value_error()));
        let (serial, signature, issuer) = (next()?, next()?, next()?);
        let (validity, subject, key) = (next()?, next()?, next()?);
        let (mut ids, mut extensions) = (Vec::new(), Vec::new());
        for piece in rest {
            if tag(&piece)? == EXTENSIONS {
                let list = pieces(&piece)?.into_iter().next().unwrap_or_default();
                extensions = pieces(&list)?;
            } else {
                ids.push(piece);
            }
        }
        Ok(Self { version, serial, signature, issuer, validity, subject, key, ids, extensions })
    }

    /// Returns whether the certificate has a version that allows extensions (version 3). Version 1 is the default and is not
    /// encoded (RFC 5280, section 4.1.2.1).
    pub(super) fn allows_extensions(&self) -> bool {
        self.version.as_ref().is_some_and(|version| version.last() == Some(&2))
    }

    /// Encodes the pieces again.
    pub(super) fn to_der(&self) -> Result<Vec<u8>> {
        let mut all: Vec<&[u8]> = self.version.iter().map(Vec::as_slice).collect();
        let fields = [&self.serial, &self.signature, &self.issuer, &self.validity, &self.subject, &self.key];
        all.extend(fields.map(Vec::as_slice));
        all.extend(self.ids.iter().map(Vec::as_slice));
        let extensions = constructed(EXTENSIONS, &[constructed(Tag::Sequence, &self.extensions)?])?;
        if !self.extensions.is_empty() {
            all.push(&extensions);
        }
        constructed(Tag::Sequence, &all)
    }

    /// Replaces the value of an extension, and keeps its position and criticality. If the extension is missing, adds it at the
    /// end, as not critical.
    pub(super) fn set_extension(&mut self, id: ObjectIdentifier, value: &[u8]) -> Result<()> {
        let extn_value = OctetString::new(value)?;
        for piece in &mut self.extensions {
            let found = Extension::from_der(piece)?;
            if found.extn_id == id {
                *piece = Extension { extn_value, ..found }.to_der()?;
                return Ok(());
            }
        }
        self.extensions.push(Extension { extn_id: id, critical: false, extn_value }.to_der()?);
        Ok(())
    }

    /// Removes an extension, if present.
    pub(super) fn remove_extension(&mut self, id: ObjectIdentifier) -> Result<()> {
        let mut kept = Vec::new();
        for piece in self.extensions.drain(..) {
            if Extension::from_der(&piece)?.extn_id != id {
                kept.push(piece);
            }
        }
        self.extensions = kept;
        Ok(())
    }

    /// Returns the value of an extension.
    pub(super) fn extension(&self, id: ObjectIdentifier) -> Result<Option<Vec<u8>>> {
        for piece in &self.extensions {
            let found = Extension::from_der(piece)?;
            if found.extn_id == id {
                return Ok(Some(found.extn_value.as_bytes().to_vec()));
            }
        }
        Ok(None)
    }
}

/// Returns the context-specific tag of a constructed value.
pub(super) const fn context(number: u32) -> Tag {
    Tag::ContextSpecific { constructed: true, number: TagNumber(number) }
}

fn tag(piece: &[u8]) -> Result<Tag> {
    Tag::peek(&SliceReader::new(piece)?)
}

/// Returns the pieces of a constructed value.
pub(super) fn pieces(value: &[u8]) -> Result<Vec<Vec<u8>>> {
    let whole = Any::from_der(value)?;
    let mut inside = SliceReader::new(whole.value())?;
    let mut found = Vec::new();
    while !inside.is_finished() {
        found.push(inside.tlv_bytes()?.to_vec());
    }
    Ok(found)
}

/// Joins pieces into a constructed value.
pub(super) fn constructed(tag: Tag, pieces: &[impl AsRef<[u8]>]) -> Result<Vec<u8>> {
    let inside: Vec<u8> = pieces.iter().flat_map(AsRef::as_ref).copied().collect();
    Any::new(tag, inside)?.to_der()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::certs::{PrivateKey, certificates};

    fn made(names: Vec<String>) -> Vec<u8> {
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn certificate_round_trips_through_its_pieces() {
        for names in [vec!["kubernetes".to_string(), "10.96.0.1".to_string()], Vec::new()] {
            let whole = made(names);
            let tbs = pieces(&whole).unwrap().swap_remove(0);
            assert_eq!(Body::of(&whole).unwrap().to_der().unwrap(), tbs);
        }
    }

    #[test]
    fn set_extension_keeps_position_and_criticality() {
        let whole = made(vec!["kubernetes".to_string()]);
        let mut body = Body::of(&whole).unwrap();
        let weights = |body: &Body| -> Vec<(ObjectIdentifier, bool)> {
            let all = body.extensions.iter().map(|piece| Extension::from_der(piece).unwrap());
            all.map(|extension| (extension.extn_id, extension.critical)).collect()
        };
        let before = weights(&body);
        for (id, _) in &before {
            body.set_extension(*id, b"another").unwrap();
            assert_eq!(body.extension(*id).unwrap().as_deref(), Some(&b"another"[..]));
        }
        assert_eq!(weights(&body), before);
        body.remove_extension(before[0].0).unwrap();
        assert_eq!(weights(&body), before[1..]);
    }

    proptest! {
        #[test]
        fn damaged_bytes_never_panic(at in 0usize..400, byte: u8, bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut whole = made(vec!["kubernetes".to_string()]);
            let place = at % whole.len();
            whole[place] = byte;
            let _ = Body::of(&whole).and_then(|body| body.to_der());
            let _ = certificates(&crate::certs::to_pem(&whole));
            let _ = Body::of(&bytes);
            for label in ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY"] {
                let _ = PrivateKey::from_pem(&crate::certs::pem::block(label, &bytes), Some("password"));
            }
        }
    }
}
