//! `netsurgeon certs reissue` on certificates that OpenSSL creates and verifies: every kind of key, every format of its file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::program::run_in;

const NAMES: &str = "DNS:kubernetes,DNS:kubernetes.default.svc,IP:10.96.0.1,IP:192.0.2.10,URI:spiffe://a/b";
pub const PASSWORD: &str = "a password of tests";

/// Runs OpenSSL; returns its stdout.
pub fn openssl(folder: &Path, arguments: &str) -> String {
    let arguments: Vec<String> = arguments.split_whitespace().map(|word| word.replace('~', " ")).collect();
    let output = Command::new("openssl").args(&arguments).current_dir(folder).output().expect("openssl");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {}: {said}", arguments.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// How OpenSSL creates a private key, and how its file starts.
pub struct Kind {
    name: &'static str,
    make: &'static str,
    begins: &'static str,
}

pub const KINDS: [Kind; 8] = [
    Kind {
        name: "RSA 2048",
        make: "genrsa -traditional -out FILE 2048",
        begins: "-----BEGIN RSA PRIVATE KEY",
    },
    Kind { name: "RSA 2048", make: "genrsa -out FILE 2048", begins: "-----BEGIN PRIVATE KEY" },
    Kind {
        name: "RSA 3072",
        make: "genrsa -traditional -out FILE 3072",
        begins: "-----BEGIN RSA PRIVATE KEY",
    },
    Kind {
        name: "ECDSA P-256",
        make: "ecparam -name prime256v1 -genkey -noout -out FILE",
        begins: "-----BEGIN EC PRIVATE KEY",
    },
    Kind {
        name: "ECDSA P-256",
        make: "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out FILE",
        begins: "-----BEGIN PRIVATE KEY",
    },
    // With EC parameters before the key, as `ecparam` writes them without `-noout`.
    Kind {
        name: "ECDSA P-384",
        make: "ecparam -name secp384r1 -genkey -out FILE",
        begins: "-----BEGIN EC PA",
    },
    Kind {
        name: "ECDSA P-521",
        make: "ecparam -name secp521r1 -genkey -noout -out FILE",
        begins: "-----BEGIN EC PRIVATE KEY",
    },
    Kind { name: "Ed25519", make: "genpkey -algorithm ED25519 -out FILE", begins: "-----BEGIN PRIVATE KEY" },
];

/// Creates an authority, and an API server's pair with the file names of kubeadm and an unknown extension.
pub fn made(authority: &Kind, server: &Kind) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    openssl(at, &authority.make.replace("FILE", "ca.key"));
    openssl(
        at,
        "req -x509 -new -key ca.key -days 3650 -subj /CN=kubernetes -out ca.crt \
         -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign",
    );
    openssl(at, &server.make.replace("FILE", "apiserver.key"));
    fs::set_permissions(at.join("apiserver.key"), fs::Permissions::from_mode(0o600)).unwrap();
    sign(at, "apiserver", 365);
    folder
}

/// Signs a server's certificate.
pub fn sign(folder: &Path, file: &str, days: i32) {
    sign_by(folder, file, days, "ca");
}

/// Signs a server's certificate with another authority of the folder.
pub fn sign_by(folder: &Path, file: &str, days: i32, authority: &str) {
    let extensions = format!(
        "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment\n\
         1.2.3.4.5=ASN1:UTF8String:kept\nextendedKeyUsage=serverAuth\nsubjectKeyIdentifier=hash\n\
         authorityKeyIdentifier=keyid\nsubjectAltName={NAMES}\n"
    );
    fs::write(folder.join("extensions"), extensions).unwrap();
    openssl(folder, &format!("req -new -key {file}.key -subj /O=example/CN=kube-apiserver -out {file}.csr"));
    openssl(
        folder,
        &format!(
            "x509 -req -in {file}.csr -CA {authority}.crt -CAkey {authority}.key -CAcreateserial -days {days} -extfile \
             extensions -out {file}.crt"
        ),
    );
    for leftover in ["extensions".to_string(), format!("{file}.csr"), format!("{authority}.srl")] {
        fs::remove_file(folder.join(leftover)).unwrap();
    }
}

pub fn reissue(folder: &Path, arguments: &str) -> (Option<i32>, Value, String) {
    let output = run_in(folder, &format!("certs reissue --pki . -o json {arguments}"), b"");
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(!said.contains("PRIVATE") && !said.contains(PASSWORD), "{said}");
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default(), said)
}

