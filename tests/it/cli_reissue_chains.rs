//! `netsurgeon certs reissue` on files that OpenSSL creates: several certificates in a file, every notation of PEM, and files that
//! netsurgeon refuses, each with the real reason.

use std::fs;
use std::path::Path;

use crate::cli_reissue::{KINDS, PASSWORD, judged, made, openssl, reissue, reissued, sign_by};
use crate::program::run_in;

/// Another notation of a PEM text.
type Notation = fn(&str) -> String;

const EC: &str = "ecparam -name prime256v1 -genkey -noout -out";

fn read(folder: &Path, file: &str) -> String {
    fs::read_to_string(folder.join(file)).unwrap()
}

/// Creates an authority `NAME.crt` with its key, which signs itself.
fn authority(folder: &Path, name: &str, subject: &str) {
    openssl(folder, &format!("{EC} {name}.key"));
    openssl(
        folder,
        &format!(
            "req -x509 -new -key {name}.key -days 3650 -subj /CN={subject} -out {name}.crt -addext \
             basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign"
        ),
    );
}

/// While a cluster changes its authority, `ca.crt` has two certificates in any order, and `ca.key` is the key of one of them.
#[test]
fn every_certificate_of_an_authority_file_counts() {
    for (subject, old_first) in [("kubernetes", true), ("kubernetes", false), ("new", true), ("new", false)] {
        let folder = made(&KINDS[3], &KINDS[3]);
        let at = folder.path();
        authority(at, "new", subject);
        let (old, new) = (read(at, "ca.crt"), read(at, "new.crt"));
        fs::copy(at.join("ca.key"), at.join("old.key")).unwrap();
        let bundle = if old_first { format!("{old}text\n{new}") } else { format!("{new}{old}") };
        fs::write(at.join("ca.crt"), bundle).unwrap();
        for key in ["old.key", "new.key"] {
            fs::copy(at.join(key), at.join("ca.key")).unwrap();
            reissued(at, "--new-key --for-cidr 10.200.0.0/16", &["10.96.0.1", "10.200.0.1"]);
            let signer = if key == "new.key" { "new.crt" } else { "old.crt" };
            fs::write(at.join("old.crt"), &old).unwrap();
            openssl(at, &format!("verify -CAfile {signer} -partial_chain apiserver.crt"));
        }
        // A request, signed by either authority.
        openssl(at, &format!("{EC} other.key"));
        sign_by(at, "other", 9, "new");
        reissued(at, "--cert-in other.crt --key-in other.key", &["10.96.0.1"]);
    }
}

/// A root, an intermediate authority, and a certificate with the intermediate certificate behind it.
fn with_an_intermediate() -> tempfile::TempDir {
    let folder = made(&KINDS[3], &KINDS[3]);
    let at = folder.path();
    for name in ["middle", "another"] {
        openssl(at, &format!("{EC} {name}.key"));
        openssl(at, &format!("req -new -key {name}.key -subj /CN={name} -out {name}.csr"));
        fs::write(at.join("extensions"), "basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign\n")
            .unwrap();
        openssl(
            at,
            &format!(
                "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -set_serial 7 -days 99 -extfile extensions -out {name}.crt"
            ),
        );
    }
    sign_by(at, "apiserver", 9, "middle");
    let both = read(at, "apiserver.crt") + &read(at, "middle.crt");
    fs::write(at.join("apiserver.crt"), both).unwrap();
    folder
}

fn trusted_by_the_root(folder: &Path, address: &str) {
    openssl(
        folder,
        &format!("verify -CAfile ca.crt -untrusted apiserver.crt -verify_ip {address} apiserver.crt"),
    );
}

