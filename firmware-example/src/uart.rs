//! The operations of the console: their arguments, their outputs, and what they do.

use rigline::{Context, Failure, FailureKind, Level, Outcome, Params};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use crate::board::{Board, Fault};
use crate::console::{
    Chunk, ConsoleUart, Counters, ENCODINGS, Encoding, FRAMINGS, LineSettings, Pattern, RING, Shown, Spelt,
};
use crate::rig::{Rig, Wait, bad_argument, ms, unreachable};

/// The most bytes of one reply.
const MOST: usize = 2048;
/// How much of a reply's limit is for other things than bytes of the console.
const REST_OF_REPLY: usize = 1024;
/// The most bytes of a log, which has them twice.
const LINE: usize = 80;
/// The most characters that they take there: a log of twice as many fits into half of
/// [`UART_LOGS`](crate::wires::UART_LOGS).
const LINE_SHOWN: usize = 180;
/// The most logs of the console between two looks. What comes faster is not logged.
const LINES: usize = 32;
/// How often a wait looks, in milliseconds: at 3 Mbaud, 1500 bytes come meanwhile.
const LOOK_MS: u32 = 5;
/// The most bytes that an error quotes.
const QUOTED: usize = 160;

/// The rig's memory of the console between operations.
#[derive(Debug)]
pub(crate) struct State {
    line: LineSettings,
    /// The position that the next operation reads from.
    cursor: u64,
    /// The position up to which logs have told what came.
    told: u64,
    /// The bytes that were overwritten before the cursor passed them.
    dropped: u64,
    seen: [u8; MOST],
}

impl State {
    pub(crate) const fn new() -> Self {
        Self { line: LineSettings::DEFAULT, cursor: 0, told: 0, dropped: 0, seen: [0; MOST] }
    }

    /// Counts what was overwritten before it was read.
    fn pass_overwritten(&mut self, received: u64) {
        let oldest = received.saturating_sub(RING as u64);
        if self.cursor < oldest {
            self.dropped += oldest - self.cursor;
            self.cursor = oldest;
        }
    }
}

#[derive(Debug, Params)]
pub(crate) struct UartWrite<'a> {
    /// Bytes to send: in text, `\n`, `\r`, `\t`, `\e`, `\0`, `\\` and `\xNN` are escapes
    #[param(max_length = 2048)]
    data: &'a str,
    /// How `data` is written
    #[param(one_of = ENCODINGS, default = "text")]
    encoding: &'a str,
    /// The speed from now on, in baud
    #[param(minimum = 300, maximum = 3000000)]
    speed: Option<u32>,
    /// The framing from now on
    #[param(one_of = FRAMINGS)]
    framing: Option<&'a str>,
}

#[derive(Debug, Params)]
pub(crate) struct UartExpect<'a> {
    /// The bytes to wait for, 63 at most; escapes as in `uart-write`
    text: Option<&'a str>,
    /// Or a pattern: `?` is a byte of a line, `*` any number of them, `#` one digit or more
    pattern: Option<&'a str>,
    /// How long to wait, in milliseconds; the call's timeout may end it earlier
    #[param(maximum = 60000, default = 5000)]
    within_ms: u32,
    /// The mark to look from; by default where the last match or read ended
    since: Option<u64>,
    /// How bytes are written in `text` and in the reply
    #[param(one_of = ENCODINGS, default = "text")]
    encoding: &'a str,
    /// The speed from now on, in baud
    #[param(minimum = 300, maximum = 3000000)]
    speed: Option<u32>,
    /// The framing from now on
    #[param(one_of = FRAMINGS)]
    framing: Option<&'a str>,
}

#[derive(Debug, Params)]
pub(crate) struct UartRead<'a> {
    /// The mark to read from, which takes nothing; by default where the last match or read ended
    since: Option<u64>,
    /// The most bytes to read
    #[param(minimum = 1, maximum = 2048, default = 2048)]
    max: u32,
    /// How long to wait for a first byte, in milliseconds
    #[param(maximum = 60000, default = 0)]
    within_ms: u32,
    /// Whether to leave out what came before this call
    #[param(default = false)]
    discard: bool,
    /// How bytes are written in the reply
    #[param(one_of = ENCODINGS, default = "text")]
    encoding: &'a str,
    /// The speed from now on, in baud
    #[param(minimum = 300, maximum = 3000000)]
    speed: Option<u32>,
    /// The framing from now on
    #[param(one_of = FRAMINGS)]
    framing: Option<&'a str>,
}

