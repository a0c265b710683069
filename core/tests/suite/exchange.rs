//! Whole messages: what a server has of them that no stream of lines has, and the two notions that
//! any protocol may use: operations that are acknowledged before they run, and own work that is due
//! between messages.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::common::{MANIFEST, NoTime, PLAIN, Pipe, Setup, WATCHED, execute, execute_in, request};
use rigline::engine::{Engine, Memory};
use rigline::exchange::{Ahead, Exchange, Next, Served, Session};
use rigline::frame::TooLong;
use rigline::json::write::{Message, Writer};
use rigline::json::{Json, Text};
use rigline::serve::{Transport, blocking};
use rigline::service::{Job, JobRun, Service, Step, TaskEnd};
use rigline::{Call, Context, Extension, Failure, FailureKind, Level, Manifest, Operation, Outcome, Schema};
use rigline::{
    json::check::WatchedMember,
    protocol::{
        self, AMPLIFIER, Action, CallAction, Code, GEVALS, Logs, MCP, MessagePlace, OutputsPlace, Protocol, Refusal,
        ReplyFormat,
    },
};

const fn is_send<T: Send + 'static>() {}

#[test]
fn a_session_and_an_exchange_wait_on_any_thread() {
    const { is_send::<Session>() }
    const { is_send::<Exchange>() }
    assert!(size_of::<Session>() <= 32);
}

#[test]
fn requests_of_one_client_wait_beside_each_other_and_end_in_any_order() {
    let to = Served::new(&MANIFEST, protocol::ALL, (4096, 4096)).unwrap();
    let mut session = Session::new(&to);
    let mut out = [0; 1000];
    // The same id twice: nothing is looked up by it.
    let mut waiting: Vec<(Vec<u8>, Exchange)> = ["one", "two"]
        .map(|text| {
            let message = execute("7", "say", &format!(r#"{{"text":"{text}"}}"#)).into_bytes();
            let mut exchange = Exchange::new(&to);
            assert_eq!(session.receive(&to, &message, &mut out, &mut exchange), Next::Run { owes_reply: true });
            (message, exchange)
        })
        .into();
    waiting.reverse();
    // Another memory than the one they were received with.
    let mut other = vec![0; 700];
    for ((mut message, mut exchange), text) in waiting.into_iter().zip(["two", "one"]) {
        assert_eq!(exchange.id(&message), b"7");
        assert_eq!(exchange.operation(), Some(0));
        let mut rig = crate::common::Rig::default();
        let end = crate::common::finish(&mut rig, &to, &mut session, &mut message, &mut other, &mut exchange);
        let Next::Reply(length) = end else { panic!("{end:?}") };
        let reply = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"success":true,"message":"{text}"}}}}"#);
        assert_eq!(str::from_utf8(&other[..length]).unwrap(), reply);
    }
}

