//! Standard input and output on Unix.
//!
//! `O_NONBLOCK` belongs to the open file description, which other processes share: setting it on a terminal breaks the shell.
//! So the descriptors stay as they are, and nothing is read or written before `poll` says that it will not wait.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use embedded_io_async::{ErrorType, Read};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec, retry_on_intr};
use rustix::pipe::PIPE_BUF;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The first descriptor that is not one of the standard three.
const FIRST_FREE: i32 = 3;

/// Takes standard input and output out of everybody's reach: gives private copies that no child inherits, points standard
/// output at standard error, and standard input at the null device.
pub(crate) fn take() -> io::Result<(Input, Output)> {
    let input = fcntl_dupfd_cloexec(io::stdin(), FIRST_FREE)?;
    let output = fcntl_dupfd_cloexec(io::stdout(), FIRST_FREE)?;
    rustix::stdio::dup2_stdin(nothing()?)?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok((Input(input), Output(output)))
}

/// Something to read from that is at its end.
fn nothing() -> io::Result<OwnedFd> {
    match File::open("/dev/null") {
        Ok(null) => Ok(null.into()),
        // In a bare chroot there is no null device: a pipe that nobody writes to does as well.
        Err(_) => Ok(rustix::pipe::pipe().map(|(reader, _)| reader)?),
    }
}

pub(super) fn stderr_has_room() -> bool {
    is_ready(io::stderr(), PollFlags::OUT)
}

/// Standard input, not read from yet.
#[derive(Debug)]
pub(crate) struct Input(OwnedFd);

impl Input {
    /// For use in the tokio runtime that this is called in.
    pub(crate) fn start(self) -> io::Result<Reader> {
        #[allow(deprecated, reason = "its fault, a type whose descriptor changes, is none of OwnedFd's")]
        let registered = AsyncFd::try_with_interest(self.0, Interest::READABLE);
        match registered {
            Ok(fd) => Ok(Reader::Polled(fd)),
            Err(error) => match error.into_parts() {
                // Regular files and the null device cannot be polled (epoll_ctl(2): EPERM), and never wait.
                (fd, error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => Ok(Reader::Direct(fd)),
                (_, error) => Err(error),
            },
        }
    }
}

/// Standard input. A read that is dropped has taken nothing: bytes are moved in the step that ends it.
#[derive(Debug)]
pub(crate) enum Reader {
    Polled(AsyncFd<OwnedFd>),
    Direct(OwnedFd),
}

impl ErrorType for Reader {
    type Error = io::Error;
}

impl Read for Reader {
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // A flood of input must not keep signals and other tasks from their turn.
        tokio::task::coop::consume_budget().await;
        let fd = match self {
            Self::Polled(fd) => &*fd,
            Self::Direct(fd) => return Ok(retry_on_intr(|| rustix::io::read(&*fd, &mut *buf))?),
        };
        loop {
            let mut ready = fd.readable().await?;
            // The runtime learns of edges only. It is asked again, not believed: others may read from the same pipe.
            if is_ready(fd, PollFlags::IN) {
                match retry_on_intr(|| rustix::io::read(fd, &mut *buf)) {
                    Err(Errno::AGAIN) => {}
                    result => return Ok(result?),
                }
            }
            ready.clear_ready();
        }
    }
}

/// Standard output.
#[derive(Debug)]
pub(crate) struct Output(OwnedFd);

impl Output {
    /// Writes as much of `line` as goes without waiting. A pipe takes all or nothing of what is not longer than `PIPE_BUF`,
    /// and has room for as much when it is ready (pipe(7)); longer lines are left alone.
    pub(super) fn write_now(&self, line: &[u8]) -> io::Result<usize> {
        if line.len() > PIPE_BUF || !is_ready(&self.0, PollFlags::OUT) {
            return Ok(0);
        }
        match retry_on_intr(|| rustix::io::write(&self.0, line)) {
            Err(Errno::AGAIN) => Ok(0),
            result => Ok(result?),
        }
    }

    /// Writes all of `bytes`, and waits as long as it takes.
    pub(crate) fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match retry_on_intr(|| rustix::io::write(&self.0, bytes)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                // Somebody else has set O_NONBLOCK.
                Err(Errno::AGAIN) => {
                    let _ = poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Whether a read or write would end at once, be it with an error.
fn is_ready(fd: impl AsFd, what: PollFlags) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(retry_on_intr(|| poll(&mut [PollFd::new(&fd, what)], Some(&at_once))), Ok(1..))
}
