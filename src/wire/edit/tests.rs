//! Tests that edits change only their field, in both encodings, and that the inverse edit restores the bytes.

use proptest::prelude::*;

use super::*;
use crate::wire::TypeMeta;
use crate::wire::protobuf::field;
use crate::wire::protobuf::tests::any_message;

fn fields_and_values() -> Vec<(Field, Value)> {
    vec![
        (Field::cluster_ip(), Value::Text("10.200.0.7".into())),
        (Field::cluster_ips(), Value::Texts(vec!["10.200.0.7".into(), "fd00::7".into()])),
        (Field::external_ips(), Value::Texts(vec!["10.96.0.7".into()])),
        (Field::external_traffic_policy(), Value::Text(String::new())),
        (Field::label("ipaddress.kubernetes.io/managed-by"), Value::Text("netsurgeon".into())),
        (Field::uid(), Value::Text("u".into())),
        (Field::creation_timestamp(), Value::Time(1_795_247_950)),
        (Field::parent_name(), Value::Text("web".into())),
        (Field::data(), Value::Bytes(vec![1, 2, 3])),
    ]
}

#[test]
fn last_of_duplicate_map_entries_counts_and_all_are_removed() {
    let label = |value: &str| field(11, [field(1, "a"), field(2, value)].concat());
    let raw = field(1, ["old", "new"].map(label).concat());
    let value = envelope::wrap(&TypeMeta { api_version: "v1".into(), kind: "Service".into() }, &raw);
    assert_eq!(read(&value, &Field::label("a")), Ok(Value::Text("new".into())));
    for after in [Value::Text("newer".into()), Value::Absent] {
        let edit = FieldEdit { field: Field::label("a"), change: FieldChange::Set(after.clone()) };
        assert_eq!(read(&apply(&value, &[edit]).unwrap(), &Field::label("a")), Ok(after));
    }
}

#[test]
fn part_of_a_yaml_text_is_replaced_and_restored() {
    let text = "# ours\nnetworking:\n  serviceSubnet: \"10.96.0.0/16,fd00::/112\"   # both\n  podSubnet: 10.96.0.0/16\n";
    let raw = field(2, [field(1, "ClusterConfiguration"), field(2, text)].concat());
    let meta = TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() };
    let json = serde_json::json!({"kind": "ConfigMap", "data": {"a": "b", "ClusterConfiguration": text}});
    let field = Field::config_map_entry("ClusterConfiguration");
    let change = |before: &str, after: &str| {
        let path = ["networking", "serviceSubnet"].map(str::to_string).to_vec();
        let (before, after) = (before.to_string(), after.to_string());
        FieldEdit { field: field.clone(), change: FieldChange::Part { path, before, after } }
    };
    for value in [envelope::wrap(&meta, &raw), json.to_string().into_bytes()] {
        let edit = change("10.96.0.0/16", "10.200.0.0/16");
        let edited = apply(&value, std::slice::from_ref(&edit)).unwrap();
        let expected = text.replacen("10.96.0.0/16", "10.200.0.0/16", 1);
        assert_eq!(read(&edited, &field), Ok(Value::Text(expected)));
        assert_eq!(apply(&edited, std::slice::from_ref(&edit)).unwrap(), edited, "idempotent");
        assert_eq!(apply(&edited, &[edit.inverse().unwrap()]).unwrap(), value, "restored");
        let error = apply(&value, &[change("10.97.0.0/16", "10.200.0.0/16")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`data[ClusterConfiguration] networking.serviceSubnet` is [10.96.0.0/16, fd00::/112], expected \"10.97.0.0/16\""
        );
    }
}

const JSON: &str = concat!(
    r#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","labels":{"b":"2"}},"#,
    r#""spec":{"clusterIP":"10.96.0.7","clusterIPs":["10.96.0.7"],"later":{"x":[1]}},"status":{}}"#,
    "\n"
);

#[test]
fn inverse_of_a_json_edit_restores_every_byte() {
    for (field, new) in fields_and_values() {
        let before = read(JSON.as_bytes(), &field).unwrap();
        let edit = FieldEdit::replace(field.clone(), before, new.clone());
        let edited = apply(JSON.as_bytes(), std::slice::from_ref(&edit)).unwrap();
        assert_eq!(read(&edited, &field).unwrap(), new, "{field}");
        let back = apply(&edited, &[edit.inverse().unwrap()]).unwrap();
        // The inverse does not remove a parent object that an edit has added. So only fields with an existing parent are
        // compared.
        let parents_exist = !matches!(field.to_string().as_str(), "spec.parentRef.name");
        assert!(!parents_exist || back == JSON.as_bytes(), "{field}: {}", String::from_utf8_lossy(&back));
    }
}

#[test]
fn list_item_is_added_and_removed_without_changing_others() {
    let (field, pin) =
        (Field::finalizers(), FieldEdit::item(Field::finalizers(), "netsurgeon.io/moving", true));
    let metadata =
        [(1, "web"), (5, "u"), (17, "managed")].map(|(number, text)| protobuf::field(number, text));
    let raw = protobuf::field(1, metadata.concat());
    for before in [JSON.as_bytes().to_vec(), envelope::wrap(&TypeMeta::default(), &raw)] {
        let listed = |items: &[&str]| {
            apply(
                &before,
                &[FieldEdit { field: field.clone(), change: FieldChange::Set(Value::texts(items)) }],
            )
            .unwrap()
        };
        for others in [&[][..], &["service.kubernetes.io/load-balancer-cleanup"]] {
            let pinned = apply(&listed(others), std::slice::from_ref(&pin)).unwrap();
            let wanted = Value::texts(&[others, &["netsurgeon.io/moving"]].concat());
            assert_eq!(read(&pinned, &field), Ok(wanted));
            assert_eq!(apply(&pinned, std::slice::from_ref(&pin)).unwrap(), pinned, "idempotent");
            let back = [pin.inverse().unwrap()];
            assert_eq!(apply(&pinned, &back).unwrap(), listed(others));
            assert_eq!(
                apply(&listed(others), &back).unwrap(),
                listed(others),
                "removal of a missing item changes nothing"
            );
        }
        assert_eq!(listed(&[]), before);
    }
}

