//! Parses `mvccpb.KeyValue` without copying.
//!
//! The message has the fields of api/mvccpb/kv.proto (etcd v3.6.16): key 1, create_revision 2, mod_revision 3, version 4, value
//! 5, lease 6. The wire format is protobuf (protobuf.dev, "Encoding"). The parser is written by hand because records must borrow
//! from the memory map. A generated parser would copy every value.

use crate::store::{Record, Revision};

/// Parses a whole message. Skips unknown fields. If a field is repeated, its last value is used. Returns the record, which
/// borrows from the file, and the offset of its key from the start of the message, in bytes.
pub(super) fn parse(message: &[u8]) -> Result<(Record<'_>, usize), &'static str> {
    let mut cursor = Cursor { message, position: 0 };
    let (create_revision, mod_revision) = (Revision(0), Revision(0));
    let mut record = Record { key: &[], value: &[], create_revision, mod_revision, version: 0, lease: 0 };
    let mut key_offset = 0;
    while cursor.position < message.len() {
        let tag = cursor.varint()?;
        match (tag >> 3, tag & 7) {
            (1, 2) => (key_offset, record.key) = cursor.bytes()?,
            (2, 0) => record.create_revision = Revision(cursor.signed()?),
            (3, 0) => record.mod_revision = Revision(cursor.signed()?),
            (4, 0) => record.version = cursor.signed()?,
            (5, 2) => (_, record.value) = cursor.bytes()?,
            (6, 0) => record.lease = cursor.signed()?,
            (1..=6, _) => return Err("a field of its record has an unexpected type"),
            (7.., 0) => _ = cursor.varint()?,
            (7.., 1) => cursor.skip(8)?,
            (7.., 2) => _ = cursor.bytes()?,
            (7.., 5) => cursor.skip(4)?,
            _ => return Err("its record is not a protobuf message"),
        }
    }
    Ok((record, key_offset))
}

struct Cursor<'m> {
    message: &'m [u8],
    position: usize,
}

impl<'m> Cursor<'m> {
    #[inline]
    fn varint(&mut self) -> Result<u64, &'static str> {
        // Tags and many lengths have only one byte.
        if let Some(&byte) = self.message.get(self.position).filter(|byte| **byte < 0x80) {
            self.position = self.position.saturating_add(1);
            return Ok(u64::from(byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, &'static str> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.message.get(self.position).ok_or("its record ends within a number")?;
            self.position = self.position.saturating_add(1);
            number |= u64::from(byte & 0x7f).wrapping_shl(shift);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("a number in its record is longer than ten bytes")
    }

    /// Reads a protobuf `int64`: two's complement in a varint.
    fn signed(&mut self) -> Result<i64, &'static str> {
        self.varint().map(u64::cast_signed)
    }

    /// Reads a length, then as many bytes. Returns the position of the bytes, and the bytes.
    fn bytes(&mut self) -> Result<(usize, &'m [u8]), &'static str> {
        let length = usize::try_from(self.varint()?).map_err(|_| "a field that does not fit in memory")?;
        let start = self.position;
        let end = start.checked_add(length).ok_or("a field that does not fit in memory")?;
        let bytes = self.message.get(start..end).ok_or("a field of its record ends after the record")?;
        self.position = end;
        Ok((start, bytes))
    }

    fn skip(&mut self, length: usize) -> Result<(), &'static str> {
        let end = self.position.saturating_add(length);
        if end > self.message.len() {
            return Err("a field of its record ends after the record");
        }
        self.position = end;
        Ok(())
    }
}
