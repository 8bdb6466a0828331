//! Reads protobuf messages without their schema.
//!
//! This module splits a message into its fields, and joins fields into a message. It does not interpret their contents, so all
//! fields that are not replaced keep their bytes. The format is described in the document "Encoding" of Protocol Buffers (wire
//! types 0 varint, 1 fixed64, 2 length-delimited, 3/4 group, 5 fixed32).

use super::WireError;

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawField<'a> {
    /// Field number, 1 to 2^29-1.
    pub(super) number: u32,
    /// All bytes of the field in the message: tag, length and content.
    pub(super) whole: &'a [u8],
    /// The content of the field.
    pub(super) content: Content<'a>,
}

/// Content of a field, by wire type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 2: text, bytes or a message.
    Bytes(&'a [u8]),
    /// Wire types 1 and 5, and groups. This content is copied, but never interpreted.
    Other(&'a [u8]),
}

impl<'a> RawField<'a> {
    /// Returns the content of a length-delimited field; `None` for other wire types.
    pub(super) fn bytes(&self) -> Option<&'a [u8]> {
        match self.content {
            Content::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

impl<'a> RawField<'a> {
    /// Returns the content of a field that should be a message.
    pub(super) fn message(&self) -> Result<&'a [u8], WireError> {
        self.bytes().ok_or(WireError::Protobuf { offset: 0, reason: "a field has an unexpected type" })
    }

    /// Returns the content of a field that should be text.
    pub(super) fn text(&self) -> Result<&'a str, WireError> {
        let wrong = |_| WireError::Protobuf { offset: 0, reason: "a string is not valid UTF-8" };
        std::str::from_utf8(self.message()?).map_err(wrong)
    }
}

impl RawField<'_> {
    /// Returns the content of a field that should be a number.
    pub(super) fn varint(&self) -> Result<u64, WireError> {
        match self.content {
            Content::Varint(number) => Ok(number),
            _ => Err(WireError::Protobuf { offset: 0, reason: "a field has an unexpected type" }),
        }
    }

    /// Returns the content of a field that should be an `int32`. Only the low 32 bits are used.
    pub(super) fn int32(&self) -> Result<i32, WireError> {
        let low = u32::try_from(self.varint()? & u64::from(u32::MAX));
        Ok(low.unwrap_or_default().cast_signed())
    }
}

/// Iterates over the fields of a message in order.
pub(super) fn fields(message: &[u8]) -> Fields<'_> {
    Fields { message, position: 0 }
}

pub(super) struct Fields<'a> {
    message: &'a [u8],
    position: usize,
}

/// Offset and reason of an error in a message. The operator `?` converts it to a [`WireError`]. This type is smaller than
/// `WireError`, because surveys read millions of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken {
    offset: usize,
    reason: &'static str,
}

impl From<Broken> for WireError {
    fn from(broken: Broken) -> Self {
        Self::Protobuf { offset: broken.offset, reason: broken.reason }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<RawField<'a>, Broken>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.message.get(self.position..).filter(|rest| !rest.is_empty())?;
        // Most fields are short texts and messages, with a tag and a length of one byte each.
        if let [tag, length, after @ ..] = rest
            && tag & 0x87 == 2
            && *tag > 2
            && *length < 0x80
            && let Some(bytes) = after.get(..usize::from(*length))
        {
            let whole = rest.get(..usize::from(*length).saturating_add(2)).unwrap_or_default();
            self.position = self.position.saturating_add(whole.len());
            return Some(Ok(RawField { number: u32::from(tag >> 3), whole, content: Content::Bytes(bytes) }));
        }
        Some(self.next_of_any_kind())
    }
}

