//! The output of the command: one writer for each stream. It stores a failed write for the exit code, and replaces
//! control characters in texts of others.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use comfy_table::{ColumnConstraint, ContentArrangement, Width, presets};
use rigline::json::{Json, JsonKind};
use rigline_host::terminal;
use rigline_std::mutex::lock;
use serde_json::json;
use tokio::io::AsyncWrite;
use unicode_width::UnicodeWidthStr;

use crate::exit;

/// `--json` was given: standard output gets one JSON value in every outcome.
static JSON: AtomicBool = AtomicBool::new(false);
/// Something was written to standard output.
static WRITTEN: AtomicBool = AtomicBool::new(false);
/// The first write to standard output that failed. A closed reader is not a failure.
static FAULT: Mutex<Option<io::Error>> = Mutex::new(None);
/// Why the command fails: the last reason.
static REASON: Mutex<Option<String>> = Mutex::new(None);
/// The last error message, which is the reason of a command that fails without another one.
static COMPLAINT: Mutex<Option<String>> = Mutex::new(None);

/// Records whether the command line asks for JSON. It does so before the command line is understood, since its faults are then
/// JSON, too.
pub(crate) fn expect_json<'w>(words: impl Iterator<Item = &'w OsStr>) {
    let is_json = words.take_while(|word| *word != "--").any(|word| word == "--json");
    JSON.store(is_json, Ordering::Relaxed);
}

/// Writes text to standard output. After a write that failed nothing more is written; see [`finish`].
pub(crate) fn print(text: &str) {
    write(terminal::printable(text).as_bytes());
}

/// Writes one JSON text to standard output.
pub(crate) fn print_json(text: &str) {
    write(terminal::json(text).as_bytes());
}

/// JSON text with a line for each member and element; strings and numbers as they are written, with all their digits.
pub(crate) fn indented(json: Json<'_>) -> String {
    let mut text = String::new();
    indent(json, 0, &mut text);
    text.push('\n');
    text
}

fn indent(json: Json<'_>, depth: usize, text: &mut String) {
    let line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.push_str(&"  ".repeat(depth));
    };
    match json.kind() {
        JsonKind::Object if json.members().next().is_some() => {
            for (place, (name, value)) in json.members().enumerate() {
                text.push(if place == 0 { '{' } else { ',' });
                line(text, depth + 1);
                text.push_str(&format!("\"{}\": ", name.raw()));
                indent(value, depth + 1, text);
            }
            line(text, depth);
            text.push('}');
        }
        JsonKind::Array if json.elements().next().is_some() => {
            for (place, value) in json.elements().enumerate() {
                text.push(if place == 0 { '[' } else { ',' });
                line(text, depth + 1);
                indent(value, depth + 1, text);
            }
            line(text, depth);
            text.push(']');
        }
        JsonKind::Object => text.push_str("{}"),
        JsonKind::Array => text.push_str("[]"),
        _ => text.push_str(json.as_str()),
    }
}

/// Writes a file's text to standard output: as it is, unless a terminal would obey it.
pub(crate) fn print_file(text: &str) {
    if io::stdout().is_terminal() { print(text) } else { write(text.as_bytes()) }
}

/// Writes text with colours to standard output.
pub(crate) fn print_text(text: &Text) {
    write(text.render(has_colour(&io::stdout())).as_bytes());
}

/// Writes bytes to standard output, which must be safe for a terminal.
pub(crate) fn write(bytes: &[u8]) {
    WRITTEN.store(true, Ordering::Relaxed);
    if !has_failed() {
        let mut out = io::stdout().lock();
        if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
            failed(error);
        }
    }
}

/// Whether standard output can no longer be written, so that a long-running command can end.
pub(crate) fn has_failed() -> bool {
    lock(&FAULT).is_some()
}

/// Stores the error of a write to standard output for [`finish`].
pub(crate) fn failed(error: io::Error) {
    lock(&FAULT).get_or_insert(error);
}

/// Writes a line to standard error. It does not matter whether it is read or can be written.
pub(crate) fn complain(line: impl Display) {
    let line = line.to_string();
    if let Some(reason) = line.strip_prefix("rigline: ") {
        *lock(&COMPLAINT) = Some(reason.to_owned());
    }
    complain_in(Style::Plain, line);
}

/// As [`complain`], in a colour where standard error is a terminal.
pub(crate) fn complain_in(style: Style, line: impl Display) {
    let text = Text::new().styled(style, &line.to_string());
    let _ = writeln!(io::stderr(), "{}", text.render(has_colour(&io::stderr())));
}

/// Prints on standard error why the command fails. With `--json`, the JSON value on standard output also has
/// the reason.
pub(crate) fn complain_of_failure(text: &str) {
    *lock(&REASON) = Some(text.to_owned());
    complain_in(Style::Bad, format_args!("rigline: {text}"));
}

