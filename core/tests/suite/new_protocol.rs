//! A protocol is a value: one of thirty lines, and one that uses all hooks, work without a change
//! of the crate.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll, Waker};

use crate::common::asynch::Wire;
use crate::common::ping_pong::PING_PONG;
use crate::common::{NoTime, Pipe};
use rigline::engine::{Engine, Memory};
use rigline::rpc;
use rigline::serve::{Transport, asynch, blocking};
use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
use rigline::{
    json::check::{WatchedMember, WatchedMembers},
    protocol::{
        AMPLIFIER, Action, Busy, CallAction, Code, GEVALS, Log, Logs, MessagePlace, OutputsPlace, Progress, Protocol,
        Received, Refusal, ReplyFacts, ReplyFormat, ServerState,
    },
};

struct Rig {
    gate: Rc<Cell<bool>>,
    made_safe: Rc<Cell<u32>>,
}

impl Rig {
    fn new() -> Self {
        Self { gate: Rc::default(), made_safe: Rc::default() }
    }
}

impl Extension for Rig {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("rig", "1.0.0").operations(&[
            Operation::new("measure", Schema::OBJECT),
            Operation::new("fail", Schema::OBJECT),
            Operation::new("wait", Schema::OBJECT),
        ]);
        &MANIFEST
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        #[derive(serde::Deserialize)]
        struct Args<'a> {
            #[serde(default)]
            name: &'a str,
        }
        let Args { name } = call.args()?;
        match call.operation() {
            "measure" => {
                cx.progress(1, Some(2), "half");
                cx.progress(1, Some(2), "half again");
                cx.output("name", name)?;
                cx.output("volts", &3)?;
                cx.done("measured")
            }
            "fail" => cx.failed(format_args!("no {name}")),
            _ => {
                poll_fn(|_| if self.gate.get() { Poll::Ready(()) } else { Poll::Pending }).await;
                cx.done("waited")
            }
        }
    }

    async fn safe_state(&mut self) {
        self.made_safe.set(self.made_safe.get() + 1);
    }
}

