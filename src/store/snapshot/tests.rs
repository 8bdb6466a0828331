//! Tests of the snapshot reader with a real file, damaged copies of this file, and random bytes.
//!
//! The test tier `etcd` also compares the results with a real etcd.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::store::random_transactions::{everything, run};

/// A snapshot of an API server's etcd 3.6.16, saved with `etcdctl snapshot save`.
const FILE: &[u8] = include_bytes!("../../../testdata/bitmap.snapshot.db");

fn open(content: Vec<u8>) -> Result<SnapshotStore, StoreError> {
    SnapshotStore::from_bytes(content, &[KeyRange::everything()])
}

/// Returns the pages without the checksum, as in a raw `member/snap/db`.
fn raw() -> Vec<u8> {
    FILE.split_last_chunk::<32>().unwrap().0.to_vec()
}

fn page_size() -> usize {
    usize::try_from(open(raw()).unwrap().page_size()).unwrap()
}

/// Reads all keys at every revision, and the keys of a narrow scope.
fn read_all(content: Vec<u8>) -> Result<(), StoreError> {
    let narrow = SnapshotStore::from_bytes(content.clone(), &[KeyRange::prefix("/registry/services/")])?;
    let store = open(content)?;
    let (oldest, newest) = (store.oldest_revision(), store.newest_revision());
    for at in [oldest, newest] {
        for store in [&store, &narrow] {
            let ignore = |_: Record<'_>| ControlFlow::Continue(());
            store.visit(&[KeyRange::everything()], Some(at), ignore)?;
        }
    }
    Ok(())
}

#[test]
fn reads_a_real_file() {
    let (saved, raw) = (open(FILE.to_vec()).unwrap(), open(raw()).unwrap());
    assert!(saved.has_checksum() && !raw.has_checksum());
    assert_eq!(saved.page_size(), 4096);
    assert_eq!(saved.file_size(), FILE.len() as u64);
    assert!(saved.key_count() > 20, "{}", saved.key_count());
    assert!(saved.revision_count() >= saved.key_count() as u64);
    let (left, right) = run(async {
        (everything(&saved, saved.newest_revision()).await, everything(&raw, raw.newest_revision()).await)
    });
    assert_eq!(left, right);
    assert!(left.iter().any(|entry| entry.key == Key::from("/registry/services/specs/default/kubernetes")));
}

#[test]
fn index_entry_has_the_documented_size() {
    assert_eq!(Index::ENTRY_SIZE, 24);
}

#[test]
fn every_flipped_bit_of_a_saved_snapshot_is_detected() {
    let step = FILE.len() / 61;
    for position in (0..FILE.len()).step_by(step).chain(FILE.len() - 32..FILE.len()) {
        let mut content = FILE.to_vec();
        content[position] ^= 1 << (position % 8);
        match open(content) {
            Err(StoreError::Checksum { computed, stored, .. }) => {
                assert_ne!(computed, stored);
                assert_eq!(computed.len(), 64);
            }
            other => panic!("byte {position}: {other:?}"),
        }
    }
}

