//! Command lines that mean another command: the forms of `serve` on standard input and output, and
//! of `replay` for logs of events.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use serde_json::Value;

/// The longest first line of a file that is read to find out what the file is.
const FIRST_LINE: u64 = 1 << 20;

/// Options that only the reader of event logs has.
const OF_EVENTS: [&str; 7] = ["--event", "--module", "--session", "--status", "--taxonomy", "--json-lines", "--check"];

/// The command line that these words stand for, if it is another one.
///
/// | written | meant |
/// |---|---|
/// | `serve --protocol waza …` | `jsonrpc …` |
/// | `serve TARGET --protocol mcp …` without an address | `mcp TARGET …` |
/// | `serve TARGET …` without an address | `bridge TARGET …` |
/// | `replay FILE …` of a log of events | `events FILE …` |
pub(crate) fn meant(words: &[OsString]) -> Option<Vec<OsString>> {
    let (program, command, rest) = match words {
        [program, command, rest @ ..] => (program, command.to_str()?, rest),
        _ => return None,
    };
    let (command, rest) = match command {
        "serve" => of_serve(rest)?,
        "replay" if rest.iter().any(|word| OF_EVENTS.iter().any(|option| word == option) || is_event_log(word)) => {
            ("events", rest.to_vec())
        }
        _ => return None,
    };
    Some([program.clone(), command.into()].into_iter().chain(rest).collect())
}

fn of_serve(rest: &[OsString]) -> Option<(&'static str, Vec<OsString>)> {
    let has = |name: &str| {
        let with_value = format!("{name}=");
        rest.iter().any(|word| word == name || word.to_str().is_some_and(|word| word.starts_with(&with_value)))
    };
    let (protocol, others) = without_protocol(rest);
    match protocol.as_deref() {
        Some("waza") => return Some(("jsonrpc", others)),
        _ if has("--tcp") || has("--http") => return None,
        Some("mcp") => return Some(("mcp", others)),
        _ => {}
    }
    // Without a target the help, or the error, is that of `serve`.
    let has_target = rest.first().is_some_and(|word| !word.as_encoded_bytes().starts_with(b"-"));
    let wants_help = has("--help") || has("-h");
    (has_target && !wants_help).then(|| ("bridge", rest.to_vec()))
}

/// The value of `--protocol`, and the other words.
fn without_protocol(rest: &[OsString]) -> (Option<String>, Vec<OsString>) {
    let (mut protocol, mut others) = (None, Vec::new());
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--protocol") => protocol = words.next().and_then(|value| value.to_str()).map(str::to_owned),
            Some(text) if text.starts_with("--protocol=") => {
                protocol = text.split_once('=').map(|(_, value)| value.to_owned());
            }
            _ => others.push(word.clone()),
        }
    }
    (protocol, others)
}

/// Whether this is a file whose first line is an event of Amplifier: an object with the name of an
/// event, such as `session:start`. The lines of a transcript have names without a colon, and its
/// first line has none.
fn is_event_log(word: &OsStr) -> bool {
    let path = Path::new(word);
    if !path.is_file() {
        return false;
    }
    let Ok(file) = std::fs::File::open(path) else { return false };
    let lines = BufReader::new(file.take(FIRST_LINE)).split(b'\n');
    let first = lines.map_while(Result::ok).find(|line| !line.trim_ascii().is_empty());
    let first: Option<Value> = first.and_then(|line| serde_json::from_slice(&line).ok());
    first.is_some_and(|event| event["event"].as_str().is_some_and(|name| name.contains(':')))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::meant;

    #[test]
    fn serve_without_an_address_is_a_command_on_standard_input_and_output() {
        for (written, expected) in [
            ("rigline serve sim", Some("rigline bridge sim")),
            ("rigline serve sim --protocol amplifier", Some("rigline bridge sim --protocol amplifier")),
            ("rigline serve sim --protocol mcp --read-only", Some("rigline mcp sim --read-only")),
            ("rigline serve --protocol=mcp sim", Some("rigline mcp sim")),
            ("rigline serve --protocol waza --root evals", Some("rigline jsonrpc --root evals")),
            ("rigline serve --protocol waza --tcp 9000", Some("rigline jsonrpc --tcp 9000")),
            ("rigline serve sim --tcp 7000", None),
            ("rigline serve sim --http=8080 --protocol mcp", None),
            ("rigline serve", None),
            ("rigline serve --help", None),
            ("rigline serve sim --help", None),
            ("rigline bridge sim", None),
            ("rigline", None),
        ] {
            let words: Vec<OsString> = written.split(' ').map(OsString::from).collect();
            let expected: Option<Vec<OsString>> = expected.map(|text| text.split(' ').map(OsString::from).collect());
            assert_eq!(meant(&words), expected, "{written}");
        }
    }

    #[test]
    fn replay_of_a_log_of_events_reads_events() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("events.jsonl");
        let transcript = folder.path().join("transcript.jsonl");
        std::fs::write(&log, "\n{\"ts\":\"2025-01-01T00:00:00Z\",\"event\":\"session:start\"}\n").unwrap();
        std::fs::write(&transcript, "{\"rigline\":\"transcript\",\"version\":1}\n{\"ms\":0,\"event\":\"opened\"}\n")
            .unwrap();
        let words = |file: &std::path::Path| vec![OsString::from("rigline"), "replay".into(), file.into()];
        let meant_by = |file| meant(&words(file)).map(|words| words[1].clone());
        assert_eq!(meant_by(&log), Some("events".into()));
        assert_eq!(meant_by(&transcript), None);
        assert_eq!(meant_by(folder.path()), None);
    }
}
