//! `netsurgeon inspect` on the snapshots of real clusters.

use insta::assert_snapshot;

use crate::program::{run, run_in, tell, told};

const OBJECTS: &str = "--snapshot testdata/objects.snapshot.db";

fn stdout(arguments: &str) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn get_finds_objects_by_kind_and_by_key() {
    for (name, kind) in [
        ("service default/kubernetes", "Service"),
        ("svc default/kubernetes", "Service"),
        ("ipaddress 10.96.0.1", "IPAddress"),
        ("servicecidr kubernetes", "ServiceCIDR"),
        ("range servicenodeports", "RangeAllocation"),
        ("namespaces kube-system", "Namespace"),
        ("/registry/services/specs/default/kubernetes", "Service"),
    ] {
        let yaml = stdout(&format!("inspect get {name} {OBJECTS}"));
        assert!(yaml.contains(&format!("kind: {kind}\n")), "{name}: {yaml}");
    }
}

#[test]
fn get_shows_bitmap_as_addresses() {
    let json = stdout("inspect get range serviceips --snapshot testdata/bitmap.snapshot.db -o json");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["version"], 1);
    assert_eq!(json["record"]["encoding"], "protobuf");
    assert_eq!(json["object"]["range"], "10.96.0.0/16");
    assert_eq!(json["object"]["allocated"]["items"][0], "10.96.0.1");
    assert!(json["object"].get("data").is_none());
}

#[test]
fn raw_prints_stored_bytes_and_decode_reads_them() {
    let raw = run(&format!("inspect get service default/kubernetes --raw {OBJECTS}")).stdout;
    assert!(raw.starts_with(b"k8s\0"));
    let folder = tempfile::tempdir().expect("a folder");
    let shown = stdout(&format!("inspect get service default/kubernetes {OBJECTS}"));
    let newline = [raw.as_slice(), b"\n"].concat();
    let digits: Vec<String> = raw.iter().map(|byte| format!("{byte:02x}")).collect();
    let hex = digits.concat();
    for (form, input) in [("raw", raw.clone()), ("raw", newline), ("hex", hex.into_bytes())] {
        let output = run_in(folder.path(), &format!("inspect decode --input {form}"), &input);
        assert_eq!(String::from_utf8_lossy(&output.stdout), shown, "{form}: {output:?}");
    }
}

