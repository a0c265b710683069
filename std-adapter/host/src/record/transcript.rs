//! Transcripts: everything that was sent over connections, one JSON value a line.
//!
//! The first line is `{"rigline":"transcript","version":2,"target":…,"started_ms":…}`, with the time of the start in milliseconds since 1970 (UTC).
//! Each further line has the milliseconds since the start as `ms`, and one of:
//!
//! | member | what it stands for |
//! |---|---|
//! | `"sent":LINE`, `"got":LINE` | a line to the extension or from it, without its newline; `sent_hex` and `got_hex` if it is not UTF-8 |
//! | `"stderr":LINE` | a line of the program's standard error |
//! | `"event":"open"` | a connection was opened |
//! | `"event":"unopened","why":…` | it could not be opened |
//! | `"event":"gone","why":…` | it was lost: the device was unplugged, the program ended |
//! | `"event":"closed"` | the host closed it |
//!
//! `"cut":true` marks text that no newline followed, and `"dropped":N` a line of which N further bytes were not kept. `"connection":N` is the number of the
//! connection where there are several, and `"device_ms":N` the device's own clock, if the line has it. Version 1 has `sent` and
//! `got` only, and is read as well.

use std::fmt::Write as _;
use std::io::{self, BufRead, Read as _};

use serde_json::{Map, Value, json};

use crate::terminal;

/// The version of the format in which transcripts are written.
pub const VERSION: u64 = 2;
/// The longest line of a transcript, in bytes: the longest line of an extension, and each of its bytes as six.
const LINE_LIMIT: u64 = 100 << 20;

/// The direction of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The line went from the host to the extension.
    Sent,
    /// The line went from the extension to the host.
    Received,
}

/// An entry of a transcript: something that happened on a connection.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// The time of the entry, in milliseconds since the start of the transcript.
    pub ms: f64,
    /// The number of the connection, from 1.
    pub connection: u32,
    /// The event itself.
    pub what: What,
}

/// The event of a transcript's entry.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// A line was sent or received.
    Line {
        /// The direction of the line.
        direction: Direction,
        /// The bytes of the line, without its newline.
        bytes: Vec<u8>,
        /// Whether the connection ended before the newline came.
        cut: bool,
        /// The number of further bytes of the line that were not recorded.
        dropped: u64,
        /// The time of the device's own clock in milliseconds, if the line has it.
        device_ms: Option<f64>,
    },
    /// The program wrote this line to standard error.
    Stderr(String),
    /// The connection was opened.
    Open,
    /// The connection could not be opened. The text says why.
    Unopened(String),
    /// The connection was lost. The text says why.
    Gone(String),
    /// The host closed the connection.
    Closed,
}

/// The content of a transcript.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Transcript {
    /// The target, as the caller named it.
    pub target: String,
    /// The time at which the transcript began, in milliseconds since 1970 (UTC). It is 0 if the
    /// transcript does not say.
    pub started_ms: u64,
    /// The entries, in their order.
    pub entries: Vec<Entry>,
    /// Whether the text ends in the middle of a line, which is then left out.
    pub is_cut: bool,
}

/// Returns whether `value` is the first line of a transcript.
pub fn is_header(value: &Value) -> bool {
    value["rigline"] == "transcript"
}

/// Returns the first line of a transcript, with the newline.
pub fn header(target: &str, started_ms: u64) -> String {
    format!("{}\n", json!({ "rigline": "transcript", "version": VERSION, "target": target, "started_ms": started_ms }))
}

