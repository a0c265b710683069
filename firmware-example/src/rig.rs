//! The rig: its operations, their arguments and their outputs.

#[cfg(feature = "counter")]
mod counter;
#[cfg(any(feature = "i2c", feature = "spi"))]
mod hex;
#[cfg(feature = "i2c")]
mod i2c;
#[cfg(feature = "pwm")]
mod pwm;
#[cfg(feature = "spi")]
mod spi;
#[cfg(feature = "statistics")]
mod statistics;

use core::fmt;
use core::time::Duration;

use rigline::json::Decimal;
use rigline::json::write::Message;
use rigline::{Context, Failure, FailureKind, Instant, Level, Outcome, Outputs, Params};
use serde::Serialize;

use crate::board::{Board, Button, Channel, Fault, Layout, Rail, Unit};
use crate::pinmap;
#[cfg(feature = "console")]
use crate::uart::{self, UartBreak, UartExpect, UartRead, UartWrite};

/// The version that the manifest tells.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A hardware-test rig as an extension.
///
/// It powers the board under test, measures it, reads and drives pins, presses buttons, reads and
/// writes the board's console, waits, and tests itself. Its manifest is the same on every board: the operation `identify` returns the
/// rails, channels, pins and buttons. A session's configuration may set `settle_ms`, the time that
/// `power` waits after it has switched a rail on: 0 to 5000, 50 by default.
///
/// In its safe state all rails are off, all buttons are released, and all output pins are low, those
/// with PWM too. The console has no break and its usual speed.
#[derive(Debug)]
pub struct Rig<B> {
    pub(crate) board: B,
    settle: Duration,
    #[cfg(feature = "console")]
    pub(crate) console: uart::State,
}

/// The default time that `power` waits after it has switched a rail on, in milliseconds.
pub const DEFAULT_SETTLE_MS: u32 = 50;

impl<B: Board> Rig<B> {
    /// A rig on this board.
    pub fn new(board: B) -> Self {
        Self {
            board,
            settle: ms(DEFAULT_SETTLE_MS),
            #[cfg(feature = "console")]
            console: uart::State::new(),
        }
    }

    /// The hardware of the rig.
    pub fn board(&self) -> &B {
        &self.board
    }

    /// The hardware of the rig, for changes that the rig has no operation for.
    pub fn board_mut(&mut self) -> &mut B {
        &mut self.board
    }

    /// The checks of the self-test, in their order.
    pub fn checks(&self) -> impl Iterator<Item = SelfTestCheck> + use<B> {
        checks(self.board.layout())
    }

    /// Runs one check by itself. It begins and ends with everything switched off. Returns whether
    /// the check passed, and logs what it measured.
    ///
    /// # Errors
    /// The hardware did not do as it was told.
    pub async fn check(&mut self, check: SelfTestCheck, cx: &mut Context<'_>) -> Result<bool, Failure> {
        let passed = match self.all_off() {
            Ok(()) => self.run_check(check, cx).await,
            Err((kind, name, fault)) => Err(unreachable(kind, name, fault, cx)),
        };
        let off = self.all_off();
        let passed = passed?;
        off.map_err(|(kind, name, fault)| unreachable(kind, name, fault, cx))?;
        Ok(passed)
    }
}

/// A session's configuration.
#[derive(Debug, Params)]
pub(crate) struct Settings {
    /// How long `power` waits after a rail was switched on, in milliseconds.
    #[param(maximum = 5000, default = DEFAULT_SETTLE_MS)]
    settle_ms: u32,
}

#[derive(Debug, Params)]
pub(crate) struct Power<'a> {
    /// The rail
    #[param(one_of = pinmap::RAILS)]
    rail: &'a str,
    /// Whether the rail is on
    on: bool,
}

#[derive(Debug, Params)]
pub(crate) struct Measure<'a> {
    /// The channel
    #[param(one_of = pinmap::CHANNELS)]
    channel: &'a str,
    /// How many readings to average
    #[param(minimum = 1, maximum = 1000, default = 16)]
    samples: u32,
}

#[derive(Debug, Params)]
pub(crate) struct GpioRead<'a> {
    /// The pin
    #[param(one_of = pinmap::PINS)]
    pin: &'a str,
}

#[derive(Debug, Params)]
pub(crate) struct GpioWrite<'a> {
    /// The output pin
    #[param(one_of = pinmap::OUTPUTS)]
    pin: &'a str,
    /// Whether the pin is high
    high: bool,
}

#[derive(Debug, Params)]
pub(crate) struct Press<'a> {
    /// The button
    #[param(one_of = pinmap::BUTTONS)]
    button: &'a str,
    /// How long to hold it, in milliseconds
    #[param(minimum = 1, maximum = 10000, default = 100)]
    ms: u32,
    /// Another button, which is held from before until 50 ms after: BOOT during RESET, for example
    #[param(one_of = pinmap::BUTTONS)]
    holding: Option<&'a str>,
}

#[derive(Debug, Params)]
pub(crate) struct WaitFor<'a> {
    /// The channel
    #[param(one_of = pinmap::CHANNELS)]
    channel: &'a str,
    /// The minimum, in the channel's unit
    min: Decimal<3>,
    /// The maximum, in the channel's unit
    max: Decimal<3>,
    /// How long to wait, in milliseconds; the call's timeout may end it earlier
    #[param(maximum = 60000, default = 5000)]
    within_ms: u32,
}

