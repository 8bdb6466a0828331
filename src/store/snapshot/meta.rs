//! Reads the two meta pages of a bbolt file. The newest valid meta page contains the page size, the root of the tree and the
//! required length of the file.
//!
//! Layout and checks are the same as in bbolt v1.3.11 and v1.4.3 (`meta.Validate` and `meta.Sum64` in internal/common/meta.go,
//! `getPageSize` in db.go). A page header of 16 bytes comes first. The next fields are magic, version, page size and flags (u32
//! each). The last fields are root page, sequence, freelist page, high-water page, transaction id, and an FNV-1a-64 checksum of
//! all these fields (u64 each).

use super::bytes::{slice, u32_at, u64_at};
use super::fault::SnapshotFault;

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
/// Size of a page header, in bytes. The meta fields follow it.
const HEADER: u64 = 16;
/// Number of bytes that the checksum of a meta page covers.
const SUMMED: u64 = 56;
/// Exponent of the smallest page size, 2^10 = 1024 bytes. bbolt uses the page size of the operating system, in practice 4096,
/// 16384 or 65536 bytes. Like bbolt, this reader searches for the second meta page at every power of two from 1024 bytes to
/// 32 MiB (`getPageSize`).
const SMALLEST_PAGE_SHIFT: u32 = 10;
const LARGEST_PAGE_SHIFT: u32 = 25;

/// A valid meta page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta {
    /// Size of a page, in bytes.
    pub page_size: u64,
    /// Id of the root page of the tree of buckets.
    pub root: u64,
    /// Number of pages in the file. Every page id is less than this number.
    pub high_water: u64,
    /// Id of the transaction that wrote the meta page.
    pub transaction: u64,
}

impl Meta {
    /// Returns the newest valid meta page.
    ///
    /// Fails if the content is not a bbolt file, is shorter than its meta page requires, or has no valid meta page.
    pub(super) fn newest(content: &[u8]) -> Result<Self, SnapshotFault> {
        let first = Self::at(content, 0);
        let second = match first {
            Ok(meta) => Self::at(content, meta.page_size),
            Err(_) => Self::search_second(content),
        };
        let meta = match (first, second) {
            (Ok(first), Ok(second)) if second.transaction > first.transaction => second,
            (Ok(first), _) => first,
            (Err(_), Ok(second)) => second,
            (Err(Reason::NoMagic), Err(Reason::NoMagic)) => {
                return Err(SnapshotFault::NotASnapshot(
                    "it does not start with a bbolt meta page".to_string(),
                ));
            }
            (Err(first), Err(second)) => {
                let reason = format!("neither meta page is valid: {}; {}", first.text(), second.text());
                return SnapshotFault::damaged(0, HEADER, reason);
            }
        };
        meta.check_length(content)?;
        Ok(meta)
    }

    fn check_length(&self, content: &[u8]) -> Result<(), SnapshotFault> {
        let found = content.len() as u64;
        let expected = self.high_water.checked_mul(self.page_size);
        match expected {
            Some(expected) if expected <= found => Ok(()),
            Some(expected) => Err(SnapshotFault::Truncated(format!(
                "the file has {found} bytes of pages, but its meta page requires {expected} bytes"
            ))),
            None => SnapshotFault::damaged(
                0,
                HEADER,
                format!("the number of the high-water page is too large: {}", self.high_water),
            ),
        }
    }

    fn search_second(content: &[u8]) -> Result<Self, Reason> {
        let mut outcome = Err(Reason::NoMagic);
        for shift in SMALLEST_PAGE_SHIFT..=LARGEST_PAGE_SHIFT {
            let position = 1_u64.checked_shl(shift).ok_or(Reason::NoMagic)?;
            match Self::at(content, position) {
                Ok(meta) if meta.page_size == position => return Ok(meta),
                Ok(_) | Err(Reason::NoMagic) => {}
                Err(reason) => outcome = Err(reason),
            }
        }
        outcome
    }

    fn at(content: &[u8], position: u64) -> Result<Self, Reason> {
        let body = position.checked_add(HEADER).ok_or(Reason::NoMagic)?;
        let field32 = |offset: u64| u32_at(content, body.checked_add(offset)?);
        let field64 = |offset: u64| u64_at(content, body.checked_add(offset)?);
        if field32(0) != Some(MAGIC) {
            return Err(Reason::NoMagic);
        }
        let version = field32(4).ok_or(Reason::Short)?;
        if version != VERSION {
            return Err(Reason::Version(version));
        }
        let summed = slice(content, body, SUMMED).ok_or(Reason::Short)?;
        let stored = field64(SUMMED).ok_or(Reason::Short)?;
        let computed = fnv1a(summed);
        if stored != computed {
            return Err(Reason::Checksum { stored, computed });
        }
        let page_size = field32(8).ok_or(Reason::Short)?;
        if !page_size.is_power_of_two()
            || !(SMALLEST_PAGE_SHIFT..=LARGEST_PAGE_SHIFT).contains(&page_size.trailing_zeros())
        {
            return Err(Reason::PageSize(page_size));
        }
        Ok(Self {
            page_size: u64::from(page_size),
            root: field64(16).ok_or(Reason::Short)?,
            high_water: field64(40).ok_or(Reason::Short)?,
            transaction: field64(48).ok_or(Reason::Short)?,
        })
    }
}

/// Why a meta page is not valid.
#[derive(Debug, Clone, Copy)]
enum Reason {
    NoMagic,
    Short,
    Version(u32),
    PageSize(u32),
    Checksum { stored: u64, computed: u64 },
}

impl Reason {
    fn text(self) -> String {
        match self {
            Self::NoMagic => format!("no magic number {MAGIC:#x}"),
            Self::Short => "truncated".to_string(),
            Self::Version(version) => format!("version {version}, expected {VERSION}"),
            Self::PageSize(size) => format!("a page size of {size}"),
            Self::Checksum { stored, computed } => {
                format!("stored checksum {stored:016x}, computed checksum {computed:016x}")
            }
        }
    }
}

/// Computes the 64-bit FNV-1a hash (offset basis and prime of draft-eastlake-fnv, section 5).
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
