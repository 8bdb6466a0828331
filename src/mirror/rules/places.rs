//! Places in an object: JSON pointers in which `*` stands for each item of a list, or each value of a map.

use serde_json::Value;

/// A place in objects of some kinds. `F`: what it contains there.
pub(super) struct Row<F> {
    /// Kinds, as `GROUP/PLURAL`; empty for every kind.
    pub kinds: &'static [&'static str],
    pub place: &'static str,
    pub form: F,
    /// Source of this knowledge.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers of the tables, and for their tests"))]
    pub source: &'static str,
}

pub(super) const fn row<F>(
    kinds: &'static [&'static str],
    place: &'static str,
    form: F,
    source: &'static str,
) -> Row<F> {
    Row { kinds, place, form, source }
}

/// Calls a function with each value at a place.
pub(super) fn each(object: &mut Value, place: &str, change: &mut dyn FnMut(&mut Value)) {
    let Some(rest) = place.strip_prefix('/') else {
        return change(object);
    };
    let (step, rest) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    match object {
        Value::Array(items) if step == "*" => items.iter_mut().for_each(|item| each(item, rest, change)),
        Value::Object(map) if step == "*" => map.values_mut().for_each(|value| each(value, rest, change)),
        Value::Array(items) => {
            let found = step.parse::<usize>().ok().and_then(|index| items.get_mut(index));
            if let Some(item) = found {
                each(item, rest, change);
            }
        }
        Value::Object(map) => {
            let found = map.get_mut(&step.replace("~1", "/").replace("~0", "~"));
            if let Some(value) = found {
                each(value, rest, change);
            }
        }
        _ => {}
    }
}

/// Calls a function with each text in a value. The function returns the new text, if it changes.
pub(super) fn each_text(value: &mut Value, change: &mut dyn FnMut(&str) -> Option<String>) {
    match value {
        Value::String(text) => {
            if let Some(new) = change(text) {
                *text = new;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(map) => map.values_mut().for_each(|item| each_text(item, change)),
        _ => {}
    }
}

/// Changes the text at a place.
pub(super) fn change_text(object: &mut Value, place: &str, change: &mut dyn FnMut(&str) -> Option<String>) {
    each(object, place, &mut |value| {
        if let Some(new) = value.as_str().and_then(&mut *change) {
            *value = new.into();
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_of_a_place_is_visited() {
        let object = json!({"a": [{"b": "1", "m/n": "4"}, {"b": "2"}, {"c": "3"}], "m": {"x": {"b": "5"}}});
        for (place, expected) in [
            ("/a/*/b", vec!["1", "2"]),
            ("/a/1/b", vec!["2"]),
            ("/a/9/b", vec![]),
            ("/a/0/m~1n", vec!["4"]),
            ("/m/*/b", vec!["5"]),
            ("/m/*/b/c", vec![]),
            ("/none/*", vec![]),
        ] {
            let mut found = Vec::new();
            let mut copy = object.clone();
            change_text(&mut copy, place, &mut |text| {
                found.push(text.to_string());
                Some(format!("{text}!"))
            });
            assert_eq!(found, expected, "{place}");
            assert_eq!(copy == object, expected.is_empty(), "{place}");
        }
    }
}
