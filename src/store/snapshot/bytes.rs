//! Checked access to untrusted bytes, without indexing or overflow. bbolt writes little-endian numbers on the machines that etcd
//! supports; etcd itself writes big-endian numbers.

/// Returns `length` bytes from `offset`; `None` if there are not enough bytes.
pub(super) fn slice(bytes: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = usize::try_from(offset.checked_add(length)?).ok()?;
    bytes.get(start..end)
}

/// Reads a little-endian `u16`.
pub(super) fn u16_at(bytes: &[u8], offset: u64) -> Option<u16> {
    array_at(bytes, offset).map(u16::from_le_bytes)
}

/// Reads a little-endian `u32`.
pub(super) fn u32_at(bytes: &[u8], offset: u64) -> Option<u32> {
    array_at(bytes, offset).map(u32::from_le_bytes)
}

/// Reads a little-endian `u64`.
pub(super) fn u64_at(bytes: &[u8], offset: u64) -> Option<u64> {
    array_at(bytes, offset).map(u64::from_le_bytes)
}

/// Reads a big-endian `i64`.
pub(super) fn i64_big_endian_at(bytes: &[u8], offset: u64) -> Option<i64> {
    array_at(bytes, offset).map(i64::from_be_bytes)
}

fn array_at<const LENGTH: usize>(bytes: &[u8], offset: u64) -> Option<[u8; LENGTH]> {
    let start = usize::try_from(offset).ok()?;
    bytes.get(start..)?.first_chunk::<LENGTH>().copied()
}