#[derive(Debug, Params)]
pub(crate) struct WaitPin<'a> {
    /// The pin
    #[param(one_of = pinmap::PINS)]
    pub(crate) pin: &'a str,
    /// Whether to wait until it is high, or low
    pub(crate) high: bool,
    /// How long to wait, in milliseconds; the call's timeout may end it earlier
    #[param(maximum = 60000, default = 5000)]
    pub(crate) within_ms: u32,
}

/// The outputs of the operations, for schemas: the operations write them one by one, as they come.
#[allow(dead_code, reason = "for schemas")]
#[allow(deprecated, reason = "of what has no description: their names are plain, and a board's flash is small")]
mod outputs {
    use rigline::Outputs;
    use rigline::json::Decimal;
    use rigline::params::{OutputValue, SchemaNode};
    use serde::{Serialize, Serializer};

    /// A value whose range goes without saying.
    pub(super) struct Plain<T>(T);

    impl OutputValue for Plain<Decimal<3>> {
        const SCHEMA: &'static SchemaNode = &SchemaNode::text(r#"{"type":"number"}"#);
    }

    const INTEGER: &SchemaNode = &SchemaNode::text(r#"{"type":"integer"}"#);

    impl OutputValue for Plain<u32> {
        const SCHEMA: &'static SchemaNode = INTEGER;
    }

    impl OutputValue for Plain<u64> {
        const SCHEMA: &'static SchemaNode = INTEGER;
    }

    impl<T: Serialize> Serialize for Plain<T> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            self.0.serialize(serializer)
        }
    }

    #[derive(Outputs)]
    pub(crate) struct Identified<'a> {
        firmware: &'a str,
        git: Option<&'a str>,
        board: &'a str,
        uptime_ms: Plain<u64>,
        request_limit: Plain<u32>,
        reply_limit: Plain<u32>,
        #[output(schema = r#"{"type":"array","items":{"type":"string"}}"#)]
        rails: &'a [&'a str],
        #[output(schema = r#"{"type":"array","items":{"type":"string"}}"#)]
        channels: &'a [&'a str],
        #[output(schema = r#"{"type":"array","items":{"type":"string"}}"#)]
        inputs: &'a [&'a str],
        #[output(schema = r#"{"type":"array","items":{"type":"string"}}"#)]
        outputs: &'a [&'a str],
        #[output(schema = r#"{"type":"array","items":{"type":"string"}}"#)]
        buttons: &'a [&'a str],
        #[cfg(feature = "i2c")]
        #[output(schema = r#"{"type":"array","items":{"type":"string"}}"#)]
        i2c: &'a [&'a str],
        #[cfg(feature = "spi")]
        #[output(schema = r#"{"type":"array","items":{"type":"string"}}"#)]
        spi: &'a [&'a str],
        #[cfg(feature = "counter")]
        #[output(schema = r#"{"type":"array","items":{"type":"string"}}"#)]
        counters: &'a [&'a str],
        #[cfg(feature = "pwm")]
        #[output(schema = r#"{"type":"array","items":{"type":"string"}}"#)]
        pwm: &'a [&'a str],
        reset: Option<&'a str>,
        last_panic: Option<&'a str>,
    }

    #[derive(Outputs)]
    pub(crate) struct States<'a> {
        #[output(schema = r#"{"type":"array","items":{"type":"string"}}"#)]
        rails_on: &'a [&'a str],
        #[output(schema = r#"{"type":"array","items":{"type":"string"}}"#)]
        pins_high: &'a [&'a str],
        #[cfg(feature = "pwm")]
        #[output(schema = r#"{"type":"array","items":{"type":"string"}}"#)]
        pwm_on: &'a [&'a str],
    }

    #[derive(Outputs)]
    pub(crate) struct Measured {
        volts: Option<Plain<Decimal<3>>>,
        celsius: Option<Plain<Decimal<3>>>,
        min: Plain<Decimal<3>>,
        max: Plain<Decimal<3>>,
        samples: Plain<u32>,
    }

    #[derive(Outputs)]
    pub(crate) struct WaitedFor {
        volts: Option<Plain<Decimal<3>>>,
        celsius: Option<Plain<Decimal<3>>>,
        waited_ms: Plain<u32>,
    }

    #[derive(Outputs)]
    pub(crate) struct PinLevel {
        high: bool,
    }

    #[derive(Outputs)]
    pub(crate) struct WaitedPin {
        high: bool,
        waited_ms: Plain<u32>,
    }

    #[derive(Outputs)]
    pub(crate) struct Tested {
        passed: Plain<u32>,
        failed: Plain<u32>,
    }
}

