//! Programs that run for one text, with their pipes. A program and all that it starts are one process group, which is ended when the
//! program is, when what waits for it is dropped, and when this process is killed.
//!
//! A crate for process groups, such as process-wrap, cannot do the last: it lives in this process.

use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::{Lifeline, NotStarted};

/// How long the pipes are read after the program's end: others may hold them for good.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The time that a program has to end after SIGTERM. After that it is killed.
const TERMINATION: Duration = Duration::from_millis(500);
/// How often it is looked whether it has.
#[cfg(unix)]
const STEP: Duration = Duration::from_millis(20);

/// A started program and its process group.
pub struct Running {
    group: Option<u32>,
    /// Ends it when this process is killed.
    #[cfg_attr(not(unix), expect(dead_code, reason = "it is kept until it is dropped"))]
    lifeline: Option<Lifeline>,
    child: Child,
    /// The program has ended, or was made to.
    is_over: bool,
}

/// The standard streams of a started program.
pub struct Pipes {
    /// The standard input of the program.
    pub stdin: ChildStdin,
    /// The standard output of the program.
    pub stdout: ChildStdout,
    /// The standard error of the program.
    pub stderr: ChildStderr,
}

impl Running {
    /// Starts a program in `folder`, with `env` in addition to the variables of this process.
    pub fn start(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        folder: &Path,
        env: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> io::Result<(Self, Pipes)> {
        let mut command = Command::from(super::command(&program, args, Some(folder)));
        command.envs(env).kill_on_drop(cfg!(not(unix)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let lifeline = Lifeline::new();
        let started = command.spawn();
        let mut child = started.map_err(|error| NotStarted::why(&program, Some(folder), error).into_io())?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let group = child.id();
        let running = Self { group, lifeline: group.map(|id| lifeline.hold(id)), child, is_over: false };
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else { return Err(io::ErrorKind::BrokenPipe.into()) };
        Ok((running, Pipes { stdin, stdout, stderr }))
    }

    /// Waits until the program has ended and `talk`, which uses its pipes, is ready. Returns `None`
    /// in place of the result of `talk` if that was not ready shortly after the end.
    pub async fn ended<T>(&mut self, talk: impl Future<Output = T>) -> (io::Result<ExitStatus>, Option<T>) {
        let mut talk = pin!(talk);
        let ended = tokio::select! {
            said = &mut talk => (self.child.wait().await, Some(said)),
            status = self.child.wait() => {
                self.is_over = true;
                (status, timeout(LAST_WORDS, talk).await.ok())
            }
        };
        self.is_over = true;
        ended
    }

    /// Asks the process group to end, waits a short time, and kills it.
    pub async fn end(mut self) {
        self.signal(false);
        let _ = timeout(TERMINATION, self.child.wait()).await;
        self.signal(true);
        self.is_over = true;
        let _ = self.child.start_kill();
        let _ = timeout(TERMINATION, self.child.wait()).await;
    }

    #[cfg(unix)]
    fn signal(&self, kill: bool) {
        signal(self.group, kill);
    }

    #[cfg(not(unix))]
    fn signal(&self, _kill: bool) {
        // This system has no process groups.
        let _ = self.group;
    }
}

#[cfg(unix)]
fn signal(group: Option<u32>, kill: bool) {
    use rustix::process::{Pid, Signal, kill_process_group};
    // After the program has been waited for, its process id may be reused. But while a member of its group runs,
    // the group keeps that number, and no other process can get it.
    if let Some(group) = group.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
        let _ = kill_process_group(group, if kill { Signal::KILL } else { Signal::TERM });
    }
}

/// A program whose call is given up is asked to end first, so that hardware gets to its safe state.
#[cfg(unix)]
impl Drop for Running {
    fn drop(&mut self) {
        if self.is_over {
            return self.signal(true);
        }
        self.signal(false);
        let (group, lifeline) = (self.group, self.lifeline.take());
        // A thread, since the caller may end with its runtime. If this process ends meanwhile, the lifeline does the rest.
        let ending = std::thread::Builder::new().name("rigline-ending".into()).spawn(move || {
            use rustix::process::{Pid, test_kill_process_group};
            let id = group.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
            let mut tries = TERMINATION.as_millis() / STEP.as_millis();
            while tries > 0 && id.is_some_and(|id| test_kill_process_group(id).is_ok()) {
                std::thread::sleep(STEP);
                tries -= 1;
            }
            signal(group, true);
            drop(lifeline);
        });
        if ending.is_err() {
            self.signal(true);
        }
    }
}

#[cfg(not(unix))]
impl Drop for Running {
    fn drop(&mut self) {
        self.signal(true);
    }
}
