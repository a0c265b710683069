//! Transcripts: what `rigline monitor --record` writes and `rigline replay` reads.
//!
//! A text of JSON lines. The first is `{"rigline":"transcript","version":1,"target":…}`; each further one is
//! `{"ms":N,"sent":LINE}` or `{"ms":N,"got":LINE}`, where a line that is not UTF-8 stands as
//! `"sent_hex"` or `"got_hex"` instead.

use rigline_std::host::Direction;
use serde_json::{Value, json};

/// One line, without its newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) direction: Direction,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn header(target: &str) -> String {
    format!("{}\n", json!({ "rigline": "transcript", "version": 1, "target": target }))
}

pub(crate) fn line(milliseconds: u128, direction: Direction, bytes: &[u8]) -> String {
    let name = match direction {
        Direction::Sent => "sent",
        Direction::Received => "got",
    };
    let milliseconds = u64::try_from(milliseconds).unwrap_or(u64::MAX);
    if let Ok(text) = std::str::from_utf8(bytes) {
        return format!("{}\n", json!({ "ms": milliseconds, name: text }));
    }
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}\n", json!({ "ms": milliseconds, (format!("{name}_hex")): hex.concat() }))
}

pub(crate) fn read(text: &str) -> Result<Vec<Entry>, String> {
    let mut lines = text.lines().enumerate();
    let parse = |(place, line): (usize, &str)| -> Result<Value, String> {
        serde_json::from_str(line).map_err(|error| format!("line {}: {error}", place + 1))
    };
    let header = lines.next().map(parse).transpose()?.unwrap_or_default();
    if header["rigline"] != "transcript" || header["version"] != 1 {
        return Err("not a transcript of `rigline monitor --record`".to_owned());
    }
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(place, line)| {
            let entry = parse((place, line))?;
            let kinds = [("sent", Direction::Sent), ("got", Direction::Received)];
            kinds
                .into_iter()
                .find_map(|(name, direction)| {
                    let bytes = match entry[name].as_str() {
                        Some(text) => text.as_bytes().to_vec(),
                        None => bytes_of(entry[format!("{name}_hex")].as_str()?)?,
                    };
                    Some(Entry { direction, bytes })
                })
                .ok_or_else(|| format!("line {}: neither sent nor got", place + 1))
        })
        .collect()
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    if !hex.len().is_multiple_of(2) {
        return None;
    }
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let entries = [
            (Direction::Sent, &b"{\"id\":1}"[..]),
            (Direction::Received, b"caf\xC3\xA9 \"x\""),
            (Direction::Received, b"\xFF\x00"),
        ];
        let mut text = header("sim");
        for (direction, bytes) in &entries {
            text.push_str(&line(5, *direction, bytes));
        }
        let read = read(&text).unwrap();
        assert_eq!(read.iter().map(|entry| (entry.direction, &entry.bytes[..])).collect::<Vec<_>>(), entries);
        assert!(super::read("{}").is_err() && super::read("").is_err());
        assert!(super::read(&(header("sim") + "{\"sent_hex\":\"abc\"}")).is_err(), "half a byte");
        assert!(super::read(&(header("sim") + "{\"ms\":1}")).unwrap_err().contains("line 2"));
    }
}