#[derive(Debug, Params)]
pub(crate) struct UartBreak {
    /// How long the line is held low, in milliseconds
    #[param(minimum = 1, maximum = 1000, default = 100)]
    ms: u32,
}

/// The outputs of the operations, for schemas.
#[allow(dead_code, reason = "for schemas")]
#[allow(deprecated, reason = "of what has no description: their names are plain, and a board's flash is small")]
pub(crate) mod outputs {
    use rigline::Outputs;

    #[derive(Outputs)]
    pub(crate) struct Written {
        written: u32,
        /// The position of the first byte that may be an answer
        mark: u64,
    }

    #[derive(Outputs)]
    pub(crate) struct Expected<'a> {
        /// The text before the match, at most its last 2048 bytes
        before: &'a str,
        #[output(rename = "match")]
        matched: Option<&'a str>,
        encoding: &'a str,
        /// The position behind the match
        mark: u64,
        /// The number of bytes before the match
        before_bytes: u64,
        /// The bytes that were overwritten before they were looked at
        missed: u64,
        waited_ms: u32,
    }

    #[derive(Outputs)]
    pub(crate) struct Received<'a> {
        data: &'a str,
        encoding: &'a str,
        /// The position behind the last byte of `data`
        mark: u64,
        /// The bytes that were overwritten before they were read, directly before `data`
        missed: u64,
        /// The bytes behind `mark` that can be read
        waiting: u64,
        /// All bytes that came since the rig's start
        received: u64,
        /// All bytes that were overwritten before they were read
        dropped: u64,
        framing_errors: u32,
        parity_errors: u32,
        /// How often the UART itself lost bytes
        overruns: u32,
        breaks: u32,
    }
}

/// The data of a log of the console: its text, by whose name recordings know it; where in all that was
/// received the text begins; and when it was told.
struct Heard<'a> {
    uart: Shown<'a>,
    from: u64,
    uptime_ms: u64,
}

impl Serialize for Heard<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_struct("Heard", 3)?;
        members.serialize_field("uart", &self.uart)?;
        members.serialize_field("from", &self.from)?;
        members.serialize_field("uptime_ms", &self.uptime_ms)?;
        members.end()
    }
}

impl<B: Board> Rig<B> {
    pub(crate) async fn write_console(
        &mut self,
        args: UartWrite<'_>,
        cx: &mut Context<'_>,
    ) -> Result<Outcome, Failure> {
        let encoding = Encoding::of(args.encoding);
        // All of it is read first, so that nothing is sent of what has a fault.
        if let Some(Err(error)) = Spelt::new(args.data, encoding).find(Result::is_err) {
            return Err(bad_argument(cx, format_args!("args.data: {error}")));
        }
        self.set_line(args.speed, args.framing, cx)?;
        let mark = self.counters(cx)?.received;
        let mut bytes = Spelt::new(args.data, encoding).map_while(Result::ok);
        let (mut waiting, mut written) = (None, 0_u32);
        loop {
            // As many as there is room for.
            while let Some(byte) = waiting.take().or_else(|| bytes.next().map(|spelt| spelt.byte)) {
                if self.uart(cx)?.send(&[byte]).map_err(|fault| silent(fault, cx))? == 0 {
                    waiting = Some(byte);
                    break;
                }
                written += 1;
            }
            if waiting.is_none() && !self.is_sending(cx)? {
                break;
            }
            cx.sleep(ms(1)).await;
        }
        cx.output("written", &written)?;
        cx.output("mark", &mark)?;
        cx.done(format_args!("sent {written} bytes"))
    }

