//! An extension's own evals over the async driver: runs go on while requests are answered.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll, Waker};

use crate::common::NoTime;
use crate::common::asynch::Wire;
use rigline::engine::{Engine, Memory};
use rigline::protocol::waza::{BoardEval, BoardTask, Evals};
use rigline::serve::Transport;
use rigline::serve::asynch::Server;
use rigline::service::JobRun;
use rigline::{Call, Context, Extension, Failure, FailureKind, Manifest, Operation, Outcome, Schema};

const EVALS: &[BoardEval] = &[BoardEval::new(
    "self-test",
    "rig",
    "1.0.0",
    &[
        BoardTask::new("rails", "Rails", "Rails are off at the start"),
        BoardTask::new("boot", "Boot", "The board boots"),
    ],
)];

/// Its second task waits at a gate.
struct Rig {
    gate: Rc<Cell<bool>>,
    made_safe: Rc<Cell<u32>>,
}

impl Extension for Rig {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("rig", "1.0.0").operations(&[Operation::new("ping", Schema::OBJECT)]);
        &MANIFEST
    }

    async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.done("pong")
    }

    async fn run_job<'a>(&mut self, job: JobRun<'a>, cx: &mut Context<'a>) {
        job.run(self, cx).await;
    }

    async fn run_task(&mut self, _: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.info(format_args!("task {task}"));
        if task == 0 {
            return Err(cx.failure(FailureKind::Failed, "3V3 is at 3.3 V"));
        }
        poll_fn(|_| if self.gate.get() { Poll::Ready(()) } else { Poll::Pending }).await;
        Ok(Outcome::DONE)
    }

    async fn safe_state(&mut self) {
        self.made_safe.set(self.made_safe.get() + 1);
    }
}

/// Runs `client` against a board; what it says is answered until nothing more happens.
fn with_a_board(
    gate: &Rc<Cell<bool>>,
    made_safe: &Rc<Cell<u32>>,
    client: impl FnOnce(&mut dyn FnMut(&str) -> Vec<String>),
) {
    with_a_board_that_logs(&mut [0; 1200], gate, made_safe, client);
}

