//! A recorded session in the role of an extension.
//!
//! The recording is divided into exchanges: a request, and the lines that came until its reply. A
//! request is answered by the next exchange of the recording that has the same request. If no such
//! exchange follows, the first one of the recording is used. So a session that is repeated in its
//! order gets the recorded answers, any number of times. A measurement after a rail was switched
//! off gets the value that was measured after that.
//!
//! Two requests are the same if they have the same method or operation, and the same arguments.
//! Arguments are compared as JSON values, after the defaults of the operation's schema were filled
//! in. The id and the context of a call are not compared, and neither are the parameters of
//! `initialize`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use rigline::GoDuration;
use rigline::json::{Json, JsonKind};
use serde_json::{Value, json};

use super::folder::SESSION;
use super::transcript::{self, Direction, Entry, Transcript, What};
use crate::files;
use crate::number;
use crate::terminal::cut;

/// The longest transcript that is played, in bytes.
const LONGEST: u64 = 1 << 30;
/// How many recorded calls an error lists, and how long each may be in it.
const LISTED: usize = 8;
const LISTED_LENGTH: usize = 100;

/// A recording that was read, and that can be replayed in place of an extension.
#[derive(Debug)]
pub struct LoadedRecording {
    exchanges: Vec<Exchange>,
    /// The exchanges by what is asked for.
    places: HashMap<String, Vec<usize>>,
    /// The lines before the first request on each connection.
    greetings: Vec<Vec<Vec<u8>>>,
    /// Why there is nothing to play.
    unopened: Option<String>,
    /// The operations of the manifest with the defaults of their arguments, as canonical JSON.
    operations: HashMap<String, BTreeMap<String, String>>,
    has_manifest: bool,
    is_cut: bool,
}

/// A request, and what came until and with its reply.
#[derive(Debug, Default)]
struct Exchange {
    key: String,
    /// The name of the exchange in an error: the operation and its arguments.
    operation: String,
    args: String,
    /// The lines between the request and its reply, as they came.
    before: Vec<Vec<u8>>,
    reply: Option<Vec<u8>>,
    /// The lines after it, until the next request.
    after: Vec<Vec<u8>>,
    /// When the exchange was sent, and how long the reply took, in milliseconds.
    sent: f64,
    took: f64,
    /// The time limit of the request.
    limit: Option<Duration>,
    /// The connection was lost before the reply, which may be there in part.
    lost: Option<Lost>,
    /// The recording goes on after this without a reply: nobody waited for it any more.
    is_given_up: bool,
}

impl Exchange {
    /// Whether its time was over then, so that nobody waited for a reply any more.
    fn is_late(&self, ms: f64) -> bool {
        self.limit.is_some_and(|limit| ms - self.sent > limit.as_secs_f64() * 1000.0)
    }
}

#[derive(Debug, Clone)]
struct Lost {
    why: String,
    part: Vec<u8>,
    /// No connection was opened after that.
    for_good: bool,
}

/// An action of the extension during a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// The extension waits for this time.
    Wait(Duration),
    /// The extension sends these bytes: a line with its newline, or a part of a line.
    Send(Vec<u8>),
    /// The extension closes the connection.
    Close,
}

impl LoadedRecording {
    /// Reads a recording. `path` is its folder, or a transcript.
    ///
    /// # Errors
    /// The recording cannot be read. The text says why.
    pub fn load(path: &Path) -> Result<Self, String> {
        Self::read_transcript(path).map(Self::new)
    }