    pub(crate) async fn expect_console(
        &mut self,
        args: UartExpect<'_>,
        cx: &mut Context<'_>,
    ) -> Result<Outcome, Failure> {
        let encoding = Encoding::of(args.encoding);
        let (name, text) = match (args.text, args.pattern) {
            (Some(text), None) => ("text", text),
            (None, Some(pattern)) => ("pattern", pattern),
            _ => return Err(bad_argument(cx, "args: give either text or pattern")),
        };
        let is_literal = name == "text";
        let spelt = if is_literal { encoding } else { Encoding::Text };
        let pattern = Pattern::new(text, spelt, is_literal)
            .map_err(|error| bad_argument(cx, format_args!("args.{name}: {error}")))?;
        self.set_line(args.speed, args.framing, cx)?;
        let from = self.begin(args.since, cx)?;

        let mut wait = Wait::new(args.within_ms, cx);
        let (mut at, mut missed) = (from, 0);
        let mut states = pattern.start();
        let (found, waited) = loop {
            let found = self.look(&pattern, &mut states, &mut at, &mut missed, cx)?;
            let waited = wait.waited(cx);
            let ends = found || waited >= args.within_ms;
            self.tell(at, ends, cx)?;
            if ends {
                break (found, waited);
            }
            cx.sleep(ms(LOOK_MS.min(args.within_ms - waited).max(1))).await;
        };

        let count = self.keep(from.max(at.saturating_sub(MOST as u64)), at, cx)?;
        if found && args.since.is_none() {
            self.console.dropped += missed;
        }
        if found {
            self.console.cursor = at;
        }
        let budget = cx.limits().1.saturating_sub(REST_OF_REPLY) / 2;
        let seen = self.console.seen.get(..count).unwrap_or_default();
        let length = if found { pattern.length_at_end(seen) } else { 0 };
        let (before, matched) = seen.split_at_checked(count - length).unwrap_or_default();
        cx.output("before", &Shown(before, encoding).tail(budget))?;
        if found {
            cx.output("match", &Shown(matched, encoding).tail(budget))?;
        }
        cx.output("encoding", encoding.name())?;
        cx.output("mark", &at)?;
        cx.output("before_bytes", &(at - from).saturating_sub(missed + length as u64))?;
        cx.output("missed", &missed)?;
        cx.output("waited_ms", &waited)?;
        if found {
            return cx.done(format_args!("`{}` came after {waited} ms", Shown(matched, Encoding::Line).tail(QUOTED)));
        }
        let came = at - from;
        if came == 0 {
            return cx.failed(format_args!("`{text}` did not come in {waited} ms: nothing came"));
        }
        cx.failed(format_args!(
            "`{text}` did not come in {waited} ms: {came} bytes came, the last of which are `{}`",
            Shown(before, Encoding::Line).tail(QUOTED)
        ))
    }

    pub(crate) async fn read_console(&mut self, args: UartRead<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let encoding = Encoding::of(args.encoding);
        self.set_line(args.speed, args.framing, cx)?;
        let mut from = self.begin(args.since, cx)?;
        if args.discard {
            self.skip_console();
            from = self.console.cursor;
        }
        let mut wait = Wait::new(args.within_ms, cx);
        loop {
            let waited = wait.waited(cx);
            if self.counters(cx)?.received > from || waited >= args.within_ms {
                break;
            }
            cx.sleep(ms(LOOK_MS.min(args.within_ms - waited).max(1))).await;
        }

        let budget = cx.limits().1.saturating_sub(REST_OF_REPLY);
        let most = usize::try_from(args.max).unwrap_or(MOST).min(MOST);
        let counters = self.counters(cx)?;
        let Chunk { at, count } = match self.board.console() {
            Some(uart) => uart
                .copy(from, self.console.seen.get_mut(..most).unwrap_or_default())
                .map_err(|fault| silent(fault, cx))?,
            None => return Err(no_console(cx)),
        };
        let shown = Shown(self.console.seen.get(..count).unwrap_or_default(), encoding).head(budget);
        let (mark, missed) = (at + shown.bytes().len() as u64, at.saturating_sub(from));
        // Who reads from a mark looks on, and takes nothing from the others.
        if args.since.is_none() {
            self.console.dropped += missed;
            self.console.cursor = mark;
        }
        cx.output("data", &shown)?;
        let length = shown.bytes().len();
        cx.output("encoding", encoding.name())?;
        cx.output("mark", &mark)?;
        cx.output("missed", &missed)?;
        let received = counters.received.max(mark);
        cx.output("waiting", &(received - mark))?;
        cx.output("received", &received)?;
        cx.output("dropped", &self.console.dropped)?;
        cx.output("framing_errors", &counters.framing_errors)?;
        cx.output("parity_errors", &counters.parity_errors)?;
        cx.output("overruns", &counters.overruns)?;
        cx.output("breaks", &counters.breaks)?;
        self.tell(mark, true, cx)?;
        cx.done(format_args!("read {length} bytes"))
    }

