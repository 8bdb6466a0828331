//! What a plan changes besides Services, as a table of differences.

use serde_json::Value;

use crate::cli::output::table;
use crate::renumber::{OverlapValue, Renumbering};

/// Returns the table; `None` if there is nothing besides.
pub(super) fn table_of(work: &Renumbering) -> Option<String> {
    let mut rows: Vec<[String; 5]> = Vec::new();
    for record in &work.records {
        let object = format!("ConfigMap kube-system/{}", record.config_map);
        let after = record.after.clone();
        rows.push([object, record.path.join("."), record.before.clone(), after.clone(), after]);
    }
    for overlap in &work.overlaps {
        let namespace = overlap.namespace.as_ref().map(|name| format!("{name}/")).unwrap_or_default();
        for value in &overlap.values {
            let object = format!("{} {namespace}{}", overlap.kind, overlap.name);
            let [before, both, after] = differing(value);
            rows.push([object, value.pointer.clone(), before, both, after]);
        }
    }
    let heads = ["BESIDES SERVICES", "VALUE", "NOW", "WHILE BOTH ANSWER", "IN THE END"];
    (!rows.is_empty()).then(|| table(heads, rows))
}

/// Returns the three values as text; of a text of several lines those that differ.
fn differing(value: &OverlapValue) -> [String; 3] {
    let all = [&value.before, &value.both, &value.after];
    let texts = all.map(|value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    let lines = texts.each_ref().map(|text| text.lines().collect::<Vec<_>>());
    if lines.iter().all(|lines| lines.len() <= 1) {
        return texts;
    }
    let at = |number: usize| lines.each_ref().map(|lines| lines.get(number).copied());
    let count = lines.iter().map(Vec::len).max().unwrap_or_default();
    let differs = |number: &usize| matches!(at(*number), [one, two, three] if one != two || two != three);
    let numbers: Vec<usize> = (0..count).filter(differs).collect();
    lines.each_ref().map(|lines| {
        let shown = numbers.iter().filter_map(|number| lines.get(*number)).map(|line| line.trim());
        shown.collect::<Vec<_>>().join("\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_lines_those_that_differ_are_shown() {
        let text = |address: &str| Value::from(format!(".:53 {{\n  bind {address}\n  cache\n}}\n"));
        let value = OverlapValue {
            pointer: "/data/Corefile".to_string(),
            before: text("a"),
            both: text("a b"),
            after: text("b"),
        };
        assert_eq!(differing(&value), ["bind a", "bind a b", "bind b"]);
    }
}
