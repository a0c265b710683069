//! Processes that get one text and give one.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::reply::ReplyError;
use crate::http_client::HttpError;
use crate::process::{self, Lifeline, NotStarted};

/// How much of standard error is kept, from its end.
const STDERR_KEPT: usize = 16 << 10;

/// How long what was started with SIGTERM may take to end before SIGKILL.
const TERMINATION: Duration = Duration::from_millis(500);

/// How long the output is waited for after the process itself has ended: others may hold the pipe.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Why there is no reply from a tool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No tool has this name.
    #[error("no tool is called {tool:?}{}", hint(suggestion.as_deref()))]
    UnknownTool {
        /// The name.
        tool: String,
        /// A name that is like it.
        suggestion: Option<String>,
    },
    /// The tool is in a pack that is not verified or not enabled: it is not run.
    #[error(
        "the tool {tool:?} is provided by the pack {pack}, which is not verified or not enabled; run `n3 packs verify {pack}`, then `n3 packs enable {pack}`"
    )]
    UnavailablePack {
        /// The tool's name.
        tool: String,
        /// The pack's identifier.
        pack: String,
    },
    /// The tool comes with namel3ss itself, which alone can run it.
    #[error("{tool:?} is a built-in tool of namel3ss: only namel3ss itself can run it")]
    BuiltIn {
        /// The tool's name.
        tool: String,
    },
    /// A service's answer to the handshake is unusable.
    #[error("the service's answer to the handshake is unusable: {reason}")]
    Handshake {
        /// What is wrong with it.
        reason: String,
    },
    /// The program cannot be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// It did not end in time, and was ended.
    #[error("the tool did not end within {limit:?}{}", tail(stderr))]
    Timeout {
        /// The limit.
        limit: Duration,
        /// The end of its standard error.
        stderr: String,
    },
    /// It ended without a word, and not well.
    #[error("the tool crashed ({status}){}", tail(stderr))]
    Crash {
        /// How it ended.
        status: ExitStatus,
        /// The end of its standard error.
        stderr: String,
    },
    /// The device behind `rigline bridge` did not give a usable response.
    #[error("{text}")]
    Device {
        /// What the bridge said.
        text: String,
        /// Its exit code.
        code: u8,
    },
    /// What it wrote is not a reply.
    #[error("{source}{}", tail(stderr))]
    Reply {
        /// What is wrong with it.
        source: ReplyError,
        /// The end of its standard error.
        stderr: String,
    },
    /// It wrote more than is taken.
    #[error("the response is longer than the limit of {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// The service could not be asked.
    #[error("the tool service at {url}: {source}")]
    Service {
        /// Its address.
        url: String,
        /// What went wrong.
        source: HttpError,
    },
    /// The binding lacks something that its runner needs.
    #[error("{0}")]
    Binding(String),
    /// A pipe to the program failed.
    #[error("talking to the tool failed: {0}")]
    Pipe(io::Error),
}

impl RunError {
    /// A word for it, as Python's exceptions are named.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Timeout { .. } | Self::Service { source: HttpError::Timeout { .. }, .. } => "TimeoutError",
            _ => "Namel3ssError",
        }
    }
}

fn hint(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!("; there is {name:?}")).unwrap_or_default()
}

fn tail(stderr: &str) -> String {
    let stderr = stderr.trim_end();
    if stderr.is_empty() { String::new() } else { format!("; standard error:\n{stderr}") }
}

/// A process to be.
pub(super) struct Program<'a> {
    pub(super) program: &'a OsStr,
    pub(super) args: Vec<String>,
    pub(super) folder: &'a Path,
    pub(super) env: Vec<(String, OsString)>,
    pub(super) timeout: Duration,
    /// The most bytes that its standard output may have.
    pub(super) limit: usize,
}

/// What a process has said.
pub(super) struct Output {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
    pub(super) status: Option<ExitStatus>,
}