#[test]
fn intermediate_certificates_are_used_and_kept() {
    let folder = with_an_intermediate();
    let at = folder.path();
    let (code, _, said) =
        reissue(at, "--yes --for-cidr 10.200.0.0/16 --ca-cert middle.crt --ca-key middle.key");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        read(at, "apiserver.crt").ends_with(&read(at, "middle.crt")),
        "the intermediate certificate is kept"
    );
    trusted_by_the_root(at, "10.200.0.1");

    // A certificate without its intermediate certificate, signed by the same authority: that of the old file is kept.
    fs::copy(at.join("apiserver.key"), at.join("one.key")).unwrap();
    sign_by(at, "one", 9, "middle");
    let (code, _, said) = reissue(at, "--yes --cert-in one.crt");
    assert_eq!(code, Some(0), "{said}");
    trusted_by_the_root(at, "10.96.0.1");

    // Signed by another authority, with its intermediate certificate, in a file that also has a private key.
    sign_by(at, "one", 9, "another");
    let (code, _, said) = reissue(at, "--yes --cert-in one.crt");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no authority that clients trust has signed it"), "{said}");
    let all = read(at, "one.crt") + &read(at, "one.key") + &read(at, "another.crt");
    fs::write(at.join("all.pem"), all).unwrap();
    let (code, _, said) = reissue(at, "--yes --cert-in all.pem");
    assert_eq!(code, Some(0), "{said}");
    trusted_by_the_root(at, "10.96.0.1");
    assert!(!read(at, "apiserver.crt").contains("PRIVATE"), "every user can read this file");
    assert_eq!(read(at, "apiserver.crt").matches("BEGIN CERTIFICATE").count(), 2);
}

/// Returns a PEM text with lines of another length.
fn in_lines(text: &str, length: usize) -> String {
    let (head, rest) = text.trim().split_once('\n').unwrap();
    let (body, end) = rest.rsplit_once('\n').unwrap();
    let body = body.replace('\n', "");
    let lines: Vec<&str> = body.as_bytes().chunks(length).map(|line| str::from_utf8(line).unwrap()).collect();
    format!("{head}\n{}\n{end}\n", lines.join("\n"))
}

/// Go reads lines of any length, with blanks, line breaks of DOS, headers, and text around the block.
#[test]
fn pem_is_read_in_every_notation_that_go_reads() {
    let notations: [(&str, Notation); 6] = [
        ("76 characters", |text| in_lines(text, 76)),
        ("one line", |text| in_lines(text, 100_000)),
        ("lines of DOS", |text| text.replace('\n', "\r\n")),
        ("blanks", |text| text.replace('\n', " \t\n")),
        ("empty lines", |text| text.replace("-----\n", "-----\n\n")),
        ("text around", |text| format!("Bag: x\n    subject=a\n{text}the end")),
    ];
    for (name, notation) in notations {
        let folder = made(&KINDS[3], &KINDS[3]);
        let at = folder.path();
        for file in ["ca.crt", "ca.key", "apiserver.crt", "apiserver.key"] {
            fs::write(at.join(file), notation(&read(at, file))).unwrap();
        }
        let (code, shown, said) = reissue(at, "--yes --for-cidr 10.200.0.0/16");
        assert_eq!(code, Some(0), "{name}: {said}");
        assert_eq!(shown["added"][0], "address 10.200.0.1", "{name}");
    }
    let folder = made(&KINDS[3], &KINDS[3]);
    let at = folder.path();
    let text = read(at, "apiserver.crt");
    fs::write(at.join("apiserver.crt"), format!("{text}{}", text.replace("MII", "M*I"))).unwrap();
    let output = run_in(at, "certs show apiserver.crt --within 1", b"");
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{out}");
    assert!(out.contains("pem-block-ignored") && out.contains("its content is not base64"), "{out}");
}

fn refused(folder: &Path, arguments: &str, reasons: &[&str]) -> String {
    let before = read(folder, "apiserver.crt");
    let (code, _, said) = reissue(folder, &format!("--yes --for-cidr 10.200.0.0/16 {arguments}"));
    assert_eq!(code, Some(1), "{arguments}: {said}");
    for reason in reasons {
        assert!(said.contains(reason), "{arguments}: {reason}: {said}");
    }
    assert!(!said.contains("was not signed by"), "another reason: {said}");
    assert_eq!(read(folder, "apiserver.crt"), before, "nothing was written");
    said
}

