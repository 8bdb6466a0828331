//! The published evidence of nodes about the use of old addresses: any client that may write a ConfigMap there may write
//! anything.

#![no_main]

use libfuzzer_sys::fuzz_target;
use netsurgeon::audit::evidence::documents;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for document in documents(text).unwrap_or_default() {
        std::hint::black_box(document.seconds());
    }
});
