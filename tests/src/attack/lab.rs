//! Attacks on the agent of a lab, by a user whom it serves.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::{Value, json};

use super::program::{PATIENCE, Program};
use super::{Attack, Outcome};

/// How much memory the clients may cost the agent, in KiB: each may have 8 MiB, and the system has some of it.
const LIMIT: u64 = 128 << 10;
const CLIENTS: usize = 8;
const RIGS: usize = 1000;

pub(super) fn unread(attack: &Attack) -> Outcome {
    let folder = std::env::temp_dir().join(format!("rigline-lab-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let outcome = ask_and_do_not_read(attack, &folder);
    let _ = fs::remove_dir_all(&folder);
    outcome
}

fn ask_and_do_not_read(attack: &Attack, folder: &Path) -> Outcome {
    let said = |error: std::io::Error| error.to_string();
    let mut rigs = String::new();
    for number in 0..RIGS {
        let _ = writeln!(rigs, "[[rig]]\nname = 'r{number}'\ntarget = 'tcp:127.0.0.1:{}'", 1 + number);
    }
    fs::write(folder.join("rigs.toml"), rigs).map_err(said)?;
    let mut command = attack.rigline(&["lab", "agent"]);
    let agent = Program::start(command.env("RIGLINE_LAB_DIR", folder))?;
    let (socket, begun) = (folder.join("agent.sock"), Instant::now());
    while !socket.exists() && begun.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(10));
    }
    let request = |method: &str| format!("{}\n", json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}));
    let dial = || -> Result<UnixStream, String> {
        let stream = UnixStream::connect(&socket).map_err(said)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(said)?;
        Ok(stream)
    };
    let ask = |stream: &UnixStream| -> Result<usize, String> {
        let mut line = String::new();
        let reader = BufReader::new(stream.try_clone().map_err(said)?);
        reader.take(64 << 20).read_line(&mut line).map_err(said)?;
        let reply: Value = serde_json::from_str(&line).map_err(|error| format!("{error}: {line:.200}"))?;
        match reply["result"]["rigs"].as_array().map(Vec::len) {
            Some(RIGS) => Ok(line.len()),
            found => Err(format!("{found:?} rigs: {line:.200}")),
        }
    };
    let mut first = dial()?;
    first.write_all(request("status").as_bytes()).map_err(said)?;
    let length = ask(&first)?;
    let before = agent.peak()?;
    let mut deaf = Vec::new();
    for _ in 0..CLIENTS {
        let mut stream = dial()?;
        stream.set_write_timeout(Some(Duration::from_secs(1))).map_err(said)?;
        let lines = request("status").repeat(100);
        for _ in 0..10 {
            if stream.write_all(lines.as_bytes()).is_err() {
                break;
            }
        }
        deaf.push(stream);
    }
    // Until all that it will answer waits.
    let (mut peak, mut quiet, begun) = (0, 0, Instant::now());
    while quiet < 3 && begun.elapsed() < PATIENCE {
        thread::sleep(Duration::from_secs(1));
        let now = agent.peak()?;
        quiet = if now == peak { quiet + 1 } else { 0 };
        peak = now;
    }
    // Another client is answered meanwhile.
    let begun = Instant::now();
    let mut other = dial()?;
    other.write_all(request("status").as_bytes()).map_err(said)?;
    ask(&other)?;
    let took = begun.elapsed();
    let waiting = agent.took(&format!("{CLIENTS} clients, answers of {length} bytes"), before, LIMIT)?;
    Ok(format!("{waiting}; another client is answered in {} ms", took.as_millis()))
}