impl Entry {
    /// Returns the entry as a JSON line, with the newline.
    pub fn to_line(&self) -> String {
        let mut members = Map::new();
        // Microseconds are as much as means anything here.
        members.insert("ms".into(), json!((self.ms * 1000.0).round() / 1000.0));
        if self.connection > 1 {
            members.insert("connection".into(), self.connection.into());
        }
        let mut event = |name: &str, why: Option<&str>| {
            members.insert("event".into(), name.into());
            if let Some(why) = why {
                members.insert("why".into(), why.into());
            }
        };
        match &self.what {
            What::Line { direction, bytes, cut, dropped, device_ms } => {
                let name = match direction {
                    Direction::Sent => "sent",
                    Direction::Received => "got",
                };
                match std::str::from_utf8(bytes) {
                    Ok(text) => members.insert(name.into(), text.into()),
                    Err(_) => members.insert(format!("{name}_hex"), hex(bytes).into()),
                };
                if *cut {
                    members.insert("cut".into(), true.into());
                }
                if *dropped > 0 {
                    members.insert("dropped".into(), (*dropped).into());
                }
                if let Some(device_ms) = device_ms {
                    members.insert("device_ms".into(), json!(device_ms));
                }
            }
            What::Stderr(text) => {
                members.insert("stderr".into(), text.as_str().into());
            }
            What::Open => event("open", None),
            What::Unopened(why) => event("unopened", Some(why)),
            What::Gone(why) => event("gone", Some(why)),
            What::Closed => event("closed", None),
        }
        // The same value, without characters that drive the terminal of who looks at the file.
        terminal::json(&format!("{}\n", Value::Object(members))).into_owned()
    }

    /// Returns the direction and the bytes of the recorded line. Returns `None` if the entry is not
    /// about a line.
    pub fn line(&self) -> Option<(Direction, &[u8])> {
        match &self.what {
            What::Line { direction, bytes, .. } => Some((*direction, bytes)),
            _ => None,
        }
    }

    fn read(value: &Value) -> Option<Self> {
        let connection = match &value["connection"] {
            Value::Null => 1,
            number => number.as_u64().and_then(|number| u32::try_from(number).ok())?,
        };
        let why = || value["why"].as_str().unwrap_or_default().to_owned();
        let line = || {
            let kinds = [("sent", Direction::Sent), ("got", Direction::Received)];
            kinds.into_iter().find_map(|(name, direction)| {
                let bytes = match value[name].as_str() {
                    Some(text) => text.as_bytes().to_vec(),
                    None => bytes_of(value[format!("{name}_hex")].as_str()?)?,
                };
                Some(What::Line {
                    direction,
                    bytes,
                    cut: value["cut"] == true,
                    dropped: value["dropped"].as_u64().unwrap_or_default(),
                    device_ms: value["device_ms"].as_f64(),
                })
            })
        };
        let what = match (value["event"].as_str(), value["stderr"].as_str()) {
            (Some("open"), _) => What::Open,
            (Some("unopened"), _) => What::Unopened(why()),
            (Some("gone"), _) => What::Gone(why()),
            (Some("closed"), _) => What::Closed,
            (_, Some(text)) => What::Stderr(text.to_owned()),
            _ => line()?,
        };
        Some(Self { ms: value["ms"].as_f64().unwrap_or_default(), connection, what })
    }
}

/// Reads a transcript. An incomplete last line is not an error.
///
/// # Errors
/// The text is not a transcript. The error names the line and its fault.
pub fn read(mut source: impl BufRead) -> Result<Transcript, String> {
    let mut transcript = Transcript { target: String::new(), started_ms: 0, entries: Vec::new(), is_cut: false };
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = source.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut line);
        if read.map_err(|error: io::Error| error.to_string())? == 0 {
            if number == 1 {
                return Err(NO_TRANSCRIPT.to_owned());
            }
            break;
        }
        let is_whole = line.ends_with(b"\n");
        if line.trim_ascii().is_empty() && number > 1 {
            continue;
        }
        let value: Value = match serde_json::from_slice(&line) {
            Ok(value) => value,
            Err(_) if number == 1 => return Err(NO_TRANSCRIPT.to_owned()),
            // The program that wrote it was ended in the middle of the line.
            Err(_) if !is_whole && (line.len() as u64) < LINE_LIMIT => {
                transcript.is_cut = true;
                break;
            }
            Err(error) => return Err(format!("line {number}: {error}")),
        };
        if number == 1 {
            if !is_header(&value) {
                return Err(NO_TRANSCRIPT.to_owned());
            }
            if !matches!(value["version"].as_u64(), Some(1..=VERSION)) {
                return Err(format!(
                    "the transcript is of version {}; versions 1 to {VERSION} are read",
                    value["version"]
                ));
            }
            transcript.started_ms = value["started_ms"].as_u64().unwrap_or_default();
            transcript.target = value["target"].as_str().unwrap_or_default().to_owned();
            continue;
        }
        let entry =
            Entry::read(&value).ok_or_else(|| format!("line {number}: neither a line that passed nor an event"))?;
        transcript.entries.push(entry);
    }
    Ok(transcript)
}