#[rigline::extension(
    name = "rig",
    description = "A hardware-test rig: powers a board, measures it, presses its buttons",
    // What no board can do. Of environments nothing is promised: they are a desktop's, and its
    // board driver's affair.
    guarantees(no_filesystem_write, no_filesystem_read, no_network, no_subprocess),
    separate_frames
)]
#[allow(clippy::unused_async, clippy::unnecessary_wraps, reason = "handlers are, whether they have to wait or not")]
impl<B: Board> Rig<B> {
    /// Show the rig's identity and its parts
    #[operation(read_only, outputs = outputs::Identified<'_>)]
    pub(crate) async fn identify(&mut self, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let identity = self.board.identity();
        let Layout { rails, channels, outputs, inputs, buttons, .. } = self.board.layout();
        cx.output("firmware", VERSION)?;
        if let Some(hash) = GIT_HASH {
            cx.output("git", hash)?;
        }
        cx.output("board", identity.id)?;
        cx.output("uptime_ms", &cx.now().as_millis())?;
        let (request, reply) = cx.limits();
        for (name, limit) in [("request_limit", request), ("reply_limit", reply)] {
            cx.output(name, &u32::try_from(limit).unwrap_or(u32::MAX))?;
        }
        // One at a time: an array of them would be the largest part of the stack frame.
        cx.output("rails", &Names::Rails(rails))?;
        cx.output("channels", &Names::Channels(channels))?;
        cx.output("inputs", &Names::Plain(inputs))?;
        cx.output("outputs", &Names::Plain(outputs))?;
        cx.output("buttons", &Names::Buttons(buttons))?;
        #[cfg(feature = "i2c")]
        cx.output("i2c", &Names::Plain(self.board.instruments().i2c))?;
        #[cfg(feature = "spi")]
        cx.output("spi", &Names::Plain(self.board.instruments().spi))?;
        #[cfg(feature = "counter")]
        cx.output("counters", &Names::Plain(self.board.instruments().counters))?;
        #[cfg(feature = "pwm")]
        cx.output("pwm", &Names::Plain(self.board.instruments().pwm))?;
        if let Some(reset) = identity.reset {
            cx.output("reset", reset)?;
        }
        if let Some(text) = identity.last_panic {
            cx.output("last_panic", text)?;
        }
        cx.done(format_args!("rig {} on board {}", VERSION, identity.id))
    }

    /// Switch a rail on or off
    #[operation(destructive, idempotent)]
    pub(crate) async fn power(&mut self, args: Power<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let rails = self.board.layout().rails;
        let rail = find("rail", args.rail, Names::Rails(rails), cx)?;
        let state = if args.on { "on" } else { "off" };
        cx.info(format_args!("switching {} {state}", args.rail));
        #[cfg(feature = "console")]
        if args.on
            && self.board.layout().boot.is_some_and(|boot| boot.rail == rail)
            && self.board.is_rail_on(rail) == Ok(false)
        {
            // What the board under test said before it had power is of another run.
            self.skip_console();
        }
        self.board.set_rail(rail, args.on).map_err(|fault| unreachable("rail", args.rail, fault, cx))?;
        if args.on {
            cx.sleep(self.settle).await;
        }
        cx.done(format_args!("{} is {state}", args.rail))
    }

    /// Show what is on: rails, output pins, and what the input pins read
    #[operation(read_only, outputs = outputs::States<'_>)]
    pub(crate) async fn state(&mut self, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let layout = self.board.layout();
        let Layout { rails, outputs, inputs, .. } = layout;
        let mut on = 0u32;
        for (place, rail) in rails.iter().enumerate() {
            let is_on = self.board.is_rail_on(place).map_err(|fault| unreachable("rail", rail.name, fault, cx))?;
            on |= u32::from(is_on) << (place & 31);
        }
        let mut high = 0u32;
        for (place, name) in outputs.iter().chain(*inputs).enumerate() {
            let pin = match place.checked_sub(outputs.len()) {
                Some(input) => Pin::Input(input),
                None => Pin::Output(place),
            };
            high |= u32::from(self.level(pin, name, cx)?) << (place & 31);
        }
        cx.output("rails_on", &Marked(layout, on, true))?;
        cx.output("pins_high", &Marked(layout, high, false))?;
        #[cfg(feature = "pwm")]
        pwm::output_state(self, cx)?;
        let on = Marked(layout, on, true);
        if on.iter().next().is_none() {
            return cx.done("all rails are off");
        }
        cx.done(format_args!("on: {on}"))
    }

    /// Switch all rails off, release all buttons, drive all outputs low, end a break
    #[operation(name = "all-off", destructive, idempotent)]
    pub(crate) async fn turn_all_off(&mut self, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.all_off().map_err(|(kind, name, fault)| unreachable(kind, name, fault, cx))?;
        cx.done("all outputs are off")
    }

    /// Measure a channel
    #[operation(read_only, outputs = outputs::Measured)]
    pub(crate) async fn measure(&mut self, args: Measure<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let channels = self.board.layout().channels;
        let channel = find("channel", args.channel, Names::Channels(channels), cx)?;
        let unit = unit(channels, channel);
        let reading = self.read(channel, args.samples, cx).await?;
        cx.output(unit.name(), &decimal(reading.mean))?;
        cx.output("min", &decimal(reading.min))?;
        cx.output("max", &decimal(reading.max))?;
        cx.output("samples", &args.samples)?;
        cx.done(format_args!("{} is at {}", args.channel, Quantity(reading.mean, unit)))
    }

    /// Read a pin
    #[operation(read_only, outputs = outputs::PinLevel)]
    pub(crate) async fn gpio_read(&mut self, args: GpioRead<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let pin = self.find_pin(args.pin, cx)?;
        let high = self.level(pin, args.pin, cx)?;
        cx.output("high", &high)?;
        cx.done(format_args!("{} is {}", args.pin, level_name(high)))
    }

    /// Drive an output pin
    #[operation(destructive, idempotent)]
    pub(crate) async fn gpio_write(&mut self, args: GpioWrite<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let Pin::Output(output) = self.find_pin(args.pin, cx)? else {
            let outputs = Names::Plain(self.board.layout().outputs);
            return Err(bad_argument(
                cx,
                format_args!("args.pin: `{}` is an input; the outputs are {outputs}", args.pin),
            ));
        };
        self.board.set_output(output, args.high).map_err(|fault| unreachable("pin", args.pin, fault, cx))?;
        cx.done(format_args!("{} is {}", args.pin, level_name(args.high)))
    }

