//! Lines to a module and from it: each reply goes to the request that it answers, or is dropped.
//!
//! The protocol does not oblige a module to echo a request's `id`; one that does not answers in the order of its requests. So what
//! keeps replies apart is, in this order: the `id`, where it comes back; the form of the reply, which is another for each
//! operation of the protocol; and the order. Four things would break the order, and are dealt with:
//! - A request that was given up may be answered later. A program is ended, and a TCP connection closed, and with them what was on
//!   the way. A serial port outlives its session, also this process: before the next request the module is asked for its description, as
//!   often as it takes until that is answered. Since replies keep their order, nothing older can come after that.
//! - What came before a request was sent is not a reply to it.
//! - A request of the host's own that comes back, since the line echoes, is none either.
//! - Other lines, such as logs in JSON, do not have the form of the reply that is waited for.

use std::sync::Arc;
use std::time::Duration;

use rigline::json::{Json, JsonKind};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::error::{CallError, bad};
use crate::host::wire::Connect;
use crate::host::{
    self, Connection, DTR_LOW, End, NO_LIMIT, Options, RawLine, TERMINATION, also_open, deadline, random,
};

/// The number of lines other than replies that are skipped before a call fails.
const NOISE: usize = 1000;

/// After this time a module that has not described itself is asked again: it may have been booting.
const AGAIN: Duration = Duration::from_secs(2);

/// A module that refuses to describe itself, and then says nothing for this long, has answered everything.
const QUIET: Duration = Duration::from_millis(500);

/// A module that says nothing at all this many times does not describe itself, and has nothing else to say.
const SILENCES: u32 = 2;

/// The number of abandoned requests that are remembered.
const OWED: usize = 64;

/// How many of them may be for descriptions, once nothing else is waited for.
const OWED_DESCRIPTIONS: usize = 16;

/// The connection to a module that reads and writes lines. It is opened again when it is lost.
pub struct Lines {
    dialer: Box<dyn Connect>,
    options: Arc<Options>,
    open: Option<Box<Open>>,
    /// A request is pending. If it still is when the next one is sent, its caller has abandoned it.
    is_asked: bool,
    /// The next id.
    next: u32,
    /// The requests that have no reply yet, in their order. The last may be running; the others were
    /// abandoned.
    owed: Vec<Owed>,
    /// The module returns the ids that it gets.
    echoes: bool,
    /// When the last request went out.
    sent: Instant,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines")
            .field("to", &self.dialer.name())
            .field("is_open", &self.open.is_some())
            .finish_non_exhaustive()
    }
}

/// A request.
#[derive(Debug)]
pub(super) enum Request<'a> {
    /// One of the operations of the protocol itself.
    Health,
    Describe,
    /// The members of the invocation's input, without the braces.
    Invoke {
        /// Whether the input must be nested, because the operation has the name of an operation of
        /// the protocol.
        nested: bool,
        input: &'a str,
    },
    /// Any text, sent as it is.
    Raw(&'a str),
}

/// A request that has no reply yet.
#[derive(Debug)]
struct Owed {
    form: Form,
    id: Option<u32>,
    /// The line of the request, to know it by if it comes back.
    line: String,
}

/// The form of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Health,
    Describe,
    Invoke,
    /// Any JSON object.
    Any,
}

impl Form {
    fn fits(self, reply: Json<'_>) -> bool {
        let has = |name: &str| reply.get(name).is_some();
        let is_text = |name: &str| reply.get(name).is_some_and(|value| value.kind() == JsonKind::String);
        // A module that does not know an operation of the protocol's says so in the form of an invocation's error.
        match self {
            Self::Invoke => has("ok"),
            Self::Health => is_text("status") || has("ok"),
            Self::Describe => is_text("name") || has("ok"),
            Self::Any => true,
        }
    }
}

impl Request<'_> {
    fn form(&self) -> Form {
        match self {
            Self::Health => Form::Health,
            Self::Describe => Form::Describe,
            Self::Invoke { .. } => Form::Invoke,
            Self::Raw(_) => Form::Any,
        }
    }

    fn line(&self, id: u32) -> String {
        let text = match self {
            Self::Health => format!("{{\"op\":\"health\",\"id\":{id}}}"),
            Self::Describe => format!("{{\"op\":\"describe\",\"id\":{id}}}"),
            Self::Invoke { nested: true, input } => {
                format!("{{\"op\":\"invoke\",\"args\":{{{input}}},\"id\":{id}}}")
            }
            Self::Invoke { input, .. } => format!("{{{input},\"id\":{id}}}"),
            Self::Raw(text) => return (*text).to_owned(),
        };
        // White space between tokens; in strings there is none of these.
        text.replace(['\n', '\r'], " ")
    }
}

