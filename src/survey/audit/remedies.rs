//! What to do about each finding. docs/findings.md is the source, so that the program and the document say the same.

use std::collections::BTreeMap;
use std::sync::OnceLock;

const DOCUMENT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/findings.md"));

/// Returns what to do about the findings with this code, as one paragraph; empty if the document does not have the code.
pub(super) fn of(code: &str) -> &'static str {
    static ALL: OnceLock<BTreeMap<&'static str, String>> = OnceLock::new();
    ALL.get_or_init(|| all(DOCUMENT)).get(code).map(String::as_str).unwrap_or_default()
}

fn all(document: &'static str) -> BTreeMap<&'static str, String> {
    let sections = document.split("\n### `").skip(1);
    let read = |section: &'static str| {
        let (code, rest) = section.split_once('`')?;
        let (_, remedy) = rest.split_once("**Do:**")?;
        let remedy = remedy.split("\n## ").next().unwrap_or(remedy);
        Some((code, without_links(&remedy.split_whitespace().collect::<Vec<_>>().join(" "))))
    };
    sections.filter_map(read).collect()
}

/// Removes the targets of links: `[text](target)` becomes `text`.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (start, label) = before.rsplit_once('[').unwrap_or((before, ""));
        plain.push_str(start);
        plain.push_str(label);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_is_one_paragraph_of_the_document() {
        let remedies = all(DOCUMENT);
        assert!(remedies.len() > 40, "{}", remedies.len());
        for (code, remedy) in &remedies {
            assert!(remedy.ends_with(['.', ')', '`']), "{code}: {remedy}");
            assert!(
                !remedy.contains("](") && !remedy.contains("##") && !remedy.contains('\n'),
                "{code}: {remedy}"
            );
        }
        assert_eq!(of("address-not-canonical"), "delete the Service and create it again.");
        assert!(
            of("shadow-behind").contains("the permissions of deploy/guard.yaml."),
            "{}",
            of("shadow-behind")
        );
        assert_eq!(of("no-such-code"), "");
    }
}