/// Reissues, and verifies with OpenSSL that key and certificate match, and that the authority signed it for these addresses.
pub fn reissued(folder: &Path, arguments: &str, addresses: &[&str]) -> Value {
    let (code, shown, said) = reissue(folder, &format!("--yes {arguments}"));
    assert_eq!((code, &shown["status"]), (Some(0), &json!("replaced")), "{said}");
    judged(folder, addresses);
    shown
}

pub fn judged(folder: &Path, addresses: &[&str]) {
    for address in addresses {
        openssl(
            folder,
            &format!(
                "verify -x509_strict -purpose sslserver -CAfile ca.crt -verify_ip {address} apiserver.crt"
            ),
        );
    }
    let of_certificate = openssl(folder, "x509 -noout -pubkey -in apiserver.crt");
    assert_eq!(of_certificate, openssl(folder, "pkey -pubout -in apiserver.key"));
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// All that OpenSSL prints of a certificate, except for what must change.
fn text(folder: &Path) -> String {
    openssl(folder, "x509 -noout -text -certopt no_serial,no_sigdump,no_pubkey,no_signame -in apiserver.crt")
}

#[test]
fn every_kind_and_format_of_key_is_reissued() {
    for (number, server) in KINDS.iter().enumerate() {
        let authority = &KINDS[(number + 3) % KINDS.len()];
        let folder = made(authority, server);
        let (at, what) = (folder.path(), format!("{} by {}", server.name, authority.name));
        let (before, key) = (text(at), fs::read(at.join("apiserver.key")).unwrap());
        let shown = reissued(at, "--for-cidr 10.200.0.0/16", &["10.96.0.1", "10.200.0.1"]);
        assert_eq!(fs::read(at.join("apiserver.key")).unwrap(), key, "{what}: the key is kept");
        let expected = before.replace(", URI:spiffe://a/b", ", URI:spiffe://a/b, IP Address:10.200.0.1");
        assert_eq!(text(at), expected, "{what}: nothing else changes");
        assert_eq!(shown["added"], json!(["address 10.200.0.1"]), "{what}");
        assert_ne!(shown["before"]["serial"], shown["after"]["serial"]);

        reissued(at, "--new-key", &["10.200.0.1"]);
        let new = fs::read_to_string(at.join("apiserver.key")).unwrap();
        assert_ne!(new.as_bytes(), key, "{what}: another key");
        let begins = server.begins.replace("EC PA", "EC PRIVATE KEY");
        assert!(new.starts_with(&begins), "{what}: {}", new.lines().next().unwrap());
        let mode = |file: &str| fs::metadata(at.join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("apiserver.key"), mode("apiserver.crt")), (0o600, 0o644), "{what}");
        for kept in names(at).iter().filter(|name| name.contains(".key.")) {
            assert_eq!(mode(kept), 0o600, "{what}: {kept}");
        }
    }
}

/// A user who can write the certificate, but has not the authority's key, cannot get names of their choice signed.
#[test]
fn certificate_of_another_authority_is_rejected() {
    let [folder, other] = [0, 1].map(|_| made(&KINDS[3], &KINDS[3]));
    let at = folder.path();
    for file in ["apiserver.crt", "apiserver.key"] {
        fs::copy(other.path().join(file), at.join(file)).unwrap();
    }
    let forged = fs::read(at.join("apiserver.crt")).unwrap();
    let (code, _, said) = reissue(at, "--yes --for-cidr 10.200.0.0/16");
    assert!(code == Some(1) && said.contains("was not signed by"), "{said}");
    assert_eq!(fs::read(at.join("apiserver.crt")).unwrap(), forged, "nothing was written");
}