struct Open {
    connection: Connection,
    /// Others' half lines and replies may be on it.
    is_shared: bool,
    /// Nothing that was asked before this connection can be answered on it any more.
    is_settled: bool,
    /// The first line in the exchange that was not a reply.
    odd: Option<String>,
}

impl Lines {
    /// A connection that `dialer` opens when it is first needed.
    pub fn new(dialer: Box<dyn Connect>) -> Self {
        let options = Arc::default();
        let sent = Instant::now();
        Self { dialer, options, open: None, is_asked: false, next: 1, owed: Vec::new(), echoes: false, sent }
    }

    /// Sets the options of the connection, such as how long to wait for a busy port or a missing
    /// device.
    #[must_use]
    pub fn with_options(self, options: &Options) -> Self {
        Self { options: Arc::new(options.clone()), ..self }
    }

    /// The same, over a connection that is open. All that was asked on it has been answered.
    pub(crate) fn on(mut self, connection: Connection) -> Self {
        connection.take_lines();
        let is_shared = connection.is_shared();
        self.open = Some(Box::new(Open { connection, is_shared, is_settled: !is_shared, odd: None }));
        self
    }

    pub(super) fn name(&self) -> String {
        self.dialer.name()
    }

    /// The time since the last request went out, without the opening of the connection.
    pub(super) fn since_request(&self) -> Duration {
        self.sent.elapsed()
    }

    pub(super) async fn ask(
        &mut self,
        request: &Request<'_>,
        limit: Duration,
        most: usize,
    ) -> Result<String, CallError> {
        // A program that has ended since is started again, and so is one whose request was given up.
        let child = self.open.as_ref().and_then(|open| open.connection.child());
        if self.is_asked || child.is_some_and(|child| child.exit().is_some()) {
            self.end().await;
        }
        let late = |odd, stderr, hint| CallError::Timeout { limit, waited: limit, odd, stderr, hint };
        if self.open.is_none() {
            let wait = limit.saturating_add(self.options.wait);
            match timeout_at(deadline(Instant::now(), wait), self.dial()).await {
                Ok(dialled) => dialled.map_err(CallError::Connect)?,
                Err(_) => return Err(late(None, String::new(), None)),
            }
        }
        self.is_asked = true;
        self.sent = Instant::now();
        let deadline = deadline(self.sent, limit);
        let result = match timeout_at(deadline, self.exchange(request, most)).await {
            Ok(result) => result,
            Err(_) => {
                let is_owed = self.owed.len() > 1;
                let others =
                    self.open.as_ref().and_then(|open| open.connection.control()).map(|control| control.others());
                let hint = others.as_deref().and_then(also_open);
                let hint = hint.or_else(|| is_owed.then(|| "it has not answered the request before".to_owned()));
                let (odd, stderr) = match &mut self.open {
                    Some(open) => (open.odd.take(), open.connection.last_errors()),
                    None => (None, String::new()),
                };
                Err(late(odd, stderr, hint))
            }
        };
        // A reply that is late, or the rest of one, must not be taken for that to a later call.
        match &result {
            Ok(_) => {}
            Err(CallError::Timeout { .. }) => self.end().await,
            Err(_) => self.hang_up().await,
        }
        self.is_asked = false;
        result
    }

    async fn dial(&mut self) -> Result<(), crate::host::HostError> {
        let connection = host::dial(&*self.dialer, &self.options).await?;
        connection.take_lines();
        let is_shared = connection.is_shared();
        if !is_shared {
            self.owed.clear();
        } else if self.owed.is_empty() {
            // Another process may have given out low ones, and not have waited.
            self.next = random() & 0x3FFF_FFFF;
        }
        self.open = Some(Box::new(Open { connection, is_shared, is_settled: !is_shared, odd: None }));
        Ok(())
    }