impl<'a> Fields<'a> {
    #[inline(never)]
    fn next_of_any_kind(&mut self) -> Result<RawField<'a>, Broken> {
        let start = self.position;
        let field = self.read_field(start);
        if field.is_err() {
            self.position = self.message.len();
        }
        field
    }

    fn read_field(&mut self, start: usize) -> Result<RawField<'a>, Broken> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|n| (1..1 << 29).contains(n));
        let number = number.ok_or_else(|| self.error(start, "field number out of range"))?;
        let content = match tag & 7 {
            0 => Content::Varint(self.varint()?),
            1 => Content::Other(self.take(8)?),
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| self.error(start, "length too large"))?;
                Content::Bytes(self.take(length)?)
            }
            3 => Content::Other(self.group(number)?),
            5 => Content::Other(self.take(4)?),
            _ => return Err(self.error(start, "unknown wire type")),
        };
        let whole = self.message.get(start..self.position).unwrap_or_default();
        Ok(RawField { number, whole, content })
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Broken> {
        // Nearly all tags and most lengths have one byte.
        if let Some(&byte) = self.message.get(self.position).filter(|byte| **byte < 0x80) {
            self.position = self.position.saturating_add(1);
            return Ok(u64::from(byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, Broken> {
        let start = self.position;
        let mut value: u64 = 0;
        for shift in (0..70).step_by(7) {
            let Some(&byte) = self.message.get(self.position) else {
                return Err(self.error(start, "message ends within a number"));
            };
            self.position = self.position.saturating_add(1);
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            value |= part.checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.error(start, "number longer than 64 bits"))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Broken> {
        let end = self.position.checked_add(length);
        match end.and_then(|end| self.message.get(self.position..end)) {
            Some(bytes) => {
                self.position = self.position.saturating_add(length);
                Ok(bytes)
            }
            None => Err(self.error(self.position, "field extends past the end of its message")),
        }
    }

    /// Reads a group up to its end tag. Uses a list of open groups instead of recursion.
    fn group(&mut self, number: u32) -> Result<&'a [u8], Broken> {
        let start = self.position;
        let mut open = vec![number];
        while let Some(innermost) = open.last().copied() {
            let at = self.position;
            let tag = self.varint()?;
            let inner = u32::try_from(tag >> 3).map_err(|_| self.error(at, "field number out of range"))?;
            match tag & 7 {
                0 => drop(self.varint()?),
                1 => drop(self.take(8)?),
                2 => {
                    let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                    self.take(length)?;
                }
                3 => open.push(inner),
                4 if inner == innermost => drop(open.pop()),
                5 => drop(self.take(4)?),
                _ => return Err(self.error(at, "group is not closed")),
            }
        }
        Ok(self.message.get(start..self.position).unwrap_or_default())
    }

    fn error(&self, offset: usize, reason: &'static str) -> Broken {
        Broken { offset: offset.min(self.message.len()), reason }
    }
}

/// Reads an entry of a map from text to text: field 1 is the key, field 2 the value.
pub(super) fn map_entry(entry: &[u8]) -> Result<(&str, &str), WireError> {
    let (mut key, mut value) = ("", "");
    for part in fields(entry) {
        let part = part?;
        match part.number {
            1 => key = part.text()?,
            2 => value = part.text()?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// Appends a number as a varint.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Returns a length-delimited field.
pub(super) fn field(number: u32, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let mut out = Vec::with_capacity(content.len().saturating_add(6));
    put_varint(&mut out, u64::from(number) << 3 | 2);
    put_varint(&mut out, content.len() as u64);
    out.extend_from_slice(content);
    out
}

/// Appends a varint field.
pub(super) fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

/// Returns the message with every occurrence of one field replaced with the given encoded fields.
///
/// The new fields replace the first occurrence. If the message does not contain the field, they are inserted before the first
/// field with a larger number, where an encoder that orders fields by number would write them. All other bytes are copied.
pub(super) fn replace(message: &[u8], number: u32, replacement: &[u8]) -> Result<Vec<u8>, WireError> {
    let all: Vec<RawField<'_>> = fields(message).collect::<Result<_, _>>()?;
    let place = all
        .iter()
        .position(|f| f.number == number)
        .or_else(|| all.iter().position(|f| f.number > number))
        .unwrap_or(all.len());
    let mut out = Vec::with_capacity(message.len().saturating_add(replacement.len()));
    for (index, field) in all.iter().enumerate() {
        if index == place {
            out.extend_from_slice(replacement);
        }
        if field.number != number {
            out.extend_from_slice(field.whole);
        }
    }
    if place == all.len() {
        out.extend_from_slice(replacement);
    }
    Ok(out)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates any well-formed message, with every wire type that a real message can have.
    pub(crate) fn any_message() -> impl Strategy<Value = Vec<u8>> {
        let field = (1_u32..64, 0_u8..4, any::<u64>(), proptest::collection::vec(any::<u8>(), 0..40));
        proptest::collection::vec(field, 0..20).prop_map(|parts| {
            let mut out = Vec::new();
            for (number, kind, value, bytes) in parts {
                match kind {
                    0 => put_number(&mut out, number, value),
                    1 => {
                        put_varint(&mut out, u64::from(number) << 3 | 1);
                        out.extend_from_slice(&value.to_le_bytes());
                    }
                    2 => out.extend(super::field(number, &bytes)),
                    _ => {
                        put_varint(&mut out, u64::from(number) << 3 | 5);
                        out.extend_from_slice(&(value & 0xffff_ffff).to_le_bytes()[..4]);
                    }
                }
            }
            out
        })
    }

    /// Generates messages whose maps contain only entries. prost does not check the wire type of a map, and accepts other types
    /// as entries (`encoding.rs`, 0.14). Every decoder in Kubernetes refuses such messages.
    pub(crate) fn any_message_with_maps(maps: &'static [u32]) -> impl Strategy<Value = Vec<u8>> {
        any_message().prop_filter("a map of another wire type", |message| {
            fields(message).flatten().all(|f| !maps.contains(&f.number) || f.bytes().is_some())
        })
    }

    proptest! {
        #[test]
        fn fields_tile_the_message(message in any_message()) {
            let joined: Vec<u8> =
                fields(&message).flat_map(|f| f.unwrap().whole.to_vec()).collect();
            prop_assert_eq!(joined, message);
        }

        #[test]
        fn replace_copies_every_other_byte(message in any_message(), number in 1_u32..64, text in ".{0,20}") {
            let edited = replace(&message, number, &field(number, &text)).unwrap();
            let others = |m: &[u8]| -> Vec<Vec<u8>> {
                fields(m).map(Result::unwrap).filter(|f| f.number != number).map(|f| f.whole.to_vec()).collect()
            };
            prop_assert_eq!(others(&message), others(&edited));
            let now: Vec<_> = fields(&edited).map(Result::unwrap).filter(|f| f.number == number).collect();
            prop_assert_eq!(now.len(), 1);
            prop_assert_eq!(now[0].bytes(), Some(text.as_bytes()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut total = 0;
            for field in fields(&bytes).flatten() {
                total += field.whole.len();
            }
            prop_assert!(total <= bytes.len());
            let _ = replace(&bytes, 3, &[]);
        }
    }

    #[test]
    fn groups_are_copied_whole() {
        // Field 1 as a group that contains a nested group, then field 2.
        let message = [0x0b, 0x13, 0x08, 0x01, 0x14, 0x0c, 0x10, 0x05];
        let found: Vec<_> = fields(&message).map(Result::unwrap).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].whole, &message[..6]);
        assert!(fields(&message[..5]).any(|f| f.is_err()));
    }

    #[test]
    fn deeply_nested_groups_do_not_overflow_the_stack() {
        let bytes = vec![0x0b; 1_000_000];
        assert!(fields(&bytes).any(|f| f.is_err()));
    }
}
