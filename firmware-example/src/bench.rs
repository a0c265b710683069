//! Extensions for the tests and the benchmark (feature `bench-images`).
#![allow(deprecated, reason = "of what has no description: the manifest fits a small reply")]

use core::time::Duration;

use rigline::{Context, Event, Failure, FailureKind, Level, Outcome, Params};

use crate::board::Board;
use crate::rig::{GpioRead, GpioWrite, Measure, Power, Press, Rig, Settings, WaitFor, WaitPin};

/// The extension that the figures in the READMEs are measured with: the example of the gevals text,
/// with its operation `apply`.
#[derive(Debug)]
pub struct Kubernetes;

#[rigline::extension(name = "kubernetes", description = "Kubernetes operations for eval tasks")]
#[allow(clippy::unused_self, clippy::needless_pass_by_value, reason = "as operations are")]
impl Kubernetes {
    /// Apply a Kubernetes manifest
    #[operation]
    fn apply(&mut self, args: Apply<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        apply(args, cx)
    }
}

fn apply(Apply { file, namespace }: Apply<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
    cx.output("resourceVersion", "12345")?;
    cx.output("uid", "abc-123-def")?;
    cx.done(["Applied ", file, " to namespace ", namespace])
}

/// The rig with additional operations for tests.
#[derive(Debug)]
pub struct BenchRig<B> {
    rig: Rig<B>,
    calls: u32,
    events: u32,
}

impl<B: Board> BenchRig<B> {
    /// Adds the operations for tests to this rig.
    pub fn new(rig: Rig<B>) -> Self {
        Self { rig, calls: 0, events: 0 }
    }
}

#[derive(Params)]
struct Apply<'a> {
    /// Path to manifest file
    file: &'a str,
    /// Target namespace
    #[param(default = "default")]
    namespace: &'a str,
}

#[derive(Params)]
struct Say<'a> {
    length: usize,
    #[param(default = "")]
    fill: &'a str,
    #[param(default = false)]
    fail: bool,
}

#[derive(Params)]
struct Log {
    count: u32,
    #[param(default = 0)]
    length: usize,
    #[param(default = 0)]
    every_ms: u32,
}

#[derive(Params)]
struct Spin {
    ms: u32,
}

#[derive(Params)]
struct Panic<'a> {
    #[param(default = "")]
    text: &'a str,
}

/// A text again and again, cut at so many bytes. Its characters are single bytes.
struct Filled<'a>(&'a str, usize);

impl core::fmt::Display for Filled<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        use core::fmt::Write;
        let fill = if self.0.is_empty() { "x" } else { self.0 };
        fill.chars().cycle().take(self.1).try_for_each(|character| f.write_char(character))
    }
}

// The descriptions are short, so that the manifest fits the firmware's reply.
#[rigline::extension(name = "rig", description = "The rig, with what tests need")]
#[allow(
    clippy::unused_self,
    clippy::needless_pass_by_value,
    clippy::large_types_passed_by_value,
    reason = "as operations are"
)]
impl<B: Board> BenchRig<B> {
    /// As the rig's
    #[operation]
    async fn identify(&mut self, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.rig.identify(cx).await
    }

    /// As the rig's
    #[operation]
    async fn power(&mut self, args: Power<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.rig.power(args, cx).await
    }

    /// As the rig's
    #[operation]
    async fn measure(&mut self, args: Measure<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.rig.measure(args, cx).await
    }

    /// As the rig's
    #[operation]
    async fn gpio_read(&mut self, args: GpioRead<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.rig.gpio_read(args, cx).await
    }

    /// As the rig's
    #[operation]
    async fn gpio_write(&mut self, args: GpioWrite<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.rig.gpio_write(args, cx).await
    }

    /// As the rig's
    #[operation]
    async fn press(&mut self, args: Press<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.rig.press(args, cx).await
    }

    /// As the rig's
    #[operation]
    async fn wait_for(&mut self, args: WaitFor<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.rig.wait_for(args, cx).await
    }

    /// As the rig's
    #[operation]
    async fn wait_pin(&mut self, args: WaitPin<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.rig.wait_pin(args, cx).await
    }

    /// As the rig's
    #[operation]
    async fn self_test(&mut self, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.rig.self_test(cx).await
    }

    /// Apply a Kubernetes manifest
    ///
    /// # The gevals text's example
    #[operation]
    fn apply(&mut self, args: Apply<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        apply(args, cx)
    }

    /// Count its calls
    #[operation]
    fn count(&mut self, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.calls += 1;
        cx.output("calls", &self.calls)?;
        cx.done("counted")
    }

    /// Count its events
    #[operation]
    fn events(&mut self, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.output("events", &self.events)?;
        Ok(Outcome::DONE)
    }

    /// Its work on an event waits at a gate, which GP15 opens.
    #[on_event]
    async fn event(&mut self, _event: Event<'_>, cx: &mut Context<'_>) {
        if self.rig.wait_pin(WaitPin { pin: "GP15", high: true, within_ms: 60_000 }, cx).await.is_ok() {
            self.events += 1;
        }
    }

    /// Say `length` bytes
    #[operation]
    fn say(&mut self, args: Say<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let text = Filled(args.fill, args.length);
        if args.fail {
            return Err(cx.failure(FailureKind::Unreachable, format_args!("{text}")));
        }
        cx.done(format_args!("{text}"))
    }

    /// Log `count` lines of `length` bytes, `every_ms`
    #[operation]
    async fn log(&mut self, args: Log, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        for number in 0..args.count {
            cx.log(Level::Info, format_args!("{number} {}", Filled("", args.length)));
            cx.sleep(Duration::from_millis(args.every_ms.into())).await;
        }
        cx.done("logged")
    }

    /// Busy for `ms`
    #[operation]
    fn spin(&mut self, args: Spin, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let end = cx.now().after(Duration::from_millis(args.ms.into()));
        while cx.now() < end {
            core::hint::spin_loop();
        }
        cx.done("span")
    }

    /// Panic, with `text`
    #[operation]
    fn panic(&mut self, args: Panic<'_>) -> Result<Outcome, Failure> {
        panic!("{}", args.text);
    }

    /// Hard fault
    #[cfg(target_os = "none")]
    #[operation]
    fn fault(&mut self) -> Result<Outcome, Failure> {
        cortex_m::asm::udf()
    }

    /// Never come back
    #[operation]
    fn hang(&mut self) -> Result<Outcome, Failure> {
        loop {
            // The processor sleeps, so that the emulator need not run it step by step. Interrupts
            // wake it, and nothing is polled.
            #[cfg(target_os = "none")]
            cortex_m::asm::wfi();
            #[cfg(not(target_os = "none"))]
            core::hint::spin_loop();
        }
    }

    #[run_task]
    async fn task(&mut self, eval: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.rig.task(eval, task, cx).await
    }

    #[configure]
    fn settings(&mut self, settings: Settings) -> Result<(), Failure> {
        self.rig.settings(settings)
    }

    #[safe_state]
    fn off(&mut self) {
        self.rig.off();
    }
}
