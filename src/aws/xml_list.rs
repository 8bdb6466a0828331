//! Lists in answers. In the XML of EC2 each element of a list is an `item`, in that of IAM a `member`.

use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
struct List<T> {
    #[serde(default = "Vec::new", alias = "member")]
    item: Vec<T>,
}

/// Deserializes a list, for `deserialize_with`.
pub(super) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(List::deserialize(deserializer)?.item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Answer {
        #[serde(default, deserialize_with = "list")]
        names: Vec<String>,
    }

    #[test]
    fn both_kinds_of_lists_are_parsed() {
        let of = |xml: &str| quick_xml::de::from_str::<Answer>(xml).unwrap().names;
        assert_eq!(of("<A><names>\n <item>a</item>\n <item>b</item>\n</names></A>"), ["a", "b"]);
        assert_eq!(of("<A><names><member>a</member><member>b</member></names></A>"), ["a", "b"]);
        assert!(of("<A><names/></A>").is_empty() && of("<A></A>").is_empty());
    }
}
