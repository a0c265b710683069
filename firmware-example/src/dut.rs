//! The console of the simulated board under test: a script, and the wires to the rig.
//!
//! The board beside the emulated RP2040 (`tests/emulator/dut-console.mjs`) has the same script, with the
//! same texts. Its console has 115200 baud, 8N1, until a command changes that.
//!
//! | it | when |
//! |---|---|
//! | prints [`BANNER`] | its rail is up, or `RESET` is let go |
//! | prints [`LOADER`] and does no more | the same, while `BOOT` is pressed |
//! | prints [`READY`] and [`PROMPT`] | it is up, when its LED is lit |
//! | prints `break` | it receives a break |
//!
//! What is typed at the prompt is echoed, and carriage return or newline runs it. Control-C ends what
//! runs.
//!
//! | command | answer |
//! |---|---|
//! | `help` | the names of the commands |
//! | `ver` | [`VERSION`] |
//! | `echo TEXT` | the text |
//! | `flood N` | N bytes of numbered lines of 64 bytes, see [`flood_byte`] |
//! | `garbage N` | N bytes that are no text, see [`Garbage`] |
//! | `baud N` | at the old speed, `baud N` and the prompt; then it has the new speed |
//! | `break` | a break, 10 ms long |
//! | `hang` | nothing, and no answer to anything until it is reset |
//! | `reset` | it starts again |

use core::fmt::{self, Write as _};

use rigline::Instant;

use crate::console::{Counters, LineSettings, MAX_SPEED, MIN_SPEED, RING, Ring};

/// Printed when the board starts.
pub const BANNER: &str = "\r\ndut boot loader 1.0\r\nimage ok, starting\r\n";
/// Printed when the board starts while `BOOT` is pressed.
pub const LOADER: &str = "\r\ndut boot loader 1.0\r\nboot pin held, waiting for an image\r\n";
/// Printed when the board is up.
pub const READY: &str = "rails ok\r\ndut 1.2.0 ready\r\n";
/// Printed when the board waits for a command.
pub const PROMPT: &str = "> ";
/// The board's answer to `ver`.
pub const VERSION: &str = "dut 1.2.0";
/// The board's answer to `help`.
pub const HELP: &str = "help ver echo flood garbage baud break hang reset";
/// The most bytes of one `flood` or `garbage`.
pub const MOST: u32 = 10_000_000;
/// The longest command, in bytes.
pub const COMMAND: usize = 64;

/// The byte at this place of a flood: lines of 64 bytes, each with its number in eight digits, letters,
/// carriage return and newline.
pub const fn flood_byte(place: u32) -> u8 {
    let (mut line, column) = (place / 64, place % 64);
    match column {
        0..=7 => {
            let mut shifts = 7 - column;
            while shifts > 0 {
                line /= 10;
                shifts -= 1;
            }
            b'0' + (line % 10) as u8
        }
        62 => b'\r',
        63 => b'\n',
        _ => b'a' + ((column - 8) % 26) as u8,
    }
}

/// The bytes of `garbage`, which are the same each time.
#[derive(Debug, Clone)]
pub struct Garbage(u32);

impl Garbage {
    /// The state before the first byte.
    pub const START: Self = Self(1);
}

impl Iterator for Garbage {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some(self.0.to_be_bytes()[0])
    }
}

/// The console's wires between rig and board, and the board's end of them.
#[derive(Debug)]
pub(crate) struct SimConsole {
    ring: Ring<RING>,
    /// Of the rig's UART.
    line: LineSettings,
    /// Bytes from the rig, of which the first has arrived at this time.
    sending: Fifo<32>,
    sent_at: Instant,
    is_break: bool,
    dut: Dut,
    /// The byte on its way to the rig, and when it has arrived.
    coming: Option<(u8, Instant)>,
}

impl SimConsole {
    pub(crate) const fn new() -> Self {
        Self {
            ring: Ring::new(),
            line: LineSettings::DEFAULT,
            sending: Fifo::new(),
            sent_at: Instant::from_nanos(0),
            is_break: false,
            dut: Dut::OFF,
            coming: None,
        }
    }

