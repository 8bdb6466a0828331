use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use super::*;

const SERVICE: &[u8] = b"/registry/services/specs/default/web";
const PLAIN: &[u8] = b"k8s\0object";

/// Fills a nonce with ones. A predictable nonce is sufficient for these tests.
fn ones(buffer: &mut [u8]) {
    buffer.fill(1);
}

fn secret(fill: u8, length: usize) -> String {
    STANDARD.encode(vec![fill; length])
}

fn provider(name: &str, keys: &[(&str, u8, usize)]) -> String {
    let keys: Vec<String> = keys
        .iter()
        .map(|(name, fill, length)| format!("{{name: {name}, secret: {}}}", secret(*fill, *length)))
        .collect();
    format!("{name}: {{keys: [{}]}}", keys.join(", "))
}

/// Reads a configuration with these entries, each with its resources and its providers.
fn keyring(entries: &[(&str, &[&str])]) -> Result<Keyring, ConfigError> {
    let entry = |(resources, providers): &(&str, &[&str])| {
        let providers: Vec<String> = providers.iter().map(|provider| format!("  - {provider}\n")).collect();
        format!("- resources: [{resources}]\n  providers:\n{}", providers.concat())
    };
    let entries: Vec<String> = entries.iter().map(entry).collect();
    let text = format!("kind: EncryptionConfiguration\nresources:\n{}", entries.concat());
    Keyring::parse(&text, "/registry", ones)
}