    async fn exchange(&mut self, request: &Request<'_>, most: usize) -> Result<String, CallError> {
        let form = request.form();
        let is_settled = self.open.as_ref().is_some_and(|open| open.is_settled);
        let must_settle = match form {
            // The answers to several of them look the same, which does no harm.
            Form::Describe => !is_settled || !self.owed.is_empty(),
            // For checks a text is sent as it is, and nothing else, unless there is something to wait for.
            Form::Any => !self.owes_only_descriptions(),
            Form::Health | Form::Invoke => !is_settled || !self.owes_only_descriptions(),
        };
        if must_settle {
            let described = self.settle(most).await?;
            if let (Form::Describe, Some(described)) = (form, described) {
                return Ok(described);
            }
        }
        self.send(request).await?;
        for _ in 0..NOISE {
            match self.line(most).await? {
                Line::Objects(replies) => {
                    for reply in replies {
                        if let Some((_, true)) = self.take(&reply) {
                            return Ok(reply);
                        }
                    }
                }
                // It does not come again.
                Line::DamagedReply(text) => return Err(bad("the reply is damaged: it is not valid JSON", &text)),
            }
        }
        Err(bad("only lines that are not replies", ""))
    }

    /// Asks the module for its description until no other reply can be on its way. Returns the description, if the
    /// module sends one.
    async fn settle(&mut self, most: usize) -> Result<Option<String>, CallError> {
        let mut silences = 0;
        loop {
            self.send(&Request::Describe).await?;
            let asked = Instant::now();
            let (mut refused, mut is_silent) = (None, true);
            let described = loop {
                let wait = refused.map_or(asked + AGAIN, |refused: Instant| refused + QUIET);
                let Ok(line) = timeout_at(wait, self.line(most)).await else { break None };
                // Damage may be about half a line that was there before.
                let Line::Objects(replies) = line? else { continue };
                let mut described = None;
                for reply in replies {
                    is_silent = false;
                    let Some((form, _)) = self.take(&reply) else { continue };
                    let is_refusal = Json::parse(reply.as_bytes()).is_ok_and(|reply| reply.get("name").is_none());
                    match form {
                        // It may have been about half a line that was there before.
                        Form::Describe if is_refusal => refused = Some(Instant::now()),
                        Form::Describe => described = Some(reply),
                        _ => {}
                    }
                }
                if described.is_some() {
                    break described;
                }
            };
            silences += u32::from(is_silent);
            if self.owes_only_descriptions() && (described.is_some() || refused.is_some() || silences == SILENCES) {
                if refused.is_some() {
                    self.owed.clear();
                }
                let over = self.owed.len().saturating_sub(OWED_DESCRIPTIONS);
                self.owed.drain(..over);
                if let Some(open) = &mut self.open {
                    open.is_settled = true;
                }
                return Ok(described);
            }
        }
    }

    /// Whether nothing else that was asked can still be answered.
    fn owes_only_descriptions(&self) -> bool {
        self.owed.iter().all(|owed| owed.form == Form::Describe)
    }

    async fn send(&mut self, request: &Request<'_>) -> Result<(), CallError> {
        let id = self.next;
        self.next = self.next.wrapping_add(1) & 0x7FFF_FFFF;
        let line = request.line(id);
        let Some(open) = &mut self.open else { return Err(CallError::Arguments) };
        open.drain()?;
        open.odd = None;
        // A shared wire may hold half a line of another process.
        let first = if open.is_settled { "" } else { "\n" };
        if self.owed.len() >= OWED {
            return Err(bad("too many replies are outstanding", ""));
        }
        let is_raw = matches!(request, Request::Raw(_));
        self.owed.push(Owed { form: request.form(), id: (!is_raw).then_some(id), line: line.trim().to_owned() });
        // Whoever waits for the reply limits this, too.
        match open
            .connection
            .send_raw(format!("{first}{line}\n").into_bytes(), deadline(Instant::now(), NO_LIMIT))
            .await
        {
            Ok(()) => Ok(()),
            Err(_) => Err(open.gone().await),
        }
    }

    /// Finds the request that a reply answers. That request and all before it are then done. Returns its form, and
    /// whether it was the last.
    fn take(&mut self, text: &str) -> Option<(Form, bool)> {
        let at = self.place(text);
        let Some(at) = at else {
            if let Some(open) = &mut self.open {
                open.note(text.as_bytes());
            }
            return None;
        };
        if let Some(open) = &mut self.open {
            open.connection.replied();
        }
        let is_last = at + 1 == self.owed.len();
        let form = self.owed.drain(..=at).next_back()?.form;
        Some((form, is_last))
    }