    /// Reads a transcript. `path` is the transcript, or the folder of a recording.
    ///
    /// # Errors
    /// The transcript cannot be read. The text says why.
    pub fn read_transcript(path: &Path) -> Result<Transcript, String> {
        let file = if path.is_dir() { path.join(SESSION) } else { path.to_owned() };
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let source = files::open(&file).map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound && path.is_dir() {
                format!("{} is not a recording: it has no {SESSION}", path.display())
            } else {
                failed(&error)
            }
        })?;
        if source.metadata().is_ok_and(|about| about.len() > LONGEST) {
            return Err(failed(&format!("over {LONGEST} bytes")));
        }
        transcript::read(BufReader::new(source)).map_err(|error| failed(&error))
    }

    /// A recording with the content of a transcript.
    pub fn new(transcript: Transcript) -> Self {
        let mut recording = Self {
            exchanges: Vec::new(),
            places: HashMap::new(),
            greetings: Vec::new(),
            unopened: None,
            operations: HashMap::new(),
            has_manifest: false,
            is_cut: transcript.is_cut,
        };
        let mut connections: BTreeMap<u32, Vec<Entry>> = BTreeMap::new();
        let last_open = transcript.entries.iter().rfind(|entry| matches!(entry.what, What::Open)).map(|open| open.ms);
        for entry in transcript.entries {
            match entry.what {
                What::Unopened(why) => recording.unopened = Some(why),
                _ => connections.entry(entry.connection).or_default().push(entry),
            }
        }
        for entries in connections.into_values() {
            recording.connection(entries, last_open);
        }
        if !recording.exchanges.is_empty() {
            recording.unopened = None;
        }
        // Only now the defaults are known.
        for place in 0..recording.exchanges.len() {
            let Some(exchange) = recording.exchanges.get(place) else { continue };
            let request = Json::parse(exchange.key.as_bytes()).unwrap_or(Json::NULL);
            let asked = recording.asked(request);
            let key = asked.key.clone();
            if let Some(exchange) = recording.exchanges.get_mut(place) {
                (exchange.key, exchange.operation, exchange.args) = (asked.key, asked.operation, asked.args);
            }
            recording.places.entry(key).or_default().push(place);
        }
        recording
    }

    fn connection(&mut self, entries: Vec<Entry>, last_open: Option<f64>) {
        let first = self.exchanges.len();
        let mut greeting = Vec::new();
        // The exchanges without a reply: their places, and the id's text.
        let mut open: VecDeque<(usize, Option<String>)> = VecDeque::new();
        let mut part = Vec::new();
        let mut is_closed = false;
        for Entry { ms, what, .. } in entries {
            match what {
                What::Line { direction: Direction::Sent, bytes, cut: false, dropped: 0, .. } => {
                    for request in members(&bytes) {
                        let json = Json::parse(&request).unwrap_or(Json::NULL);
                        if !wants_answer(json) {
                            continue;
                        }
                        if json.get("method").and_then(|method| method.text()).is_some_and(|it| it == "shutdown") {
                            // Who ends the session waits for nothing that is still out.
                            open.iter().for_each(|(place, _)| self.give_up(*place));
                        }
                        open.push_back((self.exchanges.len(), json.get("id").map(|id| id.as_str().to_owned())));
                        let limit = json.get("params").and_then(|params| params.get("context"));
                        let limit = limit.and_then(|context| context.get("timeout")).and_then(|limit| limit.text());
                        let limit = limit.and_then(|limit| GoDuration::parse(&limit.to_string()).ok());
                        let limit = limit.and_then(|limit| Duration::try_from(limit).ok());
                        let limit = limit.filter(|limit| !limit.is_zero());
                        let key = String::from_utf8_lossy(&request).into_owned();
                        self.exchanges.push(Exchange { key, sent: ms, limit, ..Exchange::default() });
                    }
                }
                What::Line { direction: Direction::Received, bytes, cut, .. } => {
                    if cut {
                        part.clone_from(&bytes);
                        continue;
                    }
                    let replies = members(&bytes);
                    let is_batch = replies.len() != 1 || replies.first().is_some_and(|reply| *reply != bytes);
                    for reply in if is_batch { replies } else { vec![bytes] } {
                        let place = Json::parse(&reply).ok().and_then(|json| answered(json, &open));
                        match place.and_then(|place| open.remove(place)) {
                            Some((place, _)) => {
                                if let Some(exchange) = self.exchanges.get_mut(place) {
                                    self.has_manifest |= learn(&mut self.operations, &exchange.key, &reply);
                                    exchange.took = ms - exchange.sent;
                                    exchange.reply = Some(reply);
                                }
                            }
                            // A log, or noise: it belongs to the running call.
                            None => match (open.front(), self.exchanges.len()) {
                                (Some((place, _)), _) => {
                                    self.exchanges
                                        .get_mut(*place)
                                        .into_iter()
                                        .for_each(|it| it.before.push(reply.clone()));
                                }
                                (None, length) if length > first => {
                                    self.exchanges.last_mut().into_iter().for_each(|it| it.after.push(reply.clone()));
                                }
                                (None, _) => greeting.push(reply),
                            },
                        }
                    }
                }
                What::Gone(why) => {
                    let for_good = last_open.is_none_or(|last| last <= ms);
                    for (place, _) in open.drain(..) {
                        if self.exchanges.get(place).is_some_and(|exchange| exchange.is_late(ms)) {
                            self.give_up(place);
                        }
                        if let Some(exchange) = self.exchanges.get_mut(place).filter(|it| !it.is_given_up) {
                            let part = std::mem::take(&mut part);
                            exchange.lost = Some(Lost { why: why.clone(), part, for_good });
                        }
                    }
                    is_closed = true;
                }
                What::Closed => is_closed = true,
                _ => {}
            }
        }
        let newest = self.exchanges.len();
        for (place, _) in open {
            if let Some(exchange) = self.exchanges.get_mut(place) {
                exchange.is_given_up |= is_closed || place + 1 < newest;
            }
        }
        self.greetings.push(greeting);
    }

    fn give_up(&mut self, place: usize) {
        self.exchanges.get_mut(place).into_iter().for_each(|exchange| exchange.is_given_up = true);
    }

    /// A request's wish.
    fn asked(&self, request: Json<'_>) -> RecordedRequest {
        let method = request.get("method").and_then(|method| method.text()).map(|method| method.to_string());
        let params = request.get("params").unwrap_or(Json::NULL);
        match method.as_deref() {
            Some("initialize" | "shutdown") => RecordedRequest::plain(method.unwrap_or_default()),
            Some("execute") => {
                let operation = params.get("operation").and_then(|name| name.text()).map(|name| name.to_string());
                let operation = operation.unwrap_or_default();
                let given = params.get("args").unwrap_or(Json::NULL);
                let mut members: BTreeMap<String, String> =
                    given.members().map(|(name, value)| (name.to_string(), canonical(value))).collect();
                for (name, default) in self.operations.get(&operation).into_iter().flatten() {
                    members.entry(name.clone()).or_insert_with(|| default.clone());
                }
                let args = if given.is_null() || given.kind() == JsonKind::Object {
                    object(members)
                } else {
                    canonical(given)
                };
                let shown = if given.is_null() { String::new() } else { given.as_str().to_owned() };
                RecordedRequest {
                    key: format!("execute {} {args}", Value::from(operation.as_str())),
                    operation,
                    args: shown,
                }
            }
            _ => {
                // Another protocol, or another method.
                let members: BTreeMap<String, String> = request
                    .members()
                    .map(|(name, value)| (name.to_string(), value))
                    .filter(|(name, value)| !PASSING.contains(&name.as_str()) && !value.is_null())
                    .map(|(name, value)| {
                        let value = if name == "params" { without_meta(value) } else { canonical(value) };
                        (name, value)
                    })
                    .collect();
                let named = NAMES.into_iter().find_map(|name| request.get(name)?.text());
                let operation = named.map(|name| name.to_string()).unwrap_or_default();
                let key = object(members);
                RecordedRequest { args: key.clone(), key, operation }
            }
        }
    }

    /// Why a request is not answered by the recording.
    fn unknown(&self, asked: &RecordedRequest) -> String {
        let RecordedRequest { operation, args, .. } = asked;
        let call = [operation.as_str(), args].join(" ");
        let of_it: Vec<&Exchange> = self.exchanges.iter().filter(|it| it.operation == *operation).collect();
        let names = |list: Vec<String>| {
            let mut all = Vec::new();
            for name in list.into_iter().filter(|name| !name.trim().is_empty()) {
                if !all.contains(&name) {
                    all.push(name);
                }
            }
            let more = all.len().saturating_sub(LISTED);
            all.truncate(LISTED);
            let list = if all.is_empty() { "no calls".to_owned() } else { all.join(", ") };
            if more > 0 { format!("{list} and {more} more") } else { list }
        };
        let end = if self.is_cut { "; it was cut off" } else { "" };
        if of_it.is_empty() {
            let called = names(self.exchanges.iter().map(|it| short(&it.operation)).collect());
            return format!("the recording has no call of `{}`; it has {called}{end}", short(operation));
        }
        let calls = names(of_it.iter().map(|it| short(&[it.operation.as_str(), &it.args].join(" "))).collect());
        format!("the recording has no call `{}`; it has {calls}{end}", short(call.trim_end()))
    }
}

