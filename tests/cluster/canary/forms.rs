//! Random secrets, and a search for them: as they are, in base64 at every alignment, in hexadecimal, and as a list of numbers.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// How many bytes of a form are compared; no form is shorter.
const WINDOW: usize = 10;
/// 62^24: none appears by chance.
const LENGTH: usize = 24;

/// The planted secrets.
#[derive(Default)]
pub struct Canaries {
    /// Forms by their first bytes, with the name of the secret.
    forms: HashMap<[u8; WINDOW], Vec<(String, Vec<u8>)>>,
    /// The first two bytes of all forms: one lookup skips most of the searched bytes.
    starts: Vec<bool>,
}

impl Canaries {
    /// Plants a secret of letters and digits, which is the same in JSON, YAML and URLs.
    pub fn plant(&mut self, what: &str) -> String {
        self.plant_of_length(what, LENGTH)
    }

    /// Plants a secret of so many characters, for a key of that many bytes.
    pub fn plant_of_length(&mut self, what: &str, length: usize) -> String {
        const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let random = || char::from(ALPHABET[rand::random_range(0..ALPHABET.len())]);
        let secret: String = std::iter::repeat_with(random).take(length).collect();
        self.add(what, secret.as_bytes());
        secret
    }

    /// Adds an existing secret.
    pub fn add(&mut self, what: &str, secret: &[u8]) {
        let mut forms = vec![secret.to_vec()];
        for before in 0..3_usize {
            let padded = [&[0, 0, 0][..before], secret].concat();
            let encoded = STANDARD.encode(padded);
            // The characters that encode only these bytes.
            let own = encoded.get([0, 2, 3][before]..encoded.len() - 4).unwrap_or_default();
            forms.push(own.as_bytes().to_vec());
            forms.push(own.replace('+', "-").replace('/', "_").into_bytes());
        }
        let mut hexadecimal = String::new();
        for byte in secret {
            write!(hexadecimal, "{byte:02x}").expect("a text");
        }
        forms.push(hexadecimal.to_uppercase().into_bytes());
        forms.push(hexadecimal.into_bytes());
        forms.push(secret.iter().map(u8::to_string).collect::<Vec<_>>().join(", ").into_bytes());
        forms.push(format!("{:?}", String::from_utf8_lossy(secret)).trim_matches('"').as_bytes().to_vec());
        for form in forms {
            let start = form.first_chunk::<WINDOW>().copied();
            self.starts.resize(1 << 16, false);
            self.starts[start_of(&form)] = true;
            let same = self.forms.entry(start.unwrap_or_else(|| panic!("{what} is too short"))).or_default();
            same.push((what.to_owned(), form));
        }
    }

    /// Adds the key in a PEM file: its first line, which has a part of the secret in it, and the bytes of the secret where an EC
    /// key on P-256 in PKCS#8 has them.
    pub fn add_key(&mut self, what: &str, pem: &str) {
        let mut lines = pem.lines().filter(|line| !line.starts_with("-----"));
        self.add(what, lines.clone().next().expect("a line").as_bytes());
        let der = STANDARD.decode(lines.by_ref().collect::<String>()).expect("base64");
        if pem.contains("BEGIN PRIVATE KEY") {
            self.add(what, der.get(36..68).expect("a key on P-256"));
        }
    }

    /// Returns the names of the secrets that are in these bytes.
    pub fn found_in(&self, bytes: &[u8]) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        for (at, window) in bytes.windows(WINDOW).enumerate() {
            if !self.starts.get(start_of(window)).is_some_and(|is_start| *is_start) {
                continue;
            }
            let Some(forms) = <&[u8; WINDOW]>::try_from(window).ok().and_then(|start| self.forms.get(start))
            else {
                continue;
            };
            let here = forms.iter().filter(|(_, form)| bytes[at..].starts_with(form));
            found.extend(here.map(|(what, _)| what.as_str()));
        }
        found
    }
}

fn start_of(bytes: &[u8]) -> usize {
    usize::from(bytes[0]) << 8 | usize::from(bytes[1])
}

/// A secret is found in each form, within other text, and nothing else is.
#[test]
fn every_form_of_a_secret_is_found() {
    let mut canaries = Canaries::default();
    let secret = canaries.plant("one");
    canaries.plant("other");
    let json = serde_json::json!({"text": format!("\"{secret}\"\n")}).to_string();
    let encoded = |text: &str| STANDARD.encode(text);
    for text in [
        secret.clone(),
        json,
        encoded(&secret),
        encoded(&format!("x{secret}y")),
        encoded(&format!("user:{secret}")),
        encoded(&format!("ab{secret}")),
        format!("{:?}", secret.as_bytes()),
        format!("{:?}", bytes_of(&secret)),
        format!("%20{secret}%20"),
    ] {
        let found = canaries.found_in(format!("before {text} after").as_bytes());
        assert_eq!(found, BTreeSet::from(["one"]), "{text}");
    }
    assert!(canaries.found_in(b"nothing of the kind, though it is long enough").is_empty());
}

fn bytes_of(secret: &str) -> String {
    secret.bytes().fold(String::new(), |text, byte| text + &format!("{byte:02X}"))
}
