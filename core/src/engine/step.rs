//! The steps that an engine asks its caller to take.

use super::background::Background;
use crate::context::ReplyBuffer;
use crate::exchange::Work;

/// The next thing to do.
#[derive(Debug)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and no heap to put it on")]
pub enum Step<'s> {
    /// Read into [`Engine::space`](super::Engine::space) and [`commit`](super::Engine::commit), or [`finish`](super::Engine::finish) at end of input.
    Read,
    /// Send these bytes, one whole line, then go on.
    Write(&'s [u8]),
    /// Run this, then [`Engine::complete`](super::Engine::complete).
    Run(Run<'s>),
    /// The session was shut down, and the acknowledgement, where there is one to give, is out. A program on stdio exits now; on a wire, go on.
    Shutdown,
    /// End of input was reached, and all that came before it is answered.
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

/// Something to run, in parts that can be used side by side.
#[derive(Debug)]
pub struct Run<'s> {
    /// The work to run.
    pub work: Work<'s>,
    /// The reply's memory, for [`Context::new`](crate::Context::new).
    pub reply: ReplyBuffer<'s>,
    /// The rest of the connection: what comes in while this runs.
    pub background: Background<'s>,
}
