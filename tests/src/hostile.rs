//! Hostile traffic: valid, damaged and flipped lines, the same ones in every run.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// How long a server may take for its answers to a chunk of lines, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A valid request.
pub struct Request {
    /// The line, without its end.
    pub text: String,
    /// The ids of its answers; none where the protocol has no ids, and one line then answers it.
    pub ids: Vec<String>,
}

/// One of four calls of the rig.
pub fn gevals_call(number: usize) -> Request {
    let id = format!("h-{number}");
    let (operation, args) = [
        ("gpio-read", json!({"pin": "GP14"})),
        ("identify", Value::Null),
        ("gpio-read", json!({"pin": "none"})),
        ("no-such-operation", json!({})),
    ][number % 4]
        .clone();
    let params = json!({"operation": operation, "args": args, "context": {"workdir": "/tmp", "phase": "verify"}});
    let text = json!({"jsonrpc": "2.0", "id": id, "method": "execute", "params": params}).to_string();
    Request { text, ids: vec![id] }
}

/// Three of them in a batch.
pub fn gevals_batch(number: usize) -> Request {
    let members: Vec<Request> = (0..3).map(|member| gevals_call(number * 1000 + member)).collect();
    let texts: Vec<&str> = members.iter().map(|member| member.text.as_str()).collect();
    let text = format!("[{}]", texts.join(" ,\t")).replace("\"h-", "\"b-");
    let ids = members.iter().flat_map(|member| &member.ids).map(|id| id.replace("h-", "b-")).collect();
    Request { text, ids }
}

/// A line that no reader takes for JSON, whatever was cut or put into it: it costs one error.
///
/// # Panics
/// When the request is empty.
pub fn damaged(request: &str, random: &mut Random) -> Vec<u8> {
    let mut line = request.as_bytes().to_vec();
    match random.below(6) {
        0 => line.truncate(1 + random.below(line.len() - 1)),
        1 => line.insert(random.below(line.len() - 1) + 1, 0x01),
        2 => {
            // Within a string: half of a UTF-8 sequence.
            let at = line.iter().position(|byte| *byte == b'"').unwrap_or(0) + 1;
            line.insert(at, 0xc3);
        }
        3 => line.push(b'}'),
        4 => line = b"[".repeat(1 + random.below(5000)),
        _ => {
            line =
                (0..=random.below(200)).map(|_| b'!' + u8::try_from(random.below(90)).unwrap()).chain(*b"\\").collect();
        }
    }
    line
}

/// A valid line with bytes changed: what it means then is not known, so it is answered once or not at all.
///
/// # Panics
/// When the request is empty.
pub fn flipped(request: &str, random: &mut Random) -> Vec<u8> {
    let mut line = request.replace("\"h-", "\"Z_").replace("\"b-", "\"Z_").into_bytes();
    for _ in 0..=random.below(3) {
        let at = random.below(line.len());
        line[at] ^= 1 << random.below(8);
    }
    line.retain(|byte| !matches!(byte, b'\n' | b'\r'));
    line
}

/// A stream of lines each way, on threads of their own, so that neither side waits for the other to read.
pub struct Wire {
    sender: Sender<Vec<u8>>,
    received: Receiver<Vec<u8>>,
}

impl Wire {
    /// Over these two halves.
    pub fn new(mut input: impl Write + Send + 'static, output: impl Read + Send + 'static) -> Self {
        let (sender, to_send) = mpsc::channel::<Vec<u8>>();
        thread::spawn(move || to_send.iter().all(|bytes| input.write_all(&bytes).and_then(|()| input.flush()).is_ok()));
        let (come, received) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if come.send(line).is_err() {
                    return;
                }
            }
        });
        Self { sender, received }
    }

    /// Sends them soon.
    ///
    /// # Panics
    /// When the stream has ended.
    pub fn send(&self, bytes: Vec<u8>) {
        self.sender.send(bytes).expect("the server reads");
    }

    /// The next line, which is JSON.
    ///
    /// # Panics
    /// When there is none, or it is not JSON.
    #[track_caller]
    pub fn next(&mut self, context: impl Fn() -> String) -> Value {
        let line = self.received.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{error}: {}", context()));
        assert!(!line.is_empty(), "a blank line");
        serde_json::from_slice(&line).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&line)))
    }
}

/// Xorshift: the same lines in every run.
pub struct Random(pub u64);

impl Random {
    /// Some number below this one.
    ///
    /// # Panics
    /// When the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).expect("a desktop has 64 bits") % bound
    }
}