    fn place(&mut self, text: &str) -> Option<usize> {
        let reply = Json::parse(text.as_bytes()).ok().filter(|reply| reply.kind() == JsonKind::Object)?;
        // The line echoes: as it was sent, or nearly so.
        let is_request = reply.get("op").is_some() && reply.get("ok").is_none() && reply.get("name").is_none();
        if is_request || self.owed.iter().any(|owed| owed.line == text) {
            return None;
        }
        if let Some(id) = reply.get("id") {
            let is_its = |owed: &Owed| owed.id.is_some_and(|own| own.to_string() == id.as_str());
            if let Some(at) = self.owed.iter().position(is_its) {
                self.echoes = true;
                return Some(at);
            }
            // It is another process's reply, unless the caller chose the ids.
            return self.owed.iter().position(|owed| owed.id.is_none());
        }
        let has_ok = reply.get("ok").is_some();
        let fits = |owed: &Owed| owed.form.fits(reply);
        let fits_better = |owed: &Owed| fits(owed) && !(has_ok && owed.form == Form::Describe);
        // A module that returns ids leaves them out where it could not read the request.
        let is_refusal = reply.get("ok").and_then(|ok| ok.bool()) == Some(false);
        let at = self.owed.iter().position(fits_better).or_else(|| self.owed.iter().position(fits))?;
        let is_only = self.owed.len() == 1;
        (!self.echoes || self.owed.get(at)?.id.is_none() || is_refusal && is_only).then_some(at)
    }

    /// The next line that has objects, or must have been the reply.
    async fn line(&mut self, most: usize) -> Result<Line, CallError> {
        let Some(open) = &mut self.open else { return Err(CallError::Arguments) };
        let id = self.owed.last().and_then(|owed| owed.id);
        loop {
            let Some((line, old)) = open.line(most).await? else { return Err(open.gone().await) };
            let found = objects(&line, old);
            if !found.is_empty() {
                return Ok(Line::Objects(found));
            }
            if old == 0 && is_damaged_reply(&line, id) {
                return Ok(Line::DamagedReply(String::from_utf8_lossy(&line).into_owned()));
            }
            open.note(&line);
            // A module that does nothing but print must not keep others from running.
            tokio::task::consume_budget().await;
        }
    }

    /// Gives up what is out: a program is asked to end, and a connection closed. A port stays open, as what is on its way there comes
    /// anyway.
    pub(super) async fn end(&mut self) {
        let is_busy = !self.owes_only_descriptions();
        let Some(open) = self.open.as_mut().filter(|open| open.is_shared) else { return self.hang_up().await };
        self.is_asked = false;
        open.is_settled = false;
        // Some boards restart on it, so a board that has nothing to give up is left alone.
        if is_busy {
            open.reset().await;
        }
    }

    async fn hang_up(&mut self) {
        self.is_asked = false;
        let Some(open) = self.open.take() else { return };
        open.reset().await;
        if let Some(child) = open.connection.child() {
            child.end(TERMINATION).await;
        }
        open.connection.close(End::ShutDown);
    }

    pub(super) async fn close(mut self) {
        let Some(open) = self.open.take() else { return };
        if let Some(child) = open.connection.child() {
            // A module on stdio ends at the end of its input.
            open.connection.close_input().await;
            if timeout(Duration::from_secs(2), child.ended()).await.is_err() {
                child.end(TERMINATION).await;
            }
        }
        open.connection.close(End::ShutDown);
    }
}

/// A line that is not noise.
enum Line {
    Objects(Vec<String>),
    DamagedReply(String),
}

/// Whether a line without a JSON object in it is what is left of a reply: it begins as an object does, and has the member `ok`, or the
/// request's `id`. A request that comes back has the member `op`.
fn is_damaged_reply(line: &[u8], id: Option<u32>) -> bool {
    let text = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line).trim_ascii_start();
    // What follows the colon of a member of this name; it may stand deeper in, and then the reply is damaged all the same.
    let value = |name: &[u8]| {
        let at = text.windows(name.len()).position(|part| part == name)?;
        text.get(at + name.len()..)?.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start)
    };
    let has_id = |id: u32| {
        let rest = value(b"\"id\"").and_then(|value| value.strip_prefix(id.to_string().as_bytes()));
        rest.is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_digit))
    };
    let has_ok = || value(b"\"ok\"").is_some_and(|value| value.starts_with(b"true") || value.starts_with(b"false"));
    text.starts_with(b"{") && value(b"\"op\"").is_none() && (has_ok() || id.is_some_and(has_id))
}

