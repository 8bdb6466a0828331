//! The room `inventory`, and the documentation of its tables.

use netsurgeon::inventory::kinds::{Copying, GROUPS_NOT_COPIED, KINDS};

#[test]
fn documentation_lists_what_a_mirror_gets() {
    let rows = KINDS.iter().map(|rule| {
        let gets = match rule.copying {
            Copying::Copied(_) => "a copy".to_string(),
            Copying::MadeAnew(why) => format!("its own: {why}"),
            Copying::NotCopied(why) => format!("nothing: {why}"),
        };
        format!("| `{}` {} | {gets} |", rule.kind.0, rule.kind.1)
    });
    let groups = GROUPS_NOT_COPIED.iter().map(|(end, why)| {
        format!("| kinds of `{end}` and of groups that end with `.{end}` | nothing: {why} |")
    });
    let expected: Vec<String> = rows.chain(groups).collect();
    let text = include_str!("../../docs/preflight.md");
    let of_table =
        |line: &&str| [" | a copy |", " | its own: ", " | nothing: "].iter().any(|part| line.contains(part));
    let found: Vec<&str> = text.lines().filter(of_table).collect();
    assert_eq!(found[..expected.len()], expected);
}
