//! An extension's own evals over the async driver: runs go on while requests are answered.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Task, Poll, Wake, Waker};

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

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
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
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    client(&mut |lines| {
        to_board.0.borrow_mut().extend(lines.bytes());
        // The input wakes the board. From there on it has to wake itself.
        waker.wake_by_ref();
        while woken.0.swap(false, Ordering::Relaxed) {
            assert!(board.as_mut().poll(&mut Task::from_waker(&waker)).is_pending());
        }
        let bytes: Vec<u8> = to_client.0.borrow_mut().drain(..).collect();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    });
}

/// A task that measures may not give up the processor before it ends.
#[test]
fn what_a_run_reports_is_sent_before_its_task_begins() {
    struct Listens {
        sent: Wire,
        seen: Rc<Cell<usize>>,
    }

    impl Extension for Listens {
        fn manifest(&self) -> &'static Manifest {
            const MANIFEST: Manifest = Manifest::new("listens", "1.0.0");
            &MANIFEST
        }

        async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
            cx.done("")
        }

        async fn run_job<'a>(&mut self, job: JobRun<'a>, cx: &mut Context<'a>) {
            job.run(self, cx).await;
        }

        async fn run_task(&mut self, _: usize, _: usize, _: &mut Context<'_>) -> Result<Outcome, Failure> {
            let sent: Vec<u8> = self.sent.0.borrow().iter().copied().collect();
            self.seen.set(String::from_utf8(sent).unwrap().matches("trial_start").count());
            Ok(Outcome::DONE)
        }
    }

    let (mut to_board, mut to_client, seen) = (Wire::default(), Wire::default(), Rc::new(Cell::new(0)));
    to_board.0.borrow_mut().extend(request(1, "eval.run", r#"{"path":"self-test"}"#).bytes());
    let mut extension = Listens { sent: to_client.clone(), seen: seen.clone() };
    let (mut request, mut reply, mut log) = ([0; 1024], [0; 1024], [0; 8192]);
    let evals = Evals::new(EVALS);
    let memory = Memory { request: &mut request, reply: &mut reply };
    let mut engine = Engine::new(extension.manifest(), memory).unwrap().with_service(&evals);
    let mut board = pin!(
        Server::new(&mut extension, &mut engine, &NoTime)
            .transport(Transport::Stream)
            .log_buffer(&mut log)
            .serve(&mut to_board, &mut to_client)
    );
    for _ in 0..100 {
        assert!(board.as_mut().poll(&mut Task::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(seen.get(), 2, "that of the second task too");
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
        // The board looks at both before the run goes on.
        let lines = say(&notification("run.cancel", r#"{"runId":"1"}"#).repeat(2));
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

/// The answers and the state of a service itself, without a driver.
mod of_a_board {
    use super::EVALS;
    use rigline::json::Json;
    use rigline::json::write::Writer;
    use rigline::protocol::waza::{BoardEval, BoardTask, Evals, MAX_RUNS};
    use rigline::service::{Job, Service, Step, TaskEnd};
    use rigline::{Failure, FailureKind, Level};

    fn written(write: impl FnOnce(&mut Writer<'_>)) -> String {
        let mut memory = [0; 1024];
        let mut out = Writer::new(&mut memory);
        write(&mut out);
        String::from_utf8(out.finish().unwrap().to_vec()).unwrap()
    }

    fn answer(evals: &Evals, method: &str, params: &str) -> String {
        let name = format!("\"{method}\"");
        let (method, params) = (Json::parse(name.as_bytes()).unwrap(), Json::parse(params.as_bytes()).unwrap());
        written(|out| evals.answer(method.text().unwrap(), params, out))
    }

    fn result(text: &str) -> String {
        format!(r#","result":{text}}}"#)
    }

    /// Starts a run of the first eval.
    fn run(evals: &Evals) -> String {
        answer(evals, "eval.run", r#"{"path":"self-test"}"#)
    }

    fn started(number: u32) -> String {
        result(&format!(r#"{{"runId":"{number}","status":"running"}}"#))
    }

    fn status(evals: &Evals, number: u32) -> String {
        answer(evals, "run.status", &format!(r#"{{"runId":"{number}"}}"#))
    }

    fn cancel(evals: &Evals, number: u32) -> String {
        answer(evals, "run.cancel", &format!(r#"{{"runId":"{number}"}}"#))
    }

    fn notification(method: &str, params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{params}}}}}"#)
    }

    /// All notifications about a step.
    fn reports(evals: &Evals, job: Job, step: &Step<'_>) -> Vec<String> {
        let reports: Vec<_> = (0..4)
            .map(|nth| {
                let mut is_report = false;
                let text = written(|out| is_report = evals.report(job, step, nth, out));
                assert_eq!(is_report, !text.is_empty(), "{step:?} {nth}");
                text
            })
            .collect();
        let count = reports.iter().take_while(|text| !text.is_empty()).count();
        assert!(reports[count..].iter().all(String::is_empty), "{step:?}: {reports:?}");
        reports[..count].to_vec()
    }

    /// The eval of a file, so that its path is not its name.
    const IN_A_FILE: BoardEval = {
        let mut eval = BoardEval::new("burn-in", "heat", "2.1.0", &[]);
        eval.path = "evals/burn-in.yaml";
        eval
    };

    #[test]
    fn an_eval_is_found_by_its_path_and_by_its_name() {
        static BOTH: [BoardEval; 2] = [EVALS[0], IN_A_FILE];
        let evals = Evals::new(&BOTH);
        assert_eq!(
            answer(&evals, "eval.list", "{}"),
            result(
                r#"{"evals":[{"path":"self-test","name":"self-test","skill":"rig","version":"1.0.0"},{"path":"evals/burn-in.yaml","name":"burn-in","skill":"heat","version":"2.1.0"}]}"#
            )
        );
        for path in ["burn-in", "evals/burn-in.yaml", "evals\\/burn\\u002din.yaml"] {
            let path = format!(r#"{{"path":"{path}"}}"#);
            assert_eq!(
                answer(&evals, "eval.get", &path),
                result(r#"{"path":"evals/burn-in.yaml","name":"burn-in","skill":"heat","version":"2.1.0"}"#)
            );
            assert_eq!(
                answer(&evals, "eval.validate", &path),
                result(r#"{"valid":true,"name":"burn-in","skill":"heat"}"#)
            );
            assert_eq!(answer(&evals, "task.list", &path), result(r#"{"tasks":[]}"#));
        }
        let tasks = r#"{"path":"self-test"}"#;
        let boot = r#"{"id":"boot","name":"Boot","description":"The board boots"}"#;
        assert_eq!(
            answer(&evals, "task.list", tasks),
            result(&format!(
                r#"{{"tasks":[{{"id":"rails","name":"Rails","description":"Rails are off at the start"}},{boot}]}}"#
            ))
        );
        assert_eq!(answer(&evals, "task.get", r#"{"path":"self-test","task_id":"boot"}"#), result(boot));
        for method in ["eval.get", "eval.validate", "eval.run", "task.list", "task.get"] {
            assert_eq!(
                answer(&evals, method, r#"{"path":"self\"","taskId":"boot"}"#),
                r#","error":{"code":-32000,"message":"Eval not found","data":{"path":"self\""}}}"#,
                "{method}"
            );
        }
        assert_eq!(
            answer(&evals, "task.get", r#"{"path":"self-test","taskId":"Boot"}"#),
            r#","error":{"code":-32602,"message":"taskId: unknown task Boot"}}"#
        );
        assert_eq!(
            answer(&evals, "eval.nope", "{}"),
            r#","error":{"code":-32601,"message":"Method not found","data":{"method":"eval.nope"}}}"#
        );
    }

    #[test]
    fn a_board_owns_the_methods_of_waza_if_it_has_evals() {
        for (method, is_owned) in [
            ("eval.run", true),
            ("eval.nope", true),
            ("task.get", true),
            ("run.cancel", true),
            ("\\u0065val.list", true),
            ("run.", true),
            ("eval", false),
            ("evals.run", false),
            ("execute", false),
            ("Run.status", false),
            ("", false),
        ] {
            let method = format!("\"{method}\"");
            let method = Json::parse(method.as_bytes()).unwrap().text().unwrap();
            assert_eq!(Evals::new(EVALS).owns(method), is_owned, "{method}");
            assert!(!Evals::new(&[]).owns(method), "{method}");
        }
    }

    #[test]
    fn a_run_has_the_executor_of_the_board() {
        let evals = Evals::new(EVALS);
        for (executor, number) in [("null", 1), (r#""extension""#, 2)] {
            let params = format!(r#"{{"path":"self-test","executor":{executor}}}"#);
            assert_eq!(answer(&evals, "eval.run", &params), started(number));
        }
        assert_eq!(
            answer(&evals, "eval.run", r#"{"path":"self-test","executor":"mock"}"#),
            r#","error":{"code":-32602,"message":"executor: unknown executor mock","data":{"known":["extension"]}}}"#
        );
    }

    #[test]
    fn a_new_run_takes_the_place_of_the_oldest_that_has_ended() {
        let evals = Evals::new(EVALS);
        let job = |number| Job { number, group: 0, tasks: 2 };
        let last = u32::try_from(MAX_RUNS).unwrap();
        let unknown = |number| format!(r#","error":{{"code":-32602,"message":"runId: unknown run {number}"}}}}"#);
        for number in [0, 1] {
            assert_eq!(status(&evals, number), unknown(number));
        }
        for number in 1..=last {
            assert_eq!(run(&evals), started(number));
        }
        let full = r#","error":{"code":-32002,"message":"too many runs wait their turn"}}"#;
        assert_eq!(run(&evals), full);
        // The second and the third have ended, and the first has not.
        evals.advance(job(1), &Step::Start);
        for ended in [3, 2] {
            evals.advance(job(ended), &Step::Start);
            evals.advance(job(ended), &Step::End);
        }
        for (number, replaced) in [(last + 1, 2), (last + 2, 3)] {
            assert!(status(&evals, replaced).contains("completed"), "{replaced}");
            assert_eq!(run(&evals), started(number));
            assert_eq!(status(&evals, replaced), unknown(replaced));
        }
        assert_eq!(run(&evals), full);
        for number in [1, 4, 5, 6] {
            assert!(status(&evals, number).contains(r#""status":"running""#), "{number}");
        }
        // No run has such a name.
        for name in ["0", "01", " 1", "1 ", "", "4294967297"] {
            let params = format!(r#"{{"runId":"{name}"}}"#);
            let message = format!("runId: unknown run {name}");
            assert_eq!(
                answer(&evals, "run.cancel", &params),
                format!(r#","error":{{"code":-32602,"message":"{message}"}}}}"#)
            );
        }
    }

    #[test]
    fn the_run_that_has_waited_longest_is_the_next() {
        static TWO: [BoardEval; 2] = [IN_A_FILE, EVALS[0]];
        let evals = Evals::new(&TWO);
        assert_eq!(evals.next_job(), None);
        assert_eq!(run(&evals), started(1));
        answer(&evals, "eval.run", r#"{"path":"burn-in"}"#);
        assert_eq!(run(&evals), started(3));
        let next = |number, group, tasks| Some(Job { number, group, tasks });
        for (job, cancels) in [(next(1, 1, 2), false), (next(2, 0, 0), true), (next(3, 1, 2), false)] {
            // What was cancelled has its turn as well, to say that it ended.
            assert_eq!(evals.next_job(), job);
            let job = job.unwrap();
            if cancels {
                cancel(&evals, job.number);
                assert_eq!(evals.next_job(), Some(job));
            }
            assert_eq!(evals.is_cancelled(job), cancels);
            evals.advance(job, &Step::Start);
            evals.advance(job, &Step::End);
        }
        assert_eq!(evals.next_job(), None);
        // The first place is free again, and the fourth run waits in the last one.
        assert_eq!(run(&evals), started(4));
        assert_eq!(run(&evals), started(5));
        assert_eq!(evals.next_job(), next(4, 1, 2));
    }

    #[test]
    fn the_state_of_a_run_follows_its_steps() {
        let evals = Evals::new(EVALS);
        run(&evals);
        let job = evals.next_job().unwrap();
        let failure = Failure::new(FailureKind::Failed, "");
        let of_run = |number: u32, state: &str, summary: &str, error: &str| {
            result(&format!(r#"{{"runId":"{number}","status":"{state}","result":{summary},"error":{error}}}"#))
        };
        let of = |state, summary, error| of_run(1, state, summary, error);
        for step in [
            Step::Start,
            Step::TaskStart(0),
            Step::TaskEnd(0, TaskEnd::Passed),
            Step::TaskStart(1),
            Step::TaskEnd(1, TaskEnd::Failed(&failure)),
        ] {
            assert_eq!(status(&evals, 1), of("running", "null", "null"), "{step:?}");
            evals.advance(job, &step);
            assert_eq!(evals.next_job(), None, "{step:?}");
        }
        assert_eq!(status(&evals, 1), of("running", "null", "null"));
        evals.advance(job, &Step::End);
        let summary = r#"{"total":2,"passed":1,"failed":1,"passRate":0.500}"#;
        assert_eq!(status(&evals, 1), of("completed", summary, "null"));
        assert_eq!(cancel(&evals, 1), result(r#"{"runId":"1","status":"completed"}"#));
        assert_eq!(status(&evals, 1), of("completed", summary, "null"));

        run(&evals);
        assert_eq!(cancel(&evals, 2), result(r#"{"runId":"2","status":"cancelled"}"#));
        let job = evals.next_job().unwrap();
        // It does not start again, and has no result before it has stopped.
        evals.advance(job, &Step::Start);
        assert!(evals.is_cancelled(job));
        let of = |state, summary, error| of_run(2, state, summary, error);
        assert_eq!(status(&evals, 2), of("cancelled", "null", "null"));
        evals.advance(job, &Step::TaskEnd(0, TaskEnd::Cancelled));
        evals.advance(job, &Step::End);
        assert!(!evals.is_cancelled(job));
        let summary = r#"{"total":2,"passed":0,"failed":1,"passRate":0.000}"#;
        assert_eq!(status(&evals, 2), of("cancelled", summary, "null"));

        // The end of a connection ends what has not ended, and nothing else.
        run(&evals);
        run(&evals);
        evals.advance(Job { number: 3, ..job }, &Step::Start);
        evals.disconnected();
        assert_eq!(evals.next_job(), None);
        let (summary, error) = (
            r#"{"total":2,"passed":0,"failed":0,"passRate":0.000}"#,
            r#""the connection was lost, or the extension runs no tasks""#,
        );
        for number in [3, 4] {
            assert_eq!(status(&evals, number), of_run(number, "failed", summary, error));
        }
        for (number, state) in [(1, "completed"), (2, "cancelled")] {
            assert!(status(&evals, number).contains(&format!(r#""status":"{state}""#)), "{number}");
        }
        run(&evals);
        evals.advance(Job { number: 5, ..job }, &Step::Refused);
        assert_eq!(status(&evals, 5), of_run(5, "failed", summary, error));
    }

    #[test]
    fn each_step_has_its_notifications() {
        let evals = Evals::new(EVALS);
        run(&evals);
        let job = evals.next_job().unwrap();
        let failure = Failure::new(FailureKind::Failed, "");
        let progress = |rest: &str| notification("eval.progress", &format!(r#""runId":"1","event":{rest}"#));
        assert_eq!(reports(&evals, job, &Step::Start), [""; 0], "it has not begun");
        evals.advance(job, &Step::Start);
        assert_eq!(reports(&evals, job, &Step::Start), [progress(r#""run_start","totalTasks":2"#)]);
        assert_eq!(
            reports(&evals, job, &Step::TaskStart(1)),
            [
                progress(r#""task_start","taskName":"boot","taskNum":2,"totalTasks":2"#),
                progress(r#""trial_start","taskName":"boot","taskNum":2,"totalTasks":2,"trialNum":1,"totalTrials":1"#),
            ]
        );
        for (end, verdict) in
            [(TaskEnd::Passed, "passed"), (TaskEnd::Failed(&failure), "failed"), (TaskEnd::Cancelled, "cancelled")]
        {
            let task = r#""taskName":"rails","taskNum":1,"totalTasks":2"#;
            assert_eq!(
                reports(&evals, job, &Step::TaskEnd(0, end)),
                [
                    progress(&format!(r#""trial_complete",{task},"trialNum":1,"totalTrials":1,"status":"{verdict}""#)),
                    progress(&format!(r#""task_complete",{task},"status":"{verdict}""#)),
                ]
            );
        }
        assert_eq!(reports(&evals, job, &Step::Refused), [""; 0]);
        evals.advance(job, &Step::TaskEnd(0, TaskEnd::Passed));
        evals.advance(job, &Step::End);
        let complete = |rest: &str| notification("eval.complete", &format!(r#""runId":"1",{rest}"#));
        let end = progress(r#""run_complete","totalTasks":2"#);
        assert_eq!(
            reports(&evals, job, &Step::End),
            [end.clone(), complete(r#""summary":{"total":2,"passed":1,"failed":0,"passRate":0.500}"#)]
        );
        assert_eq!(
            written(|out| evals.write_log(job, Level::Warn, &"a \"b\"", out)),
            notification("eval.log", r#""runId":"1","level":"warn","message":"a \"b\"""#)
        );

        // One that is cancelled before its turn says that it ended, and not that it began.
        run(&evals);
        cancel(&evals, 2);
        let job = evals.next_job().unwrap();
        evals.advance(job, &Step::Start);
        assert_eq!(reports(&evals, job, &Step::Start), [""; 0]);
        evals.advance(job, &Step::End);
        let second = |text: String| text.replace(r#""runId":"1""#, r#""runId":"2""#);
        assert_eq!(
            reports(&evals, job, &Step::End),
            [second(end), second(complete(r#""error":"the run was cancelled""#))]
        );
    }

    /// An eval whose tasks are none is whole, and ends.
    #[test]
    fn the_pass_rate_without_tasks_is_zero() {
        static EMPTY: [BoardEval; 1] = [BoardEval::new("self-test", "rig", "1.0.0", &[] as &[BoardTask])];
        let evals = Evals::new(&EMPTY);
        run(&evals);
        let job = evals.next_job().unwrap();
        assert_eq!(job, Job { number: 1, group: 0, tasks: 0 });
        evals.advance(job, &Step::Start);
        evals.advance(job, &Step::End);
        assert_eq!(
            status(&evals, 1),
            result(
                r#"{"runId":"1","status":"completed","result":{"total":0,"passed":0,"failed":0,"passRate":0.000},"error":null}"#
            )
        );
    }
}
