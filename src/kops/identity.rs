//! Texts that identify the source, and where a text contains them.

use std::collections::BTreeSet;
use std::ops::Range;

use super::rule::Old;

/// A text that identifies the source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OldText {
    pub text: String,
    /// What it is.
    pub what: String,
    /// Whether it is only a range of addresses, which is allowed to stay.
    pub is_range: bool,
}

/// All texts that identify the source.
#[derive(Debug, Default)]
pub(super) struct OldTexts {
    texts: BTreeSet<OldText>,
    /// New texts. They are allowed to contain a text of the source.
    new: Vec<String>,
}

/// The shortest text to search. A shorter one would be found everywhere.
const SHORTEST: usize = 4;

impl OldTexts {
    /// Returns the name of the source as it is, and with dashes.
    pub fn of_name(old: &str, new: &str) -> Self {
        let mut texts = Self::default();
        let dashed = |name: &str| name.replace('.', "-");
        texts.insert(old.to_string(), "the name of the source".to_string(), false);
        texts.insert(dashed(old), "the name of the source, with dashes".to_string(), false);
        texts.new = vec![new.to_string(), dashed(new)];
        texts
    }

    fn insert(&mut self, text: String, what: String, is_range: bool) {
        if text.len() >= SHORTEST && self.texts.iter().all(|one| one.text != text) {
            self.texts.insert(OldText { text, what, is_range });
        }
    }

    /// Adds ids of resources in AWS. In the same VPC, ids that both clusters share do not count.
    pub fn extend_ids(&mut self, ids: BTreeSet<String>, is_same_vpc: bool) {
        const OF_CLUSTER: [&str; 6] = ["subnet-", "nat-", "eipalloc-", "eni-", "i-", "lt-"];
        for id in ids {
            if !is_same_vpc || OF_CLUSTER.iter().any(|start| id.starts_with(start)) {
                self.insert(id, "an id of the source".to_string(), false);
            }
        }
    }

    /// Adds the previous value of a field.
    pub fn note(&mut self, value: &str, old: Old, field: &str) {
        let value = value.trim_end_matches('/');
        let what = format!("`{field}` of the source");
        match old {
            Old::Plain => {}
            Old::Range => self.insert(value.to_string(), what, true),
            Old::Id => self.insert(value.to_string(), what, false),
            Old::Store => {
                self.insert(value.to_string(), what.clone(), false);
                let (_, path) = value.split_once("://").unwrap_or(("", value));
                if path.contains('/') {
                    self.insert(path.to_string(), what, false);
                } else {
                    self.insert(format!("s3:::{path}"), what.clone(), false);
                    self.insert(format!("//{path}."), what, false);
                }
            }
        }
    }

    /// Adds a new text.
    pub fn note_new(&mut self, text: &str) {
        self.new.push(text.to_ascii_lowercase());
    }

    /// Returns the texts of the source that a text contains, in order. A hit within a longer hit does not count.
    pub fn hits(&self, text: &str) -> Vec<(Range<usize>, &OldText)> {
        let text = text.to_ascii_lowercase();
        let mut found: Vec<(Range<usize>, &OldText)> = Vec::new();
        for old in &self.texts {
            let low = old.text.to_ascii_lowercase();
            let all = occurrences(&text, &low);
            if all.is_empty() {
                continue;
            }
            let longer: Vec<Range<usize>> = self
                .new
                .iter()
                .filter(|new| new.len() > low.len() && new.contains(&low))
                .flat_map(|new| occurrences(&text, new))
                .collect();
            let hits = all.into_iter().filter(|hit| {
                is_bounded(&text, hit)
                    && !longer.iter().any(|new| new.start <= hit.start && hit.end <= new.end)
            });
            found.extend(hits.map(|hit| (hit, old)));
        }
        found.sort_by_key(|(hit, old)| (hit.start, std::cmp::Reverse(hit.end), old.is_range));
        let mut kept: Vec<(Range<usize>, &OldText)> = Vec::new();
        for (hit, old) in found {
            if kept.last().is_none_or(|(last, _)| hit.end > last.end) {
                kept.push((hit, old));
            }
        }
        kept
    }
}

/// Returns where a text contains another one, also where the occurrences overlap.
pub(super) fn occurrences(text: &str, part: &str) -> Vec<Range<usize>> {
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(part)).filter(|_| !part.is_empty()) {
        let start = from.saturating_add(at);
        found.push(start..start.saturating_add(part.len()));
        from = text.ceil_char_boundary(start.saturating_add(1));
    }
    found
}

/// Returns whether a hit is not part of a longer word.
fn is_bounded(text: &str, hit: &Range<usize>) -> bool {
    let neighbours = |at: usize| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let after = text.get(at..).and_then(|after| after.chars().next());
        before
            .zip(after)
            .is_some_and(|(before, after)| before.is_ascii_alphanumeric() && after.is_ascii_alphanumeric())
    };
    !neighbours(hit.start) && !neighbours(hit.end)
}

/// Resources of AWS that belong to one VPC, or to one cluster.
const RESOURCES: [&str; 16] = [
    "acl", "eigw", "eipalloc", "eipassoc", "eni", "i", "igw", "lt", "nat", "pcx", "rtb", "sg", "subnet",
    "vgw", "vpc", "vpce",
];

/// Returns all ids of such resources in a text.
pub(super) fn aws_ids(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
    let is_id = |word: &&str| {
        word.rsplit_once('-').is_some_and(|(kind, number)| {
            RESOURCES.contains(&kind)
                && matches!(number.len(), 8 | 17)
                && number.chars().all(|letter| letter.is_ascii_hexdigit())
        })
    };
    words.filter(is_id).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_in_any_text() {
        let text = "x: vpc-0123456789abcdef0, [subnet-12345678] arn:aws:ec2::1:eipalloc/eipalloc-0123abcd ami-12345678 sg-none\n";
        assert_eq!(
            Vec::from_iter(aws_ids(text)),
            ["eipalloc-0123abcd", "subnet-12345678", "vpc-0123456789abcdef0"]
        );
    }

    #[test]
    fn hits_are_whole_words_outside_of_new_texts() {
        let mut texts = OldTexts::of_name("blue.example.com", "new.blue.example.com");
        texts.note("s3://state/blue.example.com", Old::Store, "configBase");
        texts.note("s3://oidc", Old::Store, "discoveryStore");
        texts.note("10.0.0.0/16", Old::Range, "networkCIDR");
        let found = |text: &str| -> Vec<String> {
            texts.hits(text).into_iter().map(|(hit, _)| text[hit].to_string()).collect()
        };
        assert_eq!(found("api.Blue.example.com"), ["Blue.example.com"]);
        assert_eq!(
            found("new.blue.example.com api.new.blue.example.com new-blue-example-com"),
            Vec::<String>::new()
        );
        assert_eq!(found("darkblue.example.com blue.example.community"), Vec::<String>::new());
        assert_eq!(found("arn:aws:s3:::state/blue.example.com/*"), ["state/blue.example.com"]);
        assert_eq!(
            found("https://oidc.s3.amazonaws.com arn:aws:s3:::oidc s3://oidc/x"),
            ["//oidc.", "s3:::oidc", "s3://oidc"]
        );
        assert_eq!(found("api-blue-example-com-1a2b 10.0.0.0/16"), ["blue-example-com", "10.0.0.0/16"]);
    }
}
