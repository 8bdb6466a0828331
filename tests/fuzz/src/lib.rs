//! What the fuzz targets share: inputs that begin at values which real API servers wrote. Random bytes hardly
//! ever get past the first length of a message; a real value with a few bytes changed gets everywhere.

use std::ops::ControlFlow;
use std::sync::LazyLock;

use netsurgeon::store::snapshot::SnapshotStore;
use netsurgeon::store::{KeyRange, ReadStore, Record};

const FIXTURES: [&[u8]; 3] = [
    include_bytes!("../../../testdata/objects.snapshot.db"),
    include_bytes!("../../../testdata/bitmap.snapshot.db"),
    include_bytes!("../../../testdata/json.snapshot.db"),
];

/// Every value of the fixtures.
static VALUES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let scope = [KeyRange::everything()];
    let mut values = Vec::new();
    for fixture in FIXTURES {
        let store = SnapshotStore::from_bytes(fixture.to_vec(), &scope).expect("a fixture");
        let mut visitor = |record: Record<'_>| {
            values.push(record.value.to_vec());
            ControlFlow::Continue(())
        };
        runtime.block_on(store.scan(&scope, None, &mut visitor)).expect("a fixture");
    }
    values
});

/// A value for a target.
pub struct Input {
    /// The value.
    pub value: Vec<u8>,
    /// Whether it is just as a real API server wrote it.
    pub is_real: bool,
}

/// Takes a value from a fuzzer's bytes: from 0 on the bytes themselves; else the number of a real value (2) and
/// patches to it of 4 bytes each: where (2), what to do, byte.
pub fn input(data: &[u8]) -> Option<Input> {
    let (kind, rest) = data.split_first()?;
    if *kind == 0 {
        return Some(Input { value: rest.to_vec(), is_real: false });
    }
    let (number, patches) = rest.split_first_chunk::<2>()?;
    let mut value = VALUES[usize::from(u16::from_le_bytes(*number)) % VALUES.len()].clone();
    let is_real = patches.len() < 4;
    for patch in patches.chunks_exact(4) {
        let place = usize::from(u16::from_le_bytes([patch[0], patch[1]])) % (value.len() + 1);
        match patch[2] % 4 {
            0 if place < value.len() => value[place] = patch[3],
            1 => value.insert(place, patch[3]),
            2 if place < value.len() => drop(value.remove(place)),
            3 => value.truncate(place),
            _ => {}
        }
    }
    Some(Input { value, is_real })
}
