//! Names of the source and of the mirror for the same thing: of the clusters, their roles, groups and networks.

/// Pairs of texts: the source's and the mirror's.
#[derive(Debug, Clone, Default)]
pub struct Names(Vec<(String, String)>);

impl Names {
    /// Adds a pair. Of two pairs with the same first text, the first one counts.
    pub fn add(&mut self, source: &str, mirror: &str) {
        let is_new = self.0.iter().all(|(known, _)| known != source);
        if is_new && !source.is_empty() && source != mirror {
            self.0.push((source.to_string(), mirror.to_string()));
            // The longest first, because a name can contain another one.
            self.0.sort_by_key(|(known, _)| std::cmp::Reverse(known.len()));
        }
    }

    /// Returns the pairs.
    pub fn pairs(self) -> Vec<(String, String)> {
        self.0
    }

    /// Replaces the names of the source in a text. A name is only found as a whole: not with a letter or a digit before or after it.
    pub fn renamed(&self, text: &str) -> String {
        let (mut out, mut rest, mut before) = (String::with_capacity(text.len()), text, None::<char>);
        while let Some(first) = rest.chars().next() {
            let starts_word = !before.is_some_and(char::is_alphanumeric);
            let found = self.0.iter().find(|(source, _)| {
                let after = rest.strip_prefix(source.as_str());
                starts_word
                    && after.is_some_and(|after| !after.starts_with(|next: char| next.is_alphanumeric()))
            });
            if let Some((source, mirror)) = found {
                out.push_str(mirror);
                before = source.chars().last();
                rest = rest.get(source.len()..).unwrap_or_default();
            } else {
                out.push(first);
                before = Some(first);
                rest = rest.get(first.len_utf8()..).unwrap_or_default();
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_as_a_whole_and_once() {
        let mut names = Names::default();
        names.add("blue", "green");
        names.add("nodes.blue", "workers.green");
        names.add("green", "red");
        names.add("blue", "other");
        assert_eq!(names.renamed("nodes.blue, masters.blue"), "workers.green, masters.green");
        assert_eq!(
            names.renamed("blueprint skyblue blue2 blue-x é blue"),
            "blueprint skyblue blue2 green-x é green"
        );
        assert_eq!(names.renamed("arn:aws:s3:::store/blue/*"), "arn:aws:s3:::store/green/*");
        assert_eq!(Names::default().renamed("blue"), "blue");
    }
}
