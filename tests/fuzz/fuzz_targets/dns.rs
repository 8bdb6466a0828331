//! Answers of name servers, and TSIG keys. Input: which (1), then the message, or the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use netsurgeon::nameserver::{Key, RecordKind, answers, is_name, quoted, strings};

fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    if *which == 0 {
        std::hint::black_box(Key::parse(&String::from_utf8_lossy(rest)).is_ok());
    } else if let Some(records) = answers(rest) {
        // A record takes twelve bytes or more on the wire, and a name at most 255, each written as up to four.
        assert!(records.len() <= rest.len() / 11, "{} of {} bytes", records.len(), rest.len());
        // Names and texts are written so that they can be read again.
        for record in &records {
            assert!(is_name(&record.name), "{record:?}");
            if record.kind == RecordKind::Txt && !record.data.is_empty() {
                assert_eq!(strings(&record.data).map(|strings| quoted(&strings)), Some(record.data.clone()));
            }
        }
    }
});
