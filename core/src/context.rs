//! The interface of a running handler: outputs, message, logs, progress and time.

use core::time::Duration;

use serde::Serialize;

use crate::call::{Call, Outcome};
use crate::clock::{Clock, Instant, Sleep};
use crate::content::Content;
use crate::failure::{Failure, FailureKind};
use crate::json::ser;
use crate::json::write::{Message, Writer};
use crate::level::Level;
use crate::message::Received;
use crate::protocol::define::Protocol;
use crate::protocol::format::{Log, Logs, Progress};
use crate::reply::{MADE_SAFE, Reply};
use crate::service::{Job, Service, Step};

/// The interface of a handler to the current call: outputs, message, logs and time. Outputs are
/// written directly into the reply region, whose size is fixed, without a heap.
///
/// ```
/// # use rigline::{Context, Failure, Outcome};
/// async fn measure(cx: &mut Context<'_>) -> Result<Outcome, Failure> {
///     cx.info("sampling 3V3");
///     let millivolts = 3300;
///     cx.output("volts", &rigline::json::Decimal::<3>::from_mantissa(millivolts))?;
///     cx.done(format_args!("3V3 is at {millivolts} mV"))
/// }
/// ```
pub struct Context<'a> {
    pub(crate) memory: &'a mut [u8],
    pub(crate) reply: &'a mut Reply,
    pub(crate) logs: &'a mut dyn LogSink,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) deadline: Option<Instant>,
    limits: (usize, usize),
    received: Option<Received<'a>>,
    /// The job that the call is part of.
    job: Option<(&'a dyn Service, Job)>,
    /// The progress that was reported last.
    progress: Option<u32>,
}

impl<'a> Context<'a> {
    /// Makes a context from the reply buffer of a call, for drivers outside this crate.
    pub fn new(
        reply: ReplyBuffer<'a>,
        logs: &'a mut dyn LogSink,
        clock: &'a dyn Clock,
        deadline: Option<Instant>,
    ) -> Self {
        Self {
            memory: reply.memory,
            reply: reply.reply,
            logs,
            clock,
            deadline,
            limits: reply.limits,
            received: reply.received,
            job: None,
            progress: None,
        }
    }

    /// Writes an output into the reply. gevals gets every output as a string: text as it is, and
    /// any other value as its JSON text.
    ///
    /// # Errors
    /// The value does not fit into the rest of the reply region, or it has no JSON form (NaN). The
    /// caller then gets error -32603 with the size that was needed, whatever the handler returns
    /// afterwards. If the handler stops here, that size does not include the outputs that it would
    /// have written later.
    pub fn output<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Failure> {
        self.reply.output(self.memory, name, &|out| ser::put(value, out))
    }

    /// Adds an output as [`output`](Self::output) does. The caller has seen that no two of its names
    /// are the same: many outputs take as long as their bytes.
    ///
    /// # Errors
    /// As [`output`](Self::output).
    #[cfg(feature = "std")]
    #[doc(hidden)]
    pub fn output_of_new_name<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Failure> {
        self.reply.expect_new_name(name);
        self.output(name, value)
    }

    /// Adds an image, a sound, a resource or a text to the result. Write all outputs before it. A
    /// protocol without such content gets it as an output of this name, with bytes as a `data:`
    /// URI.
    ///
    /// # Errors
    /// As [`output`](Self::output). An [`output`](Self::output) after content is an error, too.
    pub fn content(&mut self, name: &str, content: &Content<'_>) -> Result<(), Failure> {
        self.reply.content(self.memory, name, content)
    }