#[test]
fn edit_is_refused_if_the_field_has_another_value() {
    let edit = FieldEdit::replace(
        Field::cluster_ip(),
        Value::Text("10.96.0.8".into()),
        Value::Text("10.200.0.8".into()),
    );
    let error = apply(JSON.as_bytes(), &[edit]).unwrap_err();
    assert_eq!(error.to_string(), "`spec.clusterIP` is \"10.96.0.7\", expected \"10.96.0.8\"");
}

#[test]
fn field_of_another_wire_type_is_refused_and_not_lost() {
    let mut spec = Vec::new();
    protobuf::put_number(&mut spec, 3, 0);
    let value = envelope::wrap(&TypeMeta::default(), &field(2, spec));
    let broken = WireError::Protobuf { offset: 0, reason: "a field has an unexpected type" };
    assert_eq!(read(&value, &Field::cluster_ip()), Err(broken.clone()));
    let new = FieldChange::Set(Value::Text("10.200.0.8".into()));
    let edit = FieldEdit { field: Field::cluster_ip(), change: new };
    assert_eq!(apply(&value, &[edit]), Err(EditError::Wire(broken)));
}

#[test]
fn bits_are_set_and_cleared_only_once() {
    let meta = TypeMeta { api_version: "v1".into(), kind: "RangeAllocation".into() };
    let value = envelope::wrap(&meta, &[]);
    let bits = |set: Vec<u64>, clear: Vec<u64>| FieldEdit {
        field: Field::data(),
        change: FieldChange::Bits { capacity: 254, set, clear },
    };
    let once = apply(&value, &[bits(vec![0, 9], vec![])]).unwrap();
    assert_eq!(read(&once, &Field::data()).unwrap(), Value::Bytes(vec![2, 1]));
    assert!(apply(&once, &[bits(vec![9], vec![])]).is_err());
    assert!(apply(&once, &[bits(vec![400], vec![])]).is_err());
    let back = apply(&once, &[bits(vec![], vec![9])]).unwrap();
    assert_eq!(read(&back, &Field::data()).unwrap(), Value::Bytes(vec![1]));
    assert!(apply(&back, &[bits(vec![], vec![9])]).is_err());
    let free = FieldEdit { field: Field::data(), change: FieldChange::Free { capacity: 254, bits: vec![9] } };
    assert_eq!(apply(&once, std::slice::from_ref(&free)).unwrap(), back);
    assert_eq!(apply(&back, &[free]).unwrap(), back, "it is free already");
    let mark = FieldEdit { field: Field::data(), change: FieldChange::Mark { capacity: 254, bits: vec![9] } };
    assert_eq!(apply(&back, std::slice::from_ref(&mark)).unwrap(), once);
    assert_eq!(apply(&once, std::slice::from_ref(&mark)).unwrap(), once, "it is set already");
    let beyond =
        FieldEdit { field: Field::data(), change: FieldChange::Mark { capacity: 254, bits: vec![400] } };
    assert!(apply(&once, &[beyond]).is_err());
}

proptest! {
    /// Tests arbitrary objects with unknown fields. After an edit every other field has the same bytes, and the inverse restores
    /// the whole value byte for byte.
    #[test]
    fn protobuf_edits_change_only_their_field(
        outer in any_message(), spec in any_message(), which in 0_usize..9,
    ) {
        let mut message = outer.clone();
        for number in [1, 2] {
            message = protobuf::replace(&message, number, &protobuf::field(number, &spec)).unwrap();
        }
        let value = envelope::wrap(&TypeMeta::default(), &message);
        let (field, new) = fields_and_values().swap_remove(which);
        let Ok(before) = read(&value, &field) else { return Ok(()) };
        // Two cases are not restored byte for byte: a single field that occurs twice, and a list field with another wire type.
        let single = [&outer, &spec].into_iter().all(|message| protobuf::fields(message).flatten().all(|f| {
            protobuf::fields(message).flatten().filter(|g| g.number == f.number).count() == 1
        }));
        let text = !matches!(&before, Value::Text(t) if t.contains('\u{fffd}'))
            && !matches!(&before, Value::Texts(t) if t.iter().any(|t| t.contains('\u{fffd}')));
        let edit = FieldEdit::replace(field.clone(), before.clone(), new.clone());
        let Ok(edited) = apply(&value, std::slice::from_ref(&edit)) else { return Ok(()) };
        prop_assert_eq!(read(&edited, &field).unwrap(), new);
        if single && text && !matches!(before, Value::Time(_)) && (before != Value::Absent || which < 3) {
            let sorted = |m: &[u8]| protobuf::fields(m).flatten().map(|f| f.number).is_sorted();
            if before != Value::Absent || sorted(&spec) {
                let back = apply(&edited, &[edit.inverse().unwrap()]).unwrap();
                prop_assert_eq!(back, value);
            }
        }
    }

    #[test]
    fn arbitrary_values_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        for prefix in [&b"k8s\0"[..], b"{", b""] {
            let mut value = prefix.to_vec();
            value.extend_from_slice(&bytes);
            for (field, new) in fields_and_values() {
                let _ = read(&value, &field);
                let _ = apply(&value, &[FieldEdit { field, change: FieldChange::Set(new) }]);
            }
        }
    }
}
