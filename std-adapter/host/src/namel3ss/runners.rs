//! Runners: a tool is a process that reads one text and writes one text.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

use super::reply::ReplyError;
use crate::http_client::HttpError;
use crate::process::{Pipes, Running, last_words};

/// How much of standard error is kept, from its end.
const STDERR_KEPT: usize = 16 << 10;

/// The reason why a call has no reply from the tool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No tool has the name.
    #[error("no tool is called {tool:?}{}", hint(suggestion.as_deref()))]
    UnknownTool {
        /// The name that was called.
        tool: String,
        /// A similar name that exists.
        suggestion: Option<String>,
    },
    /// The tool is in a pack that is not verified or not enabled, so it is not run.
    #[error(
        "the tool {tool:?} is provided by the pack {pack}, which is not verified or not enabled; run `n3 packs verify {pack}`, then `n3 packs enable {pack}`"
    )]
    UnavailablePack {
        /// The name of the tool.
        tool: String,
        /// The id of the pack.
        pack: String,
    },
    /// The tool is part of namel3ss itself, and only namel3ss can run it.
    #[error("{tool:?} is a built-in tool of namel3ss: only namel3ss itself can run it")]
    BuiltIn {
        /// The name of the tool.
        tool: String,
    },
    /// The answer of a service to the handshake cannot be used.
    #[error("the service's answer to the handshake is unusable: {reason}")]
    Handshake {
        /// The fault of the answer.
        reason: String,
    },
    /// The program of the tool cannot be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The path of the program.
        program: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The program did not end within the time limit, and was ended.
    #[error("the tool did not end within {limit:?}{}", last_words(stderr))]
    Timeout {
        /// The time limit.
        limit: Duration,
        /// The last lines of the program's standard error.
        stderr: String,
    },
    /// The program failed and wrote no output.
    #[error("the tool crashed ({status}){}", last_words(stderr))]
    Crash {
        /// The exit status of the program.
        status: ExitStatus,
        /// The last lines of the program's standard error.
        stderr: String,
    },
    /// The device behind `rigline bridge` gave no usable response.
    #[error("{text}")]
    Device {
        /// The error text of the bridge.
        text: String,
        /// The exit code of the bridge.
        code: u8,
    },
    /// The output of the program is not a reply.
    #[error("{source}{}", last_words(stderr))]
    Reply {
        /// The fault of the output.
        source: ReplyError,
        /// The last lines of the program's standard error.
        stderr: String,
    },
    /// The output is longer than the host accepts.
    #[error("the response is longer than the limit of {limit} bytes")]
    TooLong {
        /// The longest accepted output, in bytes.
        limit: usize,
    },
    /// The service did not give a usable answer.
    #[error("the tool service at {url}: {source}")]
    Service {
        /// The address of the service.
        url: String,
        /// The error of the HTTP request.
        source: HttpError,
    },
    /// The binding lacks something that its runner needs. The text names it.
    #[error("{0}")]
    Binding(String),
    /// Writing to or reading from the program failed.
    #[error("talking to the tool failed: {0}")]
    Pipe(io::Error),
}

impl RunError {
    /// Returns the kind of error as a Python exception would be named: `TimeoutError` or
    /// `Namel3ssError`.
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

/// The output of a process.
pub(super) struct Output {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
    pub(super) status: Option<ExitStatus>,
}

impl Program<'_> {
    /// Starts it, writes all of `input` to it, and reads all of its output. It is the leader of a process group, which
    /// is ended with it.
    pub(super) async fn run(self, input: Vec<u8>) -> Result<Output, RunError> {
        let Self { program, args, folder, env, timeout, limit } = self;
        let (mut running, Pipes { mut stdin, stdout, stderr }) = Running::start(program, args, folder, env)
            .map_err(|source| RunError::Start { program: program.to_string_lossy().into_owned(), source })?;
        let over = Arc::new(Notify::new());
        let (mut out, mut err) = (Kept::first(limit, &over), Kept::last(STDERR_KEPT));
        let talk = async {
            let write = async {
                // Who does not read it all may answer all the same.
                let _ = stdin.write_all(&input).await;
                drop(stdin);
                Ok(())
            };
            tokio::try_join!(write, out.read(stdout), err.read(stderr)).map(|_| ())
        };
        let ended = tokio::select! {
            ended = tokio::time::timeout(timeout, running.ended(talk)) => ended,
            // It may never end.
            () = over.notified() => {
                running.end().await;
                return Err(RunError::TooLong { limit });
            }
        };
        let stderr = String::from_utf8_lossy(&err.bytes).into_owned();
        let Ok((status, talked)) = ended else {
            running.end().await;
            return Err(RunError::Timeout { limit: timeout, stderr });
        };
        talked.unwrap_or(Ok(())).map_err(RunError::Pipe)?;
        if out.is_over {
            return Err(RunError::TooLong { limit });
        }
        Ok(Output { stdout: out.bytes, stderr, status: status.ok() })
    }
}

/// The first or the last bytes of a stream, which is read to its end.
struct Kept {
    bytes: Vec<u8>,
    limit: usize,
    keeps_last: bool,
    is_over: bool,
    over: Arc<Notify>,
}

impl Kept {
    /// `over` is notified when there are more.
    fn first(limit: usize, over: &Arc<Notify>) -> Self {
        Self { bytes: Vec::new(), limit, keeps_last: false, is_over: false, over: Arc::clone(over) }
    }

    fn last(limit: usize) -> Self {
        Self { keeps_last: true, ..Self::first(limit, &Arc::default()) }
    }

    async fn read(&mut self, mut stream: impl AsyncRead + Unpin) -> io::Result<()> {
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
                self.over.notify_one();
            } else {
                self.bytes.extend_from_slice(piece);
            }
        }
    }
}
