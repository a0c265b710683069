//! Events: section 3, "Event Schema (v1)", of Amplifier's protocol text. They are written to logs
//! and read from them.

use std::io::{self, BufRead, Read as _, Write};
use std::sync::Mutex;
use std::time::SystemTime;

use rigline::json::JsonKind;
use rigline::{Event, EventError, EventMember};
use rigline_std::mutex::lock;
use serde::Serialize;
use serde_json::{Map, Value};

/// An event to be written to a log. Members that are `None` are omitted.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct EventRecord {
    /// The identifier of the event.
    pub id: String,
    /// The time of the event, in seconds since 1970 (UTC).
    pub ts: f64,
    /// The name of the event, such as `module:invoke`.
    pub event: String,
    /// The component that reports the event.
    pub component: String,
    /// The name of the module that the event is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The way in which the reported activity ended, such as `ok` or `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The duration of the reported activity, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Further details, by their names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Map<String, Value>>,
    /// The error of the module, if the activity failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<super::ModuleError>,
    /// The id of the session that the event belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The id of the request that the event belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The id of the tracing span that the event belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span_id: Option<String>,
}

impl EventRecord {
    /// An event of the current time, with a new identifier.
    pub fn now(event: &str, component: &str) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            id: super::host::new_id(),
            ts: now.as_secs_f64(),
            event: event.into(),
            component: component.into(),
            ..Self::default()
        }
    }

    /// Returns the event as a JSON line, with the newline.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

/// A log that events are written to, as JSON lines. Several threads may write.
pub struct EventLog(Mutex<Box<dyn Write + Send>>);

impl EventLog {
    /// A log that writes to `out`.
    pub fn new(out: impl Write + Send + 'static) -> Self {
        Self(Mutex::new(Box::new(out)))
    }

    /// Writes one event with a single write, and flushes.
    pub fn write(&self, event: &EventRecord) -> io::Result<()> {
        let mut out = lock(&self.0);
        out.write_all(event.to_line().as_bytes())?;
        out.flush()
    }
}

impl std::fmt::Debug for EventLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventLog")
    }
}

/// A reader of a log of events. It holds one line at a time in memory.
#[derive(Debug)]
pub struct LogReader<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
    limit: usize,
}

/// A line of a log of events.
#[derive(Debug)]
pub struct Entry<'l> {
    /// The number of the line, from 1.
    pub number: u64,
    /// The text of the line, without its end. A line that is too long is cut.
    pub text: &'l [u8],
    /// The event, or the reason why the line is none.
    pub event: Result<Event<'l>, Fault>,
}

/// The reason why a line is not an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The line is longer than the reader's limit.
    #[error("longer than {limit} bytes")]
    TooLong {
        /// The longest accepted line, in bytes.
        limit: usize,
    },
    /// The line breaks the schema of events.
    #[error("{0}")]
    Event(EventError),
}

impl<R: BufRead> LogReader<R> {
    /// A reader of lines of at most `limit` bytes. Longer lines are reported as [`Fault::TooLong`].
    pub fn new(input: R, limit: usize) -> Self {
        Self { input, line: Vec::new(), number: 0, limit }
    }

    /// Reads the next line that is not blank. Returns `None` at the end of the log.
    pub fn next_entry(&mut self) -> io::Result<Option<Entry<'_>>> {
        loop {
            self.line.clear();
            let bound = u64::try_from(self.limit).unwrap_or(u64::MAX).saturating_add(2);
            let count = self.input.by_ref().take(bound).read_until(b'\n', &mut self.line)?;
            if count == 0 {
                return Ok(None);
            }
            self.number += 1;
            let has_end = self.line.ends_with(b"\n");
            while self.line.ends_with(b"\n") || self.line.ends_with(b"\r") {
                self.line.pop();
            }
            if self.line.len() > self.limit {
                self.line.truncate(self.limit);
                if !has_end {
                    skip_line(&mut self.input)?;
                }
                let event = Err(Fault::TooLong { limit: self.limit });
                return Ok(Some(Entry { number: self.number, text: &self.line, event }));
            }
            if self.line.starts_with(b"\xEF\xBB\xBF") {
                self.line.drain(..3);
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        let event = Event::parse(&self.line).map_err(Fault::Event);
        Ok(Some(Entry { number: self.number, text: &self.line, event }))
    }
}

fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let piece = input.fill_buf()?;
        let (used, is_over) = match piece.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end + 1, true),
            None => (piece.len(), piece.is_empty()),
        };
        input.consume(used);
        if is_over {
            return Ok(());
        }
    }
}

