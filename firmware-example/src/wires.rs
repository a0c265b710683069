//! Two ports to one rig, such as USB and a UART. Each port has its own engine.
//!
//! The port that starts a session first (gevals `initialize`) holds the rig. It holds the rig until
//! `shutdown`, until its connection is lost, or until it has been silent for [`SILENCE_NANOS`] and
//! the other port asks. A call without a session holds the rig while it runs. In the meantime the
//! other port gets an error reply to `initialize` and to every call, also of `identify`. The
//! answers that the engine gives by itself continue (`shutdown`, Amplifier `health` and `describe`,
//! faults).
//!
//! If the other port has taken the rig over, the host of the old session gets an error reply to its
//! calls until it sends `initialize` again. The rig's safe state runs before the first call after a
//! takeover.
//!
//! ```text
//!            ┌ engine ─ shared.for_port(HostPort::Usb)  ┐
//!   USB ─────┤                                          ├─ Rig
//!   UART0 ───┴ engine ─ shared.for_port(HostPort::Uart) ┘
//! ```

use core::cell::Cell;
use core::fmt;
use core::pin::pin;

use rigline::exchange::{LEAST_REPLY, SessionPolicy};
use rigline::service::JobRun;
use rigline::{
    Call, Clock, Config, Context, Event, Extension, Failure, FailureKind, Instant, Manifest, Outcome, own_frame,
};

/// The time of silence after which the other port can take the rig over from a session, in
/// nanoseconds: 30 s.
pub const SILENCE_NANOS: u64 = 30_000_000_000;

/// The size of the UART's region for requests, in bytes. The longest request has 1023 bytes.
pub const UART_REQUEST: usize = 1024;
/// The size of the UART's region for a reply, in bytes. The longest reply has 5119 bytes. With the
/// operations of all optional features, the manifest is longer. Then it is abridged: it has no
/// descriptions, see [`gevals`](rigline::protocol::gevals) and [`amplifier`](rigline::protocol::amplifier).
pub const UART_REPLY: usize = 5120;
/// The size of the memory for log lines that wait for the UART, in bytes. It is used in two halves,
/// each of which holds the longest error reply.
pub const UART_LOGS: usize = 2 * LEAST_REPLY;

/// One of the two ports over which a host reaches the rig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostPort {
    /// The USB serial port.
    Usb,
    /// UART0, with the binary link.
    Uart,
}

impl HostPort {
    fn place(self) -> usize {
        match self {
            Self::Usb => 0,
            Self::Uart => 1,
        }
    }

    /// Why the other port is refused.
    fn refusal(self) -> Failure {
        Failure::new(
            FailureKind::Unreachable,
            match self {
                Self::Usb => "the rig is in use over USB; it is free after its shutdown, or 30 s of silence",
                Self::Uart => "the rig is in use over UART0; it is free after its shutdown, or 30 s of silence",
            },
        )
        .refused()
    }
}

/// The extension that two ports share, and the state of who holds it.
pub struct SharedExtension<'a, E> {
    /// None while a call runs.
    extension: Cell<Option<&'a mut E>>,
    manifest: &'static Manifest,
    clock: &'a dyn Clock,
    session: Cell<Option<HostPort>>,
    /// The port whose call runs.
    running: Cell<Option<HostPort>>,
    /// The port whose eval runs: the other one has no call between its tasks.
    evaluating: Cell<Option<HostPort>>,
    /// By port: when something was heard last.
    heard: [Cell<Instant>; 2],
    /// By port: whether its session was taken over.
    ousted: [Cell<bool>; 2],
    /// A session was taken over, and the extension not brought into its safe state yet.
    left_behind: Cell<bool>,
}

impl<'a, E: Extension> SharedExtension<'a, E> {
    /// Shares this extension between two ports. Neither of them holds it at first.
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

    /// The extension as the driver of this port serves it, which is also the session policy of that
    /// port's engine.
    pub fn for_port(&self, port: HostPort) -> PortView<'_, 'a, E> {
        PortView { shared: self, port }
    }
}

/// The extension as one port's driver serves it. It is also the [`SessionPolicy`] of that port's
/// engine.
pub struct PortView<'w, 'a, E> {
    shared: &'w SharedExtension<'a, E>,
    port: HostPort,
}

impl<E> Clone for PortView<'_, '_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for PortView<'_, '_, E> {}

