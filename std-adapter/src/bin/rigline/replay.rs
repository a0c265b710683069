use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rigline_std::check::{Bench, CaseFailure};
use rigline_std::host::Direction;
use serde_json::Value;

use crate::connect::{self, Connection, Failure};
use crate::out;
use crate::transcript::{self, Entry};

/// Play a transcript of `rigline monitor --record` to an extension, and show what it answers otherwise
///
/// It sends again what was sent: each line when as many lines have come as came before it in the transcript. JSON is compared by its
/// values; --ignore NAME leaves out a member that differs from run to run, such as a time or a reading. It fails with 1 if the
/// answers differ.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The transcript
    file: PathBuf,
    #[command(flatten)]
    connection: Connection,
    /// A member, wherever it stands, that is not compared; may be repeated
    #[arg(long, value_name = "NAME")]
    ignore: Vec<String>,
    /// How long each line is waited for
    #[arg(long, value_name = "DURATION", value_parser = connect::duration, default_value = "5s")]
    patience: Duration,
}

impl Arguments {
    pub(crate) fn run(self) -> ExitCode {
        connect::run(self.replay())
    }

    async fn replay(self) -> Result<u8, Failure> {
        let bad = |error: String| Failure::usage(format!("{}: {error}", self.file.display()));
        let text = crate::files::read(&self.file).map_err(|error| bad(error.to_string()))?;
        let entries = transcript::read(&text).map_err(bad)?;
        let mut bench =
            Bench::new(&self.connection.target, &self.connection.options()).map_err(|error| Failure::of(&error))?;
        bench.timeout = self.patience;
        let no_answer = |stop| {
            let (CaseFailure::Fail(text) | CaseFailure::Skip(text)) = stop;
            Failure { code: connect::NO_ANSWER, text }
        };
        let mut peer = bench.connect().await.map_err(no_answer)?;
        let (mut same, mut different) = (0_usize, 0_usize);
        let sent_last = entries.iter().rposition(|entry| entry.direction == Direction::Sent);
        for (place, Entry { direction, bytes }) in entries.iter().enumerate() {
            if *direction == Direction::Sent {
                let line = [bytes.as_slice(), b"\n"].concat();
                if let Err(stop) = peer.send(&line).await {
                    return Err(no_answer(stop));
                }
                if Some(place) == sent_last && entries.get(place + 1..).is_some_and(<[_]>::is_empty) {
                    peer.close_input().await;
                }
                continue;
            }
            let expected = String::from_utf8_lossy(bytes).into_owned();
            match peer.line().await {
                Ok(Some(line)) => match differences(&expected, &line, &self.ignore) {
                    found if found.is_empty() => same += 1,
                    found => {
                        different += 1;
                        connect::print(&format!("- {expected}\n+ {line}\n"));
                        found.iter().for_each(|text| connect::print(&format!("    {text}\n")));
                    }
                },
                Ok(None) => {
                    different += 1;
                    connect::print(&format!("- {expected}\n+ (the end)\n"));
                    break;
                }
                Err(_) => {
                    different += 1;
                    connect::print(&format!("- {expected}\n+ (nothing in {:?})\n", self.patience));
                    break;
                }
            }
        }
        connect::print(&format!("{} the same, {different} different\n", out::count(same as u64, "line")));
        Ok(if different == 0 { connect::SUCCESS } else { connect::FAILED })
    }
}

/// In what two lines differ; as JSON, if they are.
fn differences(expected: &str, got: &str, ignored: &[String]) -> Vec<String> {
    if expected == got {
        return Vec::new();
    }
    let mut found = Vec::new();
    match (serde_json::from_str(expected), serde_json::from_str(got)) {
        (Ok(expected), Ok(got)) => compare("", &expected, &got, ignored, &mut found),
        _ => found.push("the texts differ".to_owned()),
    }
    found
}

fn compare(path: &str, expected: &Value, got: &Value, ignored: &[String], found: &mut Vec<String>) {
    match (expected, got) {
        (Value::Object(old), Value::Object(new)) => {
            let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
            for name in names.filter(|name| !ignored.contains(name)) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match (old.get(name), new.get(name)) {
                    (Some(old), Some(new)) => compare(&path, old, new, ignored, found),
                    (Some(old), None) => found.push(format!("{path}: {old} is missing")),
                    (None, new) => found.push(format!("{path}: {} is new", new.unwrap_or(&Value::Null))),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (place, (old, new)) in old.iter().zip(new).enumerate() {
                compare(&format!("{path}.{place}"), old, new, ignored, found);
            }
        }
        (old, new) if old == new => {}
        (old, new) => found.push(format!("{path}: {old} became {new}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named() {
        let table: &[(&str, &str, &[&str])] = &[
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, &[]),
            (r#"{"a":{"b":[1,2]}}"#, r#"{"a":{"b":[1,3]}}"#, &["a.b.1: 2 became 3"]),
            (r#"{"a":1}"#, r#"{"b":1}"#, &["a: 1 is missing", "b: 1 is new"]),
            (r#"{"t":1,"a":[1]}"#, r#"{"t":2,"a":[1,2]}"#, &["a: [1] became [1,2]"]),
            ("x", "y", &["the texts differ"]),
        ];
        for (expected, got, found) in table {
            assert_eq!(differences(expected, got, &["t".to_owned()]), *found);
        }
    }
}
