//! Names of clusters: whether a name is valid, and how a name of the source becomes one of the mirror.

/// The longest name of a role in AWS IAM.
const LONGEST_ROLE: usize = 64;

/// Returns why a text is not a name of a cluster.
pub(super) fn fault(name: &str) -> Option<String> {
    let is_inner = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > 253 || !name.split('.').all(is_label) {
        return Some(format!("`{name}` is no DNS name in lower case"));
    }
    None
}

/// Returns the names of IAM roles that would be too long. kOps shortens such a name, and adds a hash.
pub(super) fn long_roles(name: &str) -> Vec<String> {
    let roles = ["masters", "nodes", "bastions"].map(|role| format!("{role}.{name}"));
    roles.into_iter().filter(|role| role.len() > LONGEST_ROLE).collect()
}

/// Replaces the name of the source in a text. A longer name that only contains it stays.
pub(super) fn renamed(text: &str, from: &str, to: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(from) {
        let (before, after) = (rest.get(..start).unwrap_or_default(), rest.get(start..).unwrap_or_default());
        let after_name = after.get(from.len()..).unwrap_or_default();
        let last = out.chars().chain(before.chars()).next_back();
        out.push_str(before);
        out.push_str(if is_whole(last, after_name) { to } else { from });
        rest = after_name;
    }
    out + rest
}

/// Returns whether a name ends here and starts there: whether the neighbours belong to another name.
fn is_whole(before: Option<char>, after: &str) -> bool {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let mut next = after.chars();
    let continues = match next.next() {
        Some('.') => next.next().is_some_and(is_of_name),
        Some(letter) => is_of_name(letter),
        None => false,
    };
    !before.is_some_and(is_of_name) && !continues
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_replaced() {
        let renamed = |text: &str| renamed(text, "blue.example.com", "green.blue.example.com");
        for (text, expected) in [
            ("blue.example.com", "green.blue.example.com"),
            ("api.blue.example.com.", "api.green.blue.example.com."),
            ("s3://x/blue.example.com/pki", "s3://x/green.blue.example.com/pki"),
            ("kubernetes.io/cluster/blue.example.com", "kubernetes.io/cluster/green.blue.example.com"),
            ("a blue.example.com, b", "a green.blue.example.com, b"),
        ] {
            assert_eq!(renamed(text), expected);
        }
        for text in
            ["darkblue.example.com", "blue.example.community", "blue.example.com.au", "my-blue.example.com"]
        {
            assert_eq!(renamed(text), text);
        }
    }

    #[test]
    fn names_are_checked() {
        assert_eq!(fault("green.example.com"), None);
        for name in ["", "Green.example.com", "green..com", "-a.b", "a_b.c", &"a".repeat(64)] {
            assert!(fault(name).is_some(), "{name}");
        }
        assert_eq!(long_roles("green.example.com"), Vec::<String>::new());
        let long = format!("{}.example.com", "g".repeat(46));
        assert_eq!(long_roles(&long), [format!("masters.{long}"), format!("bastions.{long}")]);
    }
}
