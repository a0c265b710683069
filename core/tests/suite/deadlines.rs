//! Timeouts and the ends of sessions, over the blocking driver and, with feature `async`, over the
//! async one.

use crate::common::{INITIALIZE, PLAIN, SHUTDOWN, Setup, execute, execute_in, id_and_code, joined};
use rigline::engine::{Engine, Memory};
use rigline::serve::Transport;
use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};

fn code(line: &str) -> i64 {
    id_and_code(line).1
}

/// Serves `lines` over each driver there is; returns the lines out and what happened to the rig.
fn each_shell(setup: &Setup, lines: &[String]) -> Vec<(Vec<String>, Vec<String>)> {
    let served = setup.serve(joined(lines));
    let all = vec![(served.lines().into_iter().map(str::to_owned).collect(), served.events)];
    #[cfg(feature = "async")]
    let all = {
        let mut all = all;
        let script = lines.iter().map(crate::common::asynch::line).collect();
        let session =
            crate::common::asynch::Session { setup: setup.clone(), ..crate::common::asynch::Session::new(script) };
        let served = session.serve();
        all.push((served.lines.into_iter().map(|(_, line)| line).collect(), served.events));
        all
    };
    all
}

fn timed(operation: &str, args: &str, timeout: &str) -> String {
    execute_in("1", operation, args, &format!(r#"{{"timeout":{timeout}}}"#))
}

#[test]
fn a_call_past_its_timeout_is_answered_with_the_timeout_error() {
    // Arguments, timeout, the logs that come out, the code, what happened.
    type Case<'a> = (&'a str, &'a str, &'a str, usize, i64, &'a [&'a str]);
    let long = &format!("\"{}10.{}ms\"", "0".repeat(80), "0".repeat(80));
    let table: &[Case<'_>] = &[
        ("work", r#"{"ms":1000}"#, "\"10ms\"", 0, -32001, &["work", "dropped", "safe"]),
        ("work", r#"{"ms":11}"#, "\"10ms\"", 0, -32001, &["work", "dropped", "safe"]),
        ("work", r#"{"ms":10}"#, "\"10ms\"", 0, 0, &["work", "ended"]),
        ("work", r#"{"ms":9}"#, "\"10ms\"", 0, 0, &["work", "ended"]),
        ("work", r#"{"ms":9}"#, "\"1ns\"", 0, -32001, &["work", "dropped", "safe"]),
        // Logs that were written in time go out.
        ("work", r#"{"ms":4,"logs":5}"#, "\"10ms\"", 3, -32001, &["work", "dropped", "safe"]),
        ("work", r#"{"ms":4,"logs":5}"#, "\"20ms\"", 5, 0, &["work", "ended"]),
        // A handler that never awaits is answered late, its outputs and later logs suppressed.
        ("stubborn", r#"{"ms":50}"#, "\"10ms\"", 1, -32001, &["stubborn", "ended", "safe"]),
        ("stubborn", r#"{"ms":50}"#, "\"50ms\"", 2, 0, &["stubborn", "ended"]),
        ("stubborn", r#"{"ms":50}"#, "\"49.999999ms\"", 1, -32001, &["stubborn", "ended", "safe"]),
        // No limit.
        ("work", r#"{"ms":100000}"#, "null", 0, 0, &["work", "ended"]),
        ("work", r#"{"ms":100000}"#, "\"0s\"", 0, 0, &["work", "ended"]),
        ("work", r#"{"ms":100000}"#, "\"0\"", 0, 0, &["work", "ended"]),
        ("work", r#"{"ms":100000}"#, "\"-0s\"", 0, 0, &["work", "ended"]),
        ("work", r#"{"ms":90000}"#, "\"1m30s\"", 0, 0, &["work", "ended"]),
        ("work", r#"{"ms":90001}"#, "\"1m30s\"", 0, -32001, &["work", "dropped", "safe"]),
        ("work", r#"{"ms":90001}"#, r#""\u0031m30s""#, 0, -32001, &["work", "dropped", "safe"]),
        ("work", r#"{"ms":100000}"#, "\"2562047h47m16.854775807s\"", 0, 0, &["work", "ended"]),
        // Go has no limit on a duration's length.
        ("work", r#"{"ms":11}"#, long, 0, -32001, &["work", "dropped", "safe"]),
        ("work", r#"{"ms":10}"#, long, 0, 0, &["work", "ended"]),
    ];
    for (operation, args, timeout, logs, expected, events) in table {
        for (lines, happened) in each_shell(&PLAIN, &[timed(operation, args, timeout)]) {
            let (reply, before) = lines.split_last().unwrap();
            assert_eq!((code(reply), before.len()), (*expected, *logs), "{operation} {args} {timeout}: {lines:?}");
            assert!(before.iter().all(|line| line.contains(r#""method":"log""#)));
            assert!(*expected == 0 || !reply.contains("late"), "{reply}");
            assert_eq!(happened, *events);
        }
    }
}

/// Whatever the clock's grain: what a handler would have done after its deadline is not done.
#[test]
fn a_handler_that_sleeps_past_its_deadline_does_not_wake_up() {
    for tick in [0, 1, 7, 50, 1000] {
        let line = timed("work", r#"{"ms":20}"#, "\"10ms\"");
        for (lines, happened) in each_shell(&Setup { tick, ..PLAIN }, &[line]) {
            assert_eq!((code(&lines[0]), &happened[..]), (-32001, &["work", "dropped", "safe"].map(str::to_owned)[..]));
        }
    }
}

#[test]
fn bad_timeouts_are_refused_before_anything_runs() {
    for timeout in [
        "5",
        "true",
        "{}",
        "[]",
        "\"\"",
        "\" \"",
        "\"5\"",
        "\"5 s\"",
        "\"s\"",
        "\"5x\"",
        "\"1h5\"",
        "\"-5s\"",
        "\"-1ns\"",
        "\"+-5s\"",
        "\"1e3s\"",
        "\"2562047h47m16.854775808s\"",
        "\"99999999999999999999s\"",
        "\".s\"",
        "\"5S\"",
        "\"５s\"",
    ] {
        for (lines, happened) in each_shell(&PLAIN, &[timed("work", "{}", timeout)]) {
            assert_eq!(code(&lines[0]), -32602, "{timeout}");
            assert!(lines[0].contains("context.timeout"), "{}", lines[0]);
            assert!(happened.is_empty());
        }
    }
}

/// A member that is late is answered as such, and the batch goes on. The async driver of a desktop counts each limit from the arrival of
/// the batch: a member whose limit passes before its turn does not run.
#[test]
fn each_member_of_a_batch_has_a_timeout_of_its_own() {
    let late = timed("work", r#"{"ms":30,"logs":1}"#, "\"20ms\"");
    let batch = format!("[{late},{},{late}]", execute("2", "work", r#"{"ms":100}"#));
    for (shell, (lines, happened)) in each_shell(&PLAIN, &[batch]).into_iter().enumerate() {
        let members: Vec<serde_json::Value> = serde_json::from_str(lines.last().unwrap()).unwrap();
        let codes: Vec<_> = members.iter().map(|member| member["error"]["code"].as_i64().unwrap_or(0)).collect();
        assert_eq!(codes, [-32001, 0, -32001]);
        let counts_from_arrival = shell == 1 && cfg!(feature = "std");
        assert_eq!(lines.len(), if counts_from_arrival { 2 } else { 3 });
        let all = ["work", "dropped", "safe", "work", "ended", "work", "dropped", "safe"];
        assert_eq!(happened, if counts_from_arrival { &all[..5] } else { &all });
    }
}

/// A notification that is late gets silence, and the rig its safe state.
#[test]
fn a_notification_may_be_late_too() {
    let notification = timed("work", r#"{"ms":30}"#, "\"20ms\"").replace("\"id\":1,", "");
    for (lines, happened) in each_shell(&PLAIN, &[notification]) {
        assert_eq!((lines, happened), (vec![], ["work", "dropped", "safe"].map(str::to_owned).to_vec()));
    }
}

/// `safe_state` runs at the end of a session that began with `initialize` and was not shut down,
/// and then only.
#[test]
fn sessions_that_end_without_shutdown_are_made_safe() {
    let say = execute("1", "say", "{}");
    let bad = INITIALIZE.replace("0.0.1", "0.0.2");
    let table: [(&[&str], usize); 11] = [
        (&[], 0),
        (&[&say], 0),
        (&["oops"], 0),
        (&[&bad, &say], 0),
        (&[INITIALIZE], 1),
        (&[INITIALIZE, &say], 1),
        (&[&say, INITIALIZE, INITIALIZE], 1),
        (&[SHUTDOWN], 0),
        (&[INITIALIZE, SHUTDOWN], 0),
        (&[INITIALIZE, &say, SHUTDOWN], 0),
        (&[SHUTDOWN, INITIALIZE], 1),
    ];
    for kind in [Transport::Stdio, Transport::Stream] {
        for (lines, safe) in table {
            // A process ends at `shutdown`.
            let safe = if kind == Transport::Stdio && lines.first() == Some(&SHUTDOWN) { 0 } else { safe };
            let lines: Vec<_> = lines.iter().map(|line| (*line).to_owned()).collect();
            for (_, happened) in each_shell(&Setup { kind, ..PLAIN }, &lines) {
                assert_eq!(happened.iter().filter(|event| *event == "safe").count(), safe, "{kind:?} {lines:?}");
            }
        }
    }
}

/// On a port the end of the input is the loss of the connection, and half a line may say another thing than the whole.
#[test]
fn a_line_without_its_end_is_run_from_a_pipe_and_not_from_a_port() {
    let half = execute("1", "say", "{}");
    for (kind, count) in [(Transport::Stdio, 1), (Transport::Stream, 0)] {
        let served = Setup { kind, ..PLAIN }.serve(&half);
        assert_eq!((served.lines().len(), served.events.len()), (count, 2 * count), "{kind:?}");
        assert_eq!(served.end, rigline::serve::End::Input);
        #[cfg(feature = "async")]
        {
            use crate::common::asynch::{In, Session};
            let script = vec![In::Bytes(half.clone().into_bytes())];
            let served = Session { setup: Setup { kind, ..PLAIN }, ..Session::new(script) }.serve();
            assert_eq!((served.lines.len(), served.events.len()), (count, 2 * count), "{kind:?}");
        }
    }
}

/// A log that does not fit its region is dropped whole, and the drop reported.
#[test]
fn logs_without_room_are_dropped_whole_and_counted() {
    let line = execute("1", "work", r#"{"logs":3,"text":"0123456789","times":50}"#);
    for (log, fit) in [(1400, 3), (1200, 3), (300, 0), (60, 0), (0, 0)] {
        let (lines, _) = each_shell(&Setup { log, ..PLAIN }, std::slice::from_ref(&line)).remove(0);
        assert_eq!(code(lines.last().unwrap()), 0);
        let whole = lines.iter().filter(|line| line.contains("0123456789")).count();
        assert_eq!(whole, fit, "{log}");
        let report = lines.iter().any(|line| line.contains("3 log lines were dropped"));
        assert_eq!(report, fit == 0 && log > 130, "{log}: {lines:?}");
    }
}

/// A clock that sleeps until an interrupt, or until the waker that it gave was woken.
struct Sleeps(std::sync::Arc<Woken>);

#[derive(Default)]
struct Woken(std::sync::atomic::AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

impl rigline::Clock for Sleeps {
    fn now(&self) -> rigline::Instant {
        rigline::Instant::default()
    }

    fn idle(&self) {
        assert!(self.0.0.swap(false, std::sync::atomic::Ordering::SeqCst), "it would sleep for ever");
    }

    fn waker(&self) -> std::task::Waker {
        self.0.clone().into()
    }
}

/// A handler that wakes itself goes on although no interrupt comes.
#[test]
fn a_handler_that_wakes_itself_is_polled_again() {
    struct Yields;
    impl Extension for Yields {
        fn manifest(&self) -> &'static Manifest {
            const MANIFEST: Manifest =
                Manifest::new("yields", "1.0.0").operations(&[Operation::new("go", Schema::OBJECT)]);
            &MANIFEST
        }

        async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
            let mut polls = 0;
            std::future::poll_fn(|task| {
                polls += 1;
                task.waker().wake_by_ref();
                if polls > 3 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
            cx.done("gone")
        }
    }
    let (mut request, mut reply, mut log) = ([0; 600], [0; 600], [0; 100]);
    let memory = Memory { request: &mut request, reply: &mut reply };
    let mut engine = Engine::new(Yields.manifest(), memory).unwrap();
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"go","context":{}}}"#;
    let mut pipe = crate::common::Pipe::new(format!("{line}\n").as_bytes());
    let clock = Sleeps(std::sync::Arc::default());
    rigline::serve::blocking::Server::new(&mut Yields, &mut engine, &clock)
        .log_buffer(&mut log)
        .serve(&mut pipe)
        .unwrap();
    assert!(String::from_utf8(pipe.output).unwrap().contains("gone"));
}
