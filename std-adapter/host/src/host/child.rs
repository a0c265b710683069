//! Extensions in child processes. Each process is the leader of a process group.
//!
//! A thread waits for each process, even if the runtime has ended, so no process stays as a zombie.
//! The thread ends the group before it reaps the leader: until then the number of the group cannot
//! belong to another group.

use std::io;
use std::path::Path;
use std::process::{Child as Process, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::time::timeout;

use super::error::{HostError, ProcessExit};
use crate::process::{self, Lifeline, NotStarted};
use crate::target::Exec;
use rigline_std::mutex::lock;

/// How long after its leader's end the rest of a group lives, unless it is declared over earlier. Its last lines
/// are read in that time.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How long a group that nobody waits for has to end: as long as the lifeline gives it when this process is killed.
const ABANDONED: Duration = Duration::from_secs(1);

/// A child process and its process group. When the last clone is dropped, the whole group is asked
/// to end, and killed a second later.
#[derive(Debug, Clone)]
pub struct Child {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: u32,
    ended: watch::Receiver<Option<ProcessExit>>,
    reaped: watch::Receiver<bool>,
    /// Whether the process has been taken away; from then on its number may be another's.
    gone: Arc<Mutex<bool>>,
    over: mpsc::SyncSender<()>,
    /// When the program was first asked to end.
    asked: OnceLock<Instant>,
    /// A thread will end it.
    is_abandoned: AtomicBool,
}

impl Child {
    /// Returns the process id. It is also the id of the group.
    pub fn id(&self) -> u32 {
        self.inner.id
    }

    /// Returns how the process ended. Returns `None` if it goes on.
    pub fn exit(&self) -> Option<ProcessExit> {
        *self.inner.ended.borrow()
    }

    /// Waits until the process has ended. Other processes of its group, which may hold its pipes,
    /// do not delay that.
    pub async fn ended(&self) -> ProcessExit {
        let mut ended = self.inner.ended.clone();
        let exit = ended.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
        exit.unwrap_or(ProcessExit::Unknown)
    }

    /// Asks the whole process group to end.
    pub fn terminate(&self) {
        self.inner.asked.get_or_init(Instant::now);
        self.inner.signal(Signal::Terminate);
    }

    /// Asks the whole group to end, and waits for it: it may drive hardware, and have something to put in order.
    pub(crate) async fn end(&self, within: Duration) -> Option<ProcessExit> {
        self.terminate();
        timeout(within, self.ended()).await.ok()
    }

    /// Kills the whole process group at once.
    pub fn kill(&self) {
        self.inner.signal(Signal::Kill);
        self.over();
    }

    /// Nobody waits for it any more: the whole group is asked to end, and ended a second later.
    pub(super) fn abandon(&self) {
        self.inner.abandon();
    }

    /// The leader has ended, and its last lines have been read: the rest of the group may go.
    pub(super) fn over(&self) {
        let _ = self.inner.over.try_send(());
    }

    /// Waits until nothing is left of the process.
    pub(crate) async fn reaped(&self) {
        let mut reaped = self.inner.reaped.clone();
        let _ = reaped.wait_for(|reaped| *reaped).await;
    }
}

#[derive(Debug, Clone, Copy)]
enum Signal {
    Terminate,
    Kill,
}

impl Inner {
    fn signal(&self, signal: Signal) {
        let gone = lock(&self.gone);
        if !*gone {
            sys::signal(self.id, signal);
        }
    }

    /// Should this process end within that second, the lifeline does the rest.
    fn abandon(&self) {
        if self.is_abandoned.swap(true, Ordering::Relaxed) {
            return;
        }
        let asked = *self.asked.get_or_init(|| {
            self.signal(Signal::Terminate);
            Instant::now()
        });
        let left = ABANDONED.saturating_sub(asked.elapsed());
        if left.is_zero() || self.ended.borrow().is_some() {
            return self.signal(Signal::Kill);
        }
        let (id, gone) = (self.id, Arc::clone(&self.gone));
        let end = move || {
            thread::sleep(left);
            let gone = lock(&gone);
            if !*gone {
                sys::signal(id, Signal::Kill);
            }
        };
        if thread::Builder::new().name(format!("end of {id}")).spawn(end).is_err() {
            self.signal(Signal::Kill);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // It may drive hardware, and have something to put in order.
        if !*lock(&self.gone) {
            self.abandon();
        }
    }
}

/// A program that was started, and its pipes.
pub(super) struct Started {
    pub(super) child: Child,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// Whether the system finds the program. It may fail to start all the same.
///
/// # Errors
/// [`HostError::NoProgram`], or [`HostError::Start`] if its folder does not exist.
pub(super) fn ensure_found(exec: &Exec, folder: Option<&Path>) -> Result<(), HostError> {
    if process::is_found(&exec.program, folder) {
        return Ok(());
    }
    Err(not_started(exec, folder, io::ErrorKind::NotFound.into()))
}

fn not_started(exec: &Exec, folder: Option<&Path>, error: io::Error) -> HostError {
    match NotStarted::why(&exec.program, folder, error) {
        NotStarted::Missing(hint) => HostError::NoProgram { program: exec.program.clone(), hint },
        NotStarted::Fault(source) => HostError::Start { program: exec.program.clone(), source },
    }
}

/// Starts a program with pipes for its input and outputs, as the leader of its own process group.
pub(super) fn start(exec: &Exec, folder: Option<&Path>, env: &[(String, String)]) -> Result<Started, HostError> {
    let mut command = process::command(&exec.program, &exec.args, folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(env.iter().map(|(name, value)| (name, value)));
    let failed = |error: io::Error| not_started(exec, folder, error);
    let lifeline = Lifeline::new();
    let mut process = command.spawn().map_err(failed)?;
    let pipes = (process.stdin.take(), process.stdout.take(), process.stderr.take());
    // From here on the process is waited for, whatever fails.
    let child = watch_over(process, lifeline).map_err(failed)?;
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else { return Err(failed(io::ErrorKind::BrokenPipe.into())) };
    let stdin = ChildStdin::from_std(stdin).map_err(failed)?;
    let stdout = ChildStdout::from_std(stdout).map_err(failed)?;
    let stderr = ChildStderr::from_std(stderr).map_err(failed)?;
    Ok(Started { child, stdin, stdout, stderr })
}

fn watch_over(process: Process, lifeline: Lifeline) -> io::Result<Child> {
    let id = process.id();
    let lifeline = lifeline.hold(id);
    let (ended, ended_seen) = watch::channel(None);
    let (reaped, reaped_seen) = watch::channel(false);
    let (over, over_seen) = mpsc::sync_channel(1);
    let gone = Arc::new(Mutex::new(false));
    let process = Arc::new(Mutex::new(process));
    let watcher = {
        let (gone, process) = (Arc::clone(&gone), Arc::clone(&process));
        move || {
            let mut process = lock(&process);
            let exit = sys::wait(&mut process);
            ended.send_replace(Some(exit));
            let _ = over_seen.recv_timeout(LAST_WORDS);
            let mut gone = lock(&gone);
            sys::signal(id, Signal::Kill);
            drop(lifeline);
            let _ = process.wait();
            *gone = true;
            reaped.send_replace(true);
        }
    };
    if let Err(error) = thread::Builder::new().name(format!("child {id}")).spawn(watcher) {
        let mut process = lock(&process);
        let _ = process.kill();
        let _ = process.wait();
        return Err(error);
    }
    Ok(Child {
        inner: Arc::new(Inner {
            id,
            ended: ended_seen,
            reaped: reaped_seen,
            gone,
            over,
            asked: OnceLock::new(),
            is_abandoned: AtomicBool::default(),
        }),
    })
}

#[cfg(unix)]
mod sys {
    use std::process::Child as Process;

    use rustix::process::{self, Pid, WaitId, WaitIdOptions};

    use super::{ProcessExit, Signal};

    pub(super) fn signal(id: u32, signal: Signal) {
        let signal = match signal {
            Signal::Terminate => process::Signal::TERM,
            Signal::Kill => process::Signal::KILL,
        };
        if let Some(group) = pid(id) {
            let _ = process::kill_process_group(group, signal);
            // One that has stopped gets its signal only when it goes on.
            let _ = process::kill_process_group(group, process::Signal::CONT);
        }
    }

    /// Waits for the end without taking the process away.
    pub(super) fn wait(process: &mut Process) -> ProcessExit {
        let Some(pid) = pid(process.id()) else { return ProcessExit::Unknown };
        loop {
            match process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Ok(Some(status)) => {
                    let signal = status.terminating_signal().map(ProcessExit::Signal);
                    return status.exit_status().map(ProcessExit::Code).or(signal).unwrap_or(ProcessExit::Unknown);
                }
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                // Another part of this process waits for all children.
                Err(_) => return ProcessExit::Unknown,
            }
        }
    }

    fn pid(id: u32) -> Option<Pid> {
        Pid::from_raw(i32::try_from(id).ok()?)
    }
}

#[cfg(not(unix))]
mod sys {
    use std::process::{Child as Process, Command, Stdio};

    use super::{ProcessExit, Signal};

    pub(super) fn signal(id: u32, _: Signal) {
        let mut kill = Command::new("taskkill");
        kill.args(["/T", "/F", "/PID", &id.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let _ = kill.status();
    }

    pub(super) fn wait(process: &mut Process) -> ProcessExit {
        process.wait().ok().and_then(|status| status.code()).map_or(ProcessExit::Unknown, ProcessExit::Code)
    }
}