/// The members that name what a request asks for, in one protocol or another.
const NAMES: [&str; 3] = ["method", "op", "tool"];

/// The members of a request that two of the same may differ in.
const PASSING: [&str; 9] =
    ["id", "jsonrpc", "context", "session_id", "trace_id", "timeout", "timeout_ms", "timeout_seconds", "deadline_ms"];

/// The parameters of a request without MCP's `_meta`, which is about the request and no part of it: a token, a time limit.
fn without_meta(params: Json<'_>) -> String {
    if params.kind() != JsonKind::Object {
        return canonical(params);
    }
    let others = params.members().map(|(name, value)| (name.to_string(), value)).filter(|(name, _)| name != "_meta");
    object(others.map(|(name, value)| (name, canonical(value))).collect())
}

/// A request's wish.
struct RecordedRequest {
    key: String,
    operation: String,
    args: String,
}

impl RecordedRequest {
    fn plain(method: String) -> Self {
        Self { key: method.clone(), operation: method, args: String::new() }
    }
}

/// The state of a replay: its position in the recording. One host is served, over one connection
/// after another.
#[derive(Debug, Default)]
pub struct Player {
    /// Where the next exchange is looked for.
    cursor: usize,
    connections: usize,
    /// The recorded device is gone for good.
    lost: Option<String>,
    /// Whether replies take as long as they did.
    keeps_pace: bool,
}

