//! Lines as they come, for protocols whose replies are matched in another way than by JSON-RPC's ids.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use rigline::json::{Json, JsonKind};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use super::receive::SHOWN_SKIPPED;
use super::streams::LAST_LINES;
use super::{Connection, ENDING, End, RequestError, Shared};
use crate::host::event::EventKind;

/// How many bytes of lines may wait for who reads them. Then no more is read.
const WAITING: usize = 64 * 1024;

/// Lines that wait for their reader.
#[derive(Default)]
pub(super) struct Raw {
    state: std::sync::Mutex<RawState>,
    /// There is a line, or will be none any more.
    came: Notify,
    /// There is room for lines again.
    left: Notify,
    is_on: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct RawState {
    lines: VecDeque<RawLine>,
    bytes: usize,
    /// How much has come of the line whose end has not.
    partial: usize,
    /// How much of that was there before the last mark.
    old: usize,
    /// The blank lines and byte-order marks, which the framer removes, since they were asked for last.
    oddities: Vec<&'static str>,
    /// The state of the line that has begun.
    begun: Begun,
}

/// The beginning of a line: white space, or part of a byte-order mark.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Begun {
    #[default]
    Nothing,
    White,
    /// So many bytes of a mark.
    Mark(usize),
    Text,
}

/// The most oddities that are kept.
const ODDITIES: usize = 100;
const MARK: &[u8] = b"\xEF\xBB\xBF";

impl RawState {
    /// Looks for blank lines and byte-order marks, which the framer takes out.
    fn look(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.begun = match (self.begun, byte) {
                (begun, b'\n') => {
                    if begun != Begun::Text {
                        self.note("a blank line");
                    }
                    Begun::Nothing
                }
                (Begun::Nothing | Begun::White, b' ' | b'\t' | b'\r') => Begun::White,
                (Begun::Nothing, byte) if MARK.first() == Some(byte) => Begun::Mark(1),
                (Begun::Mark(count), byte) if MARK.get(count) == Some(byte) => {
                    if count + 1 == MARK.len() {
                        self.note("a byte-order mark");
                    }
                    Begun::Mark(count + 1)
                }
                _ => Begun::Text,
            };
        }
    }

    fn note(&mut self, oddity: &'static str) {
        if self.oddities.len() < ODDITIES {
            self.oddities.push(oddity);
        }
    }
}

/// A line, or what is left of one.
#[derive(Debug)]
pub(crate) enum RawLine {
    /// A line, and the number of its bytes that came before the last [mark](Connection::mark).
    Line(Vec<u8>, usize),
    /// A line that was longer than the limit, and was dropped.
    TooLong,
}

impl Raw {
    fn lock(&self) -> std::sync::MutexGuard<'_, RawState> {
        rigline_std::mutex::lock(&self.state)
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Takes lines that have come, in their order, and how much there is of the next one.
    pub(super) fn put(&self, lines: Vec<RawLine>, partial: usize) {
        let mut state = self.lock();
        let is_news = !lines.is_empty();
        for line in lines {
            let old = std::mem::take(&mut state.old);
            let line = match line {
                RawLine::Line(text, _) => {
                    state.bytes += text.len();
                    let old = old.min(text.len());
                    RawLine::Line(text, old)
                }
                RawLine::TooLong => RawLine::TooLong,
            };
            state.lines.push_back(line);
        }
        state.partial = partial;
        drop(state);
        if is_news {
            self.came.notify_one();
        }
    }

    /// Inspects bytes before the framer gets them.
    pub(super) fn look(&self, bytes: &[u8]) {
        if self.is_on() {
            self.lock().look(bytes);
        }
    }

    pub(super) fn end(&self) {
        self.came.notify_one();
    }

    /// Waits until there is room for more.
    pub(super) async fn room(&self) {
        while self.lock().bytes >= WAITING {
            self.left.notified().await;
        }
    }

    fn pop(&self) -> Option<RawLine> {
        let mut state = self.lock();
        let line = state.lines.pop_front()?;
        if let RawLine::Line(text, _) = &line {
            state.bytes -= text.len();
        }
        drop(state);
        self.left.notify_one();
        Some(line)
    }
}