impl<'w, 'a, E> PortView<'w, 'a, E> {
    /// Takes note that a part of a line came in, so that the port is not silent.
    #[inline(never)]
    pub fn heard(&self) {
        self.shared.heard[self.port.place()].set(self.shared.clock.now());
    }

    /// Takes note that the connection of the port is lost and its driver has ended. The port no
    /// longer holds the rig.
    pub fn lost(&self) {
        self.shared.ousted[self.port.place()].set(false);
        if self.shared.session.get() == Some(self.port) {
            self.shared.session.set(None);
        }
    }

    /// Sees to it that no other port holds the rig, or says why it does.
    fn claim(&self, session: bool) -> Result<(), Failure> {
        let Self { shared, port } = *self;
        let holders = [shared.running.get(), shared.evaluating.get()];
        if let Some(other) = holders.into_iter().flatten().find(|other| *other != port) {
            return Err(other.refusal());
        }
        if let Some(other) = shared.session.get().filter(|other| *other != port) {
            if shared.clock.now().nanos_since(shared.heard[other.place()].get()) < SILENCE_NANOS {
                return Err(other.refusal());
            }
            shared.ousted[other.place()].set(true);
            shared.session.set(None);
            shared.left_behind.set(true);
        }
        if session {
            shared.session.set(Some(port));
            shared.ousted[port.place()].set(false);
            self.heard();
        } else if shared.ousted[port.place()].get() {
            return Err(Failure::new(
                FailureKind::Unreachable,
                "the rig was taken over from the other wire after 30 s of silence: send initialize again",
            )
            .refused());
        }
        Ok(())
    }

    /// The extension, until the loan is dropped.
    #[inline(never)]
    fn lend(&self) -> Result<Loan<'w, 'a, E>, Failure> {
        let other = self.shared.running.replace(Some(self.port));
        let Some(extension) = self.shared.extension.take() else {
            self.shared.running.set(other);
            return Err(other.unwrap_or(self.port).refusal());
        };
        Ok(Loan { on: *self, extension: Some(extension) })
    }
}

impl<E: Extension> Extension for PortView<'_, '_, E> {
    fn manifest(&self) -> &'static Manifest {
        self.shared.manifest
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
        let shared = self.shared;
        let _evaluation = shared.evaluating.get().is_none().then(|| Evaluation::begin(&shared.evaluating, self.port));
        job.run(self, cx).await;
    }

    /// Not if the other port holds the rig by now, or has held it since: what it left on stays on.
    async fn safe_state(&mut self) {
        let is_others = |holder: &Cell<Option<HostPort>>| holder.get().is_some_and(|holder| holder != self.port);
        let was_made_safe = self.shared.ousted[self.port.place()].get() && !self.shared.left_behind.get();
        let is_held = [&self.shared.session, &self.shared.running, &self.shared.evaluating].into_iter().any(is_others);
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

impl<E> SessionPolicy for PortView<'_, '_, E> {
    fn open(&self) -> Result<(), Failure> {
        self.claim(true)
    }

    fn close(&self) {
        self.lost();
    }
}

impl<E> fmt::Debug for PortView<'_, '_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortView").field("port", &self.port).finish_non_exhaustive()
    }
}

impl<E> fmt::Debug for SharedExtension<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (session, running) = (self.session.get(), self.running.get());
        f.debug_struct("SharedExtension").field("session", &session).field("running", &running).finish_non_exhaustive()
    }
}

/// An eval that runs, until this is dropped: when it ends, and when it is cut off.
struct Evaluation<'w>(&'w Cell<Option<HostPort>>);

impl<'w> Evaluation<'w> {
    fn begin(place: &'w Cell<Option<HostPort>>, port: HostPort) -> Self {
        place.set(Some(port));
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
    on: PortView<'w, 'a, E>,
    extension: Option<&'a mut E>,
}

impl<E: Extension> Loan<'_, '_, E> {
    /// The extension, in its safe state if a session was taken over.
    async fn extension(&mut self) -> Result<&mut E, Failure> {
        let Some(extension) = &mut self.extension else { return Err(self.on.port.refusal()) };
        if self.on.shared.left_behind.get() {
            extension.safe_state().await;
            self.on.shared.left_behind.set(false);
        }
        Ok(extension)
    }
}

impl<E> Drop for Loan<'_, '_, E> {
    #[inline(never)]
    fn drop(&mut self) {
        self.on.shared.extension.set(self.extension.take());
        self.on.shared.running.set(None);
        // A call that took long was no silence.
        self.on.heard();
    }
}
