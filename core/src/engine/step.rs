//! The steps that an engine asks its caller to take.

use super::background::Background;
use crate::context::ReplyBuffer;
use crate::exchange::Work;

/// The next step that the driver must take.
#[derive(Debug)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and no heap to put it on")]
pub enum Step<'s> {
    /// Read into [`Engine::space`](super::Engine::space), then call
    /// [`commit`](super::Engine::commit). At end of input call [`finish`](super::Engine::finish).
    Read,
    /// Send these bytes, which are one whole line, then call [`Engine::step`](super::Engine::step)
    /// again.
    Write(&'s [u8]),
    /// Run this work, then call [`Engine::complete`](super::Engine::complete) with its result.
    Run(Run<'s>),
    /// The session was shut down, and its acknowledgement was sent if there is one. A program on
    /// standard input and output exits now. On a port or a socket, call
    /// [`Engine::step`](super::Engine::step) again.
    Shutdown,
    /// The end of input was reached, and everything before it was answered.
    End,
}

/// A [`Step`] without what is in it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Next {
    Read,
    /// The reply region, up to here.
    Write(usize),
    Run,
    Shutdown,
    End,
}

/// Work to run for a request, in parts that can be used at the same time.
#[derive(Debug)]
pub struct Run<'s> {
    /// The work to run.
    pub work: Work<'s>,
    /// The memory of the reply, for [`Context::new`](crate::Context::new).
    pub reply: ReplyBuffer<'s>,
    /// The input of the connection while this work runs.
    pub background: Background<'s>,
}