    /// Lets happen what is due until `now`.
    pub(crate) fn advance(&mut self, now: Instant) {
        loop {
            let sent = (!self.sending.is_empty()).then_some(self.sent_at);
            let came = self.coming.map(|(_, at)| at);
            let Some(at) = [sent, came].into_iter().flatten().min().filter(|at| *at <= now) else { return };
            if sent == Some(at) {
                let byte = self.sending.pop();
                self.sent_at = at.after_nanos(self.line.byte_nanos());
                if let Some(byte) = byte
                    && self.mismatch().is_none()
                {
                    self.dut.receive(byte);
                }
            } else if let Some((byte, _)) = self.coming.take() {
                match self.mismatch() {
                    None => self.ring.push(byte),
                    // A UART of another speed takes some byte for it.
                    Some(mismatch) => {
                        match mismatch {
                            Mismatch::Framing => self.ring.counters.framing_errors += 1,
                            Mismatch::Parity => self.ring.counters.parity_errors += 1,
                        }
                        self.ring.push(!byte);
                    }
                }
            }
            self.go_on(at);
        }
    }

    /// The board under test starts. Returns whether it stays in its boot loader.
    pub(crate) fn start(&mut self, at: Instant, boot_pressed: bool) -> bool {
        self.advance(at);
        self.dut = Dut::OFF;
        self.dut.out.push_text(if boot_pressed { LOADER } else { BANNER });
        self.go_on(at);
        boot_pressed
    }

    /// The board under test is up.
    pub(crate) fn up(&mut self, at: Instant) {
        self.advance(at);
        self.dut.is_up = true;
        self.dut.out.push_text(READY);
        self.dut.then = Then::Prompt;
        self.go_on(at);
    }

    /// The board under test has no power, or is held in reset.
    pub(crate) fn down(&mut self, at: Instant) {
        self.advance(at);
        self.dut = Dut::OFF;
        self.coming = None;
    }

    /// Whether the board has run its command `reset` since it was asked last.
    pub(crate) fn take_reset(&mut self) -> bool {
        core::mem::take(&mut self.dut.wants_reset)
    }

    pub(crate) fn configure(&mut self, line: LineSettings) {
        // What is being sent is sent first.
        while !self.sending.is_empty() {
            self.advance(self.sent_at);
        }
        self.line = line;
    }

    pub(crate) fn send(&mut self, bytes: &[u8], now: Instant) -> usize {
        if self.sending.is_empty() {
            self.sent_at = now.after_nanos(self.line.byte_nanos());
        }
        bytes.iter().take_while(|byte| self.sending.push(**byte)).count()
    }

    pub(crate) fn is_sending(&self) -> bool {
        !self.sending.is_empty()
    }

    pub(crate) fn set_break(&mut self, on: bool, now: Instant) {
        if on && !self.is_break && self.dut.is_up && !self.dut.is_hung {
            self.dut.out.push_text("break\r\n");
            self.dut.then = Then::Prompt;
            self.go_on(now);
        }
        self.is_break = on;
    }

    pub(crate) const fn ring(&self) -> &Ring<RING> {
        &self.ring
    }

    pub(crate) const fn is_break(&self) -> bool {
        self.is_break
    }

    /// Puts the next byte on the wire, if the board has one and the wire is free.
    fn go_on(&mut self, at: Instant) {
        if self.coming.is_none()
            && let Some(byte) = self.dut.next_byte(&mut self.ring.counters)
        {
            self.coming = Some((byte, at.after_nanos(self.dut.line.byte_nanos())));
        }
    }

    fn mismatch(&self) -> Option<Mismatch> {
        let (rig, dut) = (self.line, self.dut.line);
        // Half a bit in ten is as much as a UART bears; the two ends share it.
        if rig.speed.abs_diff(dut.speed) > dut.speed / 32 {
            return Some(Mismatch::Framing);
        }
        ((rig.data_bits, rig.parity) != (dut.data_bits, dut.parity)).then_some(Mismatch::Parity)
    }
}

enum Mismatch {
    Framing,
    Parity,
}

/// The board's end.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a state of its own")]
struct Dut {
    line: LineSettings,
    is_up: bool,
    is_hung: bool,
    wants_reset: bool,
    out: Fifo<256>,
    /// The next byte of a flood, and where it ends.
    flood: (u32, u32),
    garbage: (Garbage, u32),
    then: Then,
    command: [u8; COMMAND],
    length: usize,
    was_return: bool,
}

/// The board's next act when it has said everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Then {
    #[default]
    Nothing,
    Prompt,
    Break,
    Speed(u32),
}

impl Dut {
    const OFF: Self = Self {
        line: LineSettings::DEFAULT,
        is_up: false,
        is_hung: false,
        wants_reset: false,
        out: Fifo::new(),
        flood: (0, 0),
        garbage: (Garbage::START, 0),
        then: Then::Nothing,
        command: [0; COMMAND],
        length: 0,
        was_return: false,
    };

