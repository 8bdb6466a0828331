//! The snapshot reader on arbitrary bytes: it may reject them or read them, but it must not panic, loop, or use memory that grows
//! faster than the file.
//!
//! The first byte selects one of two kinds of input: a whole file, or patches to a real one, which get deeper, since they start
//! from valid pages. A patch is 5 bytes: page (2), offset in the page (2), value.

#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use netsurgeon::store::snapshot::SnapshotStore;
use netsurgeon::store::{KeyRange, ReadStore, Record, Revision};

/// Saved by `etcdctl snapshot save`; without its checksum it is like a raw database.
const REAL: &[u8] = include_bytes!("../../../testdata/bitmap.snapshot.db");
const CHECKSUM: usize = 32;
const PAGE: usize = 4096;

fuzz_target!(|data: &[u8]| {
    let Some((kind, input)) = data.split_first() else { return };
    let mut content = if *kind == 0 { input.to_vec() } else { patched(input) };
    // Any other size is rejected before a page is read.
    content.truncate(content.len() / 512 * 512);
    read(content);
});

fn patched(patches: &[u8]) -> Vec<u8> {
    let mut content = REAL[..REAL.len() - CHECKSUM].to_vec();
    let pages = content.len() / PAGE;
    for patch in patches.chunks_exact(5) {
        let page = usize::from(u16::from_le_bytes([patch[0], patch[1]])) % pages;
        let offset = usize::from(u16::from_le_bytes([patch[2], patch[3]])) % PAGE;
        content[page * PAGE + offset] = patch[4];
    }
    content
}

fn read(content: Vec<u8>) {
    let scope = [KeyRange::prefix("/registry/services/")];
    let Ok(store) = SnapshotStore::from_bytes(content, &scope) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let middle = Revision(store.newest_revision().0 / 2);
    for (range, at) in [(&scope[0], None), (&KeyRange::everything(), None), (&scope[0], Some(middle))] {
        let mut visitor = |record: Record<'_>| {
            std::hint::black_box(record.to_entry());
            ControlFlow::Continue(())
        };
        let _ = runtime.block_on(store.scan(std::slice::from_ref(range), at, &mut visitor));
    }
}