/// The same with this memory for logs.
fn with_a_board_that_logs(
    log: &mut [u8],
    gate: &Rc<Cell<bool>>,
    made_safe: &Rc<Cell<u32>>,
    client: impl FnOnce(&mut dyn FnMut(&str) -> Vec<String>),
) {
    let (to_board, to_client) = (Wire::default(), Wire::default());
    let (mut reader, mut writer) = (to_board.clone(), to_client.clone());
    let mut board = pin!(async {
        let (mut request, mut reply) = ([0; 1024], [0; 1024]);
        let mut rig = Rig { gate: gate.clone(), made_safe: made_safe.clone() };
        let memory = Memory { request: &mut request, reply: &mut reply };
        let evals = Evals::new(EVALS);
        let mut engine = Engine::new(rig.manifest(), memory).unwrap().with_service(&evals);
        Server::new(&mut rig, &mut engine, &NoTime)
            .transport(Transport::Stream)
            .log_buffer(log)
            .serve(&mut reader, &mut writer)
            .await
    });
    client(&mut |lines| {
        to_board.0.borrow_mut().extend(lines.bytes());
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

fn request(id: u32, method: &str, params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n")
}

#[test]
fn a_run_goes_on_while_requests_are_answered() {
    let (gate, made_safe) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    with_a_board(&gate, &made_safe, |say| {
        assert_eq!(
            say(&request(1, "eval.list", "{}")),
            [
                r#"{"jsonrpc":"2.0","id":1,"result":{"evals":[{"path":"self-test","name":"self-test","skill":"rig","version":"1.0.0"}]}}"#
            ]
        );
        let lines = say(&request(2, "eval.run", r#"{"path":"self-test"}"#));
        let progress = |rest: &str| {
            format!(r#"{{"jsonrpc":"2.0","method":"eval.progress","params":{{"runId":"1","event":{rest}}}}}"#)
        };
        assert_eq!(
            lines,
            [
                r#"{"jsonrpc":"2.0","id":2,"result":{"runId":"1","status":"running"}}"#.to_owned(),
                progress(r#""run_start","totalTasks":2"#),
                progress(r#""task_start","taskName":"rails","taskNum":1,"totalTasks":2"#),
                progress(r#""trial_start","taskName":"rails","taskNum":1,"totalTasks":2,"trialNum":1,"totalTrials":1"#),
                r#"{"jsonrpc":"2.0","method":"eval.log","params":{"runId":"1","level":"info","message":"task 0"}}"#.to_owned(),
                r#"{"jsonrpc":"2.0","method":"eval.log","params":{"runId":"1","level":"error","message":"3V3 is at 3.3 V"}}"#.to_owned(),
                progress(r#""trial_complete","taskName":"rails","taskNum":1,"totalTasks":2,"trialNum":1,"totalTrials":1,"status":"failed""#),
                progress(r#""task_complete","taskName":"rails","taskNum":1,"totalTasks":2,"status":"failed""#),
                progress(r#""task_start","taskName":"boot","taskNum":2,"totalTasks":2"#),
                progress(r#""trial_start","taskName":"boot","taskNum":2,"totalTasks":2,"trialNum":1,"totalTrials":1"#),
                r#"{"jsonrpc":"2.0","method":"eval.log","params":{"runId":"1","level":"info","message":"task 1"}}"#.to_owned(),
            ]
        );
        assert_eq!(
            say(&request(3, "run.status", r#"{"run_id":"1"}"#)),
            [r#"{"jsonrpc":"2.0","id":3,"result":{"runId":"1","status":"running","result":null,"error":null}}"#]
        );
        let call = r#"{"operation":"ping","context":{}}"#;
        assert!(say(&request(4, "execute", call)).is_empty(), "a call waits its turn");
        gate.set(true);
        let lines = say("");
        assert_eq!(
            lines[lines.len() - 2..],
            [
                r#"{"jsonrpc":"2.0","method":"eval.complete","params":{"runId":"1","summary":{"total":2,"passed":1,"failed":1,"passRate":0.500}}}"#,
                r#"{"jsonrpc":"2.0","id":4,"result":{"success":true,"message":"pong"}}"#
            ]
        );
        assert_eq!(
            say(&request(5, "run.cancel", r#"{"runId":"1"}"#)),
            [r#"{"jsonrpc":"2.0","id":5,"result":{"runId":"1","status":"completed"}}"#],
            "what has ended keeps its state"
        );
    });
    assert_eq!(made_safe.get(), 0);
}

/// How a run goes on, from its first notification to its last, with so many bytes for each line that waits.
fn progress_with(room: usize) -> Vec<String> {
    let mut found = Vec::new();
    let (gate, made_safe) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(0)));
    with_a_board_that_logs(&mut vec![0; 2 * room], &gate, &made_safe, |say| {
        let lines = say(&request(1, "eval.run", r#"{"path":"self-test"}"#));
        found.extend(
            lines.into_iter().filter(|line| line.contains("\"eval.progress\"") || line.contains("\"eval.complete\"")),
        );
    });
    found
}

/// A service's notification waits for the lines before it, and is dropped only if there will never be room for it.
#[test]
fn a_notification_waits_for_room_unless_there_is_never_enough() {
    let all = progress_with(600);
    assert_eq!(all.len(), 11, "{all:?}");
    let lengths = all.iter().map(String::len);
    for room in lengths.clone().min().unwrap() - 2..lengths.max().unwrap() + 3 {
        let fitting: Vec<_> = all.iter().filter(|line| line.len() < room).cloned().collect();
        assert_eq!(progress_with(room), fitting, "{room}");
    }
}

#[test]
fn a_run_is_cancelled_in_the_middle_of_a_task() {
    let (gate, made_safe) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    with_a_board(&gate, &made_safe, |say| {
        say(&request(1, "eval.run", r#"{"path":"self-test"}"#));
        assert!(
            say(&request(2, "eval.run", r#"{"path":"self-test"}"#))[0].contains(r#""runId":"2""#),
            "it waits its turn"
        );
        let lines = say(&request(3, "run.cancel", r#"{"runId":"1"}"#));
        assert_eq!(lines[0], r#"{"jsonrpc":"2.0","id":3,"result":{"runId":"1","status":"cancelled"}}"#);
        assert!(
            lines
                .iter()
                .any(|line| line.contains(r#""eval.complete","params":{"runId":"1","error":"the run was cancelled"}"#))
        );
        assert!(lines.iter().any(|line| line.contains(r#""runId":"2","event":"run_start""#)), "the next has its turn");
        assert!(say(&request(4, "run.status", r#"{"runId":"1"}"#))[0].contains(r#""status":"cancelled""#));
    });
    assert_eq!(made_safe.get(), 1);
}

fn notification(method: &str, params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{params}}}\n")
}

/// JSON-RPC 2.0 §4.1: a notification gets no answer, and is carried out as a request is, also while
/// a run is out.
#[test]
fn a_notification_to_a_service_is_carried_out() {
    let (gate, made_safe) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    with_a_board(&gate, &made_safe, |say| {
        let lines = say(&notification("eval.run", r#"{"path":"self-test"}"#));
        assert!(lines[0].contains(r#""runId":"1","event":"run_start""#), "{lines:?}");
        assert_eq!(say(&notification("run.status", r#"{"runId":"1"}"#)), [""; 0]);
        assert_eq!(say(&notification("run.nope", "{}")), [""; 0]);
        let lines = say(&notification("run.cancel", r#"{"runId":"1"}"#));
        assert!(lines.last().unwrap().contains(r#""error":"the run was cancelled""#), "{lines:?}");
        let batch = notification("eval.run", r#"{"path":"self-test"}"#);
        let lines = say(&format!("[{}]\n", batch.trim_end()));
        assert!(lines[0].contains(r#""runId":"2","event":"run_start""#), "{lines:?}");
    });
    assert_eq!(made_safe.get(), 1);
}

#[test]
fn what_is_wrong_is_told() {
    let (gate, made_safe) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(0)));
    with_a_board(&gate, &made_safe, |say| {
        for (method, params, code) in [
            ("eval.get", r#"{"path":"nope"}"#, -32000),
            ("eval.run", r#"{"path":"nope"}"#, -32000),
            ("eval.run", r#"{"path":"self-test","executor":"nope"}"#, -32602),
            ("eval.run", "[]", -32602),
            ("eval.run", r#"["self-test"]"#, -32602),
            ("task.get", r#"{"path":"self-test","taskId":"nope"}"#, -32602),
            ("run.status", r#"{"runId":"7"}"#, -32602),
            ("run.nope", "{}", -32601),
        ] {
            let lines = say(&request(1, method, params));
            assert!(lines.len() == 1 && lines[0].contains(&format!("\"code\":{code}")), "{method} {params}: {lines:?}");
        }
    });
}

/// A board whose evals and tasks are many, and whose first task fails without a word.
struct Many;

const TASK: BoardTask = BoardTask::new("t", "T", "A task");
const MANY: &[BoardEval] = &[BoardEval::new("many", "rig", "1.0.0", &[TASK; 40]); 20];

impl Extension for Many {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("many", "1.0.0");
        &MANIFEST
    }

    async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.done("")
    }

    async fn run_job<'a>(&mut self, job: JobRun<'a>, cx: &mut Context<'a>) {
        job.run(self, cx).await;
    }

    async fn run_task(&mut self, _: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        match task {
            0 => Err(Failure::new(FailureKind::Failed, "")),
            1 => cx.failed("the text"),
            _ => Ok(Outcome::DONE),
        }
    }
}

/// A clock that never wakes a blocking driver: as `wfi` where no interrupt comes.
struct Asleep;

impl rigline::Clock for Asleep {
    fn now(&self) -> rigline::Instant {
        rigline::Instant::default()
    }

    fn idle(&self) {
        panic!("it would sleep for ever");
    }
}

fn by_the_blocking_driver(lines: &str) -> Vec<String> {
    blocking(&mut Many, lines)
}

fn blocking(extension: &mut impl Extension, lines: &str) -> Vec<String> {
    let (mut request, mut reply, mut log) = (vec![0; 4096], vec![0; 8192], [0; 600]);
    let memory = Memory { request: &mut request, reply: &mut reply };
    let evals = Evals::new(MANY);
    let mut engine = Engine::new(extension.manifest(), memory).unwrap().with_service(&evals);
    let mut pipe = crate::common::Pipe::new(lines.as_bytes());
    rigline::serve::blocking::Server::new(extension, &mut engine, &Asleep)
        .log_buffer(&mut log)
        .serve(&mut pipe)
        .unwrap();
    String::from_utf8(pipe.output).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn lists_are_whole() {
    let lines =
        by_the_blocking_driver(&(request(1, "eval.list", "{}") + &request(2, "task.list", r#"{"path":"many"}"#)));
    for (line, member, count) in [(&lines[0], "evals", 20), (&lines[1], "tasks", 40)] {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(json["result"][member].as_array().unwrap().len(), count, "{line}");
    }
}

/// A run on a board ends although nothing wakes its driver, and a failure without a text is logged
/// too.
#[test]
fn a_run_needs_no_waker() {
    let lines = by_the_blocking_driver(&request(1, "eval.run", r#"{"path":"many"}"#));
    assert!(lines.last().unwrap().contains("eval.complete"), "{lines:?}");
    let errors: Vec<_> = lines.iter().filter(|line| line.contains(r#""level":"error""#)).collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
}

/// An extension that was given evals, and runs no jobs.
struct Jobless;

impl Extension for Jobless {
    fn manifest(&self) -> &'static Manifest {
        Many.manifest()
    }

    async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.done("")
    }
}

/// An extension that runs jobs, and has no tasks.
struct Taskless;

impl Extension for Taskless {
    fn manifest(&self) -> &'static Manifest {
        Many.manifest()
    }

    async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.done("")
    }

    async fn run_job<'a>(&mut self, job: JobRun<'a>, cx: &mut Context<'a>) {
        job.run(self, cx).await;
    }
}

#[test]
fn a_run_of_an_extension_without_jobs_or_tasks_fails() {
    let lines = request(1, "eval.run", r#"{"path":"many"}"#) + &request(2, "run.status", r#"{"runId":"1"}"#);
    let jobless = blocking(&mut Jobless, &lines);
    assert!(jobless.last().unwrap().contains(r#""id":2,"result":{"runId":"1","status":"failed""#), "{jobless:?}");
    assert_eq!(jobless.len(), 2, "none of its tasks runs: {jobless:?}");
    let taskless = blocking(&mut Taskless, &lines);
    let failed = taskless.iter().filter(|line| line.contains("there is no such task")).count();
    assert_eq!(failed, 40, "{taskless:?}");
    let complete = taskless.iter().find(|line| line.contains("eval.complete")).unwrap();
    assert!(complete.contains(r#""total":40,"passed":0,"failed":40"#), "{complete}");
}

/// Nobody would hear the run's name.
#[test]
fn a_run_whose_reply_does_not_fit_is_not_begun() {
    use rigline::json::Json;
    use rigline::json::write::Writer;
    use rigline::service::Service;

    let method = Json::parse(br#""eval.run""#).unwrap();
    let params = Json::parse(br#"{"path":"many"}"#).unwrap();
    // A notification has no reply, and is carried out all the same.
    for (room, begins) in [(0, true), (1, false), (20, false), (400, true)] {
        let evals = Evals::new(MANY);
        let mut memory = vec![0; room];
        let mut out = Writer::new(&mut memory);
        evals.answer(method.text().unwrap(), params, &mut out);
        assert_eq!((evals.next_job().is_some(), out.fits() || room == 0), (begins, begins), "{room}");
    }
}

/// Only logs may be dropped by a transport that nobody reads: how a run ended must arrive.
#[test]
fn a_notification_is_not_always_a_log() {
    for (line, is_log) in [
        (r#"{"jsonrpc":"2.0","method":"log","params":{}}"#, true),
        (r#"{"jsonrpc":"2.0","method":"eval.log","params":{}}"#, true),
        (r#"{"jsonrpc":"2.0","method":"eval.complete","params":{}}"#, false),
        (r#"{"jsonrpc":"2.0","method":"eval.progress","params":{}}"#, false),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, false),
    ] {
        assert_eq!(rigline::rpc::is_log_line(line.as_bytes()), is_log, "{line}");
    }
}