impl Player {
    /// A replay from the beginning of a recording. If `keeps_pace` is set, replies take as long as
    /// in the recording; otherwise they come at once.
    pub fn new(keeps_pace: bool) -> Self {
        Self { keeps_pace, ..Self::default() }
    }

    /// Begins a connection. Returns the actions of the extension before the first request.
    ///
    /// # Errors
    /// In the recording no connection could be opened at this point.
    pub fn connect(&mut self, recording: &LoadedRecording) -> Result<Vec<Action>, String> {
        if let Some(why) = &recording.unopened {
            return Err(format!("in the recording it could not be opened: {why}"));
        }
        if let Some(why) = &self.lost {
            return Err(format!("in the recording the device was lost here, and did not come back: {why}"));
        }
        if recording.exchanges.is_empty() {
            return Err("the recording has no requests".to_owned());
        }
        let greeting = recording.greetings.get(self.connections).cloned().unwrap_or_default();
        self.connections += 1;
        Ok(greeting.into_iter().map(line).collect())
    }

    /// Returns the actions of the extension after the line `request`.
    pub fn answer(&mut self, recording: &LoadedRecording, request: &[u8]) -> Vec<Action> {
        let request = request.trim_ascii();
        if request.is_empty() {
            return Vec::new();
        }
        let json = match Json::parse(request) {
            Ok(json) => json,
            Err(error) => return vec![line(fault("null", -32700, &error.to_string()))],
        };
        if json.kind() != JsonKind::Array {
            return self.one(recording, json);
        }
        // The replies of a batch are one line.
        let mut actions = Vec::new();
        let mut replies = Vec::new();
        for member in json.elements() {
            for action in self.one(recording, member) {
                match action {
                    Action::Send(bytes) if is_reply(&bytes) => replies.push(bytes.trim_ascii_end().to_vec()),
                    Action::Close => {
                        actions.push(Action::Close);
                        return actions;
                    }
                    action => actions.push(action),
                }
            }
        }
        if json.elements().next().is_none() {
            replies.push(fault("null", -32600, "an empty batch"));
            return vec![line(replies.concat())];
        }
        if !replies.is_empty() {
            actions.push(line([b"[".as_slice(), &replies.join(b",".as_slice()), b"]"].concat()));
        }
        actions
    }