    /// The protocol of the call.
    pub fn protocol(&self) -> &'static Protocol {
        self.reply.protocol()
    }

    /// Whether the caller's protocol has [content](Self::content) beside outputs, so that content
    /// reaches the caller as blocks.
    pub fn has_content(&self) -> bool {
        self.reply.format().content.is_some()
    }

    /// The greatest lengths of a message and of a reply in JSON-RPC on the wire of this call, in
    /// bytes: those of [`Engine::limits`](crate::engine::Engine::limits), or of
    /// [`Served::limits`](crate::exchange::Served::limits). An extension that is served over
    /// several wires can tell its callers what theirs carries.
    pub fn limits(&self) -> (usize, usize) {
        self.limits
    }

    /// Ends the call with success and this message. Call it after all outputs, and return its
    /// result.
    pub fn done(&mut self, message: impl Message) -> Result<Outcome, Failure> {
        self.reply.message(self.memory, &message);
        Ok(Outcome::DONE)
    }

    /// Ends the call with the failure that its own logic found, for example `return cx.failed("3V3
    /// is at 2.9 V")`. Outputs that were written stay in the reply.
    pub fn failed(&mut self, error: impl Message) -> Result<Outcome, Failure> {
        Err(self.failure(FailureKind::Failed, error))
    }

    /// Makes a failure of any kind with any text. Return it before anything else is written through
    /// the context. Its text waits in the reply region, and a later write overwrites it.
    pub fn failure(&mut self, kind: FailureKind, text: impl Message) -> Failure {
        if self.job.is_some() {
            // There is no reply to hold the text.
            self.write_log(Level::Error, &text, None);
        }
        self.reply.failure(self.memory, kind, &text)
    }

    /// Sends a log to the host while the call runs. Over a blocking transport the line is sent when
    /// this method returns. Over an async one it is sent the next time that the handler awaits.
    ///
    /// A line that does not fit into the log region is dropped as a whole and counted. A later log
    /// reports the count.
    pub fn log(&mut self, level: Level, message: impl Message) {
        self.write_log(level, &message, None);
    }

    /// Sends a [log](Self::log) with structured data. gevals requires an object, so any other value
    /// becomes `{"value": …}`.
    pub fn log_with<T: Serialize + ?Sized>(&mut self, level: Level, message: impl Message, data: &T) {
        let data = |out: &mut Writer<'_>| {
            let start = out.len();
            if !ser::put(data, out) {
                out.truncate(start);
                out.raw(b"{\"value\":null}");
            } else if !out.as_written().get(start..).is_some_and(|json| json.starts_with(b"{")) {
                out.truncate(start);
                out.raw(b"{\"value\":");
                let _ = ser::put(data, out);
                out.byte(b'}');
            }
        };
        self.write_log(level, &message, Some(&data));
    }

    /// Reports the progress of the call: `done` of `total`, if the total is known. A caller that
    /// asked for progress gets a notification, if its protocol has one. If the protocol has none,
    /// the report is a log at level info. A report whose `done` is not greater than the last one is
    /// ignored.
    pub fn progress(&mut self, done: u32, total: Option<u32>, message: impl Message) {
        if self.progress.is_some_and(|last| done <= last) {
            return;
        }
        self.progress = Some(done);
        let Some(write) = self.reply.format().progress.filter(|_| self.job.is_none()) else {
            return self.write_log(Level::Info, &Counted { done, total, message: &message }, None);
        };
        if self.is_late() || self.reply.is_silent() {
            return;
        }
        if !self.logs.progressed(done) {
            return;
        }
        let mut out = Writer::new(self.logs.room());
        let progress = Progress { done, beat: 0, total, message: Some(&message), received: self.received };
        let line = if write(&mut out, &progress) { finish_line(out) } else { Some(0) };
        self.commit_line(line);
    }

    /// Whether the caller asked for reports of [progress](Self::progress). If not, a report is a
    /// log or is dropped, and need not be computed.
    pub fn wants_progress(&self) -> bool {
        let progress = Progress { done: 0, beat: 0, total: None, message: None, received: self.received };
        self.job.is_none()
            && self.reply.format().progress.is_some_and(|write| write(&mut Writer::new(&mut []), &progress))
    }

    /// Sends a [log](Self::log) at level debug.
    pub fn debug(&mut self, message: impl Message) {
        self.log(Level::Debug, message);
    }

    /// Sends a [log](Self::log) at level info.
    pub fn info(&mut self, message: impl Message) {
        self.log(Level::Info, message);
    }

    /// Sends a [log](Self::log) at level warn.
    pub fn warn(&mut self, message: impl Message) {
        self.log(Level::Warn, message);
    }

    /// Sends a [log](Self::log) at level error.
    pub fn error(&mut self, message: impl Message) {
        self.log(Level::Error, message);
    }

    /// Whether an output of the hardware may be switched on: an operation that is not declared to
    /// be read-only has run since [`safe_state`](crate::Extension::safe_state) ran last. Only the
    /// calls that the server of this connection knows of count.
    pub fn may_be_on(&self) -> bool {
        self.reply.is_touched
    }

    /// Waits for this duration. Async drivers continue to read and write in the meantime. If the
    /// call exceeds its time limit or is cancelled, the handler ends at this await.
    #[inline(never)]
    pub fn sleep(&self, duration: Duration) -> Sleep<'a> {
        Sleep::until(self.clock, self.clock.now().after(duration))
    }

    /// The current time of the clock.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The point of time at which the call's time limit ends, if it has a limit.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Tells the caller that the safe state was brought about, even if its call is out of time.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_made_safe(&mut self) {
        self.deadline = None;
        self.write_log(Level::Warn, &MADE_SAFE, None);
    }

    /// Takes out of the arguments of what is to run what is none, and logs that.
    #[inline(never)]
    pub(crate) fn prepare(&mut self, call: &mut Call<'_>) {
        if let Some(prepare) = call.context.protocol.prepare {
            prepare(call.args, call.operation, &mut |text| self.write_log(Level::Debug, text, None));
        }
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| self.clock.now() > deadline)
    }

    #[inline(never)]
    fn write_log(&mut self, level: Level, message: &dyn Message, data: Option<&dyn Fn(&mut Writer<'_>)>) {
        let line = if let Some((service, job)) = self.job {
            let mut out = Writer::new(self.logs.room());
            service.write_log(job, level, message, &mut out);
            finish_line(out)
        } else {
            if self.is_late() {
                return;
            }
            match self.reply.format().logs {
                // A notification gets no logs either; an event's go where its protocol has them.
                Logs::Line(_) if self.reply.least_log.is_none_or(|least| level < least) => return,
                Logs::Line(write) => {
                    let mut out = Writer::new(self.logs.room());
                    write(&mut out, &Log { level, message, data, received: self.received });
                    finish_line(out)
                }
                Logs::OutOfBand => {
                    let mut out = Writer::new(self.logs.room());
                    message.write_escaped(&mut out);
                    match out.finish() {
                        Ok(text) => self.clock.log_out_of_band(level, core::str::from_utf8(text).unwrap_or_default()),
                        Err(_) => self.clock.log_out_of_band(level, "a log line was longer than the log buffer"),
                    }
                    return self.logs.withdraw();
                }
            }
        };
        self.commit_line(line);
    }

    /// Takes a line from [`finish_line`].
    fn commit_line(&mut self, line: Option<usize>) {
        match line {
            Some(0) => self.logs.withdraw(),
            Some(length) => self.logs.commit(length),
            None => self.logs.dropped(),
        }
    }

    /// Marks what is written from now on as part of a job.
    pub(crate) fn begin_job(&mut self, service: &'a dyn Service, job: Job) {
        self.job = Some((service, job));
    }

    /// Sends a service's notifications about a step of the job. They wait for room in the buffer,
    /// and are never dropped.
    pub(crate) async fn report(&mut self, step: &Step<'_>) {
        let Some((service, job)) = self.job else { return };
        let mut nth = 0;
        loop {
            let mut out = Writer::new(self.logs.room());
            if !service.report(job, step, nth, &mut out) {
                return self.logs.withdraw();
            }
            out.byte(b'\n');
            match out.finish().map(|line| line.len()) {
                Ok(length) => {
                    self.logs.commit(length);
                    if self.logs.is_queue() {
                        yield_now().await;
                    }
                    nth += 1;
                }
                Err(error) if error.needed > self.logs.capacity() => {
                    self.logs.dropped();
                    nth += 1;
                }
                Err(_) => {
                    self.logs.withdraw();
                    yield_now().await;
                }
            }
        }
    }
}