    pub(crate) async fn break_console(&mut self, args: UartBreak, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        while self.is_sending(cx)? {
            cx.sleep(ms(1)).await;
        }
        let held = HeldBreak::begin(self.uart(cx)?);
        let held = held.map_err(|fault| silent(fault, cx))?;
        cx.sleep(ms(args.ms)).await;
        held.end().map_err(|fault| silent(fault, cx))?;
        cx.done(format_args!("held the line low for {} ms", args.ms))
    }

    /// Ends a break, and returns to the usual speed and framing. What came until now is not looked at
    /// any more unless it is asked for by its mark.
    pub(crate) fn make_console_safe(&mut self) -> Result<(), Fault> {
        let Some(uart) = self.board.console() else { return Ok(()) };
        let ended = uart.set_break(false);
        let usual = uart.configure(LineSettings::DEFAULT);
        self.console.line = LineSettings::DEFAULT;
        self.skip_console();
        ended.and(usual)
    }

    /// Has the next operation begin at what comes from now on.
    pub(crate) fn skip_console(&mut self) {
        if let Some(Ok(Counters { received, .. })) = self.board.console().map(ConsoleUart::counters) {
            self.console.pass_overwritten(received);
            self.console.cursor = received;
        }
    }

    /// Out of line, as what follows: each operation would have a copy.
    #[inline(never)]
    fn uart(&mut self, cx: &mut Context<'_>) -> Result<&mut dyn ConsoleUart, Failure> {
        match self.board.console() {
            Some(uart) => Ok(uart),
            None => Err(no_console(cx)),
        }
    }

    #[inline(never)]
    fn counters(&mut self, cx: &mut Context<'_>) -> Result<Counters, Failure> {
        self.uart(cx)?.counters().map_err(|fault| silent(fault, cx))
    }

    #[inline(never)]
    fn is_sending(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        self.uart(cx)?.is_sending().map_err(|fault| silent(fault, cx))
    }

    #[inline(never)]
    fn set_line(&mut self, speed: Option<u32>, framing: Option<&str>, cx: &mut Context<'_>) -> Result<(), Failure> {
        let old = self.console.line;
        let line = LineSettings { speed: speed.unwrap_or(old.speed), ..old };
        let line = framing.and_then(|name| line.with_framing(name)).unwrap_or(line);
        if line != old {
            self.uart(cx)?.configure(line).map_err(|fault| silent(fault, cx))?;
            self.console.line = line;
        }
        Ok(())
    }

    /// The position that an operation looks from.
    #[inline(never)]
    fn begin(&mut self, since: Option<u64>, cx: &mut Context<'_>) -> Result<u64, Failure> {
        let received = self.counters(cx)?.received;
        match since {
            // What was overwritten since is missed, as the operation finds.
            None => Ok(self.console.cursor),
            Some(mark) if mark <= received => {
                self.console.pass_overwritten(received);
                Ok(mark)
            }
            Some(mark) => {
                let text = format_args!("args.since: {mark} is beyond the {received} bytes that were received");
                Err(cx.failure(FailureKind::BadArguments, text))
            }
        }
    }