    fn one(&mut self, recording: &LoadedRecording, request: Json<'_>) -> Vec<Action> {
        let id = request.get("id").map(|id| id.as_str());
        if request.kind() != JsonKind::Object {
            return vec![line(fault("null", -32600, "a request is an object"))];
        }
        if !wants_answer(request) {
            return Vec::new();
        }
        let asked = recording.asked(request);
        let Some(place) = self.find(recording, &asked.key) else {
            // It ends well, though the recording may not.
            if asked.key == "shutdown" {
                return vec![line(
                    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{}}}}", id.unwrap_or("null")).into_bytes(),
                )];
            }
            return vec![line(refusal(recording, request, &asked))];
        };
        self.cursor = place + 1;
        let Some(exchange) = recording.exchanges.get(place) else { return Vec::new() };
        let mut actions: Vec<Action> = exchange.before.iter().cloned().map(line).collect();
        if let Some(lost) = &exchange.lost {
            if !lost.part.is_empty() {
                actions.push(Action::Send(lost.part.clone()));
            }
            if lost.for_good {
                self.lost = Some(lost.why.clone());
            }
            actions.push(Action::Close);
            return actions;
        }
        match &exchange.reply {
            Some(reply) => {
                let took = Duration::try_from_secs_f64(exchange.took / 1000.0).unwrap_or_default();
                // Who asked had given it up.
                let is_late = exchange.is_late(exchange.sent + exchange.took);
                if (self.keeps_pace || is_late) && !took.is_zero() {
                    actions.insert(0, Action::Wait(took));
                }
                actions.push(line(with_id(reply, id)));
            }
            None if exchange.is_given_up => {}
            None => {
                let text = "the recording ends before the answer to this call";
                actions.push(line(refused(request, -32000, text)));
            }
        }
        actions.extend(exchange.after.iter().cloned().map(line));
        actions
    }

    fn find(&self, recording: &LoadedRecording, key: &str) -> Option<usize> {
        let places = recording.places.get(key)?;
        let next = places.partition_point(|place| *place < self.cursor);
        places.get(next).or_else(|| places.first()).copied()
    }
}

fn line(mut bytes: Vec<u8>) -> Action {
    bytes.push(b'\n');
    Action::Send(bytes)
}

fn is_reply(line: &[u8]) -> bool {
    Json::parse(line.trim_ascii()).is_ok_and(|json| json.kind() == JsonKind::Object && json.get("method").is_none())
}

/// The members of a batch, or the one text that this is.
fn members(text: &[u8]) -> Vec<Vec<u8>> {
    match Json::parse(text) {
        Ok(json) if json.kind() == JsonKind::Array => json.elements().map(|it| it.as_bytes().to_vec()).collect(),
        Ok(json) => vec![json.as_bytes().to_vec()],
        Err(_) => vec![text.to_vec()],
    }
}

/// Whether a text is a request that is answered: no notification, and no answer to the extension's own requests.
fn wants_answer(json: Json<'_>) -> bool {
    let has = |name: &str| json.get(name).is_some();
    json.kind() == JsonKind::Object
        && if has("method") { has("id") } else { !has("result") && !has("error") && !has("ok") }
}

/// Which of the open requests a line answers.
fn answered(json: Json<'_>, open: &VecDeque<(usize, Option<String>)>) -> Option<usize> {
    if json.kind() != JsonKind::Object || json.get("method").is_some() {
        return None;
    }
    match json.get("id").map(|id| id.as_str()) {
        Some(id) => open.iter().position(|(_, asked)| asked.as_deref() == Some(id)),
        // Answers without ids come in the order of their requests.
        None => open.iter().position(|(_, asked)| asked.is_none()).or(Some(0)).filter(|_| !open.is_empty()),
    }
}