/// The JSON objects on a line, but for those that begin before `old`. Text may stand before the first, such as a prompt or a byte
/// order mark, and behind each: a newline was forgotten.
fn objects(line: &[u8], old: usize) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = line.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'{')) {
        let (before, rest) = line.get(at..).unwrap_or_default().split_at(start);
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<serde::de::IgnoredAny>();
        let Some(Ok(_)) = values.next() else { break };
        let length = values.byte_offset();
        let after = rest.get(length..).unwrap_or_default().trim_ascii_start();
        // A part of something larger, which is damaged, is none.
        if before.contains(&b'"') || matches!(after.first(), Some(b'}' | b']' | b',' | b'"' | b':')) {
            break;
        }
        let object = rest.get(..length).unwrap_or_default();
        if at + start >= old
            && let Ok(json) = Json::parse(object)
        {
            found.push(json.as_str().to_owned());
        }
        at += start + length;
    }
    found
}

impl Open {
    /// When DTR drops, boards end their session and the running call.
    async fn reset(&self) {
        let Some(control) = self.connection.control() else { return };
        if control.set_dtr(false).is_ok() {
            sleep(DTR_LOW).await;
            let _ = control.set_dtr(true);
        }
    }

    /// Keeps the most informative of the lines that are not replies.
    fn note(&mut self, line: &[u8]) {
        self.connection.skip(line);
        // Most likely the beginning of a reply on several lines, if one is an opening brace.
        let has_brace = |odd: &String| odd.starts_with('{');
        let is_telling = self.odd.is_none() || line.starts_with(b"{") && !self.odd.as_ref().is_some_and(has_brace);
        if is_telling && !line.trim_ascii().is_empty() {
            self.odd = Some(String::from_utf8_lossy(line.get(..200).unwrap_or(line)).trim_end().to_owned());
        }
    }

    /// Passes over what is there already.
    fn drain(&self) -> Result<(), CallError> {
        let lines = self.connection.mark(NOISE);
        for line in &lines {
            if let RawLine::Line(line, _) = line {
                self.connection.skip(line);
            }
        }
        if lines.len() < NOISE { Ok(()) } else { Err(bad("only lines that are not replies", "")) }
    }

    /// The next line, and how much of it is old; none at the end.
    async fn line(&self, most: usize) -> Result<Option<(Vec<u8>, usize)>, CallError> {
        match self.connection.next_line().await {
            Some(RawLine::Line(line, old)) if line.len() <= most => Ok(Some((line, old))),
            Some(_) => Err(CallError::TooLong { limit: most }),
            None => Ok(None),
        }
    }

    async fn gone(&mut self) -> CallError {
        let exit = Some(self.connection.how_it_ended().await);
        CallError::Gone { exit, odd: self.odd.take(), stderr: self.connection.last_errors() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_reply_is_recognised_as_a_reply() {
        for (line, is_reply) in [
            (r#"{"ok":true,"result":{"a":1}"#, true),
            (r#"  { "ok" : false, "error":{"code":"x" "#, true),
            ("\u{feff}{\"ok\":true,}", true),
            (r#"{"result":{},"id":7"#, true),
            (r#"{"result":{},"id":70"#, false),
            (r#"{"op":"x","args":{},"id":7"#, false),
            (r#"{"ok":1"#, false),
            ("{", false),
            ("{debug} ok", false),
            (r#"log: {"ok":true"#, false),
            (r#""ok":true}"#, false),
        ] {
            assert_eq!(is_damaged_reply(line.as_bytes(), Some(7)), is_reply, "{line}");
        }
    }

    #[test]
    fn objects_on_a_line() {
        for (line, old, found) in [
            ("{\"ok\":true}", 0, &["{\"ok\":true}"][..]),
            ("\u{feff}{\"ok\":true}\r", 0, &["{\"ok\":true}"]),
            ("\u{1b}[0m> {\"ok\":true}", 0, &["{\"ok\":true}"]),
            ("> {\"ok\":true}", 2, &["{\"ok\":true}"]),
            ("{\"ok\":true}", 3, &[]),
            ("{\"a\":1}{\"b\":2} x", 0, &["{\"a\":1}", "{\"b\":2}"]),
            ("{\"a\":1}{\"b\":2}", 3, &["{\"b\":2}"]),
            // Parts of something larger.
            ("{\"ok\":true,\"result\":{\"ok\":true}", 0, &[]),
            ("\"result\":{\"ok\":true}}", 0, &[]),
            ("[{\"ok\":true}]", 0, &[]),
            ("[1]", 0, &[]),
            ("", 0, &[]),
        ] {
            assert_eq!(objects(line.as_bytes(), old), found, "{line}");
        }
    }
}
