//! The changes of a plan to objects other than Services, as a table.

use serde_json::Value;

use crate::cli::output::table;
use crate::renumber::Renumbering;

/// Returns the table; `None` if the plan changes only Services.
pub(super) fn table_of(work: &Renumbering) -> Option<String> {
    let mut rows: Vec<[String; 5]> = Vec::new();
    for record in &work.records {
        let object = format!("ConfigMap kube-system/{}", record.config_map);
        let after = record.after.clone();
        rows.push([object, record.path.join("."), record.before.clone(), after.clone(), after]);
    }
    for overlap in &work.overlaps {
        let words = |lists: &[&[Value]]| {
            let items = lists.iter().flat_map(|list| list.iter().map(ToString::to_string));
            items.collect::<Vec<_>>().join(" ")
        };
        let both = words(&[&overlap.old, &overlap.new]);
        let object = format!("{} {}", overlap.kind, overlap.name);
        rows.push([object, overlap.pointer.clone(), words(&[&overlap.old]), both, words(&[&overlap.new])]);
    }
    let heads = ["OTHER OBJECTS", "VALUE", "NOW", "WHILE BOTH ANSWER", "AFTER RETIREMENT"];
    (!rows.is_empty()).then(|| table(heads, rows))
}
