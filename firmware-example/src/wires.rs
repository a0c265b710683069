//! Two wires to one rig, such as USB and a UART. Each wire has its own engine.
//!
//! The wire that starts a session first (gevals `initialize`) holds the rig. It holds the rig until
//! `shutdown`, until its connection is lost, or until it has been silent for [`SILENCE_NANOS`] and
//! the other wire asks. A call without a session holds the rig while it runs. In the meantime the
//! other wire gets an error reply to `initialize` and to every call, also of `identify`. The
//! answers that the engine gives by itself continue (`shutdown`, Amplifier `health` and `describe`,
//! faults).
//!
//! If the other wire has taken the rig over, the host of the old session gets an error reply to its
//! calls until it sends `initialize` again. The rig's safe state runs before the first call after a
//! takeover.
//!
//! ```text
//!            ┌ engine ─ wires.on(Wire::Usb)  ┐
//!   USB ─────┤                               ├─ Rig
//!   UART0 ───┴ engine ─ wires.on(Wire::Uart) ┘
//! ```

use core::cell::Cell;
use core::fmt;
use core::pin::pin;

use rigline::exchange::SessionPolicy;
use rigline::service::JobRun;
use rigline::{
    Call, Clock, Config, Context, Event, Extension, Failure, FailureKind, Instant, Manifest, Outcome, own_frame,
};

/// The time of silence after which the other wire can take the rig over from a session, in
/// nanoseconds: 30 s.
pub const SILENCE_NANOS: u64 = 30_000_000_000;

/// One of the two wires of the rig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// The USB serial port.
    Usb,
    /// UART0, with the binary link.
    Uart,
}

impl Wire {
    fn place(self) -> usize {
        match self {
            Self::Usb => 0,
            Self::Uart => 1,
        }
    }

    /// Why the other wire is refused.
    fn refusal(self) -> Failure {
        Failure::new(
            FailureKind::Unreachable,
            match self {
                Self::Usb => "the rig is in use over USB; it is free after its shutdown, or 30 s of silence",
                Self::Uart => "the rig is in use over UART0; it is free after its shutdown, or 30 s of silence",
            },
        )
    }
}

/// The extension that two wires share, and the state of who holds it.
pub struct Wires<'a, E> {
    /// None while a call runs.
    extension: Cell<Option<&'a mut E>>,
    manifest: &'static Manifest,
    clock: &'a dyn Clock,
    session: Cell<Option<Wire>>,
    /// The wire whose call runs.
    running: Cell<Option<Wire>>,
    /// The wire whose eval runs: the other one has no call between its tasks.
    evaluating: Cell<Option<Wire>>,
    /// By wire: when something was heard last.
    heard: [Cell<Instant>; 2],
    /// By wire: whether its session was taken over.
    ousted: [Cell<bool>; 2],
    /// A session was taken over, and the extension not brought into its safe state yet.
    left_behind: Cell<bool>,
}

impl<'a, E: Extension> Wires<'a, E> {
    /// Shares this extension between two wires. Neither of them holds it at first.
    pub fn new(extension: &'a mut E, clock: &'a dyn Clock) -> Self {
        let manifest = extension.manifest();
        Self {
            extension: Cell::new(Some(extension)),
            manifest,
            clock,
            session: Cell::default(),
            running: Cell::default(),
            evaluating: Cell::default(),
            heard: Default::default(),
            ousted: Default::default(),
            left_behind: Cell::default(),
        }
    }

    /// The extension as the driver of this wire serves it, which is also the session policy of that
    /// wire's engine.
    pub fn on(&self, wire: Wire) -> OnWire<'_, 'a, E> {
        OnWire { wires: self, wire }
    }
}

/// The extension as one wire's driver serves it. It is also the [`SessionPolicy`] of that wire's
/// engine.
pub struct OnWire<'w, 'a, E> {
    wires: &'w Wires<'a, E>,
    wire: Wire,
}

impl<E> Clone for OnWire<'_, '_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for OnWire<'_, '_, E> {}

impl<'w, 'a, E> OnWire<'w, 'a, E> {
    /// Takes note that a part of a line came in, so that the wire is not silent.
    #[inline(never)]
    pub fn heard(&self) {
        self.wires.heard[self.wire.place()].set(self.wires.clock.now());
    }

    /// Takes note that the connection of the wire is lost and its driver has ended. The wire no
    /// longer holds the rig.
    pub fn lost(&self) {
        self.wires.ousted[self.wire.place()].set(false);
        if self.wires.session.get() == Some(self.wire) {
            self.wires.session.set(None);
        }
    }

