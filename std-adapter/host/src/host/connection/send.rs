//! Requests out: their lines, and what waits for the answers.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use rigline::client::{Request, StartError};
use rigline::json::write;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

use super::{Completion, RequestError, ResponseSender, Shared, Waiting};
use crate::host::Direction;
use crate::host::transport::{Timed, Writer};

impl Shared {
    /// Makes a request's line, and a place for its completion.
    pub(super) fn begin(
        &self,
        request: &Request<'_>,
        size: usize,
        boundary: &[u8],
        due: Option<Instant>,
        sender: ResponseSender,
    ) -> Result<(u32, Vec<u8>), RequestError> {
        let mut memory = vec![0; size];
        let mut out = write::Writer::new(&mut memory);
        let mut state = self.lock();
        if let Some(end) = &state.end {
            return Err(RequestError::End(end.clone()));
        }
        let id = state.client.start(request, &mut out).map_err(|error| match error {
            StartError::TooManyPending => RequestError::TooManyCalls,
            error => RequestError::InputClosed(io::Error::other(error)),
        })?;
        if state.waiting.is_empty() {
            // What was odd about an earlier call explains nothing about this one.
            state.hint = None;
        }
        let is_call = matches!(request, Request::Execute { .. });
        let method = match request {
            Request::Other { method, .. } if *method != "execute" => Some((*method).into()),
            _ => None,
        };
        state.waiting.push(Waiting { id, is_call, method, due, sender });
        let is_sooner = due.is_some_and(|due| state.next_due.is_none_or(|next| due < next));
        drop(state);
        if is_sooner {
            self.sooner.notify_one();
        }
        let length = out.len();
        memory.truncate(length);
        if !boundary.is_empty() {
            memory.splice(..0, boundary.iter().copied());
        }
        Ok((id, memory))
    }

    /// Sends a line whole, even if the caller gives up in the middle of it.
    pub(super) async fn send(&self, line: Vec<u8>, deadline: Instant) -> Result<(), RequestError> {
        let mut writer = match Arc::clone(&self.writer).try_lock_owned() {
            Ok(writer) => writer,
            Err(_) => match timeout_at(deadline, Arc::clone(&self.writer).lock_owned()).await {
                Ok(writer) => writer,
                Err(_) => return Err(self.late()),
            },
        };
        if let Some(traffic) = &self.options.traffic {
            traffic(Direction::Sent, &line);
        }
        // Until the line is written; the writer is locked meanwhile.
        let timed = self.timed.clone().map(|timed| Until::new(timed, deadline));
        // Most lines go at once, and cost no task.
        let sent = match poll_fn(|cx| Poll::Ready(at_once(&mut writer, &line, cx))).await {
            Ok(Written::Whole) => return Ok(()),
            Ok(Written::Part(sent)) => sent,
            Err(error) => return Err(RequestError::InputClosed(error)),
        };
        let mut ended = self.ended.subscribe();
        let rest = tokio::spawn(async move {
            let _timed = timed;
            let written = async {
                writer.write_all(line.get(sent..).unwrap_or_default()).await?;
                writer.flush().await
            };
            // A peer that is alive and reads nothing would keep the connection open for ever.
            tokio::select! {
                written = written => written,
                _ = ended.wait_for(|ended| *ended) => Err(io::ErrorKind::BrokenPipe.into()),
            }
        });
        match timeout_at(deadline, rest).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(RequestError::InputClosed(error)),
            Ok(Err(_)) => Err(RequestError::InputClosed(io::ErrorKind::BrokenPipe.into())),
            Err(_) => Err(self.late()),
        }
    }

    /// The peer has not taken a request in its time.
    fn late(&self) -> RequestError {
        self.is_late.store(true, Ordering::Relaxed);
        RequestError::Late
    }
}

/// Says until when a line is of use, while it is written.
struct Until(Arc<dyn Timed>);

impl Until {
    fn new(timed: Arc<dyn Timed>, deadline: Instant) -> Self {
        timed.until(Some(deadline));
        Self(timed)
    }
}

impl Drop for Until {
    fn drop(&mut self) {
        self.0.until(None);
    }
}

/// How much of a line was written.
pub(super) enum Written {
    /// All bytes were written and flushed.
    Whole,
    /// This number of bytes was written. If it is all of them, the flush failed.
    Part(usize),
}

/// Writes what goes without waiting.
pub(super) fn at_once(writer: &mut OwnedMutexGuard<Writer>, line: &[u8], cx: &mut Context<'_>) -> io::Result<Written> {
    let mut writer = Pin::new(&mut ***writer);
    let sent = match writer.as_mut().poll_write(cx, line) {
        Poll::Ready(sent) => sent?,
        Poll::Pending => 0,
    };
    if sent < line.len() {
        return Ok(Written::Part(sent));
    }
    match writer.poll_flush(cx) {
        Poll::Ready(flushed) => flushed.map(|()| Written::Whole),
        Poll::Pending => Ok(Written::Part(sent)),
    }
}

/// Fails the requests that are due. One timer does for all of them, and is left as it is while every new request is due later
/// than an old one was: most are answered long before.
pub(super) async fn watch_deadlines(shared: Arc<Shared>) {
    loop {
        let next = {
            let mut state = shared.lock();
            let now = Instant::now();
            while let Some(late) = state.waiting.iter().find(|waiting| waiting.due.is_some_and(|due| due <= now)) {
                let id = late.id;
                shared.is_late.store(true, Ordering::Relaxed);
                state.finish(id, Completion::Late);
            }
            state.next_due = state.waiting.iter().filter_map(|waiting| waiting.due).min();
            state.next_due
        };
        match next {
            Some(next) => drop(timeout_at(next, shared.sooner.notified()).await),
            None => shared.sooner.notified().await,
        }
    }
}