    fn next_byte(&mut self, counters: &mut Counters) -> Option<u8> {
        if let Some(byte) = self.out.pop() {
            return Some(byte);
        }
        if self.flood.0 < self.flood.1 {
            self.flood.0 += 1;
            return Some(flood_byte(self.flood.0 - 1));
        }
        if let Some(left) = self.garbage.1.checked_sub(1) {
            self.garbage.1 = left;
            return self.garbage.0.next();
        }
        match core::mem::take(&mut self.then) {
            Then::Nothing => return None,
            Then::Prompt => self.out.push_text(PROMPT),
            Then::Break => {
                counters.breaks += 1;
                self.out.push_text(PROMPT);
            }
            Then::Speed(speed) => {
                self.line.speed = speed;
                return None;
            }
        }
        self.out.pop()
    }

    fn is_busy(&self) -> bool {
        self.flood.0 < self.flood.1 || self.garbage.1 > 0
    }

    fn receive(&mut self, byte: u8) {
        if !self.is_up || self.is_hung {
            return;
        }
        let was_return = core::mem::replace(&mut self.was_return, byte == b'\r');
        match byte {
            3 => {
                (self.flood, self.garbage.1, self.length) = ((0, 0), 0, 0);
                self.out.push_text("\r\n");
                self.then = Then::Prompt;
            }
            _ if self.is_busy() => {}
            b'\n' if was_return => {}
            b'\r' | b'\n' => {
                self.out.push_text("\r\n");
                let (command, length) = (self.command, core::mem::take(&mut self.length));
                self.then = Then::Prompt;
                self.run(command.get(..length).unwrap_or_default());
            }
            8 | 127 => {
                if let Some(length) = self.length.checked_sub(1) {
                    self.length = length;
                    self.out.push_text("\x08 \x08");
                }
            }
            _ => {
                if let Some(place) = self.command.get_mut(self.length) {
                    *place = byte;
                    self.length += 1;
                    self.out.push(byte);
                }
            }
        }
    }

    fn run(&mut self, command: &[u8]) {
        let space = command.iter().position(|byte| *byte == b' ').unwrap_or(command.len());
        let (name, rest) = command.split_at_checked(space).unwrap_or_default();
        let bytes = rest.get(1..).unwrap_or_default();
        let [name, argument] = [name, bytes].map(|part| str::from_utf8(part).unwrap_or_default());
        let number = argument.parse::<u32>().ok();
        let said = match (name, number) {
            ("", _) => Ok(()),
            ("help", _) => write!(self.out, "{HELP}\r\n"),
            ("ver", _) => write!(self.out, "{VERSION}\r\n"),
            ("echo", _) => {
                for byte in bytes {
                    self.out.push(*byte);
                }
                write!(self.out, "\r\n")
            }
            ("flood", Some(count @ 0..=MOST)) => {
                self.flood = (0, count);
                Ok(())
            }
            ("garbage", Some(count @ 0..=MOST)) => {
                self.garbage = (Garbage::START, count);
                Ok(())
            }
            ("baud", Some(speed @ MIN_SPEED..=MAX_SPEED)) => {
                self.then = Then::Speed(speed);
                write!(self.out, "baud {speed}\r\n{PROMPT}")
            }
            ("flood" | "garbage" | "baud", _) => write!(self.out, "error: {name} {argument}\r\n"),
            ("break", _) => {
                self.then = Then::Break;
                Ok(())
            }
            ("hang", _) => {
                self.is_hung = true;
                self.then = Then::Nothing;
                Ok(())
            }
            ("reset", _) => {
                self.wants_reset = true;
                self.then = Then::Nothing;
                Ok(())
            }
            _ => write!(self.out, "unknown command: {name}\r\n"),
        };
        // What does not fit is lost, as a board's own buffer loses it.
        let _ = said;
    }
}

/// Bytes that wait, first in and first out.
#[derive(Debug)]
struct Fifo<const N: usize> {
    bytes: [u8; N],
    first: usize,
    count: usize,
}

impl<const N: usize> Fifo<N> {
    const fn new() -> Self {
        Self { bytes: [0; N], first: 0, count: 0 }
    }

    const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether there was room.
    fn push(&mut self, byte: u8) -> bool {
        if self.count == N {
            return false;
        }
        if let Some(place) = self.bytes.get_mut((self.first + self.count) % N) {
            *place = byte;
        }
        self.count += 1;
        true
    }

    fn push_text(&mut self, text: &str) {
        for byte in text.bytes() {
            self.push(byte);
        }
    }

    fn pop(&mut self) -> Option<u8> {
        self.count = self.count.checked_sub(1)?;
        let byte = self.bytes.get(self.first).copied();
        self.first = (self.first + 1) % N;
        byte
    }
}

impl<const N: usize> fmt::Write for Fifo<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_text(text);
        Ok(())
    }
}
