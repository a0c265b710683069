//! What a handler talks to while it runs: outputs, messages, logs, time.

use core::time::Duration;

use serde::Serialize;

use crate::call::Outcome;
use crate::clock::{Clock, Instant, Sleep};
use crate::failure::{Failure, FailureKind};
use crate::json::ser::{self, SerError};
use crate::json::write::{Message, Writer};
pub use crate::level::Level;
use crate::params::Outputs;
#[cfg(feature = "waza")]
use crate::protocol::waza;
use crate::protocol::{Protocol, gevals};
use crate::reply::Reply;

/// A call's surroundings. What a handler writes through it goes straight into the bounded reply region; nothing is kept
/// on a heap.
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
    /// The number of the eval's run that the call is part of; 0 where there is none.
    #[cfg(feature = "waza")]
    run: u32,
}

impl<'a> Context<'a> {
    /// A context over a call's part of the engine, for whoever writes a shell of their own.
    pub fn new(
        scratch: Scratch<'a>,
        logs: &'a mut dyn LogSink,
        clock: &'a dyn Clock,
        deadline: Option<Instant>,
    ) -> Self {
        Self {
            memory: scratch.memory,
            reply: scratch.reply,
            logs,
            clock,
            deadline,
            #[cfg(feature = "waza")]
            run: 0,
        }
    }

    /// Puts an output into the reply. gevals gets every output as a string: text as it is, the rest as its JSON text.
    ///
    /// # Errors
    /// The value does not fit what is left of the reply region, or it has no JSON form (NaN). The call is then answered
    /// with -32603 and the size that was needed (as far as it is known: a handler that gives up here leaves the rest out),
    /// whatever the handler goes on to return.
    pub fn output<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Failure> {
        self.reply.output(self.memory, name, |out| is_writable(ser::write(value, out)))
    }

    /// Puts each field of a struct with `#[derive(Outputs)]` into the reply, as an output of its name.
    ///
    /// # Errors
    /// As [`output`](Self::output).
    pub fn outputs<T: Outputs>(&mut self, value: &T) -> Result<(), Failure> {
        value.write(self)
    }

    /// Sums up what was done, and ends the outputs: success.
    pub fn done(&mut self, message: impl Message) -> Result<Outcome, Failure> {
        self.reply.message(self.memory, &message);
        Ok(Outcome::DONE)
    }

    /// The operation ran and its own logic failed: `return cx.failed("3V3 is at 2.9 V")`. Outputs stay in the reply.
    pub fn failed(&mut self, error: impl Message) -> Result<Outcome, Failure> {
        Err(self.failure(FailureKind::Failed, error))
    }

    /// A failure of any kind, explained by any text. Return it before anything else is written through the context: the
    /// text waits in the reply region, and is lost to what is written after it.
    pub fn failure(&mut self, kind: FailureKind, text: impl Message) -> Failure {
        #[cfg(feature = "waza")]
        if self.run > 0 {
            // There is no reply that the text could wait in.
            self.write_log(Level::Error, &text, |_| {});
        }
        self.reply.failure(self.memory, kind, &text)
    }

    /// Tells the host something while the call runs. Over blocking transports the line is on the wire when this returns;
    /// over async ones it goes out the next time the handler awaits.
    ///
    /// A line that does not fit the log region is dropped whole, counted, and the count reported in a later log.
    pub fn log(&mut self, level: Level, message: impl Message) {
        self.write_log(level, &message, |_| {});
    }

    /// [`log`](Self::log) with structured data. gevals wants an object here; anything else is put into one, as `value`.
    pub fn log_with<T: Serialize + ?Sized>(&mut self, level: Level, message: impl Message, data: &T) {
        self.write_log(level, &message, |out| {
            out.raw(b",\"data\":");
            let start = out.len();
            if !is_writable(ser::write(data, out)) {
                out.truncate(start);
                out.raw(b"{\"value\":null}");
            } else if !out.as_written().get(start..).is_some_and(|json| json.starts_with(b"{")) {
                out.truncate(start);
                out.raw(b"{\"value\":");
                let _ = ser::write(data, out);
                out.byte(b'}');
            }
        });
    }

    /// [`log`](Self::log) at level debug.
    pub fn debug(&mut self, message: impl Message) {
        self.log(Level::Debug, message);
    }

    /// [`log`](Self::log) at level info.
    pub fn info(&mut self, message: impl Message) {
        self.log(Level::Info, message);
    }

