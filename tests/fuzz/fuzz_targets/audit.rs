//! The audit of one stored object with any content: it ends, and keeps a bounded part of one object.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use netsurgeon::audit::{Audit, Expected, KEPT, Old, places};
use netsurgeon::store::{Record, Revision};
use netsurgeon::survey::Layout;

static OLD: LazyLock<Old> = LazyLock::new(|| {
    Old::new(["10.96.0.0/12", "fd00::/112"].map(|range| range.parse().expect("a range")).to_vec())
});

fuzz_target!(|data: &[u8]| {
    let Some(input) = netsurgeon_fuzz::input(data) else { return };
    let (layout, expected) = (Layout::default(), Expected::default());
    let mut audit = Audit::new(&layout, &OLD, &expected);
    let revision = Revision(1);
    audit.take(Record {
        key: b"/registry/configmaps/a/b",
        value: &input.value,
        create_revision: revision,
        mod_revision: revision,
        version: 1,
        lease: 0,
    });
    assert!(audit.findings.len() <= KEPT * places::PLACES.len());
});