    /// Sees to it that no other wire holds the rig, or says why it does.
    fn claim(&self, session: bool) -> Result<(), Failure> {
        let Self { wires, wire } = *self;
        let holders = [wires.running.get(), wires.evaluating.get()];
        if let Some(other) = holders.into_iter().flatten().find(|other| *other != wire) {
            return Err(other.refusal());
        }
        if let Some(other) = wires.session.get().filter(|other| *other != wire) {
            if wires.clock.now().nanos_since(wires.heard[other.place()].get()) < SILENCE_NANOS {
                return Err(other.refusal());
            }
            wires.ousted[other.place()].set(true);
            wires.session.set(None);
            wires.left_behind.set(true);
        }
        if session {
            wires.session.set(Some(wire));
            wires.ousted[wire.place()].set(false);
            self.heard();
        } else if wires.ousted[wire.place()].get() {
            return Err(Failure::new(
                FailureKind::Unreachable,
                "the rig was taken over from the other wire after 30 s of silence: send initialize again",
            ));
        }
        Ok(())
    }

    /// The extension, until the loan is dropped.
    #[inline(never)]
    fn lend(&self) -> Result<Loan<'w, 'a, E>, Failure> {
        let other = self.wires.running.replace(Some(self.wire));
        let Some(extension) = self.wires.extension.take() else {
            self.wires.running.set(other);
            return Err(other.unwrap_or(self.wire).refusal());
        };
        Ok(Loan { on: *self, extension: Some(extension) })
    }
}

impl<E: Extension> Extension for OnWire<'_, '_, E> {
    fn manifest(&self) -> &'static Manifest {
        self.wires.manifest
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.claim(false)?;
        let mut loan = self.lend()?;
        own_frame(pin!(own_frame(pin!(loan.extension())).await?.call(call, cx))).await
    }

    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        let mut loan = self.lend()?;
        own_frame(pin!(own_frame(pin!(loan.extension())).await?.configure(config, cx))).await
    }

    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        if self.claim(false).is_err() {
            return;
        }
        // Not a chain of conditions: compilers before 1.90 drop what the last of them lends too early.
        let Ok(mut loan) = self.lend() else { return };
        let Ok(extension) = own_frame(pin!(loan.extension())).await else { return };
        own_frame(pin!(extension.on_event(event, cx))).await;
    }

    async fn run_task(&mut self, eval: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.claim(false)?;
        let mut loan = self.lend()?;
        own_frame(pin!(own_frame(pin!(loan.extension())).await?.run_task(eval, task, cx))).await
    }

    async fn run_job<'a>(&mut self, job: JobRun<'a>, cx: &mut Context<'a>) {
        let wires = self.wires;
        let _evaluation = wires.evaluating.get().is_none().then(|| Evaluation::begin(&wires.evaluating, self.wire));
        job.run(self, cx).await;
    }

    /// Not if the other wire holds the rig by now, or has held it since: what it left on stays on.
    async fn safe_state(&mut self) {
        let is_others = |holder: &Cell<Option<Wire>>| holder.get().is_some_and(|holder| holder != self.wire);
        let was_made_safe = self.wires.ousted[self.wire.place()].get() && !self.wires.left_behind.get();
        let is_held = [&self.wires.session, &self.wires.running, &self.wires.evaluating].into_iter().any(is_others);
        if is_held || was_made_safe {
            return;
        }
        if let Ok(mut loan) = self.lend()
            && let Some(extension) = &mut loan.extension
        {
            extension.safe_state().await;
        }
    }
}

impl<E> SessionPolicy for OnWire<'_, '_, E> {
    fn open(&self) -> Result<(), Failure> {
        self.claim(true)
    }

    fn close(&self) {
        self.lost();
    }
}

impl<E> fmt::Debug for OnWire<'_, '_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnWire").field("wire", &self.wire).finish_non_exhaustive()
    }
}

impl<E> fmt::Debug for Wires<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (session, running) = (self.session.get(), self.running.get());
        f.debug_struct("Wires").field("session", &session).field("running", &running).finish_non_exhaustive()
    }
}

/// An eval that runs, until this is dropped: when it ends, and when it is cut off.
struct Evaluation<'w>(&'w Cell<Option<Wire>>);

impl<'w> Evaluation<'w> {
    fn begin(place: &'w Cell<Option<Wire>>, wire: Wire) -> Self {
        place.set(Some(wire));
        Self(place)
    }
}

impl Drop for Evaluation<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// The extension in a call's hands. It is given back when this is dropped: when the call ends, and
/// when it is cut off.
struct Loan<'w, 'a, E> {
    on: OnWire<'w, 'a, E>,
    extension: Option<&'a mut E>,
}

impl<E: Extension> Loan<'_, '_, E> {
    /// The extension, in its safe state if a session was taken over.
    async fn extension(&mut self) -> Result<&mut E, Failure> {
        let Some(extension) = &mut self.extension else { return Err(self.on.wire.refusal()) };
        if self.on.wires.left_behind.get() {
            extension.safe_state().await;
            self.on.wires.left_behind.set(false);
        }
        Ok(extension)
    }
}

impl<E> Drop for Loan<'_, '_, E> {
    #[inline(never)]
    fn drop(&mut self) {
        self.on.wires.extension.set(self.extension.take());
        self.on.wires.running.set(None);
        // A call that took long was no silence.
        self.on.heard();
    }
}