#[test]
fn reason_of_a_refused_certificate_is_the_real_one() {
    let folder = made(&KINDS[3], &KINDS[3]);
    let at = folder.path();
    let request =
        "req -new -key apiserver.key -subj /CN=kube-apiserver -addext subjectAltName=DNS:kubernetes -out csr";
    openssl(at, request);
    let sign = |options: &str| {
        openssl(
            at,
            &format!(
                "x509 -req -in csr -CA ca.crt -CAkey ca.key -set_serial 7 -days 9 {options} -out apiserver.crt"
            ),
        );
    };
    sign("-sha1 -copy_extensions copy");
    refused(
        at,
        "",
        &["cannot verify that", "`CN=kube-apiserver` is signed with ECDSA with SHA-1, which clients reject"],
    );
    sign("");
    refused(at, "", &["`CN=kube-apiserver` is an X.509 version 1 certificate, which cannot contain names"]);
    let output = run_in(at, "certs show apiserver.crt", b"");
    assert!(String::from_utf8_lossy(&output.stdout).contains("X.509 version 1"));
    sign("-copy_extensions copy");
    openssl(
        at,
        "req -x509 -new -newkey rsa:1024 -nodes -keyout short.key -days 9 -subj /CN=kubernetes -out short.crt -addext keyUsage=keyCertSign",
    );
    refused(at, "--ca-cert short.crt --ca-key short.key", &["an RSA key with 1024 bits"]);

    // An authority of version 1: Go's clients accept it.
    openssl(at, "req -new -key ca.key -subj /CN=kubernetes -out ca.csr");
    openssl(at, "x509 -req -in ca.csr -signkey ca.key -days 99 -out ca.crt");
    let (code, _, said) = reissue(at, "--yes --add-ip 10.200.0.1");
    assert_eq!(code, Some(0), "{said}");
    openssl(at, "verify -CAfile ca.crt -verify_ip 10.200.0.1 apiserver.crt");
}

#[test]
fn reason_of_a_refused_key_is_the_real_one() {
    let folder = made(&KINDS[3], &KINDS[3]);
    let at = folder.path();
    for (make, reason) in [
        ("ecparam -name secp256k1 -genkey -noout -out x.key", "it is an ECDSA key on the curve secp256k1"),
        ("genrsa -out x.key 1024", "it is an RSA key with 1024 bits"),
        ("genrsa -traditional -out x.key 1024", "it is an RSA key with 1024 bits"),
        ("genpkey -algorithm ED448 -out x.key", "it is a key for Ed448"),
        ("genpkey -algorithm RSA-PSS -out x.key", "it is a key for RSASSA-PSS"),
    ] {
        openssl(at, make);
        refused(at, "--ca-key x.key", &[reason, "netsurgeon supports RSA (2048 bits or more)"]);
    }
    let text = read(at, "ca.key");
    let (cut, _) = text.split_at(text.len() / 2);
    for (content, reason) in [
        (cut.to_string(), "the PEM block at line 1 is ignored, because it has no end"),
        (text.replacen("MHc", "MH*", 1), "its content is not base64"),
        (read(at, "ca.crt"), "it contains no private key"),
        (read(at, "ca.crt").replace("CERTIFICATE", "EC PRIVATE KEY"), "`x.key`: it is "),
    ] {
        fs::write(at.join("x.key"), content).unwrap();
        refused(at, "--ca-key x.key", &[reason]);
    }
}

/// The error names the cipher and the command that converts the key; the command works.
#[test]
fn hint_converts_a_key_that_netsurgeon_cannot_decrypt() {
    let folder = made(&KINDS[3], &KINDS[3]);
    let at = folder.path();
    let password = PASSWORD.replace(' ', "~");
    fs::write(at.join("password"), PASSWORD).unwrap();
    for (make, cipher) in [
        ("pkcs8 -topk8 -in ca.key -v2 des3", "des-ede3-cbc"),
        ("pkcs8 -topk8 -in ca.key -v2 aes-256-cbc -v2prf hmacWithSHA1", "PBKDF2 with hmacWithSHA1"),
        ("pkcs8 -topk8 -in ca.key -v1 PBE-SHA1-3DES", "pbeWithSHA1And3-KeyTripleDES-CBC"),
        ("pkcs8 -topk8 -in ca.key -v2 camellia-256-cbc", "camellia-256-cbc"),
        ("ec -in ca.key -aes128", "AES-128-CBC in OpenSSL's traditional format"),
        ("ec -in ca.key -des3", "DES-EDE3-CBC in OpenSSL's traditional format"),
    ] {
        openssl(at, &format!("{make} -passout pass:{password} -out x.key"));
        let said = refused(
            at,
            "--new-key --ca-key x.key --ca-key-password-file password",
            &[&format!("it is encrypted with {cipher}, which netsurgeon does not decrypt")],
        );
        let (_, rest) = said.split_once("`openssl ").expect("a command");
        let (command, _) = rest.split_once('`').expect("its end");
        openssl(at, &format!("{command} -passin pass:{password} -passout pass:{password}"));
        reissued(
            at,
            "--new-key --for-cidr 10.200.0.0/16 --ca-key x.key.pkcs8 --ca-key-password-file password",
            &["10.200.0.1"],
        );
    }
    judged(at, &["10.200.0.1"]);
}