#[test]
fn undecodable_values_have_distinct_errors() {
    let decode = |arguments: &str, input: &[u8]| {
        told(&run_in(std::env::temp_dir().as_path(), &format!("inspect decode {arguments}"), input))
    };
    assert_snapshot!(decode("", b"k8s:enc:aescbc:v1:key1:\x01\x02"), @r"
    --- stderr
    error: the value is encrypted (provider `aescbc`, key `key1`)
    hint: the cluster encrypts this resource at rest: give the API server's `--encryption-provider-config` file as `--encryption-config FILE`; commands that read etcd or a snapshot accept it
    --- exit status 1
    ");
    assert_snapshot!(decode("", b"\xd9\xd9\xf7\xa1"), @r"
    --- stderr
    error: broken CBOR: end of input bytes
    hint: the value is damaged: compare it with the same key in an older snapshot
    --- exit status 1
    ");
    assert_snapshot!(decode("", b"hello"), @r"
    --- stderr
    error: the value is not a Kubernetes object: it starts with `hello`
    hint: check that the value is complete, and for `inspect decode` that the input format is right (`--input raw|base64|hex`)
    --- exit status 1
    ");
    assert_snapshot!(decode("", b"k8s\0\x0a\xff"), @r"
    --- stderr
    error: broken protobuf at byte 1: message ends within a number
    hint: the value is damaged: compare it with the same key in an older snapshot
    --- exit status 1
    ");
    assert_snapshot!(decode("--input base64", b"?"), @r"
    --- stderr
    error: the input is not base64
    hint: see `--input`
    --- exit status 1
    ");
}

#[test]
fn content_of_secrets_is_never_shown() {
    let secret = "payments/gateway-token";
    for command in [
        format!("inspect get secret {secret} {OBJECTS}"),
        format!("inspect get secret {secret} {OBJECTS} -o json"),
        format!("inspect get secret {secret} {OBJECTS} --raw"),
        format!("inspect list /registry/secrets/ {OBJECTS} -o json"),
        "inspect diff testdata/objects.snapshot.db testdata/dualwrite.snapshot.db --under /registry/secrets/"
            .into(),
        format!("inspect get secret {secret} {OBJECTS} -vvv"),
    ] {
        let output = run(&command);
        for bytes in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(bytes);
            assert!(
                !text.contains("not-a-secret") && !text.contains("bm90LWEtc2VjcmV0"),
                "{command}: {text}"
            );
        }
    }
    assert_snapshot!(tell(&format!("inspect get secret {secret} --raw {OBJECTS}")), @r"
    --- stderr
    error: `/registry/secrets/payments/gateway-token` is a Secret: its bytes are not printed
    hint: without `--raw` it is shown without its content
    --- exit status 1
    ");
    let yaml = stdout(&format!("inspect get secret {secret} {OBJECTS}"));
    assert!(yaml.contains("token: (redacted, 12 bytes)"), "{yaml}");
}

#[test]
fn missing_object_error_hints_at_existing_ones() {
    assert_snapshot!(tell(&format!("inspect get service kubernetes {OBJECTS}")), @r"
    --- stderr
    error: `/registry/services/specs/kubernetes` does not exist in snapshot testdata/objects.snapshot.db
    hint: there is `service default/kubernetes`
    --- exit status 1
    ");
    assert_snapshot!(tell(&format!("inspect get service default/nothing {OBJECTS}")), @r"
    --- stderr
    error: `/registry/services/specs/default/nothing` does not exist in snapshot testdata/objects.snapshot.db
    hint: `netsurgeon inspect list /registry/services/specs/ --snapshot testdata/objects.snapshot.db` lists the existing keys
    --- exit status 1
    ");
    assert_snapshot!(tell(&format!("inspect get gadget a/b {OBJECTS}")), @r"
    --- stderr
    error: `/registry/gadget/a/b` does not exist in snapshot testdata/objects.snapshot.db
    hint: no keys under `/registry/gadget/`; `netsurgeon inspect list --summary --snapshot testdata/objects.snapshot.db` lists the kinds
    --- exit status 1
    ");
    assert_snapshot!(tell(&format!("inspect get service a/b --etcd-prefix /kubernetes {OBJECTS}")), @r"
    --- stderr
    error: `/kubernetes/services/specs/a/b` does not exist in snapshot testdata/objects.snapshot.db
    hint: no keys under `/kubernetes`, but Services under `/registry`: give `--etcd-prefix /registry`
    --- exit status 1
    ");
    assert_snapshot!(tell(&format!("inspect get service {OBJECTS}")), @r"
    --- stderr
    error: `service` is neither a key nor a resource with a name
    hint: give a resource and a name, as in `inspect get service default/web`, or a key that starts with `/`
    --- exit status 2
    ");
}

#[test]
fn list_filters_limits_and_counts() {
    assert_snapshot!(tell(&format!("inspect list --kind ServiceCIDR -o json {OBJECTS}")), @r#"
    --- stdout
    {"version": 1, "store": "snapshot testdata/objects.snapshot.db", "records": [
      {"key":"/registry/servicecidrs/kubernetes","kind":"ServiceCIDR","encoding":"protobuf","size":951,"mod_revision":N}
    ], "revision": N}
    --- stderr
    1 key, revision N
    --- exit status 0
    "#);
    let lines = stdout(&format!("inspect list --limit 3 {OBJECTS}"));
    assert_eq!(lines.lines().count(), 4, "{lines}");
    let of = |words: &str| stdout(&format!("inspect list {words} {OBJECTS}"));
    let services = of("/registry/services/specs/");
    assert_eq!(services.lines().count(), 30, "{services}");
    for name in ["svc", "service", "services", "--kind Service", "--kind svc"] {
        assert_eq!(of(name), services, "{name}");
    }
    assert!(of("svc/default").contains("/registry/services/specs/default/kubernetes"));
    assert!(of("deploy").lines().all(|line| line.contains("KEY") || line.contains("/registry/deployments/")));
    for (words, note) in [
        ("inspect list /registry/service/", "note: no key starts with `/registry/service/`"),
        ("inspect list gadgets.example.org", "note: no key starts with `/registry/example.org/gadgets/`"),
        ("inspect list --kind Gadget", "note: no object has the kind `Gadget`"),
    ] {
        let said = tell(&format!("{words} {OBJECTS}"));
        assert!(said.contains(note), "{words}: {said}");
    }
    let summary = stdout(&format!("inspect list --summary -o json {OBJECTS}"));
    let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
    let kinds = summary["kinds"].as_array().expect("a list");
    let services = kinds.iter().find(|kind| kind["kind"] == "Service").expect("Services");
    assert_eq!((&services["encoding"], &services["count"]), (&"protobuf".into(), &29.into()));
}

#[test]
fn diff_names_keys_and_fields() {
    let services = "--under /registry/services/specs/default/kubernetes";
    let same = "testdata/objects.snapshot.db testdata/objects.snapshot.db";
    assert_snapshot!(tell(&format!("inspect diff {same}")), @r"
    --- stderr
    old: snapshot testdata/objects.snapshot.db, revision N
    new: snapshot testdata/objects.snapshot.db, revision N
    keys only in old: 0, only in new: 0, changed: 0
    --- exit status 0
    ");
    let output = run(&format!(
        "inspect diff testdata/objects.snapshot.db testdata/bitmap.snapshot.db {services} -o json"
    ));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let fields = json["changed"][0]["fields"].as_array().expect("fields");
    assert!(fields.iter().any(|field| field["path"] == ".metadata.uid"), "{fields:?}");
    let text = run("inspect diff testdata/objects.snapshot.db testdata/bitmap.snapshot.db");
    assert!(String::from_utf8_lossy(&text.stdout).contains("- /registry/ipaddresses/10.96.0.1\n"));
    assert!(String::from_utf8_lossy(&text.stdout).contains("a Secret: its content is not shown"));
    assert_snapshot!(tell("inspect diff testdata/objects.snapshot.db --from-revision 1 --to-revision 2"), @r"
    --- stderr
    error: revision N has been compacted; the oldest available revision is N
    hint: use revision N or later, or read an older snapshot
    --- exit status 1
    ");
}