#[test]
fn dropped_address_is_restored_from_kept_certificate() {
    let folder = made(&KINDS[1], &KINDS[0]);
    let at = folder.path();
    let original = fs::read(at.join("apiserver.crt")).unwrap();
    let (code, planned, said) = reissue(at, "--for-cidr 10.200.0.0/16 --drop-old 10.96.0.0/16 --dry-run");
    assert_eq!((code, &planned["status"]), (Some(0), &json!("planned")), "{said}");
    assert_eq!(fs::read(at.join("apiserver.crt")).unwrap(), original, "nothing was written");
    let shown = reissued(
        at,
        "--for-cidr 10.200.0.0/16 --drop-old 10.96.0.0/16 --add-dns api.example.org --days 90",
        &["10.200.0.1"],
    );
    assert_eq!(shown["dropped"], json!(["address 10.96.0.1"]));
    assert_eq!(shown["after"]["addresses"], json!(["192.0.2.10", "10.200.0.1"]));
    assert_eq!(
        shown["after"]["dns_names"],
        json!(["kubernetes", "kubernetes.default.svc", "api.example.org"])
    );
    let (code, again, said) = reissue(at, "--yes --for-cidr 10.200.0.0/16 --drop-old 10.96.0.0/16");
    assert_eq!((code, &again["status"]), (Some(0), &json!("unchanged")), "{said}");
    let kept = shown["kept"][0].as_str().unwrap();
    assert_eq!(fs::read(kept).unwrap(), original);
    reissued(at, &format!("--cert-in {kept}"), &["10.96.0.1"]);
    assert_eq!(fs::read(at.join("apiserver.crt")).unwrap(), original, "every byte is back");

    let output = run_in(at, "certs reissue --pki . --for-cidr 10.200.0.0/16", b"");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "without a terminal there is no prompt: {said}");
    assert!(said.contains("+ address 10.200.0.1") && said.contains("--yes"), "{said}");
}

#[test]
fn remote_authority_signs_request() {
    for new_key in [false, true] {
        let folder = made(&KINDS[4], &KINDS[3]);
        let (at, elsewhere) = (folder.path(), tempfile::tempdir().unwrap());
        fs::rename(at.join("ca.key"), elsewhere.path().join("ca.key")).unwrap();
        let (code, _, said) = reissue(at, "--yes --for-cidr 10.200.0.0/16");
        assert_eq!(code, Some(1));
        assert!(said.contains("--csr-out"), "{said}");
        let flag = if new_key { "--new-key" } else { "" };
        let (code, _, said) = reissue(at, &format!("--for-cidr 10.200.0.0/16 --csr-out asked {flag}"));
        assert_eq!(code, Some(0), "{said}");
        let request = openssl(at, "req -verify -noout -text -in asked");
        assert!(
            request.contains("IP Address:10.96.0.1") && request.contains("IP Address:10.200.0.1"),
            "{request}"
        );
        let key = elsewhere.path().join("ca.key").display().to_string();
        openssl(
            at,
            &format!("x509 -req -in asked -CA ca.crt -CAkey {key} -copy_extensions copy -days 9 -out signed"),
        );
        if new_key {
            let (code, _, said) = reissue(at, "--yes --cert-in signed");
            assert_eq!(code, Some(1));
            assert!(said.contains("--key-in"), "{said}");
        }
        let of_it = if new_key { "--key-in asked.key" } else { "" };
        let shown = reissued(at, &format!("--cert-in signed {of_it}"), &["10.96.0.1", "10.200.0.1"]);
        assert_eq!(shown["new_key"], new_key);
    }
}