    /// Press a button for a while
    #[operation(destructive)]
    pub(crate) async fn press(&mut self, args: Press<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let buttons = Names::Buttons(self.board.layout().buttons);
        let button = find("button", args.button, buttons, cx)?;
        let other = match args.holding {
            Some(name) => Some(find("holding", name, buttons, cx)?),
            None => None,
        };
        cx.info(format_args!("pressing {} for {} ms", args.button, args.ms));
        let mut held = Held::new(&mut self.board, other);
        held.press(button).map_err(|fault| unreachable("button", args.button, fault, cx))?;
        cx.sleep(ms(args.ms)).await;
        held.release().map_err(|fault| unreachable("button", args.button, fault, cx))?;
        if other.is_some() {
            cx.sleep(ms(HOLDING_MS)).await;
        }
        held.end().map_err(|fault| unreachable("button", args.holding.unwrap_or_default(), fault, cx))?;
        cx.done(format_args!("pressed {} for {} ms", args.button, args.ms))
    }

    /// Wait until a channel is in a range
    #[operation(read_only, outputs = outputs::WaitedFor)]
    pub(crate) async fn wait_for(&mut self, args: WaitFor<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let WaitFor { channel: name, min, max, within_ms } = args;
        let channels = self.board.layout().channels;
        let channel = find("channel", name, Names::Channels(channels), cx)?;
        let unit = unit(channels, channel);
        if min > max {
            let text = format_args!("args.min: {min} is above args.max, which is {max}");
            return Err(bad_argument(cx, text));
        }
        let mut wait = Wait::new(within_ms, cx);
        let mut last = None;
        loop {
            let value = self.read(channel, WAIT_SAMPLES, cx).await?.mean;
            let place = RangePosition::of(value, min.mantissa(), max.mantissa());
            let waited = wait.waited(cx);
            if place == RangePosition::Inside || waited >= within_ms {
                cx.output(unit.name(), &decimal(value))?;
                cx.output("waited_ms", &waited)?;
            }
            if place == RangePosition::Inside {
                return cx.done(format_args!("{name} is at {} after {waited} ms", Quantity(value, unit)));
            }
            let (place, now) = (Some(place), Quantity(value, unit));
            if last.is_none() {
                cx.info(format_args!("waiting for {name} to be from {min} to {max} {}: it is at {now}", unit.symbol()));
            } else if last != place && wait.may_tell_change() {
                let side = if place == Some(RangePosition::Below) { "below" } else { "above" };
                cx.info(format_args!("{name} is at {now} now, {side} the range"));
            } else if wait.is_progress_due(waited) {
                let text = format_args!("{name} is at {now} after {waited} ms");
                cx.log_with(Level::Debug, text, &Progress { value: decimal(value), waited_ms: waited });
            }
            last = place;
            if waited >= within_ms {
                return cx.failed(format_args!(
                    "{name} is at {now} after {waited} ms, not from {min} to {max} {}",
                    unit.symbol()
                ));
            }
            wait.pause(waited, cx).await;
        }
    }

    /// Wait until a pin has a level
    #[operation(read_only, outputs = outputs::WaitedPin)]
    pub(crate) async fn wait_pin(&mut self, args: WaitPin<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let WaitPin { pin: name, high: wanted, within_ms } = args;
        let pin = self.find_pin(name, cx)?;
        let mut wait = Wait::new(within_ms, cx);
        let mut told = false;
        loop {
            let high = self.level(pin, name, cx)?;
            let waited = wait.waited(cx);
            if high == wanted || waited >= within_ms {
                cx.output("high", &high)?;
                cx.output("waited_ms", &waited)?;
            }
            let level = level_name(high);
            if high == wanted {
                return cx.done(format_args!("{name} is {level} after {waited} ms"));
            }
            if !told {
                told = true;
                cx.info(format_args!("waiting for {name} to be {}: it is {level}", level_name(wanted)));
            } else if wait.is_progress_due(waited) {
                cx.debug(format_args!("{name} is {level} after {waited} ms"));
            }
            if waited >= within_ms {
                return cx.failed(format_args!("{name} is {level} after {waited} ms, not {}", level_name(wanted)));
            }
            wait.pause(waited, cx).await;
        }
    }

    /// Send bytes to the console of the board under test
    #[cfg(feature = "console")]
    #[operation(destructive, outputs = uart::outputs::Written)]
    pub(crate) async fn uart_write(&mut self, args: UartWrite<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.write_console(args, cx).await
    }

    /// Wait until the console says a text, and tell what came before it
    #[cfg(feature = "console")]
    #[operation(read_only, outputs = uart::outputs::Expected<'_>)]
    pub(crate) async fn uart_expect(&mut self, args: UartExpect<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.expect_console(args, cx).await
    }

    /// Read what the console said, and its counters
    #[cfg(feature = "console")]
    #[operation(read_only, outputs = uart::outputs::Received<'_>)]
    pub(crate) async fn uart_read(&mut self, args: UartRead<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.read_console(args, cx).await
    }

    /// Send a break to the console
    #[cfg(feature = "console")]
    #[operation(destructive)]
    pub(crate) async fn uart_break(&mut self, args: UartBreak, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.break_console(args, cx).await
    }

    /// Measure a channel over time: mean, bounds and root mean square
    #[cfg(feature = "statistics")]
    #[operation(read_only, outputs = statistics::MeasuredOverTime)]
    pub(crate) async fn measure_over_time(
        &mut self,
        args: statistics::MeasureOverTime<'_>,
        cx: &mut Context<'_>,
    ) -> Result<Outcome, Failure> {
        statistics::measure_over_time(self, args, cx).await
    }

