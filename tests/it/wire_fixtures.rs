//! Everything that real API servers have stored can be recognised, shown and edited: all values of all fixtures.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use netsurgeon::store::Entry;
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::{Envelope, Field, FieldEdit, TypeMeta, Value, objects, tree};

use crate::harness::entries;

const FIXTURES: [&str; 5] = ["objects", "dualwrite", "bitmap", "dualstack", "json"];

/// The content of the fixtures' only Secret.
const SECRET: &str = "not-a-secret";

async fn stored(fixture: &str) -> Vec<Entry> {
    let mut stored = entries(fixture).await;
    stored.retain(|entry| entry.key.as_bytes().starts_with(b"/registry/"));
    assert!(stored.len() > 100, "{fixture}: {} keys", stored.len());
    stored
}

#[tokio::test]
async fn every_value_is_recognised() {
    for fixture in FIXTURES {
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        let mut encodings: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in stored(fixture).await {
            let envelope =
                Envelope::of(&entry.value).unwrap_or_else(|e| panic!("{fixture}: {}: {e}", entry.key));
            *encodings.entry(envelope.encoding()).or_default() += 1;
            let TypeMeta { api_version, kind } = objects::type_of(&entry.value).unwrap();
            assert!(!api_version.is_empty() && !kind.is_empty(), "{fixture}: {}", entry.key);
            *kinds.entry(kind.into_owned()).or_default() += 1;
        }
        let most = if fixture == "json" { "json" } else { "protobuf" };
        let others: usize = encodings.iter().filter(|(name, _)| **name != most).map(|(_, count)| count).sum();
        assert!(encodings[most] > 5 * others, "{fixture}: {encodings:?}");
        for kind in ["Service", "Node", "Pod", "Secret", "ConfigMap", "Deployment", "Coupon", "EndpointSlice"]
        {
            assert!(kinds.contains_key(kind), "{fixture} has no {kind}: {kinds:?}");
        }
    }
}

#[tokio::test]
async fn setting_a_field_to_its_value_keeps_every_byte() {
    let mut edits = 0;
    for fixture in FIXTURES {
        for entry in stored(fixture).await {
            for field in fields_of(&entry.value) {
                let context = format!("{fixture}: {}: {field}", entry.key);
                let value = edit::read(&entry.value, &field).unwrap_or_else(|e| panic!("{context}: {e}"));
                // `Set` decodes the object at every level on the way to the field and encodes it again; `Replace` finds
                // nothing to change.
                for change in [
                    FieldChange::Set(value.clone()),
                    FieldChange::Replace { before: value.clone(), after: value.clone() },
                ] {
                    let edit = FieldEdit { field: field.clone(), change };
                    let edited =
                        edit::apply(&entry.value, &[edit]).unwrap_or_else(|e| panic!("{context}: {e}"));
                    assert!(edited == entry.value, "{context} = {value} is not restored");
                    edits += 1;
                }
            }
        }
    }
    println!("{edits} edits");
}

/// A change and its inverse, on every field that a renumbering changes, restore every byte.
#[tokio::test]
async fn edit_and_inverse_keep_every_byte() {
    for fixture in FIXTURES {
        for entry in stored(fixture).await {
            for field in fields_of(&entry.value) {
                let before = edit::read(&entry.value, &field).unwrap();
                let after = match &before {
                    Value::Absent if [Field::external_ips(), Field::cluster_ips()].contains(&field) => {
                        Value::Texts(vec!["10.9.8.7".into()])
                    }
                    Value::Absent => Value::Text("Local".into()),
                    Value::Text(text) => Value::Text(format!("{text}{}", "x".repeat(200))),
                    Value::Texts(_) => Value::Texts(vec!["10.9.8.7".into()]),
                    Value::Bytes(_) => Value::Bytes(vec![7; 300]),
                    // Dates are set, never restored.
                    Value::Time(_) => continue,
                };
                let edit = FieldEdit::replace(field.clone(), before, after.clone());
                let context = format!("{fixture}: {}: {field}", entry.key);
                let edited = edit::apply(&entry.value, std::slice::from_ref(&edit)).unwrap();
                assert_eq!(edit::read(&edited, &field).unwrap(), after, "{context}");
                assert!(edited != entry.value, "{context}");
                let back = edit::apply(&edited, &[edit.inverse().unwrap()]).unwrap();
                assert!(back == entry.value, "{context}");
            }
        }
    }
}

#[tokio::test]
async fn every_value_is_shown_without_secrets() {
    let coded = STANDARD.encode(SECRET);
    let mut secrets = 0;
    for fixture in FIXTURES {
        for entry in stored(fixture).await {
            let tree = tree::of(&entry.value).unwrap_or_else(|e| panic!("{fixture}: {}: {e}", entry.key));
            let kind = tree["kind"].as_str().unwrap_or_default();
            secrets += usize::from(kind == "Secret");
            let text = tree.to_string();
            for hidden in [SECRET, &coded, coded.trim_end_matches('=')] {
                assert!(!text.contains(hidden), "{fixture}: {}: {text}", entry.key);
            }
            // For Leases and the like the name of the object is not in the key.
            if tree["metadata"]["name"].is_string() {
                let name = tree["metadata"]["name"].as_str().unwrap_or_default();
                assert!(
                    entry.key.to_string().ends_with(name) || kind == "Endpoints",
                    "{}: {name}",
                    entry.key
                );
            }
        }
    }
    assert_eq!(secrets, FIXTURES.len(), "each fixture has its Secret");
}

/// The fields that a renumbering knows of an object of this kind.
fn fields_of(value: &[u8]) -> Vec<Field> {
    let kind = objects::type_of(value).unwrap().kind;
    let mut fields = match &*kind {
        "Service" => vec![
            Field::cluster_ip(),
            Field::cluster_ips(),
            Field::external_ips(),
            Field::external_traffic_policy(),
        ],
        "IPAddress" => {
            vec![Field::parent_name(), Field::parent_namespace(), Field::label(objects::MANAGED_BY)]
        }
        // Its own metadata are empty.
        "RangeAllocation" => return vec![Field::range(), Field::data()],
        "ConfigMap" => {
            vec![Field::config_map_entry("ClusterConfiguration"), Field::config_map_entry("kubelet")]
        }
        _ => Vec::new(),
    };
    fields.push(Field::uid());
    let metadata = tree::of(value).unwrap()["metadata"].clone();
    // An object that was not created through the API, a server's own lease for one, has an empty time.
    if metadata["creationTimestamp"].is_string() {
        fields.push(Field::creation_timestamp());
    }
    let labels = &metadata["labels"];
    let names = labels.as_object().map(|labels| labels.keys().cloned().collect::<Vec<_>>());
    fields.extend(names.unwrap_or_default().iter().map(|name| Field::label(name)));
    fields
}
