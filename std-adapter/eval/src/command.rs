//! The executor `command`: a program that gets the prompt on its standard input.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::ExitStatus;

use rigline::Level;
use rigline::protocol::waza::Verdict;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::session::OnLog;
use rigline_host::process::{Pipes, Running};

/// The largest part of a program's output that graders see, in bytes. The rest is read and dropped.
pub const OUTPUT_LIMIT: usize = 4 << 20;
/// The longest line of standard error that is logged, in bytes. A longer line is cut.
const LINE_LIMIT: u64 = 4096;

/// The reason why the program of the executor `command` gave no answer.
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

/// Runs a program to its end, and returns its standard output. Each line of its standard error is
/// logged. If the future is dropped, the program and all processes that it started are ended.
pub(super) async fn run(
    words: &[String],
    env: &BTreeMap<String, String>,
    workdir: &str,
    model: Option<&str>,
    prompt: &str,
    log: &OnLog,
) -> Result<String, CommandError> {
    let program = words.first().cloned().unwrap_or_default();
    let env = env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let env = env.chain(model.map(|model| ("EVAL_MODEL", model)));
    let (mut running, Pipes { mut stdin, stdout, stderr }) =
        Running::start(&program, words.iter().skip(1), Path::new(workdir), env)
            .map_err(|source| CommandError::Start { program: program.clone(), source })?;
    let give = async {
        // A program that does not read its prompt is none of our business.
        let _ = stdin.write_all(prompt.as_bytes()).await;
        drop(stdin);
    };
    let mut kept = Vec::new();
    let talking = async { tokio::join!(give, read(stdout, &mut kept), each_line(stderr, log)) };
    let (status, _) = running.ended(talking).await;
    let status = status.map_err(|source| CommandError::Wait { program: program.clone(), source })?;
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