#[test]
fn what_needs_no_extension_is_answered_while_a_call_is_out() {
    let to = Served::new(&MANIFEST, &[GEVALS, MCP], (4096, 4096)).unwrap();
    let mut session = Session::new(&to);
    let mut out = [0; 1000];
    let ping = request("1", "ping");
    assert_eq!(session.look_ahead(&to, ping.as_bytes(), &mut out, b"5"), Ahead::Reply(36));
    assert_eq!(&out[..36], br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    let cancel =
        |id: &str| format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
    assert_eq!(session.look_ahead(&to, cancel("5").as_bytes(), &mut out, b"5"), Ahead::Cancel);
    let other = cancel("\"5\"");
    let Ahead::Forget(span) = session.look_ahead(&to, other.as_bytes(), &mut out, b"5") else { panic!() };
    assert_eq!(&other[span.range()], "\"5\"");
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say"}}"#;
    assert_eq!(session.look_ahead(&to, call.as_bytes(), &mut out, b"5"), Ahead::Wait);
    // Notifications that ask for nothing, or for what needs an answer only, have nothing to wait for.
    for method in ["notifications/initialized", "ping", "tools/nope", "tools/list"] {
        let note = format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#);
        assert_eq!(session.look_ahead(&to, note.as_bytes(), &mut out, b"5"), Ahead::Nothing, "{method}");
    }
}

/// A batch is taken as one of JSON-RPC where its protocol may be, and so is what comes behind it.
#[test]
fn a_batch_ahead_changes_the_protocol_unless_it_is_pinned() {
    let batch = format!("[{}]", request("1", "ping"));
    for (pinned, fault) in [(None, true), (Some(AMPLIFIER), false), (Some(GEVALS), true)] {
        let mut to = Served::new(&MANIFEST, protocol::ALL, (4096, 4096)).unwrap();
        if let Some(pinned) = pinned {
            to = to.with_protocol(pinned);
        }
        let (mut session, mut out) = (Session::new(&to), [0; 1000]);
        if pinned.is_none() {
            assert_eq!(session.look_ahead(&to, br#"{"op":"say"}"#, &mut out, b"5"), Ahead::Wait);
            assert_eq!(session.look_ahead(&to, b"oops", &mut out, b"5"), Ahead::Wait, "Amplifier has no ids");
        }
        assert_eq!(session.look_ahead(&to, batch.as_bytes(), &mut out, b"5"), Ahead::Wait);
        let next = session.look_ahead(&to, b"oops", &mut out, b"5");
        assert_eq!(matches!(next, Ahead::Reply(_)), fault, "{pinned:?}: {next:?}");
        assert_eq!(next == Ahead::Wait, !fault, "{pinned:?}");
    }
}

/// The line is never cut: its brackets and its end have their places.
#[test]
fn the_reply_to_a_batch_may_fill_the_memory() {
    let call = execute("1", "say", &format!(r#"{{"text":"{}"}}"#, "x".repeat(600)));
    let reply = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"success":true,"message":"{}"}}}}"#, "x".repeat(600));
    let batch = format!("[{call}]\n");
    for (size, is_whole) in [(1, false), (2, false), (3, true), (4, true)] {
        // Two brackets and the newline.
        let served = Setup { reply: reply.len() + size, ..PLAIN }.serve(&batch);
        let lines = served.lines();
        let wanted = format!("[{reply}]");
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0] == wanted, is_whole, "{size}: {}", lines[0]);
        assert!(
            is_whole || lines[0].starts_with(r#"[{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"#),
            "{}",
            lines[0]
        );
        assert!(lines[0].ends_with("}}]"), "{}", lines[0]);
    }
}

