//! Certificates and keys, as in files and as servers present them: PEM, DER, PKCS#1, SEC1 and PKCS#8. Input: which (1), then the
//! file, or the DER in it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use netsurgeon::certs::{Certificate, PrivateKey, certificates, to_pem};

const LABELS: [&str; 4] = ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY"];

fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    if *which == 0 {
        let text = String::from_utf8_lossy(rest);
        std::hint::black_box((certificates(&text).is_ok(), PrivateKey::from_pem(&text, Some("x")).is_ok()));
        return;
    }
    if let Ok(certificate) = Certificate::from_der(rest.to_vec()) {
        std::hint::black_box((certificate.is_of_an_api_server(), format!("{certificate:?}")));
    }
    let label = LABELS[usize::from(*which) % LABELS.len()];
    let pem = to_pem(rest).replace("CERTIFICATE", label);
    std::hint::black_box(PrivateKey::from_pem(&pem, Some("x")).is_ok());
});