/// Stores the operations of a manifest, if the reply to `request` is one.
fn learn(operations: &mut HashMap<String, BTreeMap<String, String>>, request: &str, reply: &[u8]) -> bool {
    let is_initialize = Json::parse(request.as_bytes())
        .is_ok_and(|json| json.get("method").and_then(|method| method.text()).is_some_and(|it| it == "initialize"));
    let Some(found) = Json::parse(reply).ok().and_then(|json| json.get("result")?.get("operations")) else {
        return false;
    };
    if !is_initialize {
        return false;
    }
    for (name, operation) in found.members() {
        let properties = operation.get("params").and_then(|params| params.get("properties"));
        let defaults = properties.into_iter().flat_map(|properties| properties.members());
        let defaults =
            defaults.filter_map(|(name, schema)| Some((name.to_string(), canonical(schema.get("default")?))));
        operations.insert(name.to_string(), defaults.collect());
    }
    true
}

/// The answer to a request that the recording does not have.
fn refusal(recording: &LoadedRecording, request: Json<'_>, asked: &RecordedRequest) -> Vec<u8> {
    let is_call = asked.key.starts_with("execute ");
    let is_method = request.get("method").is_some();
    let has_operation = recording.operations.contains_key(&asked.operation);
    let code = match () {
        () if is_call && recording.has_manifest && !has_operation => -32601,
        () if is_method && !is_call && recording.exchanges.iter().all(|it| it.operation != asked.operation) => -32601,
        () => -32000,
    };
    refused(request, code, &recording.unknown(asked))
}

/// An error in the form of the request's protocol.
fn refused(request: Json<'_>, code: i32, text: &str) -> Vec<u8> {
    let id = request.get("id").map(|id| id.as_str());
    if request.get("method").is_some() {
        return fault(id.unwrap_or("null"), code, text);
    }
    if request.get("jsonrpc").is_some() || NAMES.iter().all(|name| request.get(name).is_none()) {
        return fault("null", -32600, "a request has a method");
    }
    // Protocols without methods share this form.
    let error = json!({ "code": "unreachable", "type": "OperationFailed", "message": text });
    let id = id.map(|id| format!("\"id\":{id},")).unwrap_or_default();
    format!("{{{id}\"ok\":false,\"error\":{error}}}").into_bytes()
}

fn fault(id: &str, code: i32, text: &str) -> Vec<u8> {
    let error = json!({ "code": code, "message": text });
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}").into_bytes()
}

/// A recorded reply, as one to the request with this id.
fn with_id(reply: &[u8], id: Option<&str>) -> Vec<u8> {
    let old = Json::parse(reply).ok().and_then(|json| json.get("id"));
    let (Some(old), Some(id)) = (old, id) else { return reply.to_vec() };
    // A view is a part of the text.
    let start = (old.as_bytes().as_ptr() as usize).wrapping_sub(reply.as_ptr() as usize);
    let end = start.wrapping_add(old.as_bytes().len());
    match (reply.get(..start), reply.get(end..)) {
        (Some(before), Some(after)) => [before, id.as_bytes(), after].concat(),
        _ => reply.to_vec(),
    }
}

/// A value in the one spelling that equal values share.
fn canonical(json: Json<'_>) -> String {
    match json.kind() {
        JsonKind::Object => object(json.members().map(|(name, value)| (name.to_string(), canonical(value))).collect()),
        JsonKind::Array => format!("[{}]", json.elements().map(canonical).collect::<Vec<_>>().join(",")),
        JsonKind::String => Value::from(json.text().map(|text| text.to_string()).unwrap_or_default()).to_string(),
        JsonKind::Number => match number::decimal(json.as_str()) {
            Some(number) => {
                let (digits, scale) = number.as_bigint_and_exponent();
                format!("{digits}e{}", -scale)
            }
            None => json.as_str().to_owned(),
        },
        _ => json.as_str().to_owned(),
    }
}

