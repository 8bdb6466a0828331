//! The only module that prints: data to stdout, everything else to stderr.
//!
//! Colour only repeats information that the text also contains. By default, stdout and stderr are coloured if they are terminals
//! and NO_COLOR is not set (<https://no-color.org>). The option `--color` overrides this.

use std::io::{BufRead, BufWriter, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::Value;
use tracing_subscriber::EnvFilter;

use super::beside_bar::aside;
use super::log::{self, MessageKind};
use super::terminal_escape::{Neutral, neutral, neutral_line};
use crate::session::failure::{ExitKind, Failure};
pub use crate::words::counted;

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// For programs; described in docs/json.md
    Json,
    /// The same data as YAML
    Yaml,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// A meaning that is shown as a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// An error or a bad result.
    Bad,
    /// A warning.
    Careful,
    /// A good result.
    Good,
    /// A heading.
    Strong,
    /// Less important.
    Faint,
}

impl Tone {
    /// Returns the parameters of the terminal's SGR sequence (ECMA-48, 8.3.117).
    fn code(self) -> &'static str {
        match self {
            Self::Bad => "1;31",
            Self::Careful => "33",
            Self::Good => "32",
            Self::Strong => "1",
            Self::Faint => "2",
        }
    }
}

/// The output of this process, in the selected format and colours.
#[derive(Debug, Clone)]
pub struct Output {
    format: Format,
    colour: bool,
}

/// Whether stderr is coloured, for the whole process. The variable is static because some code prints messages without an
/// [`Output`].
static COLOURS_TALK: AtomicBool = AtomicBool::new(false);

impl Output {
    /// Returns the output of this process.
    pub fn new(format: Format, when: When) -> Self {
        let wanted = |is_terminal: bool| match when {
            When::Always => true,
            When::Never => false,
            When::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        let colour = wanted(std::io::stdout().is_terminal());
        COLOURS_TALK.store(wanted(std::io::stderr().is_terminal()), Ordering::Relaxed);
        Self { format, colour }
    }

    /// Returns the selected format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns whether data is printed for programs, as JSON or YAML.
    pub fn is_structured(&self) -> bool {
        self.format != Format::Table
    }

    /// Returns the text in the tone's colour, if stdout is coloured.
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        paint(self.colour, tone, text)
    }

    /// Prints data: `text` for people, or the value as JSON or YAML.
    pub fn data<T: Serialize>(&self, value: &T, text: impl FnOnce(&Self) -> String) -> Result<(), Failure> {
        match self.format {
            Format::Table => self.text(&text(self)),
            Format::Json => self.json(value),
            Format::Yaml => self.yaml(value),
        }
    }