/// Prints the error of the command line, with clap's text and its colours.
pub(crate) fn refuse(plain: &str, coloured: Option<String>) {
    let reason = plain.split("\n\n").next().unwrap_or_default().trim().trim_start_matches("error: ");
    *lock(&REASON) = Some(reason.to_owned());
    let coloured = coloured.filter(|_| has_colour(&io::stderr()));
    let text = coloured.unwrap_or_else(|| terminal::printable(plain).into_owned());
    let _ = write!(io::stderr(), "{text}");
}

/// Ends a command. If its output could not be written, it fails. With `--json`, a value is printed if there was none.
pub(crate) fn finish(code: ExitCode) -> ExitCode {
    if JSON.load(Ordering::Relaxed) && !WRITTEN.load(Ordering::Relaxed) {
        let number = (0..=u8::MAX).find(|number| ExitCode::from(*number) == code);
        let take = |text: &Mutex<Option<String>>| lock(text).take();
        let reason = take(&REASON).or_else(|| take(&COMPLAINT)).filter(|_| code != ExitCode::SUCCESS);
        let value = json!({ "success": code == ExitCode::SUCCESS, "error": reason, "exit_code": number });
        print_json(&format!("{value:#}\n"));
    }
    let mut fault = lock(&FAULT).take();
    if fault.is_none() {
        fault = io::stdout().flush().err();
    }
    match fault {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(format_args!("rigline: standard output cannot be written: {error}"));
            if code == ExitCode::SUCCESS { ExitCode::from(exit::FAILED) } else { code }
        }
        _ => code,
    }
}

/// Standard output for bytes as they are. [`finish`] tells its first fault.
pub(crate) struct Bytes(tokio::io::Stdout);

impl Bytes {
    pub(crate) fn new() -> Self {
        Self(tokio::io::stdout())
    }
}

fn told<T>(polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
    if let Poll::Ready(Err(error)) = &polled {
        failed(error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error));
    }
    polled
}

impl AsyncWrite for Bytes {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        told(Pin::new(&mut self.0).poll_write(task, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        told(Pin::new(&mut self.0).poll_flush(task))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        told(Pin::new(&mut self.0).poll_shutdown(task))
    }
}

/// A colour, by what it means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Style {
    #[default]
    Plain,
    Good,
    Bad,
    Warning,
    Dim,
    Sent,
    Received,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good | Self::Received => "\x1b[32m",
            Self::Bad => "\x1b[31m",
            Self::Warning => "\x1b[33m",
            Self::Dim => "\x1b[2m",
            Self::Sent => "\x1b[36m",
        }
    }
}

/// Text with colours, in which nothing drives the terminal but they.
#[derive(Debug, Default)]
pub(crate) struct Text(Vec<(Style, String)>);

impl Text {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn plain(self, text: &str) -> Self {
        self.styled(Style::Plain, text)
    }

    pub(crate) fn styled(mut self, style: Style, text: &str) -> Self {
        self.0.push((style, terminal::printable(text).into_owned()));
        self
    }

    fn render(&self, has_colour: bool) -> String {
        let mut all = String::new();
        for (style, text) in &self.0 {
            match style.code() {
                code if has_colour && !code.is_empty() => all.extend([code, text, "\x1b[0m"]),
                _ => all.push_str(text),
            }
        }
        all
    }
}

/// Whether to use colours: on a terminal that has them, unless `NO_COLOR` is set and not empty.
pub(crate) fn has_colour(stream: &impl IsTerminal) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    stream.is_terminal() && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The width of the terminal that standard output is. If it has fewer than 20 columns, or its size is unknown, the
/// width is 80.
pub(crate) fn columns() -> Option<usize> {
    let size = || terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
    let is_terminal = io::stdout().is_terminal();
    is_terminal.then(|| size().filter(|columns| *columns >= 20).unwrap_or(80))
}

/// Whether standard error is a terminal that a moving line can be drawn on.
pub(crate) fn has_progress() -> bool {
    let is_wide = terminal_size::terminal_size_of(io::stderr()).is_some_and(|(width, _)| width.0 >= 20);
    io::stderr().is_terminal() && is_wide && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A name, or a word in a sentence: on one line, without what drives a terminal.
pub(crate) fn word(text: &str) -> Cow<'_, str> {
    terminal::one_line(text)
}

/// Words, quoted for a shell.
pub(crate) fn command_line(words: &[String]) -> String {
    let is_plain = |char: char| char.is_alphanumeric() || "_-./:=,@%+".contains(char);
    let quoted = |word: &String| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            shell_words::quote(word).into_owned()
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// `1 task`, `2 tasks`.
pub(crate) fn count(number: impl TryInto<u64>, thing: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {thing}"),
        number => format!("{number} {thing}s"),
    }
}

