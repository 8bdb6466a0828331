//! Edits of single fields in stored values. After a successful edit the field holds the requested value, and every other field
//! its former one; the inverse restores the field. On an object as an API server writes it, the inverse restores every byte,
//! unless the edit removed a member of JSON, which is restored as the last one, or created the message around the field, which
//! stays.
//!
//! Input: which field, which new value, then a value (see `netsurgeon_fuzz::input`).

#![no_main]

use libfuzzer_sys::fuzz_target;
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::field::{Field, FieldKind, Segment, Value};
use netsurgeon::wire::{FieldEdit, WireError, objects};

fuzz_target!(|data: &[u8]| {
    let [which, choice, rest @ ..] = data else { return };
    let Some(input) = netsurgeon_fuzz::input(rest) else { return };
    let value = input.value.as_slice();
    let fields = fields();
    let field = &fields[usize::from(*which) % fields.len()];
    let new = new_value(field.kind, *choice);
    let read_all = |value: &[u8]| -> Vec<Result<Value, WireError>> {
        fields.iter().filter(|other| disjoint(field, other)).map(|other| edit::read(value, other)).collect()
    };
    let set = FieldEdit { field: field.clone(), change: FieldChange::Set(new.clone()) };
    if let Ok(edited) = edit::apply(value, &[set]) {
        assert_eq!(edit::read(&edited, field).as_ref(), Ok(&new), "{field}");
        assert_eq!(read_all(&edited), read_all(value), "{field}");
    }
    let Ok(before) = edit::read(value, field) else { return };
    let moves_a_member = new == Value::Absent && value.starts_with(b"{");
    let is_at_home = input.is_real && belongs(field, value) && has_siblings(field, value, &fields);
    let replace = FieldEdit::replace(field.clone(), before.clone(), new);
    let Ok(edited) = edit::apply(value, std::slice::from_ref(&replace)) else { return };
    let twice = edit::apply(&edited, std::slice::from_ref(&replace));
    assert_eq!(twice.as_ref(), Ok(&edited), "carrying {field} out twice is the same as once");
    let inverse = replace.inverse().expect("a replacement has an inverse");
    let back = edit::apply(&edited, &[inverse]).expect("what was just done can be undone");
    assert_eq!(edit::read(&back, field), Ok(before), "{field}");
    assert_eq!(read_all(&back), read_all(value), "{field}");
    if is_at_home && !moves_a_member {
        assert_eq!(back, value, "{field}");
    }
});

fn fields() -> [Field; 13] {
    [
        Field::uid(),
        Field::creation_timestamp(),
        Field::label("ipaddress.kubernetes.io/managed-by"),
        Field::label("release"),
        Field::cluster_ip(),
        Field::cluster_ips(),
        Field::external_ips(),
        Field::external_traffic_policy(),
        Field::parent_namespace(),
        Field::parent_name(),
        Field::range(),
        Field::data(),
        Field::config_map_entry("ClusterConfiguration"),
    ]
}

/// Whether objects of the value's kind have the field, and the inverse restores its bytes.
fn belongs(field: &Field, value: &[u8]) -> bool {
    // A time is only set, never restored: one that was never set (an empty message) comes back as zero.
    if field.kind == FieldKind::Time {
        return false;
    }
    let name = field.to_string();
    let kind = objects::type_of(value).map(|meta| meta.kind).unwrap_or_default();
    name.starts_with("metadata.")
        || match &*kind {
            "Service" => name.starts_with("spec.") && !name.starts_with("spec.parentRef"),
            "IPAddress" => name.starts_with("spec.parentRef"),
            "RangeAllocation" => name == "range" || name == "data",
            "ConfigMap" => name.starts_with("data["),
            _ => false,
        }
}

/// Whether the message or map around the field exists, as far as one of the fields shows.
fn has_siblings(field: &Field, value: &[u8], fields: &[Field]) -> bool {
    let around = |field: &Field| field.path.split_last().map(|(_, around)| around.to_vec());
    let is_there = |field: &Field| edit::read(value, field).is_ok_and(|found| found != Value::Absent);
    fields.iter().any(|other| around(other) == around(field) && is_there(other))
}

fn new_value(kind: FieldKind, choice: u8) -> Value {
    match (choice % 4, kind) {
        (0, _) => Value::Absent,
        (1, FieldKind::Text) => Value::Text(String::new()),
        (_, FieldKind::Text) => Value::Text(format!("10.200.0.{choice}\u{fc}\"\\")),
        (_, FieldKind::Texts) => Value::Texts((0..=choice % 3).map(|n| format!("10.200.{n}.7")).collect()),
        (_, FieldKind::Bytes) => Value::Bytes(vec![choice; usize::from(choice)]),
        (_, FieldKind::Time) => Value::Time(1_795_247_950 + i64::from(choice)),
    }
}

/// Whether two paths part at members of one message or entries of one map. Different kinds give one number to different fields
/// (`range` of a RangeAllocation is `spec` of a Service), and one name too (`data`).
fn disjoint(one: &Field, other: &Field) -> bool {
    let parting = one.path.iter().zip(&other.path).find(|(a, b)| a != b);
    match parting {
        Some((Segment::Member(number, name), Segment::Member(other_number, other_name))) => {
            number != other_number && name != other_name
        }
        Some((Segment::Entry(_), Segment::Entry(_))) => true,
        _ => false,
    }
}