    /// [`log`](Self::log) at level warn.
    pub fn warn(&mut self, message: impl Message) {
        self.log(Level::Warn, message);
    }

    /// [`log`](Self::log) at level error.
    pub fn error(&mut self, message: impl Message) {
        self.log(Level::Error, message);
    }

    /// Waits. While a handler waits, async shells go on reading and writing, and a call whose time is up ends here.
    pub fn sleep(&self, duration: Duration) -> Sleep<'a> {
        Sleep::until(self.clock, self.clock.now().after(duration))
    }

    /// The clock's time.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// When the call's time is up, if it has a limit.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn write_log(&mut self, level: Level, message: &dyn Message, data: impl FnOnce(&mut Writer<'_>)) {
        let late = self.deadline.is_some_and(|deadline| self.clock.now() > deadline);
        #[cfg(feature = "waza")]
        if self.run > 0 {
            let mut out = Writer::new(self.logs.room());
            waza::write_log(&mut out, self.run, level, message);
            out.byte(b'\n');
            let length = out.finish().ok().map(|line| line.len());
            return self.commit_log(length);
        }
        // A notification gets no logs either; an event's go where its protocol has them.
        if late || self.reply.is_silent() && self.reply.protocol() == Protocol::Gevals {
            return;
        }
        let mut out = Writer::new(self.logs.room());
        if self.reply.protocol() != Protocol::Gevals {
            message.write_escaped(&mut out);
            match out.finish() {
                Ok(text) => self.clock.aside(level, core::str::from_utf8(text).unwrap_or_default()),
                Err(_) => self.clock.aside(level, "a log line was longer than the log buffer"),
            }
            return self.logs.withdraw();
        }
        gevals::write_log(&mut out, level, message);
        data(&mut out);
        out.raw(b"}}\n");
        let length = out.finish().ok().map(|line| line.len());
        self.commit_log(length);
    }

    fn commit_log(&mut self, length: Option<usize>) {
        match length {
            Some(length) => self.logs.commit(length),
            None => self.logs.dropped(),
        }
    }

    /// The call is part of a run from here on.
    #[cfg(feature = "waza")]
    pub(crate) fn begin_eval(&mut self, run: u32) {
        self.run = run;
    }

    /// Sends a notification. It waits for room: what tells how a run goes is not dropped.
    #[cfg(feature = "waza")]
    pub(crate) async fn notify<T: Serialize>(&mut self, method: &str, params: &T) {
        loop {
            let mut out = Writer::new(self.logs.room());
            waza::write_notification(&mut out, method, params);
            out.byte(b'\n');
            match out.finish().map(|line| line.len()) {
                Ok(length) => {
                    self.logs.commit(length);
                    if self.logs.is_queue() {
                        turn().await;
                    }
                    return;
                }
                Err(error) if error.needed > self.logs.capacity() => return self.logs.dropped(),
                Err(_) => {
                    self.logs.withdraw();
                    turn().await;
                }
            }
        }
    }
}

/// Lets the shell have its turn.
#[cfg(feature = "waza")]
async fn turn() {
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

/// What is too large is writable: it is counted on, and the count tells.
fn is_writable(result: Result<(), SerError>) -> bool {
    matches!(result, Ok(()) | Err(SerError::TooLarge(_)))
}

/// A call's part of the engine's memory: what [`Context`] writes the reply into.
#[derive(Debug)]
pub struct Scratch<'a> {
    pub(crate) memory: &'a mut [u8],
    pub(crate) reply: &'a mut Reply,
}

/// Where log lines go. A shell has one of its own.
pub trait LogSink {
    /// Memory for one whole line, its newline included; what does not fit it is dropped. Each time it was asked for,
    /// [`commit`](Self::commit), [`withdraw`](Self::withdraw) or [`dropped`](Self::dropped) says what became of it.
    fn room(&mut self) -> &mut [u8];

    /// Takes the first `length` bytes of [`room`](Self::room): one line, with its newline.
    fn commit(&mut self, length: usize);

    /// Whether lines wait here until the driver has its turn. If not, they are on the wire when [`commit`](Self::commit)
    /// returns.
    fn is_queue(&self) -> bool {
        false
    }

    /// Nothing is taken of [`room`](Self::room) after all.
    fn withdraw(&mut self) {}

    /// The longest line that it ever has room for; 0 if it does not say.
    fn capacity(&self) -> usize {
        0
    }

    /// A line did not fit. Count it, and report the count when there is room.
    fn dropped(&mut self);
}