fn blocking(protocols: &[&'static Protocol], lines: &[&str]) -> Vec<String> {
    let (mut request, mut reply, mut log) = ([0; 1024], [0; 1024], [0; 256]);
    let mut rig = Rig::new();
    let memory = Memory { request: &mut request, reply: &mut reply };
    let mut engine = Engine::with_protocols(rig.manifest(), memory, protocols).unwrap();
    let mut pipe = Pipe::new((lines.join("\n") + "\n").as_bytes());
    blocking::Server::new(&mut rig, &mut engine, &NoTime).log_buffer(&mut log).serve(&mut pipe).unwrap();
    String::from_utf8(pipe.output).unwrap().lines().map(str::to_owned).collect()
}

/// Runs `client` against a board over the async driver; what it says is answered until nothing more
/// happens.
fn with_a_board(rig: Rig, protocols: &[&'static Protocol], client: impl FnOnce(&mut dyn FnMut(&str) -> Vec<String>)) {
    let (to_board, to_client) = (Wire::default(), Wire::default());
    let (mut reader, mut writer) = (to_board.clone(), to_client.clone());
    let mut board = pin!(async {
        let (mut request, mut reply, mut log) = ([0; 1024], [0; 1024], [0; 2000]);
        let mut rig = rig;
        let memory = Memory { request: &mut request, reply: &mut reply };
        let mut engine = Engine::with_protocols(rig.manifest(), memory, protocols).unwrap();
        asynch::Server::new(&mut rig, &mut engine, &NoTime)
            .transport(Transport::Stream)
            .log_buffer(&mut log)
            .serve(&mut reader, &mut writer)
            .await
    });
    client(&mut |lines| {
        to_board.0.borrow_mut().extend(lines.bytes());
        to_board.0.borrow_mut().push_back(b'\n');
        let mut idle = 0;
        while idle < 5 {
            let before = to_client.0.borrow().len();
            assert!(board.as_mut().poll(&mut Task::from_waker(Waker::noop())).is_pending());
            idle = if to_client.0.borrow().len() == before { idle + 1 } else { 0 };
        }
        let bytes: Vec<u8> = to_client.0.borrow_mut().drain(..).collect();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    });
}

const PINGS: [(&str, Option<&str>); 7] = [
    (r#"{"ping":"measure","with":{"name":"3V3"}}"#, Some(r#"{"pong":{"name":"3V3","volts":3,"message":"measured"}}"#)),
    (r#"{"ping":"measure"}"#, Some(r#"{"pong":{"name":"","volts":3,"message":"measured"}}"#)),
    (r#"{"ping":"fail","with":{"name":"x"}}"#, Some(r#"{"pang":"no x"}"#)),
    (r#"{"ping":"nope"}"#, Some(r#"{"pang":"nobody answers to nope"}"#)),
    (r#"{"pong":{}}"#, None),
    (
        r#"{"ping":"#,
        Some(
            r#"{"pang":{"unreadable":"Parse error: the line ends inside a value; a message must be complete and on one line at byte 8"}}"#,
        ),
    ),
    // Behind it, what has no marker is taken as ping-pong too.
    ("[1]", Some(r#"{"pang":"nobody answers to "}"#)),
];

#[test]
fn a_protocol_of_thirty_lines_over_both_drivers() {
    for protocols in [&[&PING_PONG][..], &[GEVALS, &PING_PONG, AMPLIFIER], &[&PING_PONG, GEVALS]] {
        let lines: Vec<&str> = PINGS.iter().map(|(line, _)| *line).collect();
        let answers: Vec<&str> = PINGS.iter().filter_map(|(_, answer)| *answer).collect();
        assert_eq!(blocking(protocols, &lines), answers);
        with_a_board(Rig::new(), protocols, |say| {
            for (line, answer) in PINGS {
                assert_eq!(say(line), answer.into_iter().collect::<Vec<_>>(), "{line}");
            }
        });
    }
}

#[test]
fn each_line_is_of_the_protocol_whose_marker_it_has() {
    let lines = [
        r#"{"ping":"measure"}"#,
        r#"{"op":"health","other":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"shutdown"}"#,
        r#"{"op":"health","ping":"measure"}"#,
        r#"{"ping":"measure","op":"health"}"#,
        r#"{"op":"health"}"#,
        r#"{"op":"health","ping":"measure"}"#,
        r#"{"ping":"measure"}"#,
        r#"{"ping":"measure","op":"health"}"#,
    ];
    let pong = r#"{"pong":{"name":"","volts":3,"message":"measured"}}"#;
    let (ok, end) = (r#"{"status":"ok"}"#, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    for (protocols, answers) in [
        ([GEVALS, AMPLIFIER, &PING_PONG], [pong, ok, end, ok, ok, ok, ok, pong, ok]),
        ([&PING_PONG, GEVALS, AMPLIFIER], [pong, ok, end, pong, pong, ok, pong, pong, pong]),
    ] {
        with_a_board(Rig::new(), &protocols, |say| {
            for (line, answer) in lines.iter().zip(answers) {
                assert_eq!(say(line), [answer], "{line}");
            }
        });
    }
}

/// Of protocols that share a marker, the first in the list that has no test gets what no test claims.
#[test]
fn the_first_protocol_without_a_test_gets_what_no_test_claims() {
    static PLAIN: Protocol = Protocol::json_rpc("plain", &BELL_MEMBERS, &BELL_FORMAT, read);
    let list = r#"{"jsonrpc":"2.0","id":"l","method":"bell/list"}"#;
    let end = r#"{"jsonrpc":"2.0","id":6,"method":"shutdown"}"#;
    let answers = blocking(&[&PLAIN, GEVALS], &[list, end]);
    assert_eq!(answers[0], r#"{"jsonrpc":"2.0","id":"l","result":["rig"]}"#);
    assert_eq!(answers[1], r#"{"jsonrpc":"2.0","id":6,"error":{"code":-32601,"message":"method: unknown"}}"#);
    let answers = blocking(&[GEVALS, &PLAIN], &[list, end]);
    assert!(answers[0].contains("-32601") && !answers[0].contains("method: unknown"), "{}", answers[0]);
    assert_eq!(answers[1], r#"{"jsonrpc":"2.0","id":6,"result":{}}"#);
}

/// A protocol that is not listed is not spoken.
#[test]
fn an_engine_with_one_protocol_speaks_that_alone() {
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request: the member method is missing"}}"#;
    assert_eq!(blocking(&[GEVALS], &[r#"{"op":"health"}"#]), [error]);
    assert_eq!(
        blocking(&[AMPLIFIER], &[r#"{"jsonrpc":"2.0","id":1,"method":"shutdown"}"#]),
        [r#"{"id":1,"ok":false,"error":{"code":"bad_request","message":"op: required, but missing"}}"#]
    );
}

/// A second protocol over JSON-RPC, told from the first by its methods; it has all that a protocol can have.
static BELL: Protocol = Protocol::json_rpc("bell", &BELL_MEMBERS, &BELL_FORMAT, read)
    .recognise(|received, is_current| {
        received.string(rpc::METHOD).is_some_and(|method| method.as_str().is_some_and(|name| name.starts_with("bell/")))
            || is_current && received.is(rpc::METHOD, "status")
    })
    .busy(|received| {
        if received.is(rpc::METHOD, "bell/cancel") {
            Busy::Cancel(received.span(REQUEST))
        } else if received.is(rpc::METHOD, "bell/ring") {
            Busy::Wait
        } else {
            Busy::Answer
        }
    });

const NAME: usize = rpc::FIRST_FREE;
const ARGS: usize = NAME + 1;
const TOKEN: usize = NAME + 2;
const REQUEST: usize = NAME + 3;
const QUIET: usize = NAME + 4;
static BELL_MEMBERS: [WatchedMember; rpc::FIRST_FREE] = rpc::members(&PARAMS);
static PARAMS: WatchedMembers = WatchedMembers::new(&[
    WatchedMember::new("name", NAME),
    WatchedMember::new("args", ARGS),
    WatchedMember::new("meta", QUIET + 1).with_members(&META),
    WatchedMember::new("request", REQUEST),
]);
static META: WatchedMembers =
    WatchedMembers::new(&[WatchedMember::new("token", TOKEN), WatchedMember::new("quiet", QUIET)]);

static BELL_FORMAT: ReplyFormat = ReplyFormat {
    head: rpc::write_head,
    success: b",\"result\":{",
    outputs: OutputsPlace { start: b"\"structured\":{", end: b"}", as_strings: false },
    message: MessagePlace {
        after_outputs: b"},\"content\":[\"",
        alone: b"\"content\":[\"",
        end: b"\"",
        is_beside_outputs: false,
    },
    content: None,
    failed: None,
    error: |out, _, _| out.raw(b",\"result\":{\"content\":[\""),
    error_end: |out, _| out.raw(b"\"],\"failed\":true"),
    parse_error: b",\"error\":{\"code\":-32700,\"message\":\"",
    close: |out, closing: &ReplyFacts<'_>| {
        let (start, end) = closing.outputs;
        if closing.error.is_none() {
            out.raw(if closing.has_message { b",\"{" } else { b"\"content\":[\"{" });
            out.repeat(start, end, true);
            out.raw(b"}\"],\"rung\":");
            out.raw(closing.received.map_or(b"", |received| received.member(NAME)));
        }
        out.raw(b",\"by\":");
        out.str(closing.manifest.name);
        out.raw(b"}}");
    },
    logs: Logs::Line(|out, log: &Log<'_>| {
        if log.received.is_some_and(|received| !received.has(QUIET)) {
            out.raw(b"{\"log\":\"");
            log.message.write_escaped(out);
            out.raw(b"\"}");
        }
    }),
    progress: Some(|out, progress: &Progress<'_>| {
        let Some(token) = progress.received.map(|received| received.member(TOKEN)).filter(|token| !token.is_empty())
        else {
            return false;
        };
        out.raw(b"{\"progress\":");
        out.raw(token);
        out.raw(b",\"done\":");
        out.u32(progress.done);
        out.byte(b'}');
        true
    }),
};

fn read(received: &Received<'_>, server: &ServerState<'_>) -> Result<Action, &'static Refusal> {
    const UNKNOWN: &Refusal = &Refusal::quoting(Code::Number(-32602), "no bell called ", NAME);
    const NO_METHOD: &Refusal = &Refusal::new(Code::Number(-32601), "method", "unknown");
    if received.is(rpc::METHOD, "bell/ring") {
        let known = server.manifest.operations.iter().position(|known| received.is(NAME, known.name)).ok_or(UNKNOWN)?;
        return Ok(CallAction::new(received, known, received.span(ARGS), received.span(rpc::JSONRPC)).into());
    }
    if received.is(rpc::METHOD, "bell/list") || received.is(rpc::METHOD, "status") {
        return Ok(Action::Answer(|out, _, server| {
            out.raw(b",\"result\":[");
            out.str(server.manifest.name);
            out.raw(b"]}");
        }));
    }
    if received.is(rpc::METHOD, "bell/cancel") || received.is(rpc::METHOD, "bell/hello") {
        return Ok(Action::Ignore);
    }
    Err(NO_METHOD)
}

fn ring(id: &str, name: &str, more: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"bell/ring","params":{{"name":"{name}","args":{{"name":"\u0061\"b"}}{more}}}}}"#
    )
}

#[test]
fn replies_progress_and_logs_are_laid_out_by_the_protocol() {
    let protocols = &[GEVALS, &BELL, AMPLIFIER];
    let measured = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"structured":{{"name":"a\"b","volts":3}},"content":["measured","{{\"name\":\"a\\\"b\",\"volts\":3}}"],"rung":"measure","by":"rig"}}}}"#
        )
    };
    with_a_board(Rig::new(), protocols, |say| {
        let progress = r#"{"progress":"t\u0031","done":1}"#.to_owned();
        assert_eq!(
            say(&ring(r#""x\u0031""#, "measure", r#","meta":{"token":"t\u0031"}"#)),
            [progress, measured(r#""x\u0031""#)]
        );
        assert_eq!(say(&ring("2", "measure", "")), [measured("2")]);
        assert_eq!(
            say(&ring("3", "fail", "")),
            [r#"{"jsonrpc":"2.0","id":3,"result":{"content":["no a\"b"],"failed":true,"by":"rig"}}"#]
        );
        assert_eq!(
            say(&ring("4", "nope", "")),
            [r#"{"jsonrpc":"2.0","id":4,"error":{"code":-32602,"message":"no bell called nope"}}"#]
        );
        // Its neighbour is still there, and says so in its own words.
        let status = r#"{"jsonrpc":"2.0","id":5,"method":"status"}"#;
        assert_eq!(say(status), [r#"{"jsonrpc":"2.0","id":5,"result":["rig"]}"#]);
        let end = r#"{"jsonrpc":"2.0","id":6,"method":"shutdown"}"#;
        assert_eq!(say(end), [r#"{"jsonrpc":"2.0","id":6,"result":{}}"#]);
        assert!(say(status)[0].contains("-32600"), "gevals has the word after its own message");
    });
}

#[test]
fn a_protocol_decides_which_lines_wait_for_a_call() {
    let rig = Rig::new();
    let (gate, made_safe) = (rig.gate.clone(), rig.made_safe.clone());
    with_a_board(rig, &[&BELL, GEVALS], |say| {
        let list = r#"{"jsonrpc":"2.0","id":"l","method":"bell/list"}"#;
        let listed = r#"{"jsonrpc":"2.0","id":"l","result":["rig"]}"#;
        let cancel = |id: &str| format!(r#"{{"jsonrpc":"2.0","method":"bell/cancel","params":{{"request":{id}}}}}"#);
        assert_eq!(say(&ring("1", "wait", "")), [""; 0]);
        assert_eq!(say(list), [listed]);
        let unknown = r#"{"jsonrpc":"2.0","id":9,"method":"bell/nope"}"#;
        let refused = r#"{"jsonrpc":"2.0","id":9,"error":{"code":-32601,"message":"method: unknown"}}"#;
        assert_eq!(say(unknown), [refused]);
        // A notification is taken, and another call waits its turn.
        assert_eq!(say(r#"{"jsonrpc":"2.0","method":"bell/hello"}"#), [""; 0]);
        assert_eq!(
            say(&[ring("2", "wait", ""), ring("3", "measure", ""), ring(r#""3""#, "fail", "")].join("\n")),
            [""; 0]
        );
        // One that waits its turn is forgotten; ids are compared as they were sent.
        assert_eq!(say(&[cancel("3"), cancel("77")].join("\n")), [""; 0]);
        assert_eq!(made_safe.get(), 0);
        // The call that is out ends at once, without a reply, and the next one has its turn.
        assert_eq!(say(&cancel("1")), [""; 0]);
        assert_eq!(made_safe.get(), 1);
        assert_eq!(say(list), [listed]);
        gate.set(true);
        let answers = say(&ring("4", "wait", ""));
        let ids: Vec<&str> = answers.iter().map(|line| &line[..24]).collect();
        assert_eq!(
            ids,
            [r#"{"jsonrpc":"2.0","id":2,"#, r#"{"jsonrpc":"2.0","id":"3"#, r#"{"jsonrpc":"2.0","id":4,"#],
            "{answers:#?}"
        );
        // What was answered already is not there to be cancelled, and nothing is said about it.
        assert_eq!(say(&cancel("4")), [""; 0]);
        assert_eq!(made_safe.get(), 1);
        assert_eq!(say(list), [listed]);
    });
}

/// The failure kinds and the error for what does not fit have a form in every protocol.
#[test]
fn a_reply_that_does_not_fit_is_an_error_of_the_protocol() {
    let (mut request, mut reply, mut log) = ([0; 2048], [0; 600], [0; 256]);
    let mut rig = Rig::new();
    let memory = Memory { request: &mut request, reply: &mut reply };
    let mut engine = Engine::with_protocols(rig.manifest(), memory, const { &[&PING_PONG] }).unwrap();
    let line = format!("{{\"ping\":\"measure\",\"with\":{{\"name\":\"{}\"}}}}\n", "x".repeat(700));
    let mut pipe = Pipe::new(line.as_bytes());
    blocking::Server::new(&mut rig, &mut engine, &NoTime).log_buffer(&mut log).serve(&mut pipe).unwrap();
    let answer = String::from_utf8(pipe.output).unwrap();
    assert!(answer.starts_with(r#"{"pang":"reply too large: it needs at least 72"#), "{answer}");
    assert!(answer.ends_with("bytes, the limit is 599\"}\n"), "{answer}");
}
