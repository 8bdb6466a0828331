//! Builds HTML without a library. Every text from a cluster must go through [`esc`], because nothing else escapes text.

use std::fmt::{self, Display, Write as _};

use time::OffsetDateTime;
use time::macros::format_description;

/// A page, or a part of a page.
#[derive(Debug, Default)]
pub struct Html(pub String);

impl Html {
    /// Adds markup. Writing to memory cannot fail.
    pub fn add(&mut self, markup: fmt::Arguments<'_>) {
        let _ = self.0.write_fmt(markup);
        self.0.push('\n');
    }

    /// Starts the header of a page: the kind of operation, its id, and the verdict. `class` is the CSS class of the status.
    pub fn head(&mut self, kind: &str, operation: &str, (class, status): (&str, &str), words: &str) {
        self.add(format_args!(
            "<header>\n<p class=\"kind\">netsurgeon · {}</p>\n<h1>{}</h1>\n<p class=\"verdict\"><span class=\"pill \
             {class}\">{}</span> {}</p>",
            esc(kind),
            esc(operation),
            prose(status),
            prose(words),
        ));
    }

    /// Adds the data of an operation. The values are markup, so their text must already be escaped.
    pub fn facts<const N: usize>(&mut self, rows: [(&str, String); N]) {
        self.add(format_args!("<dl class=\"identity\">"));
        for (label, value) in rows {
            self.add(format_args!("<dt>{label}</dt><dd>{value}</dd>"));
        }
        self.add(format_args!("</dl>"));
    }

    /// Starts a section with a heading.
    pub fn section(&mut self, id: &str, heading: &str) {
        self.add(format_args!("<section id=\"{id}\">\n<h2>{}</h2>", esc(heading)));
    }

    /// Ends a section.
    pub fn end_section(&mut self) {
        self.add(format_args!("</section>"));
    }

    /// Adds a table. The cells are markup, so their text must already be escaped.
    pub fn table<const N: usize>(
        &mut self,
        class: &str,
        headings: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) {
        self.add(format_args!("<div class=\"wide\"><table class=\"{class}\">\n<thead><tr>"));
        for heading in headings {
            self.add(format_args!("<th scope=\"col\">{}</th>", esc(heading)));
        }
        self.add(format_args!("</tr></thead>\n<tbody>"));
        for row in rows {
            self.0.push_str("<tr>");
            for cell in row {
                let _ = write!(self.0, "<td>{cell}</td>");
            }
            self.0.push_str("</tr>\n");
        }
        self.add(format_args!("</tbody></table></div>"));
    }
}

/// Text that is displayed literally, in an element or in a quoted attribute.
pub struct Escaped<'a>(&'a str);

/// Escapes text. Characters that are invisible, or change the direction of the text around them, are shown as their code.
pub fn esc(text: &str) -> Escaped<'_> {
    Escaped(text)
}

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(character)?,
                _ if character.is_control() || turns(character) => {
                    write!(f, "\\u{{{:x}}}", u32::from(character))?;
                }
                _ => f.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// Returns whether a character changes the direction of text (Unicode Standard Annex 9, section 2), or is invisible.
fn turns(character: char) -> bool {
    matches!(character,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Formats text that has names and commands in backticks, as in the errors of this program.
pub fn prose(text: &str) -> String {
    let escaped = esc(text).to_string();
    let parts: Vec<&str> = escaped.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return escaped;
    }
    let mut markup = String::new();
    for (index, part) in parts.iter().enumerate() {
        let is_code = index % 2 == 1;
        let _ = if is_code { write!(markup, "<code>{part}</code>") } else { markup.write_str(part) };
    }
    markup
}

/// Formats an address or a name as code.
pub fn code(text: &str) -> String {
    format!("<code>{}</code>", esc(text))
}

/// Formats a moment, in seconds since 1970: `2026-11-21 15:13:32`, in UTC.
pub fn moment(seconds: i64) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    let time = OffsetDateTime::from_unix_timestamp(seconds).ok().and_then(|time| time.format(format).ok());
    time.map_or_else(|| seconds.to_string(), |text| format!("<time>{text}</time>"))
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
        (0, _) => crate::session::in_words(std::time::Duration::from_secs(seconds)),
        (days, 0) => format!("{days} d"),
        (days, hours) => format!("{days} d {hours} h"),
    }
}

/// Formats a number with separated thousands: `12 345`.
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
        assert_eq!(
            esc(hostile).to_string(),
            "&lt;script&gt;&quot;&#39;&amp;\\u{202e}\\u{0}\\u{1b}[1m\\u{2028}é"
        );
    }

    #[test]
    fn text_in_backticks_becomes_code() {
        assert_eq!(prose("set `a<b` to `c`"), "set <code>a&lt;b</code> to <code>c</code>");
        assert_eq!(prose("a `half"), "a `half");
    }

    #[test]
    fn durations_and_numbers_are_readable() {
        assert_eq!(
            [0, 36, 250, 7500, 266_400].map(lasting),
            ["0 s", "36 s", "4 min 10 s", "2 h 5 min", "3 d 2 h"]
        );
        assert_eq!([7, 1234, 1_234_567].map(thousands), ["7", "1\u{202f}234", "1\u{202f}234\u{202f}567"]);
        assert_eq!(moment(1_800_000_000), "<time>2027-01-15 08:00:00</time>");
    }
}
