use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use super::*;

const SERVICE: &[u8] = b"/registry/services/specs/default/web";
const PLAIN: &[u8] = b"k8s\0object";

/// Nobody asks of a nonce here that it cannot be foretold.
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

/// A configuration with entries of resources and providers.
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
fn what_is_sealed_is_opened_again_by_each_provider_and_length_of_key() {
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
        let sealed = ring.seal(SERVICE, PLAIN).unwrap().expect("it is sealed");
        let beginning = format!("k8s:enc:{name}:v1:k:");
        assert!(sealed.starts_with(beginning.as_bytes()), "{name}");
        assert!(!sealed.windows(6).any(|part| part == b"object"), "{name}: nothing of it can be read");
        assert_eq!(ring.open(SERVICE, &sealed).unwrap().as_deref(), Some(PLAIN), "{name}, {length}");
        let elsewhere = ring.open(b"/registry/services/specs/default/other", &sealed);
        assert_eq!(elsewhere.is_err(), name == "aesgcm", "GCM alone knows the key: {elsewhere:?}");
    }
}

#[test]
fn the_first_provider_and_key_seal_and_all_of_them_open() {
    let (old, new) =
        (provider("aescbc", &[("old", 1, 32)]), provider("aesgcm", &[("new", 2, 32), ("mid", 3, 16)]));
    let before = good(&[("services", &[&old, "identity: {}"])]);
    let now = good(&[("services", &[&new, &old, "identity: {}"])]);
    let sealed = before.seal(SERVICE, PLAIN).unwrap().expect("it is sealed");
    assert_eq!(now.open(SERVICE, &sealed).unwrap().as_deref(), Some(PLAIN));
    assert!(now.seal(SERVICE, PLAIN).unwrap().unwrap().starts_with(b"k8s:enc:aesgcm:v1:new:"));
    assert_eq!(now.open(SERVICE, PLAIN).unwrap(), None, "in the clear, as `identity` allows");
    let last = good(&[("services", &["identity: {}", &old])]);
    assert_eq!(last.seal(SERVICE, PLAIN).unwrap(), None, "no longer sealed");
    assert_eq!(last.open(SERVICE, &sealed).unwrap().as_deref(), Some(PLAIN));
}

#[test]
fn of_two_keys_with_one_name_the_one_that_opens_is_taken() {
    let [first, second] = [provider("aescbc", &[("k", 1, 32)]), provider("aescbc", &[("k", 2, 32)])];
    let sealed = good(&[("services", &[&second])]).seal(SERVICE, PLAIN).unwrap().unwrap();
    let both = good(&[("services", &[&first, &second])]);
    assert_eq!(both.open(SERVICE, &sealed).unwrap().as_deref(), Some(PLAIN));
    let wrong = good(&[("services", &[&first])]).open(SERVICE, &sealed).unwrap_err();
    assert!(wrong.to_string().contains("its key `k`"), "{wrong}");
}

#[test]
fn names_come_before_groups_and_groups_before_everything() {
    let [name, group, all] = ["name", "group", "all"].map(|key| provider("secretbox", &[(key, 9, 32)]));
    let ring = good(&[("services", &[&name]), ("'*.'", &[&group]), ("'*.*'", &[&all])]);
    let sealed_under = |key: &str, name: &str| {
        let sealed = ring.seal(key.as_bytes(), PLAIN).unwrap().expect("it is sealed");
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
fn what_an_api_server_with_this_file_could_not_read_is_refused() {
    let ring = good(&[("services", &[&provider("aescbc", &[("k", 1, 32)])])]);
    let clear = ring.open(SERVICE, PLAIN).unwrap_err();
    assert!(clear.to_string().contains("no `identity`"), "{clear}");
    assert_eq!(
        ring.open(b"/registry/ipaddresses/10.96.0.1", PLAIN).unwrap(),
        None,
        "nothing is said of those"
    );
    for stored in [&b"k8s:enc:aescbc:v1:other:xx"[..], b"k8s:enc:kms:v2:plugin:xx", b"k8s:enc:aesgcm:v1:k:xx"]
    {
        assert_eq!(ring.open(SERVICE, stored).unwrap(), None, "no key: it passes as it is stored");
    }
    assert!(ring.open(SERVICE, b"k8s:enc:aescbc:v1:k:cut").is_err());
}

#[test]
fn a_plugin_opens_and_seals_alone() {
    let ring =
        good(&[("services", &["kms: {name: vault, apiVersion: v2, endpoint: 'unix:///k'}", "identity: {}"])]);
    let refused = ring.seal(SERVICE, PLAIN).unwrap_err();
    assert!(refused.to_string().contains("`vault`"), "{refused}");
    assert_eq!(ring.open(SERVICE, b"k8s:enc:kms:v2:vault:xx").unwrap(), None);
    assert_eq!(ring.open(SERVICE, PLAIN).unwrap(), None);
}

#[test]
fn a_file_that_cannot_be_used_is_refused_without_a_word_of_its_keys() {
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
    assert!(refused("c2VjcmV0").contains("no EncryptionConfiguration"));
    assert!(refused("kind: Secret\nresources: []").contains("`Secret`"));
    assert!(refused("kind: EncryptionConfiguration\nresources: []").contains("no resources"));
    assert!(refused(&whole("aescbc: {keys: [{name: k, secret: c2VjcmV0}]}")).contains("has 6 bytes"));
    assert!(refused(&whole("secretbox: {keys: [{name: k, secret: c2VjcmV0!}]}")).contains("no base64"));
    assert!(refused(&whole("aesgcm: {keys: []}")).contains("no keys"));
    assert!(refused(&whole("rot13: {keys: [{name: k, secret: c2VjcmV0}]}")).contains("something else"));
    let two = format!("identity: {{}}\n    {}", provider("aescbc", &[("k", 1, 32)]));
    assert!(refused(&whole(&two)).contains("more than one"));
}

proptest! {
    #[test]
    fn any_object_comes_back(rest in proptest::collection::vec(any::<u8>(), 0..200), which in 0..3usize) {
        let name = ["aescbc", "aesgcm", "secretbox"][which];
        let ring = good(&[("services", &[&provider(name, &[("k", 5, 32)])])]);
        let plain = [b"k8s\0".as_slice(), &rest].concat();
        let sealed = ring.seal(SERVICE, &plain).unwrap().unwrap();
        prop_assert_eq!(ring.open(SERVICE, &sealed).unwrap(), Some(plain));
    }

    #[test]
    fn nothing_stored_makes_it_panic(rest in proptest::collection::vec(any::<u8>(), 0..80), which in 0..3usize) {
        let name = ["aescbc", "aesgcm", "secretbox"][which];
        let ring = good(&[("services", &[&provider(name, &[("k", 5, 32)])])]);
        let stored = [format!("k8s:enc:{name}:v1:k:").as_bytes(), &rest].concat();
        let _ = ring.open(SERVICE, &stored);
    }
}