impl Program<'_> {
    /// Starts it, writes all of `input` to it, and takes all of its output. It is the leader of a process group, which is ended
    /// with it.
    pub(super) async fn run(self, input: Vec<u8>) -> Result<Output, RunError> {
        let mut command = Command::from(process::command(self.program, &self.args, Some(self.folder)));
        command.envs(self.env).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let lifeline = Lifeline::new();
        let mut child = command.spawn().map_err(|error| RunError::Start {
            program: self.program.to_string_lossy().into_owned(),
            source: NotStarted::why(self.program, Some(self.folder), error).into_io(),
        })?;
        let group = Group { id: child.id(), _lifeline: child.id().map(|id| lifeline.hold(id)) };
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let deadline = Instant::now() + self.timeout;
        let (mut out, mut err) = (Kept::first(self.limit), Kept::last(STDERR_KEPT));
        let mut status = None;
        let talk = async {
            let write = async {
                if let Some(mut stdin) = stdin {
                    // Who does not read it all may answer all the same.
                    let _ = stdin.write_all(&input).await;
                }
                Ok::<_, io::Error>(())
            };
            let read = async { tokio::try_join!(write, out.read(stdout), err.read(stderr)).map(|_| ()) };
            tokio::pin!(read);
            tokio::select! {
                result = &mut read => {
                    status = child.wait().await.ok();
                    result
                }
                ended = child.wait() => {
                    status = ended.ok();
                    // Those whom it has started may hold its pipes for good.
                    timeout(LAST_WORDS, read).await.unwrap_or(Ok(()))
                }
            }
        };
        let talked = timeout_at(deadline, talk).await;
        let stderr = |err: Kept| String::from_utf8_lossy(&err.bytes).into_owned();
        match talked {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(RunError::Pipe(error)),
            Err(_) => {
                group.end(&mut child).await;
                return Err(RunError::Timeout { limit: self.timeout, stderr: stderr(err) });
            }
        }
        if out.is_over {
            return Err(RunError::TooLong { limit: self.limit });
        }
        Ok(Output { stdout: out.bytes, stderr: stderr(err), status })
    }
}

/// A process group, which is ended when this is dropped.
struct Group {
    id: Option<u32>,
    /// What ends it when this process is killed.
    _lifeline: Option<Lifeline>,
}

impl Group {
    /// Asks it to end, then makes it: in a container the client passes that on.
    async fn end(&self, child: &mut Child) {
        self.signal(false);
        let _ = timeout(TERMINATION, child.wait()).await;
        self.signal(true);
        let _ = child.start_kill();
        let _ = timeout(TERMINATION, child.wait()).await;
        sleep(Duration::ZERO).await;
    }

    #[cfg(unix)]
    fn signal(&self, kill: bool) {
        use rustix::process::{Pid, Signal, kill_process_group};
        if let Some(pid) = self.id.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
            let _ = kill_process_group(pid, if kill { Signal::KILL } else { Signal::TERM });
        }
    }

    #[cfg(not(unix))]
    fn signal(&self, _kill: bool) {
        // There are no process groups here.
        let _ = self.id;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(true);
    }
}

/// The first or the last bytes of a stream, which is read to its end.
struct Kept {
    bytes: Vec<u8>,
    limit: usize,
    keeps_last: bool,
    is_over: bool,
}

impl Kept {
    fn first(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, keeps_last: false, is_over: false }
    }

    fn last(limit: usize) -> Self {
        Self { keeps_last: true, ..Self::first(limit) }
    }

    async fn read(&mut self, stream: Option<impl AsyncRead + Unpin>) -> io::Result<()> {
        let Some(mut stream) = stream else { return Ok(()) };
        let mut piece = vec![0; 16 << 10];
        loop {
            let count = stream.read(&mut piece).await?;
            if count == 0 {
                return Ok(());
            }
            let piece = piece.get(..count).unwrap_or_default();
            if self.keeps_last {
                self.bytes.extend_from_slice(piece);
                let over = self.bytes.len().saturating_sub(self.limit);
                self.bytes.drain(..over);
            } else if self.bytes.len() + count > self.limit {
                self.is_over = true;
            } else {
                self.bytes.extend_from_slice(piece);
            }
        }
    }
}
