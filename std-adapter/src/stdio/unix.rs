//! Standard input and output on Unix.
//!
//! `O_NONBLOCK` belongs to the open file description, which other processes share: setting it on a
//! terminal breaks the shell. So the descriptors stay as they are. Each read and write asks Linux
//! not to wait (`RWF_NOWAIT`), where a descriptor has that; elsewhere nothing is read or written
//! before `poll` says that it will not wait.

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use embedded_io_async::{ErrorType, Read};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, fcntl_dupfd_cloexec, retry_on_intr};
use rustix::pipe::PIPE_BUF;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The first descriptor that is not one of the standard three.
const FIRST_FREE: i32 = 3;

/// Protects standard input and output from other code: returns private copies that no child process
/// inherits, and points standard output at standard error and standard input at the null device.
pub fn take() -> io::Result<(Input, Output)> {
    let input = fcntl_dupfd_cloexec(io::stdin(), FIRST_FREE)?;
    let output = fcntl_dupfd_cloexec(io::stdout(), FIRST_FREE)?;
    rustix::stdio::dup2_stdin(nothing()?)?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok((Input(input), Output { fd: output, way: Way::default() }))
}

/// Something to read from that is at its end.
fn nothing() -> io::Result<OwnedFd> {
    match File::open("/dev/null") {
        Ok(null) => Ok(null.into()),
        // A minimal chroot has no null device. A pipe without a writer has the same effect.
        Err(_) => Ok(rustix::pipe::pipe().map(|(reader, _)| reader)?),
    }
}

/// Standard input, before anything was read from it.
#[derive(Debug)]
pub struct Input(OwnedFd);

impl Input {
    /// Makes a reader of standard input, in the current tokio runtime.
    pub fn start(self) -> io::Result<Reader> {
        #[allow(deprecated, reason = "its fault, a type whose descriptor changes, is none of OwnedFd's")]
        let registered = AsyncFd::try_with_interest(self.0, Interest::READABLE);
        match registered {
            Ok(fd) => {
                let is_pipe = fstat(&fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
                Ok(Reader::Polled { fd, way: Way::default(), is_pipe })
            }
            Err(error) => match error.into_parts() {
                // Regular files and the null device cannot be polled (epoll_ctl(2): EPERM), and
                // never wait.
                (fd, error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => Ok(Reader::Direct(fd)),
                (_, error) => Err(error),
            },
        }
    }
}

/// The reader of standard input. A read that is dropped has taken no bytes.
#[derive(Debug)]
pub enum Reader {
    Polled { fd: AsyncFd<OwnedFd>, way: Way, is_pipe: bool },
    Direct(OwnedFd),
}

impl ErrorType for Reader {
    type Error = io::Error;
}

impl Read for Reader {
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let (fd, way, is_pipe) = match self {
            // Asking whether it is ready counts towards the task's budget.
            Self::Polled { fd, way, is_pipe } => (&*fd, &*way, *is_pipe),
            Self::Direct(fd) => {
                // A flood of input must not keep signals and other tasks from their turn.
                tokio::task::coop::consume_budget().await;
                return Ok(retry_on_intr(|| rustix::io::read(&*fd, &mut *buf))?);
            }
        };
        loop {
            let mut ready = poll_fn(|task| fd.poll_read_ready(task)).await?;
            // The runtime learns of edges only. It is asked again, not believed: others may read
            // from the same pipe.
            match way.read(fd.as_fd(), buf) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                result => {
                    // A pipe that returns less than there is room for is empty, and what comes
                    // later is an edge (epoll(7), "Questions and answers" 9). A terminal returns a
                    // line at a time, however many there are.
                    if is_pipe && matches!(result, Ok(count) if (1..buf.len()).contains(&count)) {
                        ready.clear_ready();
                    }
                    return Ok(result?);
                }
            }
        }
    }
}

/// The protected standard output.
#[derive(Debug)]
pub struct Output {
    fd: OwnedFd,
    way: Way,
}

impl Output {
    /// Writes as much of `line` as goes without waiting. A pipe takes all or nothing of what is not
    /// longer than `PIPE_BUF`, and has room for as much when it is ready (pipe(7)); longer lines
    /// are left alone.
    pub(super) fn write_now(&self, line: &[u8]) -> io::Result<usize> {
        if line.len() > PIPE_BUF {
            return Ok(0);
        }
        match self.way.write(self.fd.as_fd(), line) {
            Err(Errno::AGAIN) => Ok(0),
            result => Ok(result?),
        }
    }

