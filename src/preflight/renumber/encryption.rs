//! `encryption`: whether netsurgeon can read the Services and the address objects that etcd stores.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use super::Renumber;
use crate::inventory::unread;
use crate::preflight::{Check, Judged, Read, Source};
use crate::store::seal::SealError;
use crate::store::{KeyRange, ReadStore as _, Record};
use crate::wire::Envelope;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "encryption",
    why: "netsurgeon edits Services as etcd stores them, so it must be able to decrypt them",
    needs: &[Source::Etcd],
    judge: |input| Box::pin(read(input)),
};

/// Reads the storage format of the resources that netsurgeon edits.
async fn read(input: &Renumber) -> Read<Judged> {
    let places = [
        ("services", input.read.layout.services()),
        ("ipaddresses", input.read.layout.ip_addresses()),
        ("servicecidrs", input.read.layout.service_cidrs()),
        ("ranges", input.read.layout.ranges()),
    ];
    let (mut found, store) = (Forms::default(), input.read.store()?);
    for (what, prefix) in places {
        let mut visitor = |record: Record<'_>| {
            let opened = store.seal().map_or(Ok(None), |seal| seal.open(record.key, record.value));
            found.take(what, record.value, opened.map(|plain| plain.is_some()));
            ControlFlow::Continue(())
        };
        let range = KeyRange::prefix(prefix);
        store.bare().scan(&[range], None, &mut visitor).await.map_err(unread)?;
    }
    Ok(judge(&found))
}

/// Number of values in each format, by resource (for example `services`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Forms(BTreeMap<Form, BTreeMap<&'static str, usize>>);

/// Format of a stored value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    /// Not readable: the key does not decrypt the value, or the configuration does not allow unencrypted values.
    Shut(String),
    /// Encrypted with a key that was not given. Contains the provider and the key.
    Encrypted(String, String),
    Cbor,
    /// Unknown format: no API server writes values with this prefix.
    Foreign(String),
    Json,
    Protobuf,
    /// Encrypted, and a given key decrypts the value. Contains the provider and the key.
    Opened(String, String),
}

impl Form {
    fn of(value: &[u8], opened: Result<bool, SealError>) -> Self {
        match (Envelope::of(value), opened) {
            (Ok(_), Err(error)) => Self::Shut(error.to_string()),
            (Ok(Envelope::Protobuf { .. }), _) => Self::Protobuf,
            (Ok(Envelope::Json(_)), _) => Self::Json,
            (Ok(Envelope::Cbor), _) => Self::Cbor,
            (Ok(Envelope::Encrypted { provider, key }), Ok(true)) => Self::Opened(provider, key),
            (Ok(Envelope::Encrypted { provider, key }), Ok(false)) => Self::Encrypted(provider, key),
            (Err(error), _) => Self::Foreign(error.to_string()),
        }
    }

    /// Returns what to do about values in this format; `None` if they are readable.
    fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Protobuf | Self::Json | Self::Opened(..) => None,
            Self::Encrypted(provider, _) if provider == "kms" => Some(
                "only the KMS plug-in can decrypt them; encrypt them with a key of the configuration file during the renumbering: docs/encryption.md, \"A KMS\"",
            ),
            Self::Encrypted(..) | Self::Shut(_) => Some(
                "give the file of the API servers' `--encryption-provider-config`: `--encryption-config FILE` \
                 (docs/encryption.md)",
            ),
            Self::Cbor => Some(
                "store them as protobuf: `--storage-media-type=application/vnd.kubernetes.protobuf` on every API \
                 server, then `kubectl get services -A -o json | kubectl replace -f -`",
            ),
            Self::Foreign(_) => Some("inspect them: `netsurgeon inspect list`"),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encrypted(provider, key) => write!(f, "encrypted (provider `{provider}`, key `{key}`)"),
            Self::Cbor => f.write_str("CBOR"),
            Self::Foreign(reason) | Self::Shut(reason) => f.write_str(reason),
            Self::Opened(provider, key) => write!(f, "{provider}, decrypted with the key `{key}`"),
            Self::Json => f.write_str("JSON"),
            Self::Protobuf => f.write_str("protobuf"),
        }
    }
}

impl Forms {
    /// Counts a value of a resource. `opened`: whether a given key decrypts the value, or why no key decrypts it.
    fn take(&mut self, what: &'static str, value: &[u8], opened: Result<bool, SealError>) {
        let count = self.0.entry(Form::of(value, opened)).or_default().entry(what).or_default();
        *count = count.saturating_add(1);
    }
}

/// Checks the formats: all values must be protobuf or JSON.
fn judge(forms: &Forms) -> Judged {
    if forms.0.is_empty() {
        return Judged::unknown(
            "etcd has no objects under the prefix",
            "give the API servers' `--etcd-prefix`",
        );
    }
    let words = |(form, counts): (&Form, &BTreeMap<&str, usize>)| {
        let counts: Vec<String> = counts.iter().map(|(what, count)| format!("{count} in `{what}`")).collect();
        format!("{form}: {}", counts.join(", "))
    };
    let seen = |bad: bool| -> String {
        let of = forms.0.iter().filter(|(form, _)| form.remedy().is_some() == bad);
        of.map(words).collect::<Vec<_>>().join("; ")
    };
    match forms.0.keys().find_map(Form::remedy) {
        None => Judged::pass(seen(false)),
        Some(remedy) => Judged::fail(format!("netsurgeon cannot read these values: {}", seen(true)), remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    fn judged(values: &[&[u8]]) -> Judged {
        let mut found = Forms::default();
        for value in values {
            found.take("services", value, Ok(false));
        }
        judge(&found)
    }

    #[test]
    fn unreadable_value_fails() {
        let plain: [&[u8]; 2] = [b"k8s\0", b"{\"kind\":\"Service\"}"];
        let fine = judged(&plain);
        assert_eq!(fine.observed, "JSON: 1 in `services`; protobuf: 1 in `services`");
        assert_eq!(fine.verdict, Verdict::Pass);
        let encrypted = judged(&[plain[0], b"k8s:enc:aescbc:v1:key1:xx"]);
        assert_eq!(encrypted.verdict, Verdict::Fail);
        assert!(
            encrypted.observed.ends_with("encrypted (provider `aescbc`, key `key1`): 1 in `services`"),
            "{encrypted:?}"
        );
        assert!(encrypted.remedy.contains("--encryption-config FILE"), "{encrypted:?}");
        let kms = judged(&[b"k8s:enc:kms:v2:vault:xx"]);
        assert!(kms.verdict == Verdict::Fail && kms.remedy.contains("A KMS"), "{kms:?}");
        let with_keys = |opened: Result<bool, SealError>| {
            let mut found = Forms::default();
            found.take("services", b"k8s:enc:aescbc:v1:key1:xx", opened);
            judge(&found)
        };
        let opened = with_keys(Ok(true));
        assert_eq!(
            (opened.verdict, opened.observed.as_str()),
            (Verdict::Pass, "aescbc, decrypted with the key `key1`: 1 in `services`")
        );
        let shut = with_keys(Err(SealError("another secret".to_string())));
        assert!(shut.verdict == Verdict::Fail && shut.observed.contains("another secret"), "{shut:?}");
        let cbor = judged(&[&[0xd9, 0xd9, 0xf7, 0xa0]]);
        assert!(cbor.verdict == Verdict::Fail && cbor.remedy.contains("--storage-media-type"), "{cbor:?}");
        assert_eq!(judged(&[b"\x01\x02"]).verdict, Verdict::Fail);
        assert_eq!(judged(&[]).verdict, Verdict::Unknown);
    }
}
