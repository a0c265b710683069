//! `rigline::serve`: both shells.

use core::fmt;
use core::hint::black_box;

use embedded_io::{ErrorKind, ErrorType, Read, Write};
use rigline::engine::{Engine, Memory};
use rigline::serve::blocking::{self, Halves};
use rigline::serve::{ServeError, Transport};

use crate::context::{Least, MANIFEST, PROTOCOLS, Probe, Ticks};
use crate::macros::Written;
use crate::program::{bytes, keep, show};

pub(crate) fn all() {
    let (mut request, mut reply, mut log) = (bytes::<512>(), bytes::<1024>(), bytes::<256>());
    #[cfg(feature = "protocols")]
    let evals = rigline::protocol::waza::Evals::new(crate::context::EVALS);
    let memory = Memory { request: &mut request, reply: &mut reply };
    let Ok(mut engine) = Engine::with_protocols(&MANIFEST, memory, PROTOCOLS) else { return };
    #[cfg(feature = "protocols")]
    {
        engine = engine.with_service(&evals);
    }
    let kind = if black_box(true) { Transport::Stdio } else { Transport::Stream };
    let mut halves = Halves { reader: Wire, writer: Wire };
    ended(
        blocking::Server::new(&mut Probe, &mut engine, &Ticks).transport(kind).log_buffer(&mut log).serve(&mut halves),
    );
    ended(
        blocking::Server::new(&mut Written, &mut engine, &Ticks)
            .transport(kind)
            .log_buffer(&mut log)
            .serve(&mut halves),
    );
    ended(
        blocking::Server::new(&mut Least, &mut engine, &Ticks).transport(kind).log_buffer(&mut log).serve(&mut halves),
    );
    #[cfg(feature = "async")]
    asynch(&mut engine, kind, &mut log);
}

#[cfg(feature = "async")]
fn asynch(engine: &mut Engine<'_>, kind: Transport, log: &mut [u8]) {
    use core::future::{Future, poll_fn};
    use core::pin::pin;
    use core::task::{Context, Poll, Waker};
    use rigline::serve::asynch::Server;

    let (mut reader, mut writer, mut probe, mut least) = (Wire, Wire, Probe, Least);
    let stop = poll_fn(|_| if black_box(true) { Poll::Pending } else { Poll::Ready(()) });
    let mut task = Context::from_waker(Waker::noop());
    {
        let mut session = pin!(
            Server::new(&mut probe, engine, &Ticks)
                .transport(kind)
                .log_buffer(log)
                .stop(stop)
                .serve(&mut reader, &mut writer)
        );
        while session.as_mut().poll(&mut task).is_pending() {}
    }
    {
        let send_log = |line: &[u8]| black_box(line.is_empty());
        let mut session = pin!(
            Server::new(&mut least, engine, &Ticks)
                .transport(kind)
                .log_buffer(log)
                .send_log(&send_log)
                .serve(&mut reader, &mut writer)
        );
        while session.as_mut().poll(&mut task).is_pending() {}
    }
    #[cfg(feature = "postcard")]
    {
        let (shared, mut frames, mut reply) = (rigline::link::Shared::new(), bytes::<256>(), bytes::<1024>());
        let (mut reader, mut writer) = rigline::link::split(&shared, Wire, Wire, &mut frames, &mut reply);
        let mut session = pin!(
            Server::new(&mut least, engine, &Ticks).transport(kind).log_buffer(log).serve(&mut reader, &mut writer)
        );
        loop {
            if let Poll::Ready(result) = session.as_mut().poll(&mut task) {
                match result {
                    Ok(end) => return keep(end),
                    Err(error) => return show(&error),
                }
            }
        }
    }
}

fn ended(result: Result<rigline::serve::End, ServeError<Lost>>) {
    match result {
        Ok(end) => keep(end),
        Err(error) => show(&error),
    }
}

/// A transport that the compiler knows nothing about.
struct Wire;

struct Lost;

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("lost")
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("lost")
    }
}

impl core::error::Error for Lost {}

impl embedded_io::Error for Lost {
    fn kind(&self) -> ErrorKind {
        black_box(ErrorKind::Other)
    }
}

impl ErrorType for Wire {
    type Error = Lost;
}

impl Read for Wire {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Lost> {
        buf.fill(black_box(b'x'));
        black_box(Ok(1))
    }
}

impl Write for Wire {
    fn write(&mut self, buf: &[u8]) -> Result<usize, Lost> {
        keep(buf);
        black_box(Ok(1))
    }

    fn flush(&mut self) -> Result<(), Lost> {
        black_box(Ok(()))
    }
}

#[cfg(feature = "async")]
impl embedded_io_async::Read for Wire {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Lost> {
        pause().await;
        Read::read(self, buf)
    }
}

#[cfg(feature = "async")]
impl embedded_io_async::Write for Wire {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, Lost> {
        pause().await;
        Write::write(self, buf)
    }

    async fn flush(&mut self) -> Result<(), Lost> {
        Write::flush(self)
    }
}

/// Awaits now and then.
#[cfg(feature = "async")]
async fn pause() {
    core::future::poll_fn(|_| if black_box(true) { core::task::Poll::Ready(()) } else { core::task::Poll::Pending })
        .await;
}