/// The required members of each event of the taxonomy, beyond the schema. A name before a dot is a member's, behind it one in `data`.
const TAXONOMY: [(&str, &[&str]); 14] = [
    ("session:start", &["session_id", "data.plan"]),
    ("session:fork", &["session_id", "data.parent"]),
    ("session:end", &["session_id"]),
    ("mount:add", &["data.path", "data.module"]),
    ("mount:remove", &["data.path"]),
    ("hook:register", &["data.event"]),
    ("context:get", &[]),
    ("context:set", &["data.key"]),
    ("context:pre_compact", &[]),
    ("context:post_compact", &["data.delta_bytes"]),
    ("module:invoke", &["module", "data.op", "status", "duration_ms"]),
    ("policy:decision", &["data.capability", "status"]),
    ("artifact:write", &["data.uri", "data.bytes"]),
    ("artifact:read", &["data.uri", "status"]),
];

/// Checks an event against the taxonomy of the protocol text, which requires more members than the
/// schema does. Returns the faults. An event that the taxonomy does not name is a fault only if
/// `strict` is set.
pub fn check_taxonomy(event: &Event<'_>, strict: bool) -> Vec<String> {
    let Some((_, members)) = TAXONOMY.iter().find(|(name, _)| event.event() == *name) else {
        return if strict { vec![format!("{} is not in the taxonomy", event.event())] } else { Vec::new() };
    };
    let mut faults: Vec<String> = members
        .iter()
        .filter(|path| {
            let value = match path.split_once('.') {
                Some((_, name)) => event.data().value().and_then(|data| data.get(name)),
                None => event.json().get(path),
            };
            value.is_none_or(|value| value.kind() == JsonKind::Null)
        })
        .map(|path| format!("{path}: required in {}, but missing", event.event()))
        .collect();
    if event.event() == "module:invoke"
        && let EventMember::Value(status) = event.status()
        && status != "ok"
        && status != "error"
    {
        faults.push("status: expected ok or error".into());
    }
    // §5 Plan Schema (v1), wherever an event has a plan.
    let plan = event.data().value().and_then(|data| data.get("plan")).filter(|plan| plan.kind() != JsonKind::Null);
    if let Some(plan) = plan {
        faults.extend(super::plan::faults(plan).into_iter().map(|fault| format!("data.plan{fault}")));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_any_origin() {
        let long = format!("{{\"id\":\"{}\"}}", "x".repeat(300));
        let log = format!(
            "\u{FEFF}{{\"id\":\"1\",\"ts\":1,\"event\":\"a\",\"component\":\"c\"}}\r\n\n  \n{long}\nnope\n\u{FEFF}{{\"id\":\"2\",\"ts\":2,\"event\":\"b\",\"component\":\"c\"}}"
        );
        let mut reader = LogReader::new(log.as_bytes(), 200);
        let mut seen = Vec::new();
        while let Some(entry) = reader.next_entry().unwrap() {
            seen.push((
                entry.number,
                entry.event.map(|event| event.id().to_string()).map_err(|fault| fault.to_string()),
            ));
        }
        assert_eq!(seen.len(), 4);
        assert_eq!(seen[0], (1, Ok("1".into())));
        assert_eq!(seen[1], (4, Err("longer than 200 bytes".into())));
        assert!(seen[2].1.as_ref().unwrap_err().starts_with("not JSON"));
        assert_eq!(seen[3], (6, Ok("2".into())));
    }

    #[test]
    fn what_is_written_is_an_event() {
        let record = EventRecord {
            module: Some("rig".into()),
            status: Some("ok".into()),
            duration_ms: Some(3),
            data: Some([("op".to_owned(), Value::from("measure"))].into_iter().collect()),
            ..EventRecord::now("module:invoke", "rigline")
        };
        let line = record.to_line();
        let event = Event::parse(line.as_bytes()).unwrap();
        assert!(check_taxonomy(&event, true).is_empty());
        assert!(matches!(event.error(), EventMember::Absent));
    }

    #[test]
    fn plans_are_checked_by_their_schema() {
        for (plan, faults) in [
            (r#"{"goal":"x","inputs":{"a":1}}"#, &[][..]),
            (r#"{"goal":"x"}"#, &[]),
            ("{}", &["data.plan.goal: required, but missing"]),
            (
                r#"{"goal":1,"inputs":[]}"#,
                &["data.plan.goal: expected a string", "data.plan.inputs: expected an object"],
            ),
            (r#""text""#, &["data.plan: expected an object"]),
        ] {
            let text = format!(
                r#"{{"id":"1","ts":1,"event":"session:start","component":"c","session_id":"s","data":{{"plan":{plan}}}}}"#
            );
            assert_eq!(check_taxonomy(&Event::parse(text.as_bytes()).unwrap(), true), faults, "{plan}");
        }
    }

    #[test]
    fn the_taxonomy() {
        for (name, members) in TAXONOMY {
            let text = format!(r#"{{"id":"1","ts":1,"event":"{name}","component":"c"}}"#);
            assert_eq!(check_taxonomy(&Event::parse(text.as_bytes()).unwrap(), true).len(), members.len(), "{name}");
        }
        let text = r#"{"id":"1","ts":1,"event":"my:own","component":"c"}"#;
        let event = Event::parse(text.as_bytes()).unwrap();
        assert_eq!((check_taxonomy(&event, false).len(), check_taxonomy(&event, true).len()), (0, 1));
    }
}