    /// Find the devices on an I2C bus; reads a byte from each
    #[cfg(feature = "i2c")]
    #[operation(idempotent, outputs = i2c::Scanned<'_>)]
    pub(crate) async fn i2c_scan(&mut self, args: i2c::I2cScan<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        i2c::scan(self, args, cx).await
    }

    /// Write bytes to an I2C device, then read bytes from it
    #[cfg(feature = "i2c")]
    #[operation(destructive, outputs = i2c::Transferred<'_>)]
    pub(crate) async fn i2c_transfer(
        &mut self,
        args: i2c::I2cTransfer<'_>,
        cx: &mut Context<'_>,
    ) -> Result<Outcome, Failure> {
        i2c::transfer(self, args, cx).await
    }

    /// Count the pulses at an input, up to 2.1 MHz
    #[cfg(feature = "counter")]
    #[operation(read_only, outputs = counter::Counted)]
    pub(crate) async fn count_pulses(
        &mut self,
        args: counter::CountPulses<'_>,
        cx: &mut Context<'_>,
    ) -> Result<Outcome, Failure> {
        counter::count_pulses(self, args, cx).await
    }

    /// Drive an output with pulses, until they are ended
    #[cfg(feature = "pwm")]
    #[operation(destructive, idempotent, outputs = pwm::Driven)]
    pub(crate) async fn pwm(&mut self, args: pwm::Pwm<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        pwm::pwm(self, &args, cx)
    }

    /// Write bytes to an SPI device, and read as many
    #[cfg(feature = "spi")]
    #[operation(destructive, outputs = spi::Transferred<'_>)]
    pub(crate) async fn spi_transfer(
        &mut self,
        args: spi::SpiTransfer<'_>,
        cx: &mut Context<'_>,
    ) -> Result<Outcome, Failure> {
        spi::transfer(self, args, cx).await
    }

    /// Check rails, boot and loopbacks; begins and ends with everything off
    #[operation(destructive, outputs = outputs::Tested)]
    pub(crate) async fn self_test(&mut self, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let layout = self.board.layout();
        let (mut passed, mut failed) = (0u32, FailedChecks { layout, count: 0, places: 0 });
        let total = u32::try_from(checks(layout).count()).unwrap_or(u32::MAX);
        for (place, check) in checks(layout).enumerate() {
            if self.check(check, cx).await? {
                passed += 1;
            } else {
                failed.add(place);
            }
            if cx.wants_progress() {
                cx.progress(
                    passed + failed.count,
                    Some(total),
                    format_args!("{} of {total} checks", passed + failed.count),
                );
            }
        }
        cx.output("passed", &passed)?;
        cx.output("failed", &failed.count)?;
        if failed.count == 0 {
            return cx.done(format_args!("all {passed} checks passed"));
        }
        cx.failed(format_args!("{} of {} checks failed: {failed}", failed.count, passed + failed.count))
    }

    /// The self-test as an eval, a check a task: see [`pinmap::EVALS`](crate::pinmap::EVALS).
    #[run_task]
    pub(crate) async fn task(&mut self, _: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let Some(check) = self.checks().nth(task) else {
            return Err(cx.failure(FailureKind::Internal, "the board has no such check"));
        };
        if self.check(check, cx).await? {
            return Ok(Outcome::DONE);
        }
        cx.failed("the check failed")
    }

    #[configure]
    pub(crate) fn settings(&mut self, settings: Settings) -> Result<(), Failure> {
        self.settle = ms(settings.settle_ms);
        Ok(())
    }

    #[safe_state]
    pub(crate) fn off(&mut self) {
        // Nobody is there to be told of a fault, and all that can be switched off was.
        let _ = self.all_off();
    }
}

/// The steps of the operations.
impl<B: Board> Rig<B> {
    /// Turns all rails off, releases all buttons and drives all outputs low, as far as the hardware
    /// lets it; gives the first fault, and whose it was.
    fn all_off(&mut self) -> Result<(), (&'static str, &'static str, Fault)> {
        let Layout { rails, buttons, outputs, .. } = self.board.layout();
        let mut result = Ok(());
        for (place, rail) in rails.iter().enumerate() {
            result = result.and(self.board.set_rail(place, false).map_err(|fault| ("rail", rail.name, fault)));
        }
        for (place, button) in buttons.iter().enumerate() {
            result = result.and(self.board.set_button(place, false).map_err(|fault| ("button", button.name, fault)));
        }
        for (place, name) in outputs.iter().enumerate() {
            result = result.and(self.board.set_output(place, false).map_err(|fault| ("pin", *name, fault)));
        }
        #[cfg(feature = "console")]
        {
            result = result.and(self.make_console_safe().map_err(|fault| ("console", "UART", fault)));
        }
        #[cfg(feature = "pwm")]
        for (place, name) in self.board.instruments().pwm.iter().enumerate() {
            let off = self.board.set_pwm(place, crate::instruments::Wave::OFF);
            result = result.and(off.map_err(|fault| ("pin", *name, fault)));
        }
        result
    }

    async fn read(&mut self, channel: usize, samples: u32, cx: &mut Context<'_>) -> Result<Reading, Failure> {
        let (mut sum, mut min, mut max) = (0i32, i32::MAX, i32::MIN);
        for _ in 0..samples {
            let value = match self.board.read(channel).await {
                Ok(value) => value,
                Err(fault) => {
                    let name = self.board.layout().channels.get(channel).map_or("", |channel| channel.name);
                    return Err(unreachable("channel", name, fault, cx));
                }
            };
            sum = sum.saturating_add(value);
            min = min.min(value);
            max = max.max(value);
        }
        let count = i32::try_from(samples).unwrap_or(i32::MAX);
        let half = if sum < 0 { -(count / 2) } else { count / 2 };
        let mean = sum.saturating_add(half).checked_div(count).unwrap_or_default();
        Ok(Reading { mean, min, max })
    }

