use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use rigline::json::{Json, JsonKind};
use rigline_host::check::{Bench, CaseFailure, Peer};
use rigline_host::coerce;
use rigline_host::record::LoadedRecording;
use rigline_host::record::transcript::Direction;
use rigline_host::record::transcript::{self, Entry, Transcript, What};
use rigline_host::target::Target;
use tokio::time::{Instant, timeout_at};

use crate::connect::{self, Connection, Failure};
use crate::files;
use crate::monitor::View;
use crate::out;

/// How long lines that were not recorded are waited for, behind the last one that was.
const BEHIND: Duration = Duration::from_millis(500);

/// Show a recording, a transcript or a log of events; or send a recording to an extension and compare the answers
///
/// If the file is a log of Amplifier's events, it is read, filtered and checked. The options for
/// that, such as --taxonomy, are listed by `rigline help events`.
///
/// Without a target, it shows the recorded traffic, decoded as by `rigline monitor`.
///
/// With a target, it sends the recorded requests again, and compares each line that arrives with the recorded one. Before it sends a request, it waits
/// for the lines that came before this request in the recording. Two lines of JSON are the same if their values are: the order of members and the
/// spelling of numbers do not count. Other lines are the same if their texts are. --ignore NAME leaves out a member that differs from run to run,
/// such as a time or a reading. A line that the recording does not have is a difference, if it comes within half a second after the last recorded one.
/// The command exits with 1 if there are differences.
///
/// Other commands do not send a recording: their target replay:DIR answers as the recorded extension did.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  rigline eval run evals --record run1\n  rigline replay run1\n  rigline replay run1 serial:auto --ignore uptime_ms\n  rigline eval run evals --target replay:run1"
)]
pub(crate) struct Arguments {
    /// The folder that `call --record` or `eval run --record` made, or the transcript that `monitor --record` made
    #[arg(value_name = "DIR|FILE")]
    recording: PathBuf,
    /// The extension that the recorded requests are sent to
    target: Option<Target>,
    /// How long an attempt to connect waits for a busy port, or for a device that is not plugged in, such as 60s [default: not at all]
    #[arg(long, value_name = "DURATION", value_parser = connect::duration, default_value = "0s", hide_default_value = true, requires = "target")]
    wait: Duration,
    /// The time limit for starting the extension [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = connect::time_limit, default_value = "10s", hide_default_value = true, requires = "target")]
    start_timeout: Duration,
    /// A member that is not compared, at any depth; may be repeated
    #[arg(long, value_name = "NAME", requires = "target")]
    ignore: Vec<String>,
    /// How long to wait for each line
    #[arg(long, value_name = "DURATION", value_parser = connect::duration, default_value = "5s", requires = "target")]
    patience: Duration,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let read = if self.recording.is_dir() {
            LoadedRecording::read_transcript(&self.recording)
        } else {
            let opened = files::open(&self.recording).map_err(|error| error.to_string());
            let read = opened.and_then(|file| transcript::read(BufReader::new(file)));
            read.map_err(|error| format!("{}: {error}", self.recording.display()))
        };
        let transcript = read.map_err(Failure::usage)?;
        match self.target.clone() {
            Some(target) => connect::run(self.play(target, transcript)),
            None => {
                show(&transcript);
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    async fn play(self, target: Target, transcript: Transcript) -> Result<u8, Failure> {
        let connection = Connection { wait: self.wait, start_timeout: self.start_timeout, ..Connection::to(target) };
        let mut bench = Bench::new(&connection.target, &connection.options()).map_err(|error| Failure::of(&error))?;
        bench.timeout = self.patience;
        let mut compared = Compared::default();
        let mut connections: Vec<u32> = transcript.entries.iter().map(|entry| entry.connection).collect();
        connections.sort_unstable();
        connections.dedup();
        for connection in connections {
            let entries = transcript.entries.iter().filter(|entry| entry.connection == connection);
            let lines: Vec<(Direction, &[u8])> = entries.filter_map(Entry::line).collect();
            if !lines.is_empty() {
                let peer = bench.connect().await.map_err(no_answer)?;
                let knows_end = !transcript.is_cut;
                self.connection(peer, &lines, knows_end, &mut compared).await?;
            }
        }
        let Compared { same, different } = compared;
        connect::print(&format!("{} the same, {different} different\n", out::count(same as u64, "line")));
        Ok(if different == 0 { connect::SUCCESS } else { connect::FAILED })
    }

    async fn connection(
        &self,
        mut peer: Peer,
        lines: &[(Direction, &[u8])],
        knows_end: bool,
        compared: &mut Compared,
    ) -> Result<(), Failure> {
        for (place, (direction, bytes)) in lines.iter().enumerate() {
            if *direction == Direction::Sent {
                let line = [bytes, b"\n".as_slice()].concat();
                peer.send(&line).await.map_err(no_answer)?;
                if place + 1 == lines.len() {
                    peer.close_input().await;
                }
                continue;
            }
            let expected = String::from_utf8_lossy(bytes).into_owned();
            match peer.line().await {
                Ok(Some(line)) => match differences(&expected, &line, &self.ignore) {
                    found if found.is_empty() => compared.same += 1,
                    found => {
                        compared.different += 1;
                        connect::print(&format!("- {expected}\n+ {line}\n"));
                        found.iter().for_each(|text| connect::print(&format!("    {text}\n")));
                    }
                },
                Ok(None) => {
                    compared.different += 1;
                    connect::print(&format!("- {expected}\n+ (the end)\n"));
                    return Ok(());
                }
                Err(_) => {
                    compared.different += 1;
                    let others = peer.other_readers().map(|others| format!("; {others}")).unwrap_or_default();
                    connect::print(&format!("- {expected}\n+ (nothing in {:?}{others})\n", self.patience));
                    return Ok(());
                }
            }
        }
        // After a request that was the last line, nobody has waited for what followed.
        if knows_end && lines.last().is_some_and(|(direction, _)| *direction == Direction::Received) {
            let until = Instant::now() + BEHIND.min(self.patience);
            while let Ok(Ok(Some(line))) = timeout_at(until, peer.line()).await {
                compared.different += 1;
                connect::print(&format!("- (no more lines)\n+ {line}\n"));
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Compared {
    same: usize,
    different: usize,
}

fn no_answer(stop: CaseFailure) -> Failure {
    let (CaseFailure::Fail(text) | CaseFailure::Skip(text)) = stop;
    Failure::no_answer(text)
}

/// Shows what was recorded.
fn show(transcript: &Transcript) {
    let began = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(transcript.started_ms));
    let mut view = View::recorded(began.unwrap_or(SystemTime::UNIX_EPOCH));
    view.say(&format!("a recording of {}", out::word(&transcript.target)));
    for Entry { ms, connection, what, .. } in &transcript.entries {
        view.go_to(Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default());
        match what {
            What::Line { direction, bytes, cut, dropped, .. } => {
                view.line(*direction, bytes);
                if *dropped > 0 {
                    view.fault(&format!("{dropped} further bytes of this line were not recorded"));
                } else if *cut {
                    view.fault("the line was cut off here");
                }
            }
            What::Stderr(text) => view.say(&format!("standard error: {text}")),
            What::Open => view.say(&format!("connection {connection} is open")),
            What::Unopened(why) => view.fault(&format!("it could not be opened: {why}")),
            What::Gone(why) => view.say(&format!("connection {connection} was lost: {why}")),
            What::Closed => view.say(&format!("connection {connection} was closed")),
            _ => {}
        }
    }
    if transcript.is_cut {
        view.fault("the recording was cut off here");
    }
}

/// In what two lines differ; as JSON, if they are. Numbers are compared with all their digits.
fn differences(expected: &str, got: &str, ignored: &[String]) -> Vec<String> {
    if expected == got {
        return Vec::new();
    }
    let mut found = Vec::new();
    match (Json::parse(expected.as_bytes()), Json::parse(got.as_bytes())) {
        (Ok(expected), Ok(got)) => compare("", expected, got, ignored, &mut found),
        _ => found.push("the texts differ".to_owned()),
    }
    found
}

fn compare(path: &str, old: Json<'_>, new: Json<'_>, ignored: &[String], found: &mut Vec<String>) {
    match (old.kind(), new.kind()) {
        (JsonKind::Object, JsonKind::Object) => {
            let (old, new) = (members(old), members(new));
            let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
            for name in names.filter(|name| !ignored.contains(name)) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match (old.get(name), new.get(name)) {
                    (Some(old), Some(new)) => compare(&path, *old, *new, ignored, found),
                    (Some(old), None) => found.push(format!("{path}: {} is missing", old.as_str())),
                    (None, new) => found.push(format!("{path}: {} is new", new.unwrap_or(&Json::NULL).as_str())),
                }
            }
        }
        (JsonKind::Array, JsonKind::Array) if old.elements().count() == new.elements().count() => {
            for (place, (old, new)) in old.elements().zip(new.elements()).enumerate() {
                compare(&format!("{path}.{place}"), old, new, ignored, found);
            }
        }
        _ if coerce::same(old.as_str(), new.as_str()) => {}
        _ => found.push(format!("{path}: {} became {}", old.as_str(), new.as_str())),
    }
}

/// The members of an object. The last of several with one name counts, as most readers have it.
fn members(json: Json<'_>) -> BTreeMap<String, Json<'_>> {
    json.members().map(|(name, value)| (name.to_string(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports: karatelabs/karate#2974, skyscreamer/JSONassert#107.
    #[test]
    fn differences_are_named() {
        let table: &[(&str, &str, &[&str])] = &[
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, &[]),
            (r#"{"a":{"b":[1,2]}}"#, r#"{"a":{"b":[1,3]}}"#, &["a.b.1: 2 became 3"]),
            (r#"{"a":1}"#, r#"{"b":1}"#, &["a: 1 is missing", "b: 1 is new"]),
            (r#"{"t":1,"a":[1]}"#, r#"{"t":2,"a":[1,2]}"#, &["a: [1] became [1,2]"]),
            ("x", "y", &["the texts differ"]),
            // All digits count, and no spelling does (karatelabs/karate#2974, skyscreamer/JSONassert#107).
            (r#"{"n":1.0,"s":"\u0041"}"#, r#"{"s":"A","n":1e0}"#, &[]),
            (
                r#"{"n":123456789012345678901234567890}"#,
                r#"{"n":123456789012345678901234567891}"#,
                &["n: 123456789012345678901234567890 became 123456789012345678901234567891"],
            ),
        ];
        for (expected, got, found) in table {
            assert_eq!(differences(expected, got, &["t".to_owned()]), *found);
        }
    }
}