    /// Prints a value as JSON, indented.
    pub fn json<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        debug_assert!(has_version(value), "a document without its version");
        let mut stdout = Neutral::new(std::io::stdout().lock());
        serde_json::to_writer_pretty(&mut stdout, value).map_err(|error| {
            if error.is_io() {
                Failure::from(std::io::Error::from(error))
            } else {
                Failure::new(ExitKind::Bug, error)
            }
        })?;
        stdout.write_all(b"\n")?;
        Ok(stdout.flush()?)
    }

    /// Prints one value of a sequence: as JSON on one line, or as a YAML document.
    pub fn line_of<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        if self.format == Format::Yaml {
            self.text("---")?;
            return self.yaml(value);
        }
        debug_assert!(has_version(value), "a document without its version");
        let text = serde_json::to_string(value).map_err(|error| Failure::new(ExitKind::Bug, error))?;
        self.text(&text)
    }

    /// Returns whether the screen can be redrawn.
    pub fn redraws(&self) -> bool {
        self.format == Format::Table && std::io::stdout().is_terminal()
    }

    /// Clears the screen and prints the text (ECMA-48, 8.3.21 and 8.3.39).
    pub fn redraw(&self, text: &str) -> Result<(), Failure> {
        std::io::stdout().lock().write_all(b"\x1b[H\x1b[2J")?;
        self.text(text)
    }

    /// Prints a value as YAML. Output for programs keeps harmful characters, because YAML, unlike JSON, has no escapes outside of
    /// quotes.
    pub fn yaml<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        let text = serde_saphyr::to_string(value).map_err(|error| Failure::new(ExitKind::Bug, error))?;
        let is_for_people = self.format == Format::Table || std::io::stdout().is_terminal();
        if is_for_people { self.text(&text) } else { print(&text) }
    }

    /// Prints text to stdout. A newline is added at the end, unless the text is empty.
    pub fn text(&self, text: &str) -> Result<(), Failure> {
        print(&neutral(text, self.colour))
    }

    /// Prints a document of the user, with every byte as it is. On a terminal, harmful characters are escaped.
    pub fn document(&self, text: &str) -> Result<(), Failure> {
        if std::io::stdout().is_terminal() { self.text(text) } else { print(text) }
    }

    /// Prints a text as one line, even if it contains line ends.
    pub fn line(&self, text: &str) -> Result<(), Failure> {
        print(&neutral_line(text, self.colour))
    }

    /// Prints bytes to stdout unchanged. Fails on a terminal, because a terminal interprets some bytes as commands.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = std::io::stdout().lock();
        if stdout.is_terminal() {
            return Err(Failure::refused("stored bytes are not printed on a terminal")
                .hint("redirect them to a file: add `> FILE`"));
        }
        stdout.write_all(bytes)?;
        Ok(stdout.flush()?)
    }

    /// Prints a note on stderr.
    pub fn note(&self, text: &str) {
        self.say(MessageKind::Note, text, &[]);
    }

    /// Prints a warning on stderr.
    pub fn warn(&self, text: &str) {
        warn(text);
    }

    /// Prints progress on stderr.
    pub fn progress(&self, text: &str) {
        self.say(MessageKind::Progress, text, &[]);
    }

    /// Prints a message on stderr. With `--log-format json`, the line also contains `fields`.
    pub fn say(&self, kind: MessageKind, text: &str, fields: &[(&str, Value)]) {
        say(kind, text, fields);
    }

    /// Prints on stderr why the command failed or paused. Prints nothing after a broken pipe.
    pub fn failure(&self, failure: &Failure) {
        if failure.kind == ExitKind::BrokenPipe {
            return;
        }
        let mut fields = vec![("exit_status", Value::from(failure.kind.code()))];
        fields.extend(failure.step.iter().map(|step| ("step", Value::from(step.as_str()))));
        for (kind, text) in failure.lines() {
            let is_first = matches!(kind, MessageKind::Error | MessageKind::Paused);
            self.say(kind, &text, if is_first { &fields } else { &[] });
        }
    }

    /// Asks the user on the terminal whether to continue. With `yes`, does not ask.
    ///
    /// Fails if the answer is not `y` or `yes`, or if stdin or stderr is not a terminal.
    pub fn ask(&self, question: &str, yes: bool) -> Result<(), Failure> {
        if yes {
            return Ok(());
        }
        if !can_ask() {
            return Err(Failure::refused(format!("no terminal to ask for confirmation: {question}"))
                .hint("read the plan above, then give `--yes`"));
        }
        let question = neutral_line(question, false);
        let answer = aside(|| {
            let mut stderr = std::io::stderr().lock();
            write!(stderr, "{} {question} [y/N] ", paint(colours_talk(), Tone::Strong, "?"))?;
            stderr.flush()?;
            let mut answer = String::new();
            std::io::stdin().lock().read_line(&mut answer)?;
            Ok::<_, Failure>(answer)
        })?;
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Failure::refused("the answer was no; nothing was changed")),
        }
    }
}

/// Returns whether there is a terminal on which the user can answer a question.
pub fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Returns stdout for a program that reads it line by line, without neutralising anything.
pub fn machine_output() -> impl tokio::io::AsyncWrite + Unpin {
    tokio::io::stdout()
}

/// Prints a warning on stderr.
pub fn warn(text: &str) {
    say(MessageKind::Warning, text, &[]);
}

fn say(kind: MessageKind, text: &str, fields: &[(&str, Value)]) {
    if log::is_json() {
        return talk(&log::line(kind, text, fields));
    }
    let tone = match kind {
        MessageKind::Progress => return talk(text),
        MessageKind::Error => Tone::Bad,
        MessageKind::Warning => Tone::Careful,
        MessageKind::Paused | MessageKind::Note | MessageKind::Hint | MessageKind::Cause => Tone::Strong,
    };
    // Continuation lines are indented, so that text from the cluster cannot look like a message from this program.
    let text = text.replace('\n', "\n  ");
    talk(&format!("{} {text}", paint(colours_talk(), tone, &format!("{}:", kind.label()))));
}

fn colours_talk() -> bool {
    COLOURS_TALK.load(Ordering::Relaxed)
}

/// A printer for single lines on stdout, without colours. Used for data that is printed as soon as it is read.
pub struct Lines(BufWriter<std::io::Stdout>);

impl Lines {
    /// Prints one line.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        Ok(writeln!(self.0, "{}", neutral(text, false))?)
    }

    /// Prints text without a line end.
    pub fn part(&mut self, text: &str) -> Result<(), Failure> {
        Ok(write!(self.0, "{}", neutral(text, false))?)
    }

    /// Flushes the buffer.
    pub fn finish(&mut self) -> Result<(), Failure> {
        Ok(self.0.flush()?)
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self(BufWriter::new(std::io::stdout()))
    }
}