    fn find_pin(&self, name: &str, cx: &mut Context<'_>) -> Result<Pin, Failure> {
        let Layout { inputs, outputs, .. } = self.board.layout();
        let (inputs, outputs) = (Names::Plain(inputs), Names::Plain(outputs));
        if let Some(output) = outputs.position(name) {
            return Ok(Pin::Output(output));
        }
        inputs.position(name).map(Pin::Input).ok_or_else(|| {
            bad_argument(
                cx,
                format_args!(
                    "args.pin: unknown pin `{name:.40}`: expected one of the inputs {inputs} or the outputs {outputs}"
                ),
            )
        })
    }

    fn level(&mut self, pin: Pin, name: &str, cx: &mut Context<'_>) -> Result<bool, Failure> {
        let level = match pin {
            Pin::Input(input) => self.board.input(input),
            Pin::Output(output) => self.board.output(output),
        };
        level.map_err(|fault| unreachable("pin", name, fault, cx))
    }

    async fn run_check(&mut self, check: SelfTestCheck, cx: &mut Context<'_>) -> Result<bool, Failure> {
        let layout = self.board.layout();
        match check {
            SelfTestCheck::RailOff(rail) | SelfTestCheck::RailOn(rail) => {
                let Some(rail_info) = layout.rails.get(rail) else { return Ok(false) };
                let on = matches!(check, SelfTestCheck::RailOn(_));
                let tolerance = rail_info.millivolts / RAIL_TOLERANCE;
                let nominal = if on { rail_info.millivolts } else { 0 };
                self.board.set_rail(rail, on).map_err(|fault| unreachable("rail", rail_info.name, fault, cx))?;
                let mut wait = Wait::new(RAIL_MS, cx);
                loop {
                    let value = self.read(rail_info.channel, RAIL_SAMPLES, cx).await?.mean;
                    let (passed, waited) = ((value - nominal).abs() <= tolerance, wait.waited(cx));
                    if passed || waited >= RAIL_MS {
                        tell(check, layout, passed, format_args!("{}", Quantity(value, Unit::Volts)), cx);
                        return Ok(passed);
                    }
                    wait.pause(waited, cx).await;
                }
            }
            SelfTestCheck::Boot => {
                let Some(boot) = layout.boot else { return Ok(false) };
                let name = layout.inputs.get(boot.led).copied().unwrap_or_default();
                let (Some(dark), _) = self.lit(boot.led, false, RAIL_MS, cx).await? else {
                    tell(check, layout, false, format_args!("{name} is lit without power"), cx);
                    return Ok(false);
                };
                cx.debug(format_args!("{name} is dark after {dark} ms"));
                let rail = layout.rails.get(boot.rail).map_or("", |rail| rail.name);
                self.board.set_rail(boot.rail, true).map_err(|fault| unreachable("rail", rail, fault, cx))?;
                let (lit, waited) = self.lit(boot.led, true, boot.within_ms, cx).await?;
                let state = if lit.is_some() { "lit" } else { "dark" };
                tell(check, layout, lit.is_some(), format_args!("{name} is {state} after {waited} ms"), cx);
                Ok(lit.is_some())
            }
            SelfTestCheck::Loopback(place) => {
                let Some(wire) = layout.loopbacks.get(place) else { return Ok(false) };
                let (from, to) = wire_names(layout, place);
                let mut passed = true;
                for high in [true, false] {
                    self.board.set_output(wire.output, high).map_err(|fault| unreachable("pin", from, fault, cx))?;
                    cx.sleep(ms(1)).await;
                    passed &= self.level(Pin::Input(wire.input), to, cx)? == high;
                }
                let state = if passed { "follows" } else { "does not follow" };
                tell(check, layout, passed, format_args!("{to} {state} {from}"), cx);
                Ok(passed)
            }
        }
    }

    /// Waits for an input's level: when it was there, if it was, and how long was waited.
    async fn lit(
        &mut self,
        led: usize,
        wanted: bool,
        within_ms: u32,
        cx: &mut Context<'_>,
    ) -> Result<(Option<u32>, u32), Failure> {
        let name = self.board.layout().inputs.get(led).copied().unwrap_or_default();
        let mut wait = Wait::new(within_ms, cx);
        loop {
            let high = self.level(Pin::Input(led), name, cx)?;
            let waited = wait.waited(cx);
            if high == wanted {
                return Ok((Some(waited), waited));
            }
            if waited >= within_ms {
                return Ok((None, waited));
            }
            wait.pause(waited, cx).await;
        }
    }
}

/// A check of the self-test. The numbers are positions in the tables of the [`Layout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SelfTestCheck {
    /// The rail at this position is near 0 V when it is off.
    RailOff(usize),
    /// The rail at this position is within 5 % of its nominal voltage when it is on.
    RailOn(usize),
    /// The LED of the board under test is dark without power, and is lit in time after power was
    /// switched on.
    Boot,
    /// The input of the loopback at this position follows its output.
    Loopback(usize),
}

fn checks(layout: &'static Layout) -> impl Iterator<Item = SelfTestCheck> {
    (0..).map_while(move |place| check_at(layout, place))
}

