//! An extension that misbehaves as it is told: one step a line.
//!
//! | step | does |
//! |---|---|
//! | `read` | reads a request, and remembers its id |
//! | `say TEXT`, `print TEXT` | writes a line, or bytes without a newline; `$id` is the last id, `$1` the first, `\xNN` a byte |
//! | `from PATH` | the steps in a file, for long ones |
//! | `trickle TEXT` | `say`, each byte on its own |
//! | `init`, `ok`, `ack` | `read`, and the reply to `initialize`, `execute`, `shutdown` |
//! | `padded N` | `read`, and a reply of exactly N bytes |
//! | `flood N`, `zeros N` | N bytes without a newline to standard error, or output |
//! | `errors N` | N bytes of lines to standard error |
//! | `error TEXT` | a line to standard error |
//! | `close-input`, `close-output` | |
//! | `hold PATH` | opens a port and locks it |
//! | `sleep MS`, `forever`, `exit N`, `die` | `die` by SIGKILL |

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, Write as _};
use std::thread::sleep;
use std::time::Duration;

pub(crate) const MANIFEST: &str =
    r#"{"name":"fake","version":"1.0.0","protocolVersion":"0.0.1","operations":{"go":{"params":{}}}}"#;

pub(crate) fn main(script: &str) -> io::Result<()> {
    let mut ids: Vec<String> = Vec::new();
    let mut held = Vec::new();
    let mut out = io::stdout();
    let mut say = move |text: &[u8]| {
        out.write_all(text)?;
        out.flush()
    };
    let mut steps: Vec<String> = script.lines().map(|line| line.trim().to_owned()).collect();
    steps.reverse();
    while let Some(step) = steps.pop() {
        let (word, rest) = step.split_once(' ').unwrap_or((&step, ""));
        let number = || rest.parse::<usize>().unwrap_or_default();
        match word {
            "" => {}
            "read" => {
                let mut line = String::new();
                if io::stdin().lock().read_line(&mut line)? == 0 {
                    return Ok(());
                }
                let id = line.split("\"id\":").nth(1).unwrap_or_default();
                ids.push(id.chars().take_while(char::is_ascii_digit).collect());
            }
            "from" => {
                let more = std::fs::read_to_string(rest)?;
                steps.extend(more.lines().rev().map(str::to_owned));
            }
            "say" => say(&bytes(&format!("{rest}\n"), &ids))?,
            "print" => say(&bytes(rest, &ids))?,
            "trickle" => {
                for byte in bytes(&format!("{rest}\n"), &ids) {
                    say(&[byte])?;
                }
            }
            "init" => {
                steps.push(format!("say {{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{MANIFEST}}}"));
                steps.push("read".into());
            }
            "ok" => {
                steps.push(r#"say {"jsonrpc":"2.0","id":$id,"result":{"success":true,"message":"ok $id"}}"#.into());
                steps.push("read".into());
            }
            "ack" => {
                steps.push(r#"say {"jsonrpc":"2.0","id":$id,"result":{}}"#.into());
                steps.push("read".into());
            }
            "padded" => {
                let frame = r#"{"jsonrpc":"2.0","id":2,"result":{"success":true,"message":""}}"#.len();
                let padding = "x".repeat(number() - frame);
                steps.push(format!(
                    r#"say {{"jsonrpc":"2.0","id":$id,"result":{{"success":true,"message":"{padding}"}}}}"#
                ));
                steps.push("read".into());
            }
            "zeros" => {
                let chunk = vec![0; 64 * 1024];
                let mut left = number();
                while left > 0 {
                    say(&chunk[..left.min(chunk.len())])?;
                    left = left.saturating_sub(chunk.len());
                }
            }
            "flood" => {
                let chunk = vec![b'.'; 64 * 1024];
                let mut left = number();
                while left > 0 {
                    io::stderr().write_all(&chunk[..left.min(chunk.len())])?;
                    left = left.saturating_sub(chunk.len());
                }
            }
            "errors" => {
                for at in 0..number() / 64 {
                    writeln!(io::stderr(), "{at:063}")?;
                }
            }
            "error" => io::stderr().write_all(&bytes(&format!("{rest}\n"), &ids))?,
            "close-input" => rustix::stdio::dup2_stdin(File::open("/dev/null")?)?,
            "close-output" => rustix::stdio::dup2_stdout(File::open("/dev/null")?)?,
            "hold" => {
                let port = OpenOptions::new().read(true).write(true).open(rest)?;
                rustix::fs::flock(&port, rustix::fs::FlockOperation::LockExclusive)?;
                held.push(port);
            }
            "release" => held.clear(),
            "sleep" => sleep(Duration::from_millis(number() as u64)),
            "forever" => loop {
                sleep(Duration::from_secs(3600));
            },
            "exit" => std::process::exit(number().try_into().unwrap_or(1)),
            "die" => {
                let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            }
            _ => panic!("no such step: {step}"),
        }
    }
    Ok(())
}

fn bytes(text: &str, ids: &[String]) -> Vec<u8> {
    let last = ids.last().map_or("null", String::as_str);
    let mut text = text.replace("$id", last);
    for (place, id) in ids.iter().enumerate() {
        text = text.replace(&format!("${}", place + 1), id);
    }
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.extend(u8::from_str_radix(&part[..2], 16));
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    bytes
}