    /// Returns when the output can no longer be read: the other end of a pipe, a socket or a
    /// terminal is closed.
    pub(super) fn wait_until_unread(&self) {
        wait_until_unread(&self.fd);
    }

    /// Writes all bytes, and waits as long as that takes.
    pub fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match retry_on_intr(|| rustix::io::write(&self.fd, bytes)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                // Another process has set O_NONBLOCK.
                Err(Errno::AGAIN) => {
                    let _ = poll(&mut [PollFd::new(&self.fd, PollFlags::OUT)], None);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// The way in which a descriptor is read or written without waiting.
#[derive(Debug, Default)]
pub struct Way {
    /// The system, or this kind of descriptor, has no word for it: terminals have none, pipes have
    /// one since Linux 6.4.
    must_ask: AtomicBool,
}

impl Way {
    /// [`Errno::AGAIN`] if there is nothing.
    fn read(&self, fd: BorrowedFd<'_>, buf: &mut [u8]) -> Result<usize, Errno> {
        match self.unless_must_ask(|| system_says::read(fd, buf)) {
            Some(result) => result,
            None if is_ready(fd, PollFlags::IN) => retry_on_intr(|| rustix::io::read(fd, &mut *buf)),
            None => Err(Errno::AGAIN),
        }
    }

    /// [`Errno::AGAIN`] if there is no room.
    fn write(&self, fd: BorrowedFd<'_>, line: &[u8]) -> Result<usize, Errno> {
        match self.unless_must_ask(|| system_says::write(fd, line)) {
            Some(result) => result,
            None if is_ready(fd, PollFlags::OUT) => retry_on_intr(|| rustix::io::write(fd, line)),
            None => Err(Errno::AGAIN),
        }
    }

    fn unless_must_ask(&self, mut attempt: impl FnMut() -> Result<usize, Errno>) -> Option<Result<usize, Errno>> {
        if self.must_ask.load(Ordering::Relaxed) {
            return None;
        }
        match retry_on_intr(&mut attempt) {
            // PERM and NOSYS are what sandboxes say to calls that they do not know.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM | Errno::SPIPE) => {
                self.must_ask.store(true, Ordering::Relaxed);
                None
            }
            result => Some(result),
        }
    }
}

#[cfg(target_os = "linux")]
mod system_says {
    use std::io::{IoSlice, IoSliceMut};
    use std::os::fd::BorrowedFd;

    use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};

    /// Where the descriptor stands, if it stands anywhere.
    const HERE: u64 = u64::MAX;

    pub(super) fn read(fd: BorrowedFd<'_>, buf: &mut [u8]) -> Result<usize, Errno> {
        preadv2(fd, &mut [IoSliceMut::new(buf)], HERE, ReadWriteFlags::NOWAIT)
    }

    pub(super) fn write(fd: BorrowedFd<'_>, line: &[u8]) -> Result<usize, Errno> {
        pwritev2(fd, &[IoSlice::new(line)], HERE, ReadWriteFlags::NOWAIT)
    }
}

#[cfg(not(target_os = "linux"))]
mod system_says {
    use std::os::fd::BorrowedFd;

    use rustix::io::Errno;

    pub(super) fn read(_: BorrowedFd<'_>, _: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::NOSYS)
    }

    pub(super) fn write(_: BorrowedFd<'_>, _: &[u8]) -> Result<usize, Errno> {
        Err(Errno::NOSYS)
    }
}

/// Waits only for the errors that poll(2) always reports. A file has none: then this does not
/// return.
pub(super) fn wait_until_unread(fd: impl AsFd) {
    let mut fds = [PollFd::new(&fd, PollFlags::empty())];
    loop {
        match poll(&mut fds, None) {
            Ok(_) if fds.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP)) => return,
            Ok(_) | Err(Errno::INTR) if !fds.iter().any(|fd| fd.revents().contains(PollFlags::NVAL)) => {}
            // The first write fails on a descriptor that is not open.
            _ => std::thread::park(),
        }
    }
}

/// Whether a read or write would end at once, possibly with an error.
fn is_ready(fd: impl AsFd, what: PollFlags) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(retry_on_intr(|| poll(&mut [PollFd::new(&fd, what)], Some(&at_once))), Ok(1..))
}