fn short(text: &str) -> String {
    cut(text, LISTED_LENGTH)
}

fn object(members: BTreeMap<String, String>) -> String {
    let members = members.into_iter().map(|(name, value)| format!("{}:{value}", Value::from(name)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(lines: &[(&str, &str)]) -> LoadedRecording {
        let mut text = transcript::header("sim", 0);
        let mut connection = 0;
        for (place, (kind, line)) in lines.iter().enumerate() {
            connection += u32::from((*kind, *line) == ("event", "open"));
            let mut entry = match *kind {
                "event" => json!({ "ms": place, "event": line, "why": "unplugged" }),
                "cut" => json!({ "ms": place, "got": line, "cut": true }),
                kind => json!({ "ms": place, (kind): line }),
            };
            entry["connection"] = connection.max(1).into();
            text += &format!("{entry}\n");
        }
        LoadedRecording::new(transcript::read(text.as_bytes()).unwrap())
    }

    fn call(id: u32, operation: &str, args: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"execute","params":{{"operation":"{operation}","args":{args},"context":{{"workdir":"/{id}"}}}}}}"#
        )
    }

    fn said(id: u32, text: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"success":true,"message":"{text}"}}}}"#)
    }

    fn answer(player: &mut Player, recording: &LoadedRecording, request: &str) -> String {
        let actions = player.answer(recording, request.as_bytes());
        let text = |action: &Action| match action {
            Action::Send(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Action::Wait(time) => format!("<{time:?}>"),
            Action::Close => "<close>".to_owned(),
        };
        actions.iter().map(text).collect::<String>()
    }

    const MANIFEST: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"name":"rig","operations":{"power":{"params":{}},"measure":{"params":{"properties":{"n":{"default":16}}}},"press":{}}}}"#;

    fn rails() -> LoadedRecording {
        recording(&[
            ("got", "booting"),
            ("sent", r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#),
            ("got", MANIFEST),
            ("sent", &call(2, "power", r#"{"on":true}"#)),
            ("got", r#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"on"}}"#),
            ("got", &said(2, "is on")),
            ("sent", &call(3, "measure", r#"{"channel":"A","n":1.6e1}"#)),
            ("got", &said(3, "3.3 V")),
            ("sent", &call(4, "power", r#"{"on":false}"#)),
            ("got", &said(4, "is off")),
            ("sent", &call(5, "measure", r#"{"channel":"A"}"#)),
            ("got", &said(5, "0.0 V")),
        ])
    }

    #[test]
    fn each_call_gets_what_was_recorded_in_any_order_and_again() {
        let recording = rails();
        let mut player = Player::new(false);
        assert_eq!(player.connect(&recording).unwrap(), [line(b"booting".to_vec())]);
        let measure = call(70, "measure", r#"{ "n" : 16, "channel":"\u0041" }"#);
        let (on, off) = (call(71, "power", r#"{"on":true}"#), call(72, "power", r#"{"on":false}"#));
        for _ in 0..3 {
            assert!(answer(&mut player, &recording, &on).ends_with(&(said(71, "is on") + "\n")));
            assert_eq!(answer(&mut player, &recording, &measure), said(70, "3.3 V") + "\n");
            assert_eq!(answer(&mut player, &recording, &off), said(72, "is off") + "\n");
            assert_eq!(answer(&mut player, &recording, &measure), said(70, "0.0 V") + "\n");
        }
        // In another order: what was measured after that.
        answer(&mut player, &recording, &off);
        assert_eq!(answer(&mut player, &recording, &measure), said(70, "0.0 V") + "\n");
        answer(&mut player, &recording, &on);
        assert_eq!(answer(&mut player, &recording, &measure), said(70, "3.3 V") + "\n");
        // The ids are the asker's, whatever they are.
        let text = measure.replace("\"id\":70", r#""id":"x\"y""#);
        assert!(answer(&mut player, &recording, &text).contains(r#""id":"x\"y","#));
    }

    #[test]
    fn a_call_that_was_not_recorded_is_an_error() {
        let recording = rails();
        let mut player = Player::new(false);
        for (request, code, text) in [
            (
                call(9, "measure", r#"{"channel":"B"}"#),
                -32000,
                r#"no call `measure {\"channel\":\"B\"}`; it has measure {\"channel\":\"A\",\"n\":1.6e1}"#,
            ),
            (call(9, "press", "{}"), -32000, "no call of `press`; it has initialize, power, measure"),
            (call(9, "fly", "null"), -32601, "no call of `fly`"),
            (r#"{"jsonrpc":"2.0","id":9,"method":"status"}"#.into(), -32601, "no call of `status`"),
            ("{".into(), -32700, ""),
            ("5".into(), -32600, ""),
            ("[]".into(), -32600, ""),
        ] {
            let answer = answer(&mut player, &recording, &request);
            assert!(answer.contains(&format!("\"code\":{code}")) && answer.contains(text), "{request}: {answer}");
        }
        assert_eq!(answer(&mut player, &recording, r#"{"jsonrpc":"2.0","method":"log"}"#), "");
        assert_eq!(
            answer(&mut player, &recording, r#"{"jsonrpc":"2.0","id":4,"method":"shutdown"}"#),
            "{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}\n"
        );
        let other = answer(&mut player, &recording, r#"{"op":"measure","input":{}}"#);
        assert!(other.contains(r#""ok":false"#) && other.contains("unreachable"), "{other}");
        let both = format!("[{},{}]", call(5, "press", "{}"), call(6, "power", r#"{"on":true}"#));
        let answer = answer(&mut player, &recording, &both);
        assert!(
            answer.starts_with("{\"jsonrpc\":\"2.0\",\"method\":\"log\"")
                && answer.contains("\n[{\"jsonrpc\":\"2.0\",\"id\":5"),
            "{answer}"
        );
    }

    #[test]
    fn losses_and_late_answers_are_as_they_were() {
        let late = call(2, "go", "{}").replace("\"workdir\"", "\"timeout\":\"1ms\",\"workdir\"");
        let lines = [
            ("event", "open"),
            ("sent", late.as_str()),
            ("event", "closed"),
            ("event", "open"),
            ("sent", &call(3, "run", "{}")),
            ("cut", "{\"jsonrpc\":\"2."),
            ("event", "gone"),
        ];
        let recording_of = recording(&lines);
        let mut player = Player::new(false);
        assert_eq!(answer(&mut player, &recording_of, &late), "", "nobody was answered");
        assert_eq!(answer(&mut player, &recording_of, &call(8, "run", "{}")), "{\"jsonrpc\":\"2.<close>");
        assert!(player.connect(&recording_of).unwrap_err().contains("did not come back: unplugged"));
        let slow = recording(&[("sent", &late), ("sent", "\n"), ("sent", "\n"), ("got", &said(2, "at last"))]);
        assert_eq!(answer(&mut Player::new(false), &slow, &late), format!("<3ms>{}\n", said(2, "at last")));
        let cut_off = recording(&[("sent", &call(2, "go", "{}"))]);
        assert!(
            answer(&mut Player::new(false), &cut_off, &call(1, "go", "{}"))
                .contains("the recording ends before the answer")
        );
        for (events, why) in
            [(&[("event", "unopened")][..], "could not be opened: unplugged"), (&[], "has no requests")]
        {
            assert!(Player::new(false).connect(&recording(events)).unwrap_err().contains(why));
        }
    }

    #[test]
    fn large_numbers_are_told_apart() {
        let parse = |text: &'static str| canonical(Json::parse(text.as_bytes()).unwrap());
        assert_eq!(parse("[1.0,100,{\"b\":1,\"a\":-0}]"), parse("[1e0,1E2,{\"a\":0,\"b\":1.00}]"));
        assert_ne!(parse("123456789012345678901234567890"), parse("123456789012345678901234567891"));
        assert_ne!(parse("\"1\""), parse("1"));
        assert_eq!(parse("1e999999999999"), parse("1e999999999999"));
    }
}