    /// Steps the pattern through what came since the last look. Returns whether a match ends at `at`.
    #[inline(never)]
    fn look(
        &mut self,
        pattern: &Pattern,
        states: &mut u64,
        at: &mut u64,
        missed: &mut u64,
        cx: &mut Context<'_>,
    ) -> Result<bool, Failure> {
        let mut bytes = [0; 64];
        // As much as the ring can hold, so that a flood does not keep the rig here.
        for _ in 0..RING / bytes.len() {
            let chunk = self.uart(cx)?.copy(*at, &mut bytes).map_err(|fault| silent(fault, cx))?;
            if chunk.at > *at {
                *missed += chunk.at - *at;
                *at = chunk.at;
                *states = pattern.start();
            }
            for byte in bytes.iter().take(chunk.count) {
                *at += 1;
                *states = pattern.step(*states, *byte);
                if pattern.is_end(*states) {
                    return Ok(true);
                }
            }
            if chunk.count < bytes.len() {
                break;
            }
        }
        Ok(false)
    }

    /// Copies the bytes between two positions to where replies are made from, and returns their number.
    #[inline(never)]
    fn keep(&mut self, from: u64, until: u64, cx: &mut Context<'_>) -> Result<usize, Failure> {
        let count = usize::try_from(until.saturating_sub(from)).unwrap_or(MOST).min(MOST);
        let Some(uart) = self.board.console() else { return Err(no_console(cx)) };
        let into = self.console.seen.get_mut(..count).unwrap_or_default();
        let chunk = uart.copy(from, into).map_err(|fault| silent(fault, cx))?;
        // If a part was overwritten since, bytes behind the end came in its place.
        Ok(usize::try_from(until.saturating_sub(chunk.at)).unwrap_or(MOST).min(chunk.count))
    }

    /// Logs the lines that came up to a position; `all` logs an unfinished one, too.
    #[inline(never)]
    fn tell(&mut self, until: u64, all: bool, cx: &mut Context<'_>) -> Result<(), Failure> {
        for _ in 0..LINES {
            let mut line = [0; LINE];
            let told = self.console.told;
            let chunk = self.uart(cx)?.copy(told, &mut line).map_err(|fault| silent(fault, cx))?;
            let count = usize::try_from(until.saturating_sub(chunk.at)).unwrap_or(LINE).min(chunk.count);
            let bytes = line.get(..count).unwrap_or_default();
            let length = match bytes.iter().position(|byte| *byte == b'\n') {
                Some(place) => place + 1,
                None if count == LINE || (all && count > 0) => count,
                None => return Ok(()),
            };
            let Shown(mut text, _) = Shown(bytes.get(..length).unwrap_or_default(), Encoding::Line).head(LINE_SHOWN);
            self.console.told = chunk.at + text.len() as u64;
            while let [rest @ .., b'\r' | b'\n'] = text {
                text = rest;
            }
            if !text.is_empty() {
                let uart = Shown(text, Encoding::Line);
                let data = Heard { uart, from: chunk.at, uptime_ms: cx.now().as_millis() };
                cx.log_with(Level::Info, format_args!("uart: {uart}"), &data);
            }
        }
        self.console.told = self.console.told.max(until);
        Ok(())
    }
}

/// A break that ends when this is dropped: when its time is over, and when it is cancelled.
struct HeldBreak<'a> {
    uart: &'a mut dyn ConsoleUart,
    ended: bool,
}

impl<'a> HeldBreak<'a> {
    fn begin(uart: &'a mut dyn ConsoleUart) -> Result<Self, Fault> {
        let held = Self { uart, ended: false };
        held.uart.set_break(true)?;
        Ok(held)
    }

    fn end(mut self) -> Result<(), Fault> {
        self.uart.set_break(false)?;
        self.ended = true;
        Ok(())
    }
}

impl Drop for HeldBreak<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.uart.set_break(false);
        }
    }
}

#[inline(never)]
fn silent(fault: Fault, cx: &mut Context<'_>) -> Failure {
    unreachable("console", "UART", fault, cx)
}

#[inline(never)]
fn no_console(cx: &mut Context<'_>) -> Failure {
    silent(Fault::NotWired, cx)
}
