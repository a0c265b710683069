//! The carrier over SSH: `ssh HOST rigline lab proxy`, with the user's own `ssh` and its configuration.
//!
//! Messages pass over standard input and output, each behind its length (`u32`, little-endian).

use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rigline_std::mutex::lock;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::connection::AgentLocation;
use crate::link::{CARRIED, Carrier, Event, Host, LONGEST, RUNTIME, Received};
use crate::users;

/// The variable that names another program than `ssh`, with its first arguments.
pub const PROGRAM: &str = "RIGLINE_SSH";
/// The command on the host.
const PROXY: &str = "rigline lab proxy";
/// The options of `ssh`. It must ask no questions, since nobody could answer them.
const OPTIONS: [&str; 7] = ["-T", "-e", "none", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"];
/// The most bytes of a line of its standard error that are kept.
const WORDS: u64 = 4096;

fn too_long(length: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a message of {length} bytes, and it may have {LONGEST}"))
}

/// Reads a message; none at the end.
async fn read(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match reader.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > LONGEST {
        return Err(too_long(length));
    }
    let mut message = vec![0; length];
    reader.read_exact(&mut message).await?;
    Ok(Some(message))
}

async fn write(writer: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(|_| too_long(message.len()))?;
    let mut whole = Vec::with_capacity(4 + message.len());
    whole.extend(length.to_le_bytes());
    whole.extend(message);
    writer.write_all(&whole).await?;
    writer.flush().await
}

/// The words of `ssh` for this destination.
fn words(destination: &str) -> Vec<String> {
    let program = std::env::var(PROGRAM).ok().filter(|program| !program.trim().is_empty());
    let program = program.unwrap_or_else(|| "ssh".to_owned());
    let mut words: Vec<String> = program.split_whitespace().map(str::to_owned).collect();
    words.extend(OPTIONS.map(str::to_owned));
    words.extend(["--".to_owned(), destination.to_owned(), PROXY.to_owned()]);
    words
}

/// Begins to connect to a host.
pub(crate) fn start(destination: &str) -> io::Result<Carrier> {
    let runtime = RUNTIME.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    let _entered = runtime.enter();
    let words = words(destination);
    let (program, args) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    // A Ctrl-C in the terminal is not meant for it: leases are given back over it.
    command.args(args).process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("`{program}` cannot be started: {error}")))?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let (out, mut messages) = mpsc::channel::<Vec<u8>>(CARRIED);
    let (tell, events) = mpsc::channel(CARRIED);
    let last = Arc::new(Mutex::new(String::new()));
    let said = Arc::clone(&last);
    let complaining = tokio::spawn(async move {
        let (mut reader, mut line) = (BufReader::new(stderr), Vec::new());
        // A line without an end comes in parts.
        while let Ok(1..) = (&mut reader).take(WORDS).read_until(b'\n', &mut line).await {
            let text = String::from_utf8_lossy(&line);
            if !text.trim().is_empty() {
                *lock(&said) = text.chars().filter(|char| !char.is_control()).take(300).collect();
            }
            line.clear();
        }
    });
    let writing = tokio::spawn(async move {
        while let Some(message) = messages.recv().await {
            if write(&mut stdin, &message).await.is_err() {
                break;
            }
        }
    });
    tokio::spawn(async move {
        let mut reader = BufReader::with_capacity(LONGEST, stdout);
        let _ = tell.send(Event::Up(LONGEST)).await;
        let error = loop {
            match read(&mut reader).await {
                Ok(Some(message)) => {
                    if tell.send(Event::Message(message)).await.is_err() {
                        break None;
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        writing.abort();
        let _ = child.start_kill();
        let status = child.wait().await;
        let _ = complaining.await;
        let said = lock(&last).clone();
        let why = match (error, said.is_empty(), status) {
            (Some(error), ..) => format!("ssh: {error}"),
            (None, false, _) => format!("ssh: {said}"),
            (None, true, Ok(status)) => format!("ssh has ended ({status})"),
            (None, true, Err(error)) => format!("ssh: {error}"),
        };
        let _ = tell.send(Event::Down(why)).await;
    });
    Ok(Carrier { out, events })
}

/// Serves sessions on standard input and output until that ends: what `ssh` runs on the host.
///
/// # Errors
/// What comes are no messages.
pub async fn proxy(place: &AgentLocation) -> io::Result<()> {
    let (arrived, received) = mpsc::channel(CARRIED);
    let (out, mut messages) = mpsc::channel(CARRIED);
    let instance = uuid::Uuid::new_v4().simple().to_string();
    let serving = Host::serve(place, &users::machine(), "ssh", &instance, LONGEST, received, out);
    let writing = tokio::spawn(async move {
        let mut stdout = tokio::io::stdout();
        while let Some((_, message)) = messages.recv().await {
            if write(&mut stdout, &message).await.is_err() {
                break;
            }
        }
    });
    let mut stdin = BufReader::with_capacity(LONGEST, tokio::io::stdin());
    let ended = loop {
        match read(&mut stdin).await {
            Ok(Some(bytes)) => {
                let message = Received { from: String::new(), user: None, is_admin: false, bytes };
                if arrived.send(message).await.is_err() {
                    break Ok(());
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    drop(arrived);
    let _ = serving.await;
    writing.abort();
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_pass_a_pipe_whole_and_too_long_ones_are_refused_with_the_limit() {
        let mut pipe = Vec::new();
        for message in [b"".as_slice(), b"a", &vec![7; LONGEST]] {
            write(&mut pipe, message).await.unwrap();
        }
        let mut reader = pipe.as_slice();
        for length in [0, 1, LONGEST] {
            assert_eq!(read(&mut reader).await.unwrap().unwrap().len(), length);
        }
        assert_eq!(read(&mut reader).await.unwrap(), None);
        let mut long = Vec::new();
        write(&mut long, &vec![0; LONGEST + 1]).await.unwrap();
        let error = read(&mut long.as_slice()).await.unwrap_err().to_string();
        assert!(error.contains(&format!("it may have {LONGEST}")), "{error}");
    }
}