fn good(entries: &[(&str, &[&str])]) -> Keyring {
    keyring(entries).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn encrypted_values_decrypt_with_every_provider_and_key_length() {
    for (name, length) in [
        ("aescbc", 16),
        ("aescbc", 24),
        ("aescbc", 32),
        ("aesgcm", 16),
        ("aesgcm", 24),
        ("aesgcm", 32),
        ("secretbox", 32),
    ] {
        let ring = good(&[("services", &[&provider(name, &[("k", 7, length)])])]);
        let sealed = ring.seal(SERVICE, PLAIN).unwrap().expect("it is encrypted");
        let beginning = format!("k8s:enc:{name}:v1:k:");
        assert!(sealed.starts_with(beginning.as_bytes()), "{name}");
        assert!(!sealed.windows(6).any(|part| part == b"object"), "{name}: no plain text in it");
        assert_eq!(ring.open(SERVICE, &sealed).unwrap().as_deref(), Some(PLAIN), "{name}, {length}");
        let elsewhere = ring.open(b"/registry/services/specs/default/other", &sealed);
        assert_eq!(elsewhere.is_err(), name == "aesgcm", "only GCM authenticates the key: {elsewhere:?}");
    }
}

#[test]
fn line_breaks_in_a_secret_are_ignored() {
    let text = "kind: EncryptionConfiguration\nresources:\n- resources: [services]\n  providers:\n  - secretbox:\n      keys:\n      \
                - name: key1\n        secret: |\n          BC83RJ8DywJ0eE8ZqReT\n          S8pUzvW5VvMghRMK/cMy3Wg=\n";
    let broken = Keyring::parse(text, "/registry", ones).unwrap_or_else(|error| panic!("{error}"));
    let sealed = broken.seal(SERVICE, PLAIN).unwrap().unwrap();
    let text = text.replace("|\n          BC83", "BC83").replace("ReT\n          S8p", "ReTS8p");
    let whole = Keyring::parse(&text, "/registry", ones).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(whole.open(SERVICE, &sealed).unwrap().as_deref(), Some(PLAIN), "the same key");
    assert!(
        Keyring::parse(&text.replace("S8p", "S8 p"), "/registry", ones).is_err(),
        "blanks are not ignored"
    );
}

#[test]
fn first_key_encrypts_and_every_key_decrypts() {
    let (old, new) =
        (provider("aescbc", &[("old", 1, 32)]), provider("aesgcm", &[("new", 2, 32), ("mid", 3, 16)]));
    let before = good(&[("services", &[&old, "identity: {}"])]);
    let now = good(&[("services", &[&new, &old, "identity: {}"])]);
    let sealed = before.seal(SERVICE, PLAIN).unwrap().expect("it is encrypted");
    assert_eq!(now.open(SERVICE, &sealed).unwrap().as_deref(), Some(PLAIN));
    assert!(now.seal(SERVICE, PLAIN).unwrap().unwrap().starts_with(b"k8s:enc:aesgcm:v1:new:"));
    assert_eq!(now.open(SERVICE, PLAIN).unwrap(), None, "unencrypted, as `identity` allows");
    let last = good(&[("services", &["identity: {}", &old])]);
    assert_eq!(last.seal(SERVICE, PLAIN).unwrap(), None, "no longer encrypted");
    assert_eq!(last.open(SERVICE, &sealed).unwrap().as_deref(), Some(PLAIN));
}

#[test]
fn keys_of_the_same_name_are_tried_in_turn() {
    let [first, second] = [provider("aescbc", &[("k", 1, 32)]), provider("aescbc", &[("k", 2, 32)])];
    let sealed = good(&[("services", &[&second])]).seal(SERVICE, PLAIN).unwrap().unwrap();
    let both = good(&[("services", &[&first, &second])]);
    assert_eq!(both.open(SERVICE, &sealed).unwrap().as_deref(), Some(PLAIN));
    let wrong = good(&[("services", &[&first])]).open(SERVICE, &sealed).unwrap_err();
    assert!(wrong.to_string().contains("the key `k`"), "{wrong}");
}

#[test]
fn resource_names_precede_groups_and_groups_precede_wildcards() {
    let [name, group, all] = ["name", "group", "all"].map(|key| provider("secretbox", &[(key, 9, 32)]));
    let ring = good(&[("services", &[&name]), ("'*.'", &[&group]), ("'*.*'", &[&all])]);
    let sealed_under = |key: &str, name: &str| {
        let sealed = ring.seal(key.as_bytes(), PLAIN).unwrap().expect("it is encrypted");
        assert!(sealed.starts_with(format!("k8s:enc:secretbox:v1:{name}:").as_bytes()), "{key}: {name}");
    };
    sealed_under("/registry/services/specs/a/b", "name");
    sealed_under("/registry/configmaps/a/b", "group");
    sealed_under("/registry/ipaddresses/10.96.0.1", "all");
    for clear in ["/registry/ranges/serviceips", "/netsurgeon/a/lock"] {
        assert_eq!(ring.seal(clear.as_bytes(), PLAIN).unwrap(), None);
        assert_eq!(ring.open(clear.as_bytes(), PLAIN).unwrap(), None);
    }
}

#[test]
fn value_that_the_api_server_cannot_read_is_refused() {
    let ring = good(&[("services", &[&provider("aescbc", &[("k", 1, 32)])])]);
    let clear = ring.open(SERVICE, PLAIN).unwrap_err();
    assert!(clear.to_string().contains("no `identity`"), "{clear}");
    assert_eq!(
        ring.open(b"/registry/ipaddresses/10.96.0.1", PLAIN).unwrap(),
        None,
        "the configuration has nothing for those"
    );
    for stored in [&b"k8s:enc:aescbc:v1:other:xx"[..], b"k8s:enc:kms:v2:plugin:xx", b"k8s:enc:aesgcm:v1:k:xx"]
    {
        assert_eq!(ring.open(SERVICE, stored).unwrap(), None, "no key: it stays as it is stored");
    }
    assert!(ring.open(SERVICE, b"k8s:enc:aescbc:v1:k:cut").is_err());
}

#[test]
fn kms_values_are_passed_through_and_not_encrypted() {
    let ring =
        good(&[("services", &["kms: {name: vault, apiVersion: v2, endpoint: 'unix:///k'}", "identity: {}"])]);
    let refused = ring.seal(SERVICE, PLAIN).unwrap_err();
    assert!(refused.to_string().contains("`vault`"), "{refused}");
    assert_eq!(ring.open(SERVICE, b"k8s:enc:kms:v2:vault:xx").unwrap(), None);
    assert_eq!(ring.open(SERVICE, PLAIN).unwrap(), None);
}

#[test]
fn unusable_configuration_is_refused_without_showing_keys() {
    let refused = |text: &str| {
        let error = Keyring::parse(text, "/registry", ones).err().expect("it cannot be used").to_string();
        assert!(!error.contains("c2VjcmV0"), "{error}");
        error
    };
    let whole = |provider: &str| {
        format!(
            "kind: EncryptionConfiguration\nresources:\n- resources: [services]\n  providers:\n  - {provider}\n"
        )
    };
    assert!(refused("c2VjcmV0").contains("not an EncryptionConfiguration"));
    assert!(refused("kind: Secret\nresources: []").contains("`Secret`"));
    assert!(refused("kind: EncryptionConfiguration\nresources: []").contains("no resources"));
    assert!(refused(&whole("aescbc: {keys: [{name: k, secret: c2VjcmV0}]}")).contains("has 6 bytes"));
    assert!(refused(&whole("secretbox: {keys: [{name: k, secret: c2VjcmV0!}]}")).contains("not base64"));
    assert!(refused(&whole("aesgcm: {keys: []}")).contains("no keys"));
    assert!(refused(&whole("rot13: {keys: [{name: k, secret: c2VjcmV0}]}")).contains("invalid content"));
    let two = format!("identity: {{}}\n    {}", provider("aescbc", &[("k", 1, 32)]));
    assert!(refused(&whole(&two)).contains("more than one"));
}

proptest! {
    #[test]
    fn any_object_round_trips(rest in proptest::collection::vec(any::<u8>(), 0..200), which in 0..3usize) {
        let name = ["aescbc", "aesgcm", "secretbox"][which];
        let ring = good(&[("services", &[&provider(name, &[("k", 5, 32)])])]);
        let plain = [b"k8s\0".as_slice(), &rest].concat();
        let sealed = ring.seal(SERVICE, &plain).unwrap().unwrap();
        prop_assert_eq!(ring.open(SERVICE, &sealed).unwrap(), Some(plain));
    }

    #[test]
    fn arbitrary_stored_values_never_panic(rest in proptest::collection::vec(any::<u8>(), 0..80), which in 0..3usize) {
        let name = ["aescbc", "aesgcm", "secretbox"][which];
        let ring = good(&[("services", &[&provider(name, &[("k", 5, 32)])])]);
        let stored = [format!("k8s:enc:{name}:v1:k:").as_bytes(), &rest].concat();
        let _ = ring.open(SERVICE, &stored);
    }
}
