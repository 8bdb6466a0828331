//! `netsurgeon certs` on certificates that OpenSSL created: every kind of key, expired, and not yet valid.

use std::path::Path;
use std::process::Command;

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use serde_json::{Value, json};

use crate::program::run_in;

const NAMES: &str = "DNS:kubernetes,DNS:kubernetes.default.svc,IP:10.96.0.1,IP:fd00:96::1,URI:spiffe://a/b";

/// Creates a certificate like that of an API server.
fn openssl(folder: &Path, file: &str, key: &[&str]) {
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-nodes",
        "-days",
        "365",
        "-subj",
        "/O=example/CN=kube-apiserver",
        "-newkey",
    ]);
    command.args(key).args(["-keyout", &format!("{file}.key"), "-out", &format!("{file}.crt")]);
    for extension in [
        &format!("subjectAltName={NAMES}"),
        "basicConstraints=critical,CA:FALSE",
        "keyUsage=critical,digitalSignature,keyEncipherment",
        "extendedKeyUsage=serverAuth",
    ] {
        command.args(["-addext", extension]);
    }
    let output = command.current_dir(folder).output().expect("openssl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs `openssl x509` on a certificate.
fn asked(folder: &Path, file: &str, question: &str) -> String {
    let arguments = ["x509", "-noout", "-in", file, question];
    let output = Command::new("openssl").args(arguments).current_dir(folder).output().expect("openssl");
    let text = String::from_utf8(output.stdout).expect("text");
    text.trim().split_once('=').expect("a value").1.to_ascii_lowercase()
}

fn show(folder: &Path, arguments: &str) -> (Option<i32>, Value, String) {
    let output = run_in(folder, &format!("certs show -o json {arguments}"), b"");
    let said = String::from_utf8(output.stderr).expect("text");
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default(), said)
}

#[test]
fn show_agrees_with_openssl_on_every_kind_of_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let curve = |name: &'static str| ["ec", "-pkeyopt", name];
    let kinds: [(&str, &[&str], &str); 5] = [
        ("rsa", &["rsa:2048"], "RSA 2048"),
        ("large", &["rsa:3072"], "RSA 3072"),
        ("p256", &curve("ec_paramgen_curve:P-256"), "ECDSA P-256"),
        ("p384", &curve("ec_paramgen_curve:P-384"), "ECDSA P-384"),
        ("ed25519", &["ed25519"], "Ed25519"),
    ];
    for (file, key, kind) in kinds {
        openssl(folder.path(), file, key);
        let (code, shown, said) =
            show(folder.path(), &format!("{file}.crt --cidr 10.96.0.0/16 --cidr fd00:96::/112"));
        assert_eq!((code, &shown["findings"]), (Some(0), &json!([])), "{kind}: {said}");
        let one = &shown["certificates"][0];
        assert_eq!(one["key"], kind);
        assert_eq!(one["subject"], "CN=kube-apiserver,O=example");
        assert_eq!(one["dns_names"], json!(["kubernetes", "kubernetes.default.svc"]));
        assert_eq!(one["addresses"], json!(["10.96.0.1", "fd00:96::1"]));
        assert_eq!(one["other_names"], json!(["URI spiffe://a/b"]));
        assert_eq!(one["usages"], json!(["digitalSignature", "keyEncipherment"]));
        assert_eq!((&one["purposes"], &one["is_ca"]), (&json!(["serverAuth"]), &json!(false)));
        let file = format!("{file}.crt");
        assert_eq!(one["serial"], asked(folder.path(), &file, "-serial"));
        let fingerprint = asked(folder.path(), &file, "-fingerprint");
        assert_eq!(fingerprint.len(), 59, "SHA-1, which is OpenSSL's default");
    }
    let (_, shown, _) = show(folder.path(), "--pki .");
    assert_eq!(shown["certificates"].as_array().map(Vec::len), Some(5), "keys are not shown");
    assert!(!shown.to_string().contains("PRIVATE"));
}

