//! Edits of JSON text against the same edits of parsed JSON: with any text (spaces, escapes, duplicate members), the result means
//! the same. Input: which path, which value, then the text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use netsurgeon::wire::FieldEdit;
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::field::{Field, FieldKind, Segment, Value};
use serde_json::Value as Json;

const PATHS: [&[&str]; 5] =
    [&["a"], &["a", "b"], &["spec", "clusterIP"], &["metadata", "labels", "b"], &["\u{fc}\"", "a\\"]];

fuzz_target!(|data: &[u8]| {
    let [which, choice, rest @ ..] = data else { return };
    let text = match rest.split_first() {
        Some((b'{', _)) => rest.to_vec(),
        _ => match netsurgeon_fuzz::input(rest) {
            Some(input) => input.value,
            None => return,
        },
    };
    if !text.starts_with(b"{") {
        return;
    }
    let path = PATHS[usize::from(*which) % PATHS.len()];
    let names = path.iter().map(|name| Segment::Member(1, (*name).into())).collect();
    let field = Field { path: names, kind: FieldKind::Texts };
    let new: Vec<String> = (0..choice % 3).map(|n| format!("10.0.0.{n}\u{e9}\"\n")).collect();
    let edits = [FieldEdit { field: field.clone(), change: FieldChange::Set(Value::texts(&new)) }];
    let Ok(edited) = edit::apply(&text, &edits) else { return };
    assert_eq!(edit::read(&edited, &field), Ok(Value::texts(&new)));
    let Ok(mut expected) = serde_json::from_slice::<Json>(&text) else { return };
    let new = if new.is_empty() { None } else { Some(Json::from(new)) };
    model(&mut expected, path, new);
    let found: Json = serde_json::from_slice(&edited).expect("an edit leaves JSON");
    assert_eq!(found, expected, "{}", String::from_utf8_lossy(&edited));
});

/// The edit on parsed JSON.
fn model(here: &mut Json, path: &[&str], new: Option<Json>) {
    let [name, rest @ ..] = path else { return };
    let Some(members) = here.as_object_mut() else { return };
    if !rest.is_empty() {
        if new.is_some() {
            members.entry(*name).or_insert_with(|| Json::Object(Default::default()));
        }
        if let Some(next) = members.get_mut(*name) {
            model(next, rest, new);
        }
        return;
    }
    match new {
        Some(new) => drop(members.insert((*name).into(), new)),
        None => drop(members.shift_remove(*name)),
    }
}
