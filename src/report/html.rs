//! The parts of a page. `html!` escapes every text, so a text from a cluster is never markup. Only the style sheet and
//! drawings are added with `PreEscaped`, which does not escape.

use std::fmt::Write as _;

use maud::{DOCTYPE, Markup, PreEscaped, Render, html};
use time::OffsetDateTime;
use time::macros::format_description;

use super::style::CSS;

/// Returns the complete page about an operation.
pub fn document(operation: &str, content: &Markup, sources: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // The page must not load or run anything, even if a bug leaves some text unescaped.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (operation) }
                style { (PreEscaped(CSS)) }
            }
            body {
                (content)
                footer { "Created by netsurgeon " (env!("CARGO_PKG_VERSION")) " from " (sources) "." }
            }
        }
        "\n"
    };
    visible(&page.into_string())
}

/// Replaces characters with their codes if they are invisible, or change the direction of the text around them.
fn visible(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    for character in page.chars() {
        if (character.is_control() && !matches!(character, '\n' | '\t')) || turns(character) {
            let _ = write!(text, "\\u{{{:x}}}", u32::from(character));
        } else {
            text.push(character);
        }
    }
    text
}

/// Returns whether a character changes the direction of text (Unicode Standard Annex 9, section 2), or is invisible.
fn turns(character: char) -> bool {
    matches!(character,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Returns the header of a page: the kind of operation, its id, the verdict, and more content. `class` is the CSS class of the
/// status.
pub fn header(
    kind: &str,
    operation: &str,
    (class, status): (&str, &str),
    words: &str,
    more: &Markup,
) -> Markup {
    html! {
        header {
            p.kind { "netsurgeon · " (kind) }
            h1 { (operation) }
            p.verdict { span class={ "pill " (class) } { (prose(status)) } " " (prose(words)) }
            (more)
        }
    }
}

/// Returns the data of an operation as a list of labels and values.
pub fn facts<'a>(rows: impl IntoIterator<Item = (&'a str, Markup)>) -> Markup {
    html! { dl.identity { @for (label, value) in rows { dt { (label) } dd { (value) } } } }
}

/// Returns a section with a heading, followed by a line break.
pub fn section(id: &str, heading: &str, content: &Markup) -> Markup {
    html! { section id=(id) { h2 { (heading) } (content) } "\n" }
}

/// Returns a drawing of this program, whose texts are already escaped.
pub fn drawing(svg: &str) -> Markup {
    PreEscaped(svg.to_string())
}

/// Returns a table with a line break after each row.
pub fn table<const N: usize>(
    class: &str,
    headings: [&str; N],
    rows: impl IntoIterator<Item = [Markup; N]>,
) -> Markup {
    html! {
        div.wide {
            table class=(class) {
                thead { tr { @for heading in headings { th scope="col" { (heading) } } } }
                tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } "\n" } }
            }
        }
    }
}

/// Returns the parts with a separator between them.
pub fn joined(parts: impl Iterator<Item = Markup>, separator: &Markup) -> Markup {
    html! { @for (index, part) in parts.enumerate() { @if index > 0 { (separator) } (part) } }
}

/// Formats text that has names and commands in backticks, as in the errors of this program.
pub fn prose(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return text.render();
    }
    html! {
        @for (index, part) in parts.iter().enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// Formats an address or a name as code.
pub fn code(text: &str) -> Markup {
    html! { code { (text) } }
}

/// Formats a size in a drawing, with one decimal.
pub fn px(size: f64) -> String {
    format!("{size:.1}")
}

/// Formats a moment, in seconds since 1970: `2026-11-21 15:13:32`, in UTC.
pub fn moment(seconds: i64) -> Markup {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    let time = OffsetDateTime::from_unix_timestamp(seconds).ok().and_then(|time| time.format(format).ok());
    time.map_or_else(|| seconds.render(), |text| html! { time { (text) } })
}

/// Returns the time of day and the date of a moment, in UTC.
pub fn clock(seconds: i64) -> (String, String) {
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let of_day = time.format(format_description!("[hour]:[minute]:[second]"));
    let day = time.format(format_description!("[year]-[month]-[day]"));
    (of_day.unwrap_or_default(), day.unwrap_or_default())
}

/// Formats a duration: `0 s`, `36 s`, `4 min 10 s`, `3 d 2 h`.
pub fn lasting(seconds: i64) -> String {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    match (seconds / 86_400, seconds / 3600 % 24) {
        (0, _) => crate::words::in_words(std::time::Duration::from_secs(seconds)),
        (days, 0) => format!("{days} d"),
        (days, hours) => format!("{days} d {hours} h"),
    }
}

/// Formats a number with spaces between groups of three digits: `12 345`.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        let rest = digits.len().saturating_sub(index);
        if index > 0 && rest.is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_escaped() {
        let hostile = "<script>\"'&\u{202e}\u{0}\u{1b}[1m\u{2028}é";
        let page = document(hostile, &section("id", hostile, &code(hostile)), hostile);
        let escaped = "&lt;script&gt;&quot;'&amp;\\u{202e}\\u{0}\\u{1b}[1m\\u{2028}é";
        assert_eq!(page.matches(escaped).count(), 4, "{page}");
    }

    #[test]
    fn text_in_backticks_becomes_code() {
        assert_eq!(prose("set `a<b` to `c`").into_string(), "set <code>a&lt;b</code> to <code>c</code>");
        assert_eq!(prose("a `half").into_string(), "a `half");
    }

    #[test]
    fn durations_and_numbers_are_readable() {
        assert_eq!(
            [0, 36, 250, 7500, 266_400].map(lasting),
            ["0 s", "36 s", "4 min 10 s", "2 h 5 min", "3 d 2 h"]
        );
        assert_eq!([7, 1234, 1_234_567].map(thousands), ["7", "1\u{202f}234", "1\u{202f}234\u{202f}567"]);
        assert_eq!(moment(1_800_000_000).into_string(), "<time>2027-01-15 08:00:00</time>");
    }
}