const NO_TRANSCRIPT: &str =
    "this is not a transcript: `--record` of `rigline monitor`, `call` and `eval run` writes them";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| match pair {
        // The standard library also reads a sign.
        [high, _] if *high != b'+' => u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok(),
        _ => None,
    };
    hex.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(direction: Direction, bytes: &[u8]) -> What {
        What::Line { direction, bytes: bytes.to_vec(), cut: false, dropped: 0, device_ms: None }
    }

    #[test]
    fn what_is_written_is_read() {
        let cut = What::Line {
            direction: Direction::Received,
            bytes: b"{\"half".to_vec(),
            cut: true,
            dropped: 7,
            device_ms: Some(12.5),
        };
        let entries: Vec<Entry> = [
            What::Open,
            line(Direction::Sent, b"{\"id\":1}"),
            line(Direction::Received, b"caf\xC3\xA9 \"x\""),
            line(Direction::Received, b"\xFF\x00"),
            cut,
            What::Stderr("boom \u{9b}31m\u{202e}".into()),
            What::Gone("device disconnected".into()),
            What::Unopened("no device".into()),
            What::Closed,
        ]
        .into_iter()
        .zip(1..)
        .map(|(what, connection)| Entry { ms: 5.25, connection, what })
        .collect();
        let text = entries.iter().fold(header("sim", 7), |text, entry| text + &entry.to_line());
        let read_back = read(text.as_bytes()).unwrap();
        assert!(text.chars().all(|char| char == '\n' || !terminal::is_control(char)), "{text}");
        assert_eq!((read_back.entries, read_back.target.as_str(), read_back.is_cut), (entries, "sim", false));
        // Wherever it was cut off, what is whole is read.
        for end in header("sim", 7).len()..text.len() {
            let part = &text.as_bytes()[..end];
            let whole = part.iter().filter(|byte| **byte == b'\n').count();
            let entries = read(part).unwrap().entries.len();
            assert!(entries + 1 == whole || entries == whole, "{entries} of {whole} lines at {end}");
        }
    }

    #[test]
    fn what_is_no_transcript_says_so() {
        let old = "{\"rigline\":\"transcript\",\"version\":1,\"target\":\"sim\"}\n{\"ms\":1,\"sent\":\"x\"}\n";
        assert_eq!(read(old.as_bytes()).unwrap().entries.len(), 1);
        let header = header("sim", 0);
        for (text, error) in [
            ("", "not a transcript"),
            ("{}", "not a transcript"),
            ("{\"rigl", "not a transcript"),
            ("\n", "not a transcript"),
            ("{\"rigline\":\"transcript\",\"version\":3}\n", "version 3; versions 1 to 2 are read"),
            ("{\"rigline\":\"transcript\"}\n", "version null"),
            (&format!("{header}{{\"ms\":1}}\n"), "line 2: neither"),
            (&format!("{header}{{\"ms\":1,\n{{}}\n"), "line 2: "),
            (&format!("{header}{{\"ms\":1,\"got_hex\":\"f\"}}\n"), "line 2: neither"),
            (&format!("{header}{{\"ms\":1,\"got_hex\":\"+f\"}}\n"), "line 2: neither"),
        ] {
            let found = read(text.as_bytes());
            assert!(found.as_ref().is_err_and(|found| found.contains(error)), "{text:?}: {found:?}");
        }
    }
}
