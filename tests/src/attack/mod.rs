//! Attacks on a built command, each by its name, with what was measured: `cargo run -p rigline-tests --bin attack -- --list`.
//!
//! A check starts what it attacks, does what no well-behaved peer does, and says what it has measured, or what fell. It uses no machine
//! but this one, and changes neither its clock nor its settings.

mod floods;
mod growth;
mod http;
mod lab;
mod peer;
mod processes;
mod program;

use std::path::PathBuf;

pub use peer::{PEERS, run as run_peer};

/// The attacks and their targets.
#[derive(Debug, Clone)]
pub struct Attack {
    /// The command `rigline`.
    pub command: PathBuf,
    /// The program that has the hostile peers.
    pub peers: PathBuf,
    /// How many operations the largest extension has.
    pub operations: usize,
}

/// The measured value, or the fault.
pub type Outcome = Result<String, String>;

/// An attack.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// The property that must hold.
    pub holds: &'static str,
    /// Does it.
    pub run: fn(&Attack) -> Outcome,
}

/// All checks.
pub const CHECKS: &[Check] = &[
    Check {
        name: "flood/logs-between-calls",
        holds: "an extension that logs without end between calls costs bounded memory, on every path, and its next call is answered",
        run: floods::logs_between_calls,
    },
    Check {
        name: "flood/logs-during-a-call",
        holds: "an extension that logs without end during a call costs bounded memory, on every path, and the call is answered",
        run: floods::logs_during_a_call,
    },
    Check {
        name: "flood/noise",
        holds: "lines that are no messages, standard error, unknown replies, requests and a line without an end cost bounded memory",
        run: floods::noise,
    },
    Check {
        name: "flood/event-stream",
        holds: "an endless stream of events of an HTTP server costs bounded memory",
        run: floods::event_stream,
    },
    Check {
        name: "flood/unread",
        holds: "a client that sends and does not read costs a server bounded memory, and others are answered",
        run: floods::unread,
    },
    Check {
        name: "flood/pipelined",
        holds: "ten thousand requests at once pass through monitor, bridge and rig, and each is answered",
        run: floods::pipelined,
    },
    Check {
        name: "flood/eval",
        holds: "an extension that logs without end during an eval costs bounded memory, for a person, an agent and a client of eval.run",
        run: floods::eval,
    },
    Check {
        name: "flood/recorder",
        holds: "what a recording writes of an extension that logs without end costs bounded memory",
        run: floods::recorder,
    },
    Check {
        name: "flood/lab",
        holds: "clients of a lab's agent that send and do not read cost it bounded memory, and others are answered",
        run: lab::unread,
    },
    Check {
        name: "lines/large",
        holds: "deep JSON, ids of 1 MB, batches of 100,000 and lines over the limit cost one error each and bounded memory",
        run: floods::large,
    },
    Check {
        name: "http/large",
        holds: "huge headers, chunked bodies without an end, deep JSON and long ids are refused in bounded memory",
        run: http::large,
    },
    Check { name: "http/foreign", holds: "a request with another Host or Origin is refused", run: http::foreign },
    Check {
        name: "http/half-open",
        holds: "connections that send half a request do not keep another client waiting",
        run: http::half_open,
    },
    Check { name: "http/sessions", holds: "thousands of MCP sessions cost bounded memory", run: http::sessions },
    Check {
        name: "http/websocket",
        holds: "fragments without an end, floods of pings and frames that nobody reads cost the page's server bounded memory",
        run: http::websocket,
    },
    Check {
        name: "process/stopped",
        holds: "a call of an extension that is stopped is answered within its time, and the extension is used again when it goes on",
        run: processes::stopped,
    },
    Check {
        name: "process/descendants",
        holds: "what an extension has started ends with it, also after setsid, where the system can find it",
        run: processes::descendants,
    },
    Check {
        name: "process/clock",
        holds: "a clock that is set back or forward by a day ends no call and makes none wait (needs libfaketime)",
        run: processes::clock,
    },
    Check {
        name: "growth/operations",
        holds: "describe, check, mcp and a schema of many members take time that grows with the number of operations, not with its square",
        run: growth::operations,
    },
    Check {
        name: "growth/transcript",
        holds: "replay takes time and memory that grow with the transcript, of a million lines by default",
        run: growth::transcript,
    },
];