#[test]
fn invalid_input_is_rejected_without_change() {
    let folder = made(&KINDS[3], &KINDS[3]);
    let at = folder.path();
    openssl(
        at,
        &format!(
            "pkcs8 -topk8 -v2 aes-256-cbc -in ca.key -passout pass:{} -out enc.key",
            PASSWORD.replace(' ', "~")
        ),
    );
    fs::write(at.join("password"), format!("{PASSWORD}\n")).unwrap();
    fs::write(at.join("wrong"), "another").unwrap();
    openssl(at, "ecparam -name prime256v1 -genkey -noout -out other.key");
    openssl(
        at,
        "req -x509 -new -key other.key -days 30 -subj /CN=other -out other.crt -addext keyUsage=keyCertSign",
    );
    openssl(at, "x509 -in ca.crt -signkey ca.key -days -1 -out expired.crt");
    fs::write(at.join("none"), "nothing").unwrap();
    let before: Vec<_> =
        ["apiserver.crt", "apiserver.key"].map(|file| fs::read(at.join(file)).unwrap()).into();
    let there = names(at);
    for (arguments, reason) in [
        ("--ca-key other.key", "the key does not belong to the certificate of `CN=kubernetes`"),
        (
            "--ca-cert other.crt --ca-key other.key",
            "issued by another authority, `CN=kubernetes`, which clients trust; the authority of this command is `CN=other`",
        ),
        ("--ca-cert expired.crt", "the authority `CN=kubernetes` is not valid"),
        ("--ca-cert apiserver.crt --ca-key apiserver.key", "is not a certificate authority"),
        ("--ca-key enc.key", "--ca-key-password-file"),
        ("--ca-key enc.key --ca-key-password-file wrong", "the password is wrong"),
        ("--ca-key none", "it contains no private key"),
        ("--key other.key", "the key does not belong to the certificate"),
        ("--days 5000", "but its authority is valid only until"),
        ("--add-ip 10.200.0.1 --drop-ip 10.200.0.1", "is both added and dropped"),
    ] {
        let (code, _, said) = reissue(at, &format!("--yes --for-cidr 10.200.0.0/16 {arguments}"));
        assert!(matches!(code, Some(1 | 2)), "{arguments}: {code:?} {said}");
        assert!(said.contains(reason), "{arguments}: {said}");
    }
    let after: Vec<_> =
        ["apiserver.crt", "apiserver.key"].map(|file| fs::read(at.join(file)).unwrap()).into();
    assert_eq!((before, there), (after, names(at)), "nothing was written");
    reissued(
        at,
        "--for-cidr 10.200.0.0/16 --ca-key enc.key --ca-key-password-file password",
        &["10.200.0.1"],
    );
    openssl(at, "x509 -in apiserver.crt -noout -checkend 0");
    // It expires in the second in which it is created.
    sign(at, "apiserver", 0);
    let started = Instant::now();
    let said = loop {
        let (code, _, said) = reissue(at, "--dry-run --for-cidr 10.200.0.0/16");
        if code == Some(1) {
            break said;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "it does not expire: {said}");
    };
    assert!(said.contains("--days 365"), "{said}");
    reissued(at, "--for-cidr 10.200.0.0/16 --days 365", &["10.200.0.1"]);
}

/// Runs it on a small file system of its own.
fn on_a_file_system(options: &str, then: &str) -> (Option<i32>, String) {
    let folder = made(&KINDS[3], &KINDS[3]);
    let script = format!(
        "set -e; mkdir at; mount -t tmpfs -o {options} none at; cp -p ca.* apiserver.* at; {then}; set +e; \
         {} certs reissue --pki at --yes --new-key --for-cidr 10.200.0.0/16; status=$?; \
         cmp apiserver.crt at/apiserver.crt && cmp apiserver.key at/apiserver.key || exit 99; \
         test ! -L at/apiserver.crt && test ! -e at/.netsurgeon || exit 98; exit $status",
        env!("CARGO_BIN_EXE_netsurgeon")
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).current_dir(folder.path());
    let output = command.output().expect("unshare");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn full_or_read_only_disk_changes_nothing() {
    // Seven pages: enough for the four files, not for their copies.
    let (code, said) = on_a_file_system("size=28k", "true");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    let (code, said) = on_a_file_system("size=1m", "mount -o remount,ro at");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
}

#[test]
fn kill_at_any_instant_leaves_one_valid_pair() {
    let folder = made(&KINDS[3], &KINDS[3]);
    let at = folder.path();
    let instants = if std::env::var_os("NETSURGEON_SOAK").is_some() { 400 } else { 20 };
    let started = std::time::Instant::now();
    reissued(at, "--new-key", &["10.96.0.1"]);
    let whole = started.elapsed();
    let mut killed = 0;
    for number in 0..instants {
        let mut child = Command::new(env!("CARGO_BIN_EXE_netsurgeon"))
            .args(["certs", "reissue", "--pki", ".", "--yes", "--new-key"])
            .current_dir(at)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("the binary");
        // The kill can hit any instant: the same must hold after each.
        std::thread::sleep(whole * number / instants);
        child.kill().expect("the child runs");
        killed += i32::from(child.wait().expect("an end").code().is_none());
        judged(at, &["10.96.0.1"]);
    }
    println!("killed at {killed} of {instants} instants: one valid pair each time");
    reissued(at, "--new-key --for-cidr 10.200.0.0/16", &["10.200.0.1"]);
    assert!(!names(at).contains(&".netsurgeon".to_string()), "{:?}", names(at));
}
