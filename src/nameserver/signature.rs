//! Verifies the signatures of answers (TSIG, RFC 8945). A server can sign only some messages of a zone transfer. Then the next
//! signature also covers the messages before it (section 5.3.1). The verifier of `hickory_proto` does not support this.

use hickory_proto::rr::TSigner;
use hickory_proto::rr::rdata::tsig::signed_bitmessage_to_buf;

/// Maximum number of messages without a signature between two signed messages (RFC 8945, section 5.3.1).
const MOST_UNSIGNED: usize = 99;

/// Verifies the messages of one answer, in their order.
pub(super) struct Verifier {
    signer: TSigner,
    /// Signature of the previous signed message. The request is the first one.
    previous: Vec<u8>,
    /// When the request was signed, in seconds since 1970.
    asked: u64,
    /// When the previous message was signed; `None` before the first message.
    signed: Option<u64>,
    /// The messages since the previous signature, and their number.
    unsigned: (Vec<u8>, usize),
}

impl Verifier {
    /// Returns the verifier of the answer to a request with this signature.
    pub fn new(signer: &TSigner, request: &[u8], asked: u64) -> Self {
        let (previous, unsigned) = (request.to_vec(), (Vec::new(), 0));
        Self { signer: signer.clone(), previous, asked, signed: None, unsigned }
    }

    /// Accepts the next message. Fails with the reason if its signature is wrong, or if it must have one.
    pub fn accept(&mut self, message: &[u8], is_signed: bool) -> Result<(), String> {
        if !is_signed {
            let (messages, count) = &mut self.unsigned;
            if self.signed.is_none() || *count >= MOST_UNSIGNED {
                return Err("it has no signature (TSIG)".to_string());
            }
            messages.extend_from_slice(message);
            *count = count.saturating_add(1);
            return Ok(());
        }
        let read = signed_bitmessage_to_buf(message, None, self.signed.is_none());
        let (rest, record) = read.map_err(|error| error.to_string())?;
        let signature = record.data;
        if record.name != *self.signer.signer_name() || signature.algorithm != *self.signer.algorithm() {
            return Err("it is signed with another key or algorithm".to_string());
        }
        let length = u16::try_from(self.previous.len()).unwrap_or_default().to_be_bytes();
        let digested = [length.as_slice(), &self.previous, &self.unsigned.0, &rest].concat();
        self.signer.verify(&digested, &signature.mac).map_err(|_| "the signature is wrong".to_string())?;
        let is_too_early = self.signed.is_some_and(|before| signature.time < before);
        if is_too_early || signature.time.abs_diff(self.asked) > signature.fudge.into() {
            return Err("the signature is outdated; synchronise the clocks".to_string());
        }
        (self.previous, self.signed, self.unsigned) = (signature.mac, Some(signature.time), (Vec::new(), 0));
        Ok(())
    }

    /// Fails with the reason if the last message was not signed. Without its signature, the messages before it are not
    /// authentic.
    pub fn end(&self) -> Result<(), String> {
        if self.unsigned.1 == 0 {
            return Ok(());
        }
        Err("its last message has no signature (TSIG)".to_string())
    }
}
