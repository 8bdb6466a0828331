//! Manifests of static Pods and encryption configurations: they are rejected or read, without a panic, and a changed flag has its
//! new value. Input: which (1), then the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use netsurgeon::encryption::Keyring;
use netsurgeon::wire::manifest;

const PROGRAM: &str = "kube-apiserver";
const FLAG: &str = "service-cluster-ip-range";

fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    if *which == 0 {
        std::hint::black_box(Keyring::parse(text, "/registry", |bytes| bytes.fill(1)).is_ok());
        return;
    }
    std::hint::black_box(manifest::runs(text, PROGRAM).is_ok());
    if let Ok(Some(_)) = manifest::flag(text, PROGRAM, FLAG)
        && let Ok(changed) = manifest::with_flag(text, PROGRAM, FLAG, "10.200.0.0/16")
    {
        assert_eq!(manifest::flag(&changed, PROGRAM, FLAG), Ok(Some("10.200.0.0/16".to_string())));
    }
});