#[test]
fn flipped_bit_in_both_meta_pages_is_a_wrong_checksum() {
    let mut content = FILE.to_vec();
    content[24] ^= 1;
    content[page_size() + 24] ^= 1;
    assert!(matches!(open(content.clone()), Err(StoreError::Checksum { .. })));
    content.truncate(content.len() - 32);
    match open(content) {
        Err(StoreError::Damaged { page: 0, offset: 16, reason, .. }) => {
            assert!(reason.contains("neither meta page is valid"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_truncation_is_detected() {
    let step = FILE.len() / 97;
    let cuts = (1..FILE.len()).step_by(step).chain(FILE.len() - 31..FILE.len());
    let pages = (1..FILE.len() / page_size()).map(|page| page * page_size());
    for length in cuts.chain(pages.clone()).chain(pages.map(|length| length + 32)) {
        match open(FILE[..length].to_vec()) {
            Err(StoreError::Truncated { .. }) => {}
            // The file ends before the end of the magic number.
            Err(StoreError::NotASnapshot { .. }) if length < 20 => {}
            other => panic!("cut to {length} bytes: {other:?}"),
        }
    }
}

#[test]
fn second_meta_page_replaces_a_damaged_first_one() {
    let mut content = raw();
    content[16..80].fill(0);
    let store = open(content).unwrap();
    assert_eq!(store.page_size(), 4096);
    assert_eq!(store.key_count(), open(raw()).unwrap().key_count());
}

#[test]
fn files_that_are_not_snapshots_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty");
    std::fs::write(&empty, []).unwrap();
    let text = directory.path().join("text");
    std::fs::write(&text, "apiVersion: v1\n".repeat(1024)).unwrap();
    for path in [directory.path(), &empty, &text, Path::new("/dev/null")] {
        let outcome = SnapshotStore::open(path, &[]);
        assert!(matches!(outcome, Err(StoreError::NotASnapshot { .. })), "{outcome:?}");
    }
    let absent = SnapshotStore::open(&directory.path().join("absent"), &[]);
    assert!(matches!(absent, Err(StoreError::Io { .. })), "{absent:?}");
    let mut zeroes = open(vec![0; 8192]);
    assert!(matches!(zeroes, Err(StoreError::NotASnapshot { .. })), "{zeroes:?}");
    zeroes = open(vec![0; 8192 + 32]);
    assert!(matches!(zeroes, Err(StoreError::NotASnapshot { .. })), "{zeroes:?}");
}

/// Returns the ids and offsets of the pages of one type.
fn pages_of_type(flags: u16) -> Vec<(u64, usize)> {
    let content = raw();
    let starts = (2..content.len() / page_size()).map(|page| (page as u64, page * page_size()));
    let own = |(id, at): &(u64, usize)| {
        bytes::u64_at(&content, *at as u64) == Some(*id)
            && bytes::u16_at(&content, *at as u64 + 8) == Some(flags)
    };
    starts.filter(own).collect()
}

/// Writes bytes into a raw file, and returns the result of opening the file.
fn patched(offset: usize, bytes: &[u8]) -> Result<SnapshotStore, StoreError> {
    let mut content = raw();
    content[offset..offset + bytes.len()].copy_from_slice(bytes);
    open(content)
}

#[test]
fn branch_cycle_is_reported_with_page_and_offset() {
    let branches = pages_of_type(1);
    let mut found = 0;
    for (page, start) in branches {
        let element = start + 16;
        let Err(error) = patched(element + 8, &page.to_le_bytes()) else { continue };
        let expected = format!("damaged at page {page}, byte {element} of the file");
        assert!(error.to_string().contains(&expected), "{error}");
        found += 1;
    }
    assert!(found > 0, "the file has a branch page in use");
}

#[test]
fn damaged_headers_and_elements_are_detected() {
    let (mut used, mut found) = (0, 0);
    for (page, start) in pages_of_type(2) {
        let wrong_id = patched(start, &[0xff; 8]);
        if wrong_id.is_ok() {
            // The page belongs to a bucket that is not read.
            continue;
        }
        used += 1;
        for (offset, bytes) in
            [(8, vec![0x10, 0]), (10, vec![0xff, 0xff]), (12, vec![0xff; 4]), (20, vec![0xff; 4])]
        {
            match patched(start + offset, &bytes) {
                Err(StoreError::Damaged { page: named, .. }) if named == page => found += 1,
                other => panic!("page {page}, offset {offset}: {other:?}"),
            }
        }
    }
    assert!(used > 3 && found == used * 4, "{used} pages, {found} findings");
}

#[test]
fn elements_that_share_bytes_are_detected() {
    // Without this check, overlapping elements could make reading a small file very slow.
    let content = raw();
    let mut found = 0;
    for (page, start) in pages_of_type(2) {
        let count = bytes::u16_at(&content, start as u64 + 10).unwrap();
        let length = bytes::u32_at(&content, start as u64 + 28).unwrap();
        if count < 2 || patched(start, &[0xff; 8]).is_ok() {
            continue;
        }
        match patched(start + 28, &(length + 1).to_le_bytes()) {
            Err(StoreError::Damaged { page: named, reason, .. }) if named == page => {
                found += u32::from(reason.contains("overlaps another element's"));
            }
            other => panic!("page {page}: {other:?}"),
        }
    }
    // In most pages, the reader rejects the enlarged record before it checks the next record.
    assert!(found > 0, "{found}");
}

#[test]
fn missing_revisions_are_reported() {
    let store = open(FILE.to_vec()).unwrap();
    let (oldest, newest) = (store.oldest_revision(), store.newest_revision());
    let at = |at: i64| store.visit(&[], Some(Revision(at)), |_| ControlFlow::Continue(()));
    assert!(matches!(at(0), Err(StoreError::Compacted { oldest: told, .. }) if told == oldest));
    assert!(
        matches!(at(newest.0 + 1), Err(StoreError::FutureRevision { newest: told, .. }) if told == newest)
    );
}

#[test]
fn any_record_is_parsed_or_refused_without_panic() {
    let good = [0x0a, 1, b'k', 0x10, 2, 0x18, 0x83, 1, 0x20, 4, 0x2a, 2, b'v', b'w', 0x30, 6, 0x38, 9];
    let (create_revision, mod_revision) = (Revision(2), Revision(131));
    let record = Record { key: b"k", value: b"vw", create_revision, mod_revision, version: 4, lease: 6 };
    assert_eq!(message::parse(&good), Ok((record, 2)), "and field 7 is skipped");
    for bad in
        [&[0x0a_u8, 5, b'k'][..], &[0x0b, 1], &[0x08, 1], &[0x10], &[0x10, 0xff], &[0xff; 11], &[0x39, 1]]
    {
        assert!(message::parse(bad).is_err(), "{bad:?}");
    }
}

proptest! {
    /// Flips bits in a file without a checksum. Reading must end with a result or an error in a short time.
    #[test]
    fn flipped_bits_never_panic_or_hang(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u32), 1..8),
        near in any::<prop::sample::Index>(),
    ) {
        let mut content = raw();
        let length = content.len();
        for (position, bit) in flips {
            // Half of the flips are near the start of a page, where headers and elements are.
            let position = if bit % 2 == 0 {
                position.index(length)
            } else {
                near.index(length / 4096) * 4096 + position.index(160)
            };
            content[position] ^= 1 << bit;
        }
        let started = Instant::now();
        let _ = read_all(content);
        prop_assert!(started.elapsed() < Duration::from_secs(10));
    }

    /// Opens random bytes, which must fail.
    #[test]
    fn random_bytes_are_refused(mut content in prop::collection::vec(any::<u8>(), 0..3000)) {
        prop_assert!(read_all(content.clone()).is_err());
        content.resize(content.len().next_multiple_of(512), 0);
        prop_assert!(read_all(content).is_err());
    }
}
