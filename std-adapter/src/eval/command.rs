//! The executor `command`: a program that gets the prompt on its standard input.
//!
//! The program and all that it starts are one process group, which is ended when the program is, when the run is cancelled, and
//! when this process is killed.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rigline::Level;
use rigline::protocol::waza::Verdict;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::session::OnLog;
use crate::process::{self, Lifeline, NotStarted};

/// The most of a program's output that is looked at, in bytes. The rest is read and dropped.
pub const OUTPUT_LIMIT: usize = 4 << 20;
/// How long what a program has started may keep its output open after its end.
const LINGER: Duration = Duration::from_millis(500);
/// A line of standard error is cut here.
const LINE_LIMIT: u64 = 4096;

/// Why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error("`{program}` cannot be started: {source}")]
    Start { program: String, source: io::Error },
    #[error("`{program}`: {source}")]
    Wait { program: String, source: io::Error },
    #[error("`{program}` ended with {status}")]
    Failed { program: String, status: ExitStatus },
}

impl CommandError {
    pub(super) fn verdict(&self) -> Verdict {
        match self {
            Self::Failed { .. } => Verdict::Failed,
            _ => Verdict::Error,
        }
    }
}

/// Runs a program to its end; gives its standard output. Its standard error is logged. Dropped, it ends the process and
/// all that it started.
pub(super) async fn run(
    words: &[String],
    env: &BTreeMap<String, String>,
    workdir: &str,
    model: Option<&str>,
    prompt: &str,
    log: &OnLog,
) -> Result<String, CommandError> {
    let program = words.first().cloned().unwrap_or_default();
    let folder = Path::new(workdir);
    let mut command = Command::from(process::command(&program, words.iter().skip(1), Some(folder)));
    command.envs(env);
    if let Some(model) = model {
        command.env("EVAL_MODEL", model);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let lifeline = Lifeline::new();
    let started = command.spawn().map_err(|error| {
        let source = NotStarted::why(&program, Some(folder), error).into_io();
        CommandError::Start { program: program.clone(), source }
    })?;
    let mut group = Group { id: started.id(), _lifeline: started.id().map(|id| lifeline.hold(id)), child: started };
    let child = &mut group.child;
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let give = async {
        if let Some(mut input) = input {
            // A program that does not read its prompt is none of our business.
            let _ = input.write_all(prompt.as_bytes()).await;
            let _ = input.shutdown().await;
        }
    };
    let mut kept = Vec::new();
    let take = async {
        if let Some(output) = output {
            read(output, &mut kept).await;
        }
    };
    let tell = async {
        if let Some(errors) = errors {
            each_line(errors, log).await;
        }
    };
    let talking = async { tokio::join!(give, take, tell) };
    let status = {
        let mut talking = std::pin::pin!(talking);
        let status = tokio::select! {
            _ = &mut talking => child.wait().await,
            status = child.wait() => {
                // What it has started may have its output for ever.
                let _ = timeout(LINGER, talking).await;
                status
            }
        };
        status.map_err(|source| CommandError::Wait { program: program.clone(), source })?
    };
    if !status.success() {
        return Err(CommandError::Failed { program, status });
    }
    Ok(String::from_utf8_lossy(&kept).into_owned())
}

async fn read(mut stream: impl AsyncRead + Unpin, kept: &mut Vec<u8>) {
    let mut piece = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut piece).await {
        let room = OUTPUT_LIMIT.saturating_sub(kept.len()).min(count);
        kept.extend_from_slice(piece.get(..room).unwrap_or_default());
    }
}

async fn each_line(stream: impl AsyncRead + Unpin, log: &OnLog) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut stream).take(LINE_LIMIT).read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if !text.is_empty() {
            log(Level::Info, text);
        }
        line.clear();
    }
}

/// A program and all that it started, which end when this is dropped.
struct Group {
    id: Option<u32>,
    /// What ends it when this process is killed.
    _lifeline: Option<Lifeline>,
    child: Child,
}

impl Drop for Group {
    fn drop(&mut self) {
        // Once it has been waited for, its number may be another's; but its group may live on under that number as long as a
        // member does, in which case nobody else can have got it.
        #[cfg(unix)]
        if let Some(group) = self.id.and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?)) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        #[cfg(not(unix))]
        let _ = (self.id, self.child.start_kill());
    }
}
