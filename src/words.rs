//! Numbers, times and errors as text, in the same form everywhere.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

/// Returns a number with its noun: `1 batch`, `2 batches`.
pub fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Returns a number with the words that follow it, and with `all` before a plural: `1 Node is ready`, `all 2 Nodes are ready`.
pub fn all_of(count: usize, one: &str, many: &str) -> String {
    let all = if count == 1 { "" } else { "all " };
    format!("{all}{}", counted(count, one, many))
}

/// Returns the text that follows the first items of a list, for example `, and 2 more`. If there are no more items, the text is
/// empty.
pub fn and_more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(", and {count} more") }
}

/// Returns a value in backticks, or other words if there is no value: `` `10.96.0.0/16` ``, `no range`.
pub fn quoted_or(value: Option<&str>, otherwise: &str) -> String {
    value.map_or_else(|| otherwise.to_string(), |value| format!("`{value}`"))
}

/// Returns the items of a list, or other words if the list is empty, so that no text ends with an empty list.
pub fn list_or<T: ToString>(items: &[T], otherwise: &str) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    if items.is_empty() { otherwise.to_string() } else { items.join(", ") }
}

/// Maximum number of items of a list that [`first_few`] shows.
const FEW: usize = 3;

/// Returns the first items of a list, and the number of the remaining items: `a, b, c, and 2 more`.
pub fn first_few(items: &[String]) -> String {
    let shown = items.iter().take(FEW).cloned().collect::<Vec<_>>().join(", ");
    shown + &and_more(items.len().saturating_sub(FEW))
}

/// Maximum length of a text that comes from a server or from an object of the cluster, in bytes.
const BRIEF: usize = 500;

/// Shortens a reason that can contain text of any size from a server or from an object of the cluster. A record of an operation has
/// only limited space. The end of the text says how many bytes are omitted.
pub fn brief(text: &str) -> Cow<'_, str> {
    if text.len() <= BRIEF {
        return Cow::Borrowed(text);
    }
    // Enough space for the end.
    let most = BRIEF.saturating_sub(40);
    let start = text.get(..text.floor_char_boundary(most)).unwrap_or_default();
    Cow::Owned(format!("{start}... ({} more bytes)", text.len().saturating_sub(start.len())))
}

/// Formats a duration for people: `36 s`, `4 min 10 s`, `2 h 5 min`.
pub fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, 0) => format!("{minutes} min"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, 0, _) => format!("{hours} h"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// Formats an error and its causes. Omits a cause if the text already contains it.
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}

/// Returns a path with quotes if it needs them, see [`shell_word`].
pub fn pasted(path: &Path) -> String {
    shell_word(&path.to_string_lossy())
}

/// Returns a text with quotes if it needs them, so that it is one word in a shell command that the user pastes.
pub fn shell_word(text: &str) -> String {
    let quoted = shlex::try_quote(text).map(Cow::into_owned);
    quoted.unwrap_or_else(|_| text.to_string())
}

/// Returns the title of a stage, with the prefix `back: ` in a rollback.
pub fn titled(title: &str, back: bool) -> String {
    if back { format!("back: {title}") } else { title.to_string() }
}

/// Escapes a text for XML, and replaces control characters. Of the characters below U+0020, XML 1.0 allows only tab, line feed and
/// carriage return (section 2.2).
pub fn xml_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => escaped.push(letter),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_one_word_of_a_shell() {
        assert_eq!(pasted(Path::new("/etc/kubernetes/pki")), "/etc/kubernetes/pki");
        assert_eq!(pasted(Path::new("/home/a b/it's")), r#""/home/a b/it's""#);
    }

    #[test]
    fn long_reason_is_shortened() {
        let long = "\u{e9}".repeat(100_000);
        let shown = brief(&long);
        assert!(shown.len() <= BRIEF && shown.ends_with(" more bytes)"), "{shown}");
        assert_eq!(brief(&shown), shown, "it is shortened only once");
        assert_eq!(brief("a reason"), "a reason");
    }

    #[test]
    fn long_lists_are_truncated_after_three() {
        let list: Vec<String> = (1..=5).map(|number| number.to_string()).collect();
        assert_eq!(first_few(&list), "1, 2, 3, and 2 more");
        assert_eq!(first_few(&list[..3]), "1, 2, 3");
        assert_eq!((list_or(&[1, 2], "none"), list_or::<u8>(&[], "none")), ("1, 2".into(), "none".into()));
    }

    #[test]
    fn one_thing_has_no_all() {
        assert_eq!(all_of(1, "Node is ready", "Nodes are ready"), "1 Node is ready");
        assert_eq!(all_of(2, "Node is ready", "Nodes are ready"), "all 2 Nodes are ready");
    }
}