/// Ends a line, and returns its length with its newline: 0 if nothing was written, none if it does
/// not fit.
fn finish_line(mut out: Writer<'_>) -> Option<usize> {
    if out.is_empty() {
        return Some(0);
    }
    out.byte(b'\n');
    out.finish().ok().map(|line| line.len())
}

/// The progress as a text, such as `3/10`.
struct Counted<'m> {
    done: u32,
    total: Option<u32>,
    message: &'m dyn Message,
}

impl Message for Counted<'_> {
    fn write_escaped(&self, out: &mut Writer<'_>) {
        self.message.write_escaped(out);
        out.raw(b" (");
        out.u32(self.done);
        if let Some(total) = self.total {
            out.raw(b" of ");
            out.u32(total);
        }
        out.byte(b')');
    }
}

/// Lets the driver have its turn.
async fn yield_now() {
    let mut had = false;
    core::future::poll_fn(|task| {
        if core::mem::replace(&mut had, true) {
            return core::task::Poll::Ready(());
        }
        task.waker().wake_by_ref();
        core::task::Poll::Pending
    })
    .await;
}

impl core::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Context").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// The part of the engine's memory that the reply to one call is written into. [`Context::new`]
/// takes it.
#[derive(Debug)]
pub struct ReplyBuffer<'a> {
    pub(crate) memory: &'a mut [u8],
    pub(crate) reply: &'a mut Reply,
    /// The limits of the wire: [`Context::limits`].
    pub(crate) limits: (usize, usize),
    /// The request.
    pub(crate) received: Option<Received<'a>>,
}

/// A destination for log lines. Each driver has one.
pub trait LogSink {
    /// Memory for one whole line with its newline. A line that does not fit is dropped. After each
    /// call of this method, exactly one of [`commit`](Self::commit), [`withdraw`](Self::withdraw)
    /// and [`dropped`](Self::dropped) is called.
    fn room(&mut self) -> &mut [u8];

    /// Sends the first `length` bytes of [`room`](Self::room), which are one line with its newline.
    fn commit(&mut self, length: usize);

    /// Takes note that a call has reported the progress `done`. Returns whether that is more than
    /// the progress that a driver has reported in the meantime, while the handler waited.
    fn progressed(&mut self, done: u32) -> bool {
        let _ = done;
        true
    }

    /// Whether lines wait until the driver runs again. If not, a line is sent when
    /// [`commit`](Self::commit) returns.
    fn is_queue(&self) -> bool {
        false
    }

    /// Sends nothing of [`room`](Self::room).
    fn withdraw(&mut self) {}

    /// The length of the longest line that [`room`](Self::room) can ever take, in bytes; 0 if
    /// unknown, or if there is never more room than now.
    fn capacity(&self) -> usize {
        0
    }

    /// Counts a line that did not fit, so that the count is reported when there is room.
    fn dropped(&mut self);
}