/// A table that fits the terminal: where its columns would be too narrow to read, each row is a list of lines.
#[derive(Debug, Default)]
pub(crate) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// The longest value that a table shows whole, in bytes.
const LONGEST: usize = 2000;
/// The characters that are shown of a longer one.
const SHOWN: usize = 200;
/// The longest word that a column is made wide enough for, in columns of the terminal.
const LONGEST_WORD: usize = 24;

impl Table {
    /// Without a header, the first column has names.
    pub(crate) fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item: AsRef<str>>) {
        self.rows.push(cells.into_iter().map(|text| cell(text.as_ref())).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The lines of the table, for this many columns.
    fn lay_out(&self, columns: Option<usize>) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
        if !self.header.is_empty() {
            table.set_header(&self.header);
        }
        table.add_rows(&self.rows);
        let Some(columns) = columns else { return format!("{table}\n") };
        let widths: Vec<usize> = table.column_max_content_widths().into_iter().map(usize::from).collect();
        // Words stay whole, unless they are very long.
        let least: Vec<usize> = (0..widths.len()).map(|column| self.longest_word(column).min(LONGEST_WORD)).collect();
        // A line between each two columns and at both ends, and a space on both sides of the content.
        let borders = 3 * widths.len() + 1;
        if widths.iter().sum::<usize>() + borders <= columns {
            return format!("{table}\n");
        }
        if least.iter().sum::<usize>() + borders > columns {
            return self.as_list();
        }
        for (column, least) in table.column_iter_mut().zip(least) {
            let least = u16::try_from(least).unwrap_or(u16::MAX).saturating_add(2);
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
        }
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::try_from(columns).unwrap_or(u16::MAX));
        format!("{table}\n")
    }

    fn longest_word(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(String::as_str);
        let words = cells.chain(self.header.get(column).copied()).flat_map(str::split_whitespace);
        words.map(UnicodeWidthStr::width).max().unwrap_or_default()
    }

    fn as_list(&self) -> String {
        let mut text = String::new();
        for (place, row) in self.rows.iter().enumerate() {
            if self.header.is_empty() {
                text.push_str(&format!("{}\n", row.join(": ")));
                continue;
            }
            if place > 0 {
                text.push('\n');
            }
            for (name, value) in self.header.iter().zip(row).filter(|(_, value)| !value.is_empty()) {
                text.push_str(&format!("{name}: {value}\n"));
            }
        }
        text
    }
}

impl Display for Table {
    /// The table as text, with a newline at its end. On a terminal it fits the width; elsewhere it is as wide as
    /// necessary.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.lay_out(columns()))
    }
}

/// A text for a cell: without tabs, whose width depends on the position, and shortened.
fn cell(text: &str) -> String {
    let text = terminal::printable(text).replace('\t', "    ");
    if text.len() <= LONGEST {
        return text;
    }
    let start: String = text.chars().take(SHOWN).collect();
    format!("{start}… ({} bytes; --json shows all)", text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports: nushell/nushell#15328, diazoxide/charter#594.
    #[test]
    fn a_table_is_readable_at_every_width() {
        let mut table = Table::new(&["argument", "type", "default", "description"]);
        table.row(["samples", "integer 1..1000", "4", "How many readings are averaged; more take longer"]);
        table.row(["chan\tnel\x1b[2J", "string", "", "Which \u{202E}channel"]);
        for columns in [20, 21, 40, 59, 60, 80, 100, 2000] {
            let text = table.lay_out(Some(columns));
            assert!(!text.contains(['\t', '\x1b', '\u{202E}']), "{text}");
            assert!(text.contains("samples") && text.contains("integer"), "{columns}:\n{text}");
            if text.starts_with('┌') {
                assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}:\n{text}");
            }
        }
        assert!(table.lay_out(Some(20)).starts_with("argument: samples\n"));
        assert!(table.lay_out(Some(60)).starts_with('┌'));
        assert_eq!(table.lay_out(Some(2000)), table.lay_out(None));
    }

    #[test]
    fn a_huge_value_is_not_put_into_a_table() {
        let mut table = Table::new(&[]);
        table.row(["blob", &"x".repeat(100_000)]);
        let text = table.lay_out(None);
        assert!(text.len() < 3000 && text.contains("… (100000 bytes; --json shows all)"), "{text}");
    }

    #[test]
    fn counts_have_the_right_plural() {
        assert_eq!(
            [count(0_u64, "line"), count(1_u64, "line"), count(2_u64, "line")],
            ["0 lines", "1 line", "2 lines"]
        );
    }
}
