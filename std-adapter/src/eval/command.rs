//! The executor `command`: a program that gets the prompt on its standard input.

use std::collections::BTreeMap;
use std::io;
use std::process::{ExitStatus, Stdio};

use rigline::Level;
use rigline::protocol::waza::Verdict;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

use super::session::OnLog;

/// The most of a program's output that is looked at, in bytes. The rest is read and dropped.
pub const OUTPUT_LIMIT: usize = 4 << 20;
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
    let mut command = Command::new(&program);
    command.args(words.iter().skip(1)).envs(env).current_dir(workdir);
    if let Some(model) = model {
        command.env("EVAL_MODEL", model);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    let started = command.spawn().map_err(|source| CommandError::Start { program: program.clone(), source })?;
    let mut group = Group { id: started.id(), child: started };
    let child = &mut group.child;
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let give = async {
        if let Some(mut input) = input {
            // A program that does not read its prompt is none of our business.
            let _ = input.write_all(prompt.as_bytes()).await;
            let _ = input.shutdown().await;
        }
    };
    let take = async {
        match output {
            Some(output) => read(output).await,
            None => Vec::new(),
        }
    };
    let tell = async {
        if let Some(errors) = errors {
            each_line(errors, log).await;
        }
    };
    let talking = async { tokio::join!(give, take, tell) };
    let ((), output, ()) = talking.await;
    let status = child.wait().await.map_err(|source| CommandError::Wait { program: program.clone(), source })?;
    if !status.success() {
        return Err(CommandError::Failed { program, status });
    }
    Ok(String::from_utf8_lossy(&output).into_owned())
}

async fn read(mut stream: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut piece = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut piece).await {
        let room = OUTPUT_LIMIT.saturating_sub(kept.len()).min(count);
        kept.extend_from_slice(piece.get(..room).unwrap_or_default());
    }
    kept
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