/// Out of line: each loop over the checks would have a copy.
#[inline(never)]
fn check_at(layout: &'static Layout, place: usize) -> Option<SelfTestCheck> {
    let rails = 2 * layout.rails.len();
    let behind_boot = rails + usize::from(layout.boot.is_some());
    if place < rails {
        let rail = place / 2;
        Some(if place.is_multiple_of(2) { SelfTestCheck::RailOff(rail) } else { SelfTestCheck::RailOn(rail) })
    } else if place < behind_boot {
        Some(SelfTestCheck::Boot)
    } else {
        let wire = place - behind_boot;
        (wire < layout.loopbacks.len()).then_some(SelfTestCheck::Loopback(wire))
    }
}

impl SelfTestCheck {
    /// The name of the check on a board with this layout, such as `3V3 off`, `3V3 on`, `boot`,
    /// `GP14 to GP15`.
    pub fn in_layout(self, layout: &'static Layout) -> impl fmt::Display {
        CheckName(self, layout)
    }
}

struct CheckName(SelfTestCheck, &'static Layout);

impl fmt::Display for CheckName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(check, layout) = *self;
        let rail = |rail: usize| layout.rails.get(rail).map_or("", |rail| rail.name);
        match check {
            SelfTestCheck::RailOff(place) => write!(f, "{} off", rail(place)),
            SelfTestCheck::RailOn(place) => write!(f, "{} on", rail(place)),
            SelfTestCheck::Boot => f.write_str("boot"),
            SelfTestCheck::Loopback(place) => {
                let (from, to) = wire_names(layout, place);
                write!(f, "{from} to {to}")
            }
        }
    }
}

fn wire_names(layout: &'static Layout, place: usize) -> (&'static str, &'static str) {
    let Some(wire) = layout.loopbacks.get(place) else { return ("", "") };
    let name = |names: &'static [&'static str], place: usize| names.get(place).copied().unwrap_or_default();
    (name(layout.outputs, wire.output), name(layout.inputs, wire.input))
}

#[inline(never)]
fn tell(check: SelfTestCheck, layout: &'static Layout, passed: bool, seen: fmt::Arguments<'_>, cx: &mut Context<'_>) {
    let name = check.in_layout(layout);
    if passed {
        cx.info(format_args!("{name}: passed, {seen}"));
    } else {
        cx.warn(format_args!("{name}: failed, {seen}"));
    }
}

/// The failed checks, for an error text, which names those among the first 32.
struct FailedChecks {
    layout: &'static Layout,
    count: u32,
    /// A bit a check.
    places: u32,
}

impl FailedChecks {
    fn add(&mut self, place: usize) {
        self.count += 1;
        if place < 32 {
            self.places |= 1 << place;
        }
    }
}

impl fmt::Display for FailedChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (place, check) in checks(self.layout).enumerate().take(32) {
            if self.places & (1 << place) != 0 {
                write!(f, "{separator}{}", check.in_layout(self.layout))?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

/// How long a button is held after the one that is pressed meanwhile, in milliseconds.
const HOLDING_MS: u32 = 50;
/// How often a wait looks, in milliseconds.
const POLL_MS: u32 = 10;
/// Readings that a wait takes the mean of when it looks.
const WAIT_SAMPLES: u32 = 4;
/// The least time between two progress logs of a wait, in milliseconds.
const PROGRESS_MS: u32 = 100;
/// The most progress logs of one wait: a longer one logs less often.
const PROGRESS_LOGS: u32 = 50;
/// The most changes that one wait tells of.
const CHANGES: u32 = 10;
/// How long the self-test lets a rail rise or fall, in milliseconds.
const RAIL_MS: u32 = 500;
/// Readings that the self-test takes the mean of.
const RAIL_SAMPLES: u32 = 16;
/// A rail may be off by one part in this many: 5 %.
const RAIL_TOLERANCE: i32 = 20;

/// The clockwork of an operation that waits.
pub(crate) struct Wait {
    start: Instant,
    within_ms: u32,
    progress_ms: u32,
    next_progress: u32,
    changes: u32,
}

impl Wait {
    #[inline(never)]
    pub(crate) fn new(within_ms: u32, cx: &Context<'_>) -> Self {
        let progress_ms = PROGRESS_MS.max(within_ms / PROGRESS_LOGS);
        Self { start: cx.now(), within_ms, progress_ms, next_progress: progress_ms, changes: 0 }
    }

    /// How long it has waited, in milliseconds.
    #[inline(never)]
    pub(crate) fn waited(&mut self, cx: &Context<'_>) -> u32 {
        millis(cx.now(), self.start)
    }

    fn is_progress_due(&mut self, waited: u32) -> bool {
        let due = waited >= self.next_progress;
        if due {
            self.next_progress = waited.saturating_add(self.progress_ms);
        }
        due
    }

    fn may_tell_change(&mut self) -> bool {
        self.changes = self.changes.saturating_add(1);
        self.changes <= CHANGES
    }

    /// Sleeps until it is time to look again.
    async fn pause(&self, waited: u32, cx: &mut Context<'_>) {
        cx.sleep(ms(POLL_MS.min(self.within_ms.saturating_sub(waited)).max(1))).await;
    }
}

/// A progress log's data.
#[derive(Outputs)]
#[allow(deprecated, reason = "of what has no description: no manifest has it")]
struct Progress {
    value: Decimal<3>,
    waited_ms: u32,
}

/// Where a value is in relation to a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RangePosition {
    Below,
    Inside,
    Above,
}

impl RangePosition {
    fn of(value: i32, min: i32, max: i32) -> Self {
        if value < min {
            Self::Below
        } else if value > max {
            Self::Above
        } else {
            Self::Inside
        }
    }
}

/// The result of several readings, in thousandths of the channel's unit.
struct Reading {
    mean: i32,
    min: i32,
    max: i32,
}

#[derive(Clone, Copy)]
enum Pin {
    Input(usize),
    Output(usize),
}

/// A button that is held, and another one from before until after. They are let go when this is
/// dropped: when the press ends, and when it is cancelled.
struct Held<'a, B: Board> {
    board: &'a mut B,
    button: Option<usize>,
    other: Option<usize>,
}