#[test]
fn serial_number_equals_openssl_with_any_first_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    for serial in ["0x0", "0x7f", "0x80", "0x941361b381b742bcb661f42ac49cd33dfb3f3b", "0x0a00"] {
        openssl(folder.path(), "one", &["ed25519", "-set_serial", serial]);
        let (_, shown, _) = show(folder.path(), "one.crt");
        assert_eq!(
            shown["certificates"][0]["serial"],
            asked(folder.path(), "one.crt", "-serial"),
            "{serial}"
        );
    }
}

#[test]
fn missing_names_of_api_server_certificate_are_found() {
    let folder = tempfile::tempdir().expect("a folder");
    openssl(folder.path(), "apiserver", &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    let (code, shown, _) =
        show(folder.path(), "apiserver.crt --cidr 10.96.0.0/16 --cidr 10.200.0.0/16 --within 366");
    assert_eq!(code, Some(3));
    let codes: Vec<&Value> = shown["findings"].as_array().unwrap().iter().map(|one| &one["code"]).collect();
    assert_eq!(codes, ["certificate-expires", "certificate-lacks-address"]);
    assert_eq!(
        shown["findings"][1]["message"],
        "it does not cover `10.200.0.1`, the first address of `10.200.0.0/16`"
    );
    let output = run_in(folder.path(), "certs show apiserver.crt --cidr 10.200.0.0/16", b"");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("ECDSA P-256; serverAuth; digitalSignature, keyEncipherment"), "{text}");
    assert!(text.contains("addresses: 10.96.0.1, fd00:96::1"), "{text}");
    assert!(
        text.contains("error certificate-lacks-address: CN=kube-apiserver,O=example of apiserver.crt: "),
        "{text}"
    );
}

/// A user with write access to a folder can create a FIFO there that no process ever writes to.
#[test]
fn fifo_in_folder_does_not_block_show() {
    let folder = tempfile::tempdir().expect("a folder");
    openssl(folder.path(), "apiserver", &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    let fifo = Command::new("mkfifo").arg(folder.path().join("b.crt")).status().expect("mkfifo");
    assert!(fifo.success());
    let (code, shown, said) = show(folder.path(), ".");
    assert_eq!((code, shown["certificates"].as_array().map(Vec::len)), (Some(0), Some(1)), "{said}");
}

#[test]
fn expired_and_not_yet_valid_certificates_are_found_in_chain() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = |name: &str, from: i32, until: i32| {
        let mut params = CertificateParams::new(vec![name.to_string()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").pem()
    };
    let chain = format!("a comment\n{}\nand another\n{}", made("old", 2020, 2021), made("young", 2090, 2091));
    std::fs::write(folder.path().join("chain.pem"), &chain).unwrap();
    let (code, shown, _) = show(folder.path(), "chain.pem --cidr 10.200.0.0/16");
    assert_eq!(code, Some(3));
    let found: Vec<&Value> = shown["findings"].as_array().unwrap().iter().map(|one| &one["code"]).collect();
    assert_eq!(found, ["certificate-expired", "certificate-not-yet-valid", "certificate-not-found"]);
    assert_eq!(shown["certificates"][1]["number"], 2);

    for (text, reason) in [
        (
            chain.replace("-----END", "-----ENDE"),
            "it contains no certificate: Kubernetes ignores the block at line 2, because it has no end",
        ),
        (
            chain.replace("CERTIFICATE", "X509 CERTIFICATE"),
            "only a block `X509 CERTIFICATE`, which Kubernetes ignores",
        ),
        (chain.replacen("MII", "AII", 1), "certificate 1 cannot be read"),
        ("nothing".to_string(), "it contains no certificate"),
    ] {
        std::fs::write(folder.path().join("broken.pem"), text).unwrap();
        let (code, _, said) = show(folder.path(), "broken.pem");
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("`broken.pem`: ") && said.contains(reason), "{said}");
    }
    let (code, _, said) = show(folder.path(), "none.pem");
    assert_eq!(code, Some(1));
    assert!(said.contains("`none.pem`: No such file"), "{said}");
}