/// Returns a table in kubectl's style: a heading line, and columns separated by spaces.
///
/// Cells are not wrapped, so each row is one line.
pub fn table<const N: usize>(headings: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let cells = |row: [String; N]| row.map(|cell| neutral_line(&cell, true).into_owned());
    let rows: Vec<[String; N]> = rows.into_iter().map(cells).collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.to_vec());
    // Colour sequences have no width on the screen, but the table library would count them.
    table.add_rows(rows.iter().map(|row| row.iter().map(|cell| colourless(cell)).collect::<Vec<_>>()));
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    coloured(&table.trim_fmt(), rows.iter().flatten())
}

/// Returns the text without the colour sequences of [`paint`].
fn colourless(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or(part, |(_, rest)| rest))
}

/// Restores the colours of cells in the text of a table. `cells` are in the order of the table.
fn coloured<'c>(table: &str, cells: impl Iterator<Item = &'c String>) -> String {
    let (mut text, mut rest) = (String::with_capacity(table.len()), table);
    // The line of headings has no colours.
    if let Some((headings, rows)) = rest.split_once('\n') {
        text.push_str(headings);
        text.push('\n');
        rest = rows;
    }
    for cell in cells {
        let plain = colourless(cell);
        if plain.is_empty() {
            continue;
        }
        let Some((before, after)) = rest.split_once(plain.trim_end()) else { continue };
        text.push_str(before);
        text.push_str(if plain == *cell { plain.trim_end() } else { cell });
        rest = after;
    }
    text + rest
}

/// Returns whether the locale uses UTF-8. The first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set and not empty defines the
/// locale (POSIX.1-2024, 8.2).
pub fn speaks_utf8() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| std::env::var(name).ok());
    let mut set = set.filter(|value| !value.is_empty());
    set.next().is_some_and(|value| value.to_lowercase().replace('-', "").contains("utf8"))
}

/// Returns whether a document has the field that docs/json.md requires: `version`, or `apiVersion` in a document for `kubectl`.
/// Only debug assertions call this function.
fn has_version(value: &impl Serialize) -> bool {
    let names =
        |document: serde_json::Value| ["version", "apiVersion"].iter().any(|key| document.get(key).is_some());
    serde_json::to_value(value).is_ok_and(names)
}

/// Sets up the log on stderr. Without `-v`, there is no log. With `-v`, `-vv` and `-vvv`, the level is info, debug and trace.
pub(super) fn start_tracing(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    // The log excludes messages from the API client, because this client logs its errors in full. Such an error can contain the
    // output of an exec plugin, which is a token. netsurgeon logs requests and responses itself. The log also excludes the crates of
    // the AWS SDK, whose names all start with `aws_`: they log requests and answers in full, for example tokens of the metadata
    // service.
    let filter = EnvFilter::new(format!("{level},kube_client=off,aws_=off"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    if log::is_json() {
        subscriber.event_format(log::Lines).with_writer(Aside::default).init();
    } else {
        subscriber.with_writer(Aside::default).init();
    }
}

/// A writer that collects a message and writes it to stderr when it is dropped. It suspends the progress bar while it writes.
#[derive(Default)]
struct Aside(Vec<u8>);

impl Write for Aside {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.0);
        let _ = aside(|| std::io::stderr().lock().write_all(neutral(&text, false).as_bytes()));
    }
}

/// Returns whether stderr is a terminal.
pub(super) fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

/// Prints a message without colour, and does not suspend the progress bar. Used only when the process is about to end.
pub(super) fn plain(kind: MessageKind, text: &str) {
    let line = if log::is_json() { log::line(kind, text, &[]) } else { format!("{}: {text}", kind.label()) };
    let _ = writeln!(std::io::stderr().lock(), "{}", neutral(&line, false));
}

/// Writes a line to stderr. Ignores a failure, because there is no other place to report it.
pub(super) fn talk(text: &str) {
    let text = neutral(text, colours_talk());
    let _ = aside(|| writeln!(std::io::stderr().lock(), "{text}"));
}

/// Prints text to stdout, with a newline after the last line.
fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    if !text.is_empty() && !text.ends_with('\n') {
        stdout.write_all(b"\n")?;
    }
    Ok(stdout.flush()?)
}

fn paint(colour: bool, tone: Tone, text: &str) -> String {
    if colour { format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code()) } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_with_and_without_colours() {
        let shown = |colour: bool| {
            let row = |name: &str, tone, verdict: &str| {
                [name.to_string(), paint(colour, tone, verdict), format!("{verdict} of {name}")]
            };
            let rows =
                [row("pass", Tone::Good, "pass"), row("a", Tone::Bad, "unknown"), row("b", Tone::Faint, "")];
            table(["CHECK", "VERDICT", "OBSERVED"], rows)
        };
        let (plain, coloured) = (shown(false), shown(true));
        assert_eq!(colourless(&coloured), plain);
        assert!(coloured.contains("\npass    \u{1b}[32mpass\u{1b}[0m      pass of pass\n"), "{coloured:?}");
        assert!(coloured.contains("\u{1b}[1;31munknown\u{1b}[0m   unknown of a"), "{coloured:?}");
    }
}