impl<'a, B: Board> Held<'a, B> {
    fn new(board: &'a mut B, other: Option<usize>) -> Self {
        Self { board, button: None, other }
    }

    fn press(&mut self, button: usize) -> Result<(), Fault> {
        self.button = Some(button);
        if let Some(other) = self.other {
            self.board.set_button(other, true)?;
        }
        self.board.set_button(button, true)
    }

    fn release(&mut self) -> Result<(), Fault> {
        self.button.take().map_or(Ok(()), |button| self.board.set_button(button, false))
    }

    fn end(mut self) -> Result<(), Fault> {
        self.other.take().map_or(Ok(()), |other| self.board.set_button(other, false))
    }
}

impl<B: Board> Drop for Held<'_, B> {
    fn drop(&mut self) {
        for button in [self.button, self.other].into_iter().flatten() {
            let _ = self.board.set_button(button, false);
        }
    }
}

/// The names in a table of a [`Layout`]: `3V3, 5V0` in a text, a list in an output. One type for
/// all tables, so that what is done with names is in flash once.
#[derive(Clone, Copy)]
enum Names {
    Rails(&'static [Rail]),
    Channels(&'static [Channel]),
    Buttons(&'static [Button]),
    Plain(&'static [&'static str]),
}

impl Names {
    fn get(self, place: usize) -> Option<&'static str> {
        match self {
            Self::Rails(rails) => rails.get(place).map(|rail| rail.name),
            Self::Channels(channels) => channels.get(place).map(|channel| channel.name),
            Self::Buttons(buttons) => buttons.get(place).map(|button| button.name),
            Self::Plain(names) => names.get(place).copied(),
        }
    }

    fn iter(self) -> impl Iterator<Item = &'static str> {
        (0..).map_while(move |place| self.get(place))
    }

    fn position(self, name: &str) -> Option<usize> {
        self.iter().position(|known| known == name)
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for name in self.iter() {
            f.write_str(separator)?;
            f.write_str(name)?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

impl Serialize for Names {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// The rails of a layout, or its output and input pins, whose bits are set.
#[derive(Clone, Copy)]
struct Marked(&'static Layout, u32, bool);

impl Marked {
    fn iter(self) -> impl Iterator<Item = &'static str> {
        let Self(Layout { rails, outputs, inputs, .. }, bits, is_rails) = self;
        let name = move |place: usize| match place.checked_sub(outputs.len()) {
            _ if is_rails => rails.get(place).map(|rail| rail.name),
            None => outputs.get(place).copied(),
            Some(input) => inputs.get(input).copied(),
        };
        (0..32)
            .map_while(move |place| Some((place, name(place)?)))
            .filter(move |(place, _)| bits >> place & 1 == 1)
            .map(|(_, name)| name)
    }
}

impl fmt::Display for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for name in self.iter() {
            f.write_str(separator)?;
            f.write_str(name)?;
            separator = ", ";
        }
        Ok(())
    }
}

impl Serialize for Marked {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

// Out of line, as nothing of it is done often: each place that uses it would have a copy.

/// The place of a name in its table; `kind` is the argument that has the name, too.
#[inline(never)]
fn find(kind: &str, name: &str, table: Names, cx: &mut Context<'_>) -> Result<usize, Failure> {
    table.position(name).ok_or_else(|| {
        bad_argument(cx, format_args!("args.{kind}: unknown {kind} `{name:.40}`: expected one of {table}"))
    })
}

/// An argument is refused before anything is changed.
#[inline(never)]
pub(crate) fn bad_argument(cx: &mut Context<'_>, text: impl Message) -> Failure {
    cx.failure(FailureKind::BadArguments, text).refused()
}

#[inline(never)]
pub(crate) fn unreachable(kind: &str, name: &str, fault: Fault, cx: &mut Context<'_>) -> Failure {
    cx.failure(FailureKind::Unreachable, format_args!("{kind} {name}: {fault}"))
}

/// A value in thousandths, with its unit: `3.300 V`.
struct Quantity(i32, Unit);

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", decimal(self.0), self.1.symbol())
    }
}

fn decimal(thousandths: i32) -> Decimal<3> {
    Decimal::from_mantissa(thousandths)
}

fn unit(channels: &[Channel], channel: usize) -> Unit {
    channels.get(channel).map_or(Unit::Volts, |channel| channel.unit)
}

fn level_name(high: bool) -> &'static str {
    if high { "high" } else { "low" }
}

#[inline(never)]
pub(crate) fn ms(ms: u32) -> Duration {
    Duration::from_millis(u64::from(ms))
}

/// Milliseconds from `earlier` to `now`; they stop at 49 days.
#[inline(never)]
fn millis(now: Instant, earlier: Instant) -> u32 {
    u32::try_from(Instant::from_nanos(now.nanos_since(earlier)).as_millis()).unwrap_or(u32::MAX)
}

/// The commit that this was built from, where the build could tell.
const GIT_HASH: Option<&str> = option_env!("RIGLINE_GIT_HASH");