impl Connection {
    /// Has lines come as they are from now on. Only one caller may read them.
    pub(crate) fn take_lines(&self) {
        self.shared.raw.is_on.store(true, Ordering::Release);
    }

    /// Returns the blank lines and byte-order marks that came, in words. The framer removes them from the lines.
    pub(crate) fn take_oddities(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.shared.raw.lock().oddities)
    }

    /// The next line; none at the end. Nothing is lost if this is dropped.
    pub(crate) async fn next_line(&self) -> Option<RawLine> {
        let raw = &self.shared.raw;
        loop {
            if let Some(line) = raw.pop() {
                return Some(line);
            }
            if *self.shared.output_read.borrow() {
                return raw.pop();
            }
            if self.ended().is_some() {
                // A process may be over before its last lines are read. Others may hold its pipe for ever.
                let mut read = self.shared.output_read.subscribe();
                let last = async {
                    tokio::select! {
                        _ = read.wait_for(|read| *read) => {}
                        () = raw.came.notified() => {}
                    }
                };
                if timeout(LAST_LINES, last).await.is_err() {
                    return raw.pop();
                }
                continue;
            }
            raw.came.notified().await;
        }
    }

    /// Takes the lines that are there, up to `most`. What there is of the next one counts as old.
    pub(crate) fn mark(&self, most: usize) -> Vec<RawLine> {
        let raw = &self.shared.raw;
        let mut lines = Vec::new();
        loop {
            // What the system has is read first.
            self.reading.look();
            let before = lines.len();
            while lines.len() < most
                && let Some(line) = raw.pop()
            {
                lines.push(line);
            }
            if lines.len() == before || lines.len() >= most {
                break;
            }
        }
        let mut state = raw.lock();
        state.old = state.partial;
        drop(state);
        lines
    }

    /// Sends a text as it is.
    pub(crate) async fn send_raw(&self, text: Vec<u8>, deadline: Instant) -> Result<(), RequestError> {
        self.shared.send(text, deadline).await
    }

    /// Tells of a line that is no reply: a bounded number of them between two replies.
    pub(crate) fn skip(&self, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        let why = match Json::parse(line) {
            Ok(json) if json.kind() == JsonKind::Object => "not a reply that is waited for".to_owned(),
            Ok(_) => "JSON, but not an object".to_owned(),
            Err(error) => format!("not JSON: {error}"),
        };
        let mut events = Vec::new();
        self.shared.lock().skip(line, why, &mut events);
        events.into_iter().for_each(|event| self.tell(event));
    }

    /// There was a reply: skipped lines are counted anew.
    pub(crate) fn replied(&self) {
        let mut state = self.shared.lock();
        state.budget = SHOWN_SKIPPED;
        let more = std::mem::take(&mut state.more_skipped);
        drop(state);
        if more > 0 {
            self.tell(EventKind::MoreSkipped(more));
        }
    }

    /// The end of standard error.
    pub(crate) fn last_errors(&self) -> String {
        self.shared.lock().stderr.iter().cloned().collect::<Vec<_>>().join("\n")
    }

    /// How the connection ended, in words, once its last words are read.
    pub(crate) async fn how_it_ended(&self) -> String {
        let _ = timeout_at(Instant::now() + ENDING + LAST_LINES, self.wait_for_end()).await;
        match (self.ended(), self.child()) {
            (Some(End::Exited(exit)), _) => exit.to_string(),
            (_, Some(_)) => "it closed its output, and still runs".to_owned(),
            (Some(End::Gone(why)), None) => why,
            (_, None) => "the connection was closed".to_owned(),
        }
    }
}

impl Shared {
    /// The same as [`frame`](Self::frame), for lines that go to a reader of their own.
    pub(super) fn raw_frame(&self, frame: rigline::frame::Frame<'_>, is_told: &mut bool) -> Option<RawLine> {
        match frame {
            rigline::frame::Frame::Line(line) => {
                if let Some(traffic) = &self.options.traffic {
                    traffic(crate::host::Direction::Received, line);
                }
                Some(RawLine::Line(line.to_vec(), 0))
            }
            rigline::frame::Frame::TooLong(too_long) => {
                let length = too_long.dropped as u64;
                self.tell(EventKind::TooLong { length, limit: too_long.limit });
                (!std::mem::take(is_told)).then_some(RawLine::TooLong)
            }
        }
    }
}