#[test]
fn the_time_limit_of_a_call_is_known_before_its_turn() {
    let to = Served::new(&MANIFEST, protocol::ALL, (4096, 4096)).unwrap();
    let limited = execute_in("1", "say", "{}", r#"{"timeout":"2s"}"#);
    let notified = limited.replace(r#""id":1,"#, "");
    for (message, limit) in [
        (limited.as_str(), Some((2_000_000_000, true))),
        (&notified, Some((2_000_000_000, true))),
        (&execute("1", "say", "{}"), None),
        (&limited.replace("say", "nope"), None),
        (&request("1", "shutdown"), None),
        // Amplifier's own limit counts from the call's turn.
        (r#"{"op":"say","args":{}}"#, None),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None),
        ("{oops", None),
    ] {
        assert_eq!(Session::new(&to).limit_ahead(&to, message.as_bytes()), limit, "{message}");
    }
}

#[test]
fn a_request_for_an_operation_that_is_not_known_is_told_from_other_faults() {
    let to = Served::new(&MANIFEST, protocol::ALL, (4096, 4096)).unwrap();
    for (message, is_unknown) in [
        (execute("1", "nope", "{}"), true),
        (execute("1", "say", "{}"), false),
        (request("1", "nope"), false),
        (r#"{"jsonrpc":"2.0","method":"execute","params":{"operation":"nope"}}"#.into(), false),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nope"}}"#.into(), true),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say"}}"#.into(), false),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#.into(), false),
        (r#"{"jsonrpc":"2.0","id":1,"method":"prompts/list"}"#.into(), false),
        (r#"{"op":"nope"}"#.into(), true),
        (r#"{"op":"invoke","args":{"op":"nope"}}"#.into(), true),
        (r#"{"op":"health"}"#.into(), false),
        (r#"{"op":5}"#.into(), false),
        (r#"{"protocol_version":1,"tool":"nope","payload":{}}"#.into(), true),
        (r#"{"protocol_version":2,"tool":"nope","payload":{}}"#.into(), false),
        (r#"{"ok":true}"#.into(), false),
        ("{oops".to_owned(), false),
    ] {
        let session = Session::new(&to);
        assert_eq!(session.asks_for_unknown_operation(&to, message.as_bytes()), is_unknown, "{message}");
    }
}

#[test]
fn a_subscription_stays_open_and_other_requests_do_not() {
    let to = Served::new(&MANIFEST, &[MCP], (4096, 4096)).unwrap();
    let mut out = [0; 1000];
    let listen = r#"{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let mut receive =
        |message: &str| Session::new(&to).receive(&to, message.as_bytes(), &mut out, &mut Exchange::new(&to));
    assert!(matches!(receive(listen), Next::StaysOpen(_)));
    // In a batch, whose line is one reply, nothing can stay open. The memory is as an earlier reply has left it.
    for (batch, count) in [(format!("[{listen}]"), 1), (format!("[{},{listen},{listen}]", request("1", "ping")), 3)] {
        for left in [0, b'{', b'['] {
            let mut out = [left; 1000];
            let next = Session::new(&to).receive(&to, batch.as_bytes(), &mut out, &mut Exchange::new(&to));
            let Next::Reply(length) = next else { panic!("{next:?}") };
            let replies: Vec<serde_json::Value> = serde_json::from_slice(&out[..length]).unwrap();
            assert_eq!(replies.len(), count);
            let last = replies.last().unwrap();
            assert_eq!((last["id"].as_str(), last["error"]["code"].as_i64()), (Some("s"), Some(-32600)), "{last}");
        }
    }
    assert!(matches!(receive(&format!("{listen} x")), Next::Reply(_)), "not JSON to its end");
    assert!(matches!(receive(&request("1", "ping")), Next::Reply(_)));
}

#[test]
fn a_shutdown_ends_the_session_once_its_acknowledgement_is_out() {
    let to = Served::new(&MANIFEST, protocol::ALL, (4096, 4096)).unwrap();
    let (mut session, mut exchange) = (Session::new(&to), Exchange::new(&to));
    let mut out = [0; 1000];
    let mut receive = |session: &mut Session, message: &str| {
        let next = session.receive(&to, message.as_bytes(), &mut out, &mut exchange);
        (next, session.is_open(), session.has_ended())
    };
    assert!(matches!(receive(&mut session, crate::common::INITIALIZE), (Next::Reply(_), true, false)));
    let said = receive(&mut session, crate::common::SHUTDOWN);
    assert_eq!(said, (Next::Shutdown(Some(crate::common::SHUT.len())), true, true));
    let next = session.settle(&to, crate::common::SHUTDOWN.as_bytes(), &mut out, &mut exchange);
    assert_eq!((next, session.has_ended(), session.is_open()), (Next::Shutdown(None), true, false));
    assert!(!session.lost(&to) && !session.has_ended());
}

/// Tells whether an output may be on.
struct Asks;

impl Extension for Asks {
    fn manifest(&self) -> &'static Manifest {
        &MANIFEST
    }

    async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let is_on = cx.may_be_on();
        cx.done(if is_on { "on" } else { "off" })
    }
}

#[test]
fn a_handler_sees_what_the_server_knows_of_the_outputs() {
    let to = Served::new(&MANIFEST, protocol::ALL, (4096, 4096)).unwrap();
    for (is_touched, said) in [(true, "\"on\""), (false, "\"off\"")] {
        let (mut session, mut exchange, mut out) = (Session::new(&to), Exchange::new(&to), [0; 1000]);
        let mut message = execute("1", "say", "{}").into_bytes();
        assert_eq!(session.receive(&to, &message, &mut out, &mut exchange), Next::Run { owes_reply: true });
        exchange.set_touched(is_touched);
        let next = crate::common::finish(&mut Asks, &to, &mut session, &mut message, &mut out, &mut exchange);
        let Next::Reply(length) = next else { panic!("{next:?}") };
        assert!(str::from_utf8(&out[..length]).unwrap().contains(said));
    }
}

#[test]
fn work_that_is_not_completed_counts_as_cancelled() {
    let message = execute("1", "say", "{}");
    let to = Served::new(&MANIFEST, protocol::ALL, (4096, 4096)).unwrap();
    let (mut session, mut exchange, mut out) = (Session::new(&to), Exchange::new(&to), [0; 1000]);
    assert_eq!(session.receive(&to, message.as_bytes(), &mut out, &mut exchange), Next::Run { owes_reply: true });
    let next = session.settle(&to, message.as_bytes(), &mut out, &mut exchange);
    let Next::Reply(length) = next else { panic!("{next:?}") };
    let cancelled = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"#;
    assert!(out[..length].starts_with(cancelled), "{}", String::from_utf8_lossy(&out));

    let (mut request, mut reply) = ([0; 1000], [0; 1000]);
    let mut engine = Engine::new(&MANIFEST, Memory { request: &mut request, reply: &mut reply }).unwrap();
    engine.space()[..message.len()].copy_from_slice(message.as_bytes());
    engine.commit(message.len());
    engine.finish();
    assert!(matches!(engine.step(), rigline::engine::Step::Run(_)));
    let rigline::engine::Step::Write(line) = engine.step() else { panic!("no reply") };
    assert!(line.starts_with(cancelled), "{}", String::from_utf8_lossy(line));
}

#[test]
fn every_size_of_the_memory_is_safe() {
    let to = Served::new(&MANIFEST, protocol::ALL, (4096, 4096)).unwrap();
    let batch = format!("[{},{}]", execute("1", "say", "{}"), execute("2", "outputs", "{}"));
    for message in [execute("1", "outputs", "{}"), batch, request("1", "initialize"), "nothing".to_owned()] {
        for size in 0..700 {
            let mut out = vec![0; size];
            let mut message = message.clone().into_bytes();
            let (mut session, mut exchange) = (Session::new(&to), Exchange::new(&to));
            let next = session.receive(&to, &message, &mut out, &mut exchange);
            if let Next::Run { .. } = next {
                let mut rig = crate::common::Rig::default();
                crate::common::finish(&mut rig, &to, &mut session, &mut message, &mut out, &mut exchange);
            }
            let _ = session.too_long(TooLong { limit: 1, dropped: 2 }, &mut out);
        }
    }
}

// A protocol that acknowledges what it starts: `{"start":"OPERATION"}` is answered with
// `{"started":…}` before the operation runs, and `{"now":"OPERATION"}` when it has run. It is over
// no JSON-RPC.
const START: usize = 0;
const NOW: usize = 1;
static MEMBERS: [WatchedMember; 2] = [WatchedMember::new("start", START), WatchedMember::new("now", NOW)];
static FORMAT: ReplyFormat = ReplyFormat {
    head: |out, _| out.byte(b'{'),
    success: b"\"done\":{",
    outputs: OutputsPlace { start: b"", end: b"", as_strings: false },
    message: MessagePlace { after_outputs: b",\"say\":\"", alone: b"\"say\":\"", end: b"\"", is_beside_outputs: false },
    content: None,
    failed: None,
    error: |out, _, _| out.raw(b"\"failed\":{\"say\":\""),
    error_end: |out, _| out.byte(b'"'),
    parse_error: b"\"failed\":{\"say\":\"",
    close: protocol::close_two,
    logs: Logs::Line(|out, log| {
        out.raw(b"{\"log\":\"");
        log.message.write_escaped(out);
        out.raw(b"\"}");
    }),
    progress: None,
};
const UNKNOWN: &Refusal = &Refusal::new(Code::Name("unknown"), "operation", "unknown");
static STARTS: Protocol = Protocol::new(
    "starts",
    &MEMBERS,
    START,
    &FORMAT,
    |received, server| {
        let slot = if received.has(START) { START } else { NOW };
        let known = server.manifest.operations.iter().position(|known| received.is(slot, known.name)).ok_or(UNKNOWN)?;
        let call = CallAction::new(received, known, received.span(PARAMS_ABSENT), received.span(slot));
        let answer = |out: &mut Writer<'_>, received: &protocol::Received<'_>, _: &protocol::ServerState<'_>| {
            out.raw(b"\"started\":");
            out.raw(received.member(START));
            out.byte(b'}');
        };
        Ok(if slot == START { Action::AckThenCall { call, answer } } else { Action::Call(call) })
    },
    |out, received, refusal, _| {
        out.raw(b"\"failed\":{\"say\":\"");
        refusal.write_text(out, received);
        out.raw(b"\"}}");
    },
);
const PARAMS_ABSENT: usize = 5;

/// The work that an operation has left to do later, which is due once nothing else runs.
#[derive(Default)]
struct Later {
    due: Cell<u32>,
    told: RefCell<Vec<String>>,
}

impl Service for Later {
    fn owns(&self, _: Text<'_>) -> bool {
        false
    }

    fn answer(&self, _: Text<'_>, _: Json<'_>, _: &mut Writer<'_>) {}

    fn next_job(&self) -> Option<Job> {
        let number = self.due.get();
        (number > 0).then_some(Job { number, group: 0, tasks: 1 })
    }

    fn is_cancelled(&self, _: Job) -> bool {
        false
    }

    fn advance(&self, job: Job, step: &Step<'_>) {
        self.told.borrow_mut().push(format!("{} {step:?}", job.number));
        if matches!(step, Step::End | Step::Refused) {
            self.due.set(job.number - 1);
        }
    }

    fn report(&self, job: Job, step: &Step<'_>, nth: usize, out: &mut Writer<'_>) -> bool {
        let (Step::TaskEnd(_, TaskEnd::Passed), 0) = (step, nth) else { return false };
        out.raw(b"{\"passed\":");
        out.u32(job.number);
        out.byte(b'}');
        true
    }

    fn write_log(&self, _: Job, _: Level, message: &dyn Message, out: &mut Writer<'_>) {
        out.raw(b"{\"own\":\"");
        message.write_escaped(out);
        out.raw(b"\"}");
    }

    fn disconnected(&self) {
        self.due.set(0);
    }
}

const OPERATIONS: &[Operation] = &[Operation::new("plan", Schema::OBJECT), Operation::new("status", Schema::OBJECT)];
static PLANNER: Manifest = Manifest::new("planner", "1.0.0").operations(OPERATIONS);

struct Planner(Rc<Later>);

impl Extension for Planner {
    fn manifest(&self) -> &'static Manifest {
        &PLANNER
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        if call.operation() == "plan" {
            cx.info("planned");
            cx.output("lost", &true)?;
            self.0.due.set(self.0.due.get() + 1);
        }
        cx.output("due", &self.0.due.get())?;
        Ok(Outcome::DONE)
    }

    async fn run_task(&mut self, _: usize, _: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.info("worked");
        cx.sleep(Duration::ZERO).await;
        Ok(Outcome::DONE)
    }

    async fn run_job<'a>(&mut self, job: JobRun<'a>, cx: &mut Context<'a>) {
        assert_eq!(format!("{job:?}"), format!("{:?}", job.job()));
        job.run(self, cx).await;
    }
}

const ASKED: [&str; 4] =
    [r#"{"now":"status"}"#, r#"{"start":"plan"}"#, r#"{"start":"nothing"}"#, r#"{"now":"status"}"#];
const TOLD: [&str; 7] = [
    r#"{"done":{"due":0}}"#,
    r#"{"started":"plan"}"#,
    r#"{"log":"planned"}"#,
    r#"{"own":"worked"}"#,
    r#"{"passed":1}"#,
    r#"{"failed":{"say":"operation: unknown"}}"#,
    r#"{"done":{"due":0}}"#,
];

#[test]
fn acknowledged_operations_and_own_work_run_on_a_boards_driver() {
    let later = Rc::new(Later::default());
    let (mut request, mut reply, mut log) = ([0; 300], [0; 600], [0; 200]);
    let memory = Memory { request: &mut request, reply: &mut reply };
    let mut engine = Engine::with_protocols(&PLANNER, memory, const { &[&STARTS] }).unwrap().with_service(&*later);
    let mut pipe = Pipe::new(&crate::common::joined(&ASKED));
    blocking::Server::new(&mut Planner(later.clone()), &mut engine, &NoTime)
        .transport(Transport::Stream)
        .log_buffer(&mut log)
        .serve(&mut pipe)
        .unwrap();
    let output = String::from_utf8(pipe.output).unwrap();
    assert_eq!(output.lines().collect::<Vec<_>>(), TOLD);
    assert_eq!(later.told.borrow().len(), 3);
}

#[test]
fn acknowledged_operations_and_own_work_run_by_whole_messages() {
    let later = Rc::new(Later::default());
    let to = Served::new(&PLANNER, const { &[&STARTS] }, (300, 600)).unwrap().with_service(&*later);
    let (mut session, mut exchange) = (Session::new(&to), Exchange::new(&to));
    let (mut planner, mut out, mut lines) = (Planner(later.clone()), [0; 600], Vec::new());
    for message in ASKED {
        let mut message = message.as_bytes().to_vec();
        let mut next = session.receive(&to, &message, &mut out, &mut exchange);
        loop {
            next = match next {
                Next::Nothing => match session.own_work(&to, &mut exchange) {
                    Next::Nothing => break,
                    own => own,
                },
                Next::Run { .. } => {
                    lines.extend(crate::common::run(&mut planner, &to, &mut message, &mut out, &mut exchange));
                    session.settle(&to, &message, &mut out, &mut exchange)
                }
                Next::Reply(length) | Next::ReplyThenRun(length) => {
                    lines.push(String::from_utf8(out[..length].to_vec()).unwrap());
                    session.settle(&to, &message, &mut out, &mut exchange)
                }
                other => panic!("{other:?}"),
            };
        }
    }
    assert_eq!(lines, TOLD);
    assert!(!session.lost(&to));
}

/// A client that lists tools while a call runs gets them at once if they need no pages, and else in
/// their turn.
#[test]
fn a_list_of_tools_is_answered_ahead_only_as_a_whole() {
    const TOOL: Operation =
        Operation::new("tool", Schema::OBJECT).description("One of several tools of this extension");
    const MANIFEST: Manifest = Manifest::new("several", "1.0.0").operations(&[TOOL; 8]);
    const LIST: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let ahead = |room: usize, limit: usize| {
        let to = Served::new(&MANIFEST, protocol::ALL, (4096, limit)).unwrap();
        let mut out = vec![0; room];
        let said = Session::new(&to).look_ahead(&to, LIST, &mut out, b"7");
        (said, out)
    };
    let (Ahead::Reply(length), out) = ahead(8192, 8192) else { panic!("it has room") };
    let text = String::from_utf8_lossy(&out[..length]).into_owned();
    assert_eq!(text.matches("One of several").count(), 8, "{text}");
    assert!(!text.contains("nextCursor"), "{text}");
    // At the limit, and one byte below it.
    assert!(matches!(ahead(length + 1, 8192).0, Ahead::Reply(_)));
    assert_eq!(ahead(length, 8192).0, Ahead::Wait);
    assert!(matches!(ahead(8192, length).0, Ahead::Reply(_)));
    assert_eq!(ahead(8192, length - 1).0, Ahead::Wait);
}

/// A request that waits for its turn: the questions about it, and the decisions for it.
#[test]
fn an_exchange_tells_what_waits_and_may_be_refused() {
    let to = Served::new(&MANIFEST, protocol::ALL, (4096, 3000)).unwrap();
    assert_eq!((to.limits(), to.manifest().name), ((4096, 3000), "test-rig"));
    let (mut session, mut exchange, mut out) = (Session::new(&to), Exchange::new(&to), [0; 2000]);
    let mut message = execute_in("\"a\"", "work", "{}", r#"{"timeout":"2s"}"#).into_bytes();
    // A byte-order mark belongs to no message.
    message.splice(0..0, *b"\xEF\xBB\xBF");
    assert_eq!(session.receive(&to, &message, &mut out, &mut exchange), Next::Run { owes_reply: true });
    assert_eq!((exchange.id(&message), exchange.operation()), (&b"\"a\""[..], Some(1)));
    assert_eq!(exchange.timeout_nanos(), Some(2_000_000_000));
    for (set, limit) in [(0, 1), (1, 1), (5_000, 5_000)] {
        exchange.set_timeout_nanos(set);
        assert_eq!(exchange.timeout_nanos(), Some(limit));
    }
    let running = exchange.run(&to, &mut message, &mut out).unwrap();
    assert_eq!(running.work.timeout_nanos(), Some(5_000));

    assert!(matches!(session.receive(&to, &message, &mut out, &mut exchange), Next::Run { .. }));
    exchange.refuse(&to, &mut message, &mut out, FailureKind::Timeout, &"it waited too long");
    let Next::Reply(length) = session.settle(&to, &message, &mut out, &mut exchange) else { panic!() };
    assert_eq!(
        str::from_utf8(&out[..length]).unwrap(),
        r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32001,"message":"it waited too long"}}"#
    );
    // Nothing waits any more.
    exchange.refuse(&to, &mut message, &mut out, FailureKind::Timeout, &"it waited too long");
    assert_eq!(session.settle(&to, &message, &mut out, &mut exchange), Next::Nothing);

    let plain = execute("7", "outputs", "{}").into_bytes();
    session.receive(&to, &plain, &mut out, &mut exchange);
    assert_eq!((exchange.operation(), exchange.timeout_nanos()), (Some(2), None));
    let opens = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1","config":{"rail":"3V3"}}}"#;
    assert_eq!(session.receive(&to, opens, &mut out, &mut exchange), Next::Run { owes_reply: true });
    assert_eq!(exchange.operation(), None);

    let watched = Served::new(&WATCHED, protocol::ALL, (4096, 4096)).unwrap();
    for (operation, can_change) in [("work", true), ("watch", false)] {
        let (mut session, message) = (Session::new(&watched), execute("1", operation, "{}").into_bytes());
        assert!(!session.is_touched());
        session.receive(&watched, &message, &mut out, &mut exchange);
        assert_eq!((exchange.can_change(&watched), session.is_touched()), (can_change, can_change), "{operation}");
    }
}

/// A server whose extension is gone answers requests itself, and nothing else.
#[test]
fn a_request_is_refused_in_its_protocol() {
    let to = Served::new(&MANIFEST, protocol::ALL, (4096, 4096)).unwrap();
    let mut session = Session::new(&to);
    let mut refuse = |message: &str| {
        let mut out = [0; 1000];
        let why = (FailureKind::Unreachable, -32050);
        let length = session.refuse(&to, message.as_bytes(), &mut out, why, &"the board is gone")?;
        Some(String::from_utf8(out[..length].to_vec()).unwrap())
    };
    let say = execute("5", "say", "{}");
    let refused = r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32050,"message":"the board is gone"}}"#;
    assert_eq!(refuse(&say).as_deref(), Some(refused));
    assert_eq!(refuse(&say.replace(r#""id":5,"#, "")).as_deref(), Some(""));
    for none in ["{", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, &format!(" [{say}]"), r#"{"jsonrpc":"2.0","id":1}"#] {
        assert_eq!(refuse(none), None, "{none}");
    }
    let refused: serde_json::Value = serde_json::from_str(&refuse(r#"{"op":"say","id":3}"#).unwrap()).unwrap();
    assert_eq!((&refused["ok"], &refused["error"]["message"]), (&false.into(), &"the board is gone".into()));
}

/// A reply says once that the outputs were switched off; one that has no place for it leaves that to the next.
#[test]
fn a_notice_is_given_by_the_first_reply_that_has_a_place_for_it() {
    let call = |id: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"work"}}}}"#).into_bytes()
    };
    let to = Served::new(&WATCHED, &[MCP], (4096, 4096)).unwrap();
    let done: Result<Outcome, Failure> = Ok(Outcome::message("worked"));
    let failed: Result<Outcome, Failure> = Err(Failure::new(FailureKind::Failed, "broken"));
    // An error of JSON-RPC, which has no outputs.
    let error: Result<Outcome, Failure> = Err(Failure::new(FailureKind::UnknownOperation, "gone"));
    for (id, is_set, result, is_given) in [
        ("1", true, &done, true),
        ("1", false, &done, false),
        ("1", true, &failed, true),
        ("1", false, &failed, false),
        ("1", true, &error, false),
    ] {
        let (mut session, mut exchange, mut out) = (Session::new(&to), Exchange::new(&to), [0; 2000]);
        let mut message = call(id);
        session.receive(&to, &message, &mut out, &mut exchange);
        if is_set {
            exchange.set_notice();
        }
        assert!(exchange.run(&to, &mut message, &mut out).is_some());
        exchange.complete(&to, &message, &mut out, result);
        assert_eq!(exchange.has_given_notice(), is_given, "{id} {is_set} {result:?}");
        let text = match session.settle(&to, &message, &mut out, &mut exchange) {
            Next::Reply(length) => str::from_utf8(&out[..length]).unwrap().to_owned(),
            next => format!("{next:?}"),
        };
        assert_eq!(text.contains("outputs_switched_off"), is_given, "{text}");
    }
    // A notification has no reply.
    let other = Served::new(&WATCHED, &[GEVALS], (4096, 4096)).unwrap();
    let (mut session, mut exchange, mut out) = (Session::new(&other), Exchange::new(&other), [0; 2000]);
    let mut message = execute("1", "work", "{}").replace(r#""id":1,"#, "").into_bytes();
    assert_eq!(session.receive(&other, &message, &mut out, &mut exchange), Next::Run { owes_reply: false });
    exchange.set_notice();
    assert!(exchange.run(&other, &mut message, &mut out).is_some());
    exchange.complete(&other, &message, &mut out, &done);
    assert!(!exchange.has_given_notice());
    // The session remembers it.
    let (mut session, mut exchange, mut out) = (Session::new(&to), Exchange::new(&to), [0; 2000]);
    session.note_made_safe();
    for (result, is_given) in [(&error, false), (&done, true), (&done, false)] {
        let mut message = call("3");
        session.receive(&to, &message, &mut out, &mut exchange);
        exchange.run(&to, &mut message, &mut out);
        exchange.complete(&to, &message, &mut out, result);
        let Next::Reply(length) = session.settle(&to, &message, &mut out, &mut exchange) else { panic!() };
        assert_eq!(str::from_utf8(&out[..length]).unwrap().contains("outputs_switched_off"), is_given);
    }
    assert!(session.is_touched());
    session.note_made_safe();
    assert!(!session.is_touched());
    // The acknowledgement before the work has no place for it.
    let to = Served::new(&PLANNER, const { &[&STARTS] }, (300, 600)).unwrap();
    for (message, is_given) in [(r#"{"start":"plan"}"#, false), (r#"{"now":"plan"}"#, true)] {
        let (mut session, mut exchange) = (Session::new(&to), Exchange::new(&to));
        let mut message = message.as_bytes().to_vec();
        let next = session.receive(&to, &message, &mut out, &mut exchange);
        if let Next::ReplyThenRun(_) = next {
            session.settle(&to, &message, &mut out, &mut exchange);
        }
        exchange.set_notice();
        assert!(exchange.run(&to, &mut message, &mut out).is_some(), "{next:?}");
        exchange.complete(&to, &message, &mut out, &done);
        assert_eq!(exchange.has_given_notice(), is_given, "{next:?}");
    }
}

/// The messages of a server on a connection's behalf: faults that it finds itself, and warnings.
#[test]
fn a_session_writes_faults_and_warnings_in_its_protocol() {
    let parse = |out: &[u8], length: usize| serde_json::from_slice::<serde_json::Value>(&out[..length]).unwrap();
    let mut out = [0; 1000];
    let to = Served::new(&WATCHED, protocol::ALL, (4096, 4096)).unwrap();
    let mut session = Session::new(&to);
    let length = session.too_long(TooLong { limit: 10, dropped: 20 }, &mut out);
    let fault = parse(&out, length);
    assert_eq!(fault["error"]["code"], -32700);
    let text = fault["error"]["message"].as_str().unwrap();
    assert!(text.contains("20") && text.contains("10"), "{text}");
    let error = rigline::json::check::check(b"[1,]").unwrap_err();
    let length = session.unreadable(error, &mut out);
    let fault = parse(&out, length);
    assert_eq!(fault["error"]["code"], -32700);
    assert!(fault["error"]["message"].as_str().unwrap().ends_with("at byte 3"), "{fault}");
    let length = session.write_warning(&"the wire is long", &mut out);
    let warning = parse(&out, length);
    assert_eq!(
        (&warning["params"]["level"], &warning["params"]["message"]),
        (&"warn".into(), &"the wire is long".into())
    );
    assert_eq!(session.write_warning(&"the wire is long", &mut out[..length]), length);
    assert_eq!(session.write_warning(&"the wire is long", &mut out[..length - 1]), 0, "it is whole or absent");
    let length = session.write_made_safe(&mut out);
    assert!(parse(&out, length)["params"]["message"].as_str().unwrap().contains("outputs are off"));
    // A client of MCP may want no warnings.
    let mut exchange = Exchange::new(&to);
    for (level, wants) in [("warning", true), ("error", false), ("debug", true)] {
        let message =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{{"level":"{level}"}}}}"#);
        assert!(matches!(session.receive(&to, message.as_bytes(), &mut out, &mut exchange), Next::Reply(_)));
        assert_eq!(session.wants_warnings(), wants, "{level}");
        assert_eq!(session.write_made_safe(&mut out) > 0, wants, "{level}");
    }
    // Amplifier has no lines for them.
    let to = Served::new(&WATCHED, &[AMPLIFIER], (4096, 4096)).unwrap();
    assert_eq!(Session::new(&to).write_made_safe(&mut out), 0);
    assert!(!to.is_own_work_due());
}

#[test]
fn the_limits_of_an_engine_are_those_of_its_memory_and_its_hosts() {
    use rigline::engine::TooSmall;
    use rigline::exchange::LEAST_REPLY;
    let limits = |request: usize, reply: usize, host: Option<usize>| {
        let (mut request, mut reply) = (vec![0; request], vec![0; reply]);
        let memory = Memory { request: &mut request, reply: &mut reply };
        let engine = Engine::new(&MANIFEST, memory)?;
        Ok(match host {
            Some(bytes) => engine.with_host_line_limit(bytes).limits(),
            None => engine.limits(),
        })
    };
    assert_eq!(limits(0, 4096, None), Err(TooSmall::Request));
    assert_eq!(limits(1, LEAST_REPLY - 1, None), Err(TooSmall::Reply { size: LEAST_REPLY - 1 }));
    assert_eq!(limits(1, LEAST_REPLY, None), Ok((0, LEAST_REPLY - 1)));
    assert_eq!(limits(100, 4096, None), Ok((99, 4095)));
    for (host, limit) in [(0, LEAST_REPLY - 1), (LEAST_REPLY, LEAST_REPLY), (1000, 1000), (4095, 4095), (9999, 4095)] {
        assert_eq!(limits(100, 4096, Some(host)), Ok((99, limit)), "{host}");
    }
    let (mut request, mut reply) = ([0; 10], [0; 4096]);
    let memory = Memory { request: &mut request, reply: &mut reply };
    assert_eq!(Engine::with_protocols(&MANIFEST, memory, &[]).err(), Some(TooSmall::Protocols));
}
