//! Replies in regions that are just large enough, or a byte too small.

use std::time::Duration;

use crate::common::{FakeClock, INITIALIZE, MS, Pipe, execute, execute_in};
use rigline::engine::{Engine, Memory};
use rigline::exchange::LEAST_REPLY;
use rigline::serve::blocking::Server;
use rigline::{Call, Content, Context, Extension, Failure, FailureKind, LogSink, Manifest, Operation, Outcome, Schema};

/// Writes what the test says, and sleeps for so many milliseconds afterwards.
struct Hand<W>(W, u64);

impl<W: FnMut(&mut Context<'_>) -> Result<Outcome, Failure>> Extension for Hand<W> {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest =
            Manifest::new("hand", "1.0.0").operations(&[Operation::new("write", Schema::OBJECT)]);
        &MANIFEST
    }

    async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let result = (self.0)(cx);
        cx.sleep(Duration::from_nanos(self.1 * MS)).await;
        result
    }
}

const MCP: [&str; 2] = [
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{}}}"#,
];
const AMPLIFIER: &str = r#"{"op":"write","args":{}}"#;
const NAMEL3SS: &str = r#"{"protocol_version":1,"tool":"write","payload":{}}"#;

/// The last reply, without its newline, in a region of this size.
fn reply(
    lines: &[&str],
    size: usize,
    pause: u64,
    write: impl FnMut(&mut Context<'_>) -> Result<Outcome, Failure>,
) -> String {
    let mut hand = Hand(write, pause);
    let (mut request, mut reply) = ([0; 512], vec![0; size]);
    let memory = Memory { request: &mut request, reply: &mut reply };
    let mut engine = Engine::new(hand.manifest(), memory).unwrap();
    let mut pipe = Pipe::new((lines.join("\n") + "\n").as_bytes());
    Server::new(&mut hand, &mut engine, &FakeClock::default()).serve(&mut pipe).unwrap();
    let output = String::from_utf8(pipe.output).unwrap();
    output.lines().last().unwrap().to_owned()
}

/// An output that fits, even to the last byte of the region, is no fault: the caller gets the failure that the handler
/// returns.
#[test]
fn a_failure_behind_an_output_that_fits_to_the_last_byte_is_the_callers() {
    let gevals = execute("1", "write", "{}");
    let text = "y".repeat(LEAST_REPLY);
    for (line, start) in [
        (&*gevals, r#"{"jsonrpc":"2.0","id":1,"result":{"success":true,"outputs":{"x":""#),
        (AMPLIFIER, r#"{"ok":true,"result":{"x":""#),
        (NAMEL3SS, r#"{"ok":true,"protocol_version":1,"result":{"x":""#),
    ] {
        // Behind the text, its closing quote.
        let end = start.len() + text.len() + 1;
        for limit in end - 3..end + 3 {
            let mut fits = None;
            let reply = reply(&[line], limit + 1, 0, |cx| {
                fits = Some(cx.output("x", text.as_str()).is_ok());
                Err(Failure::new(FailureKind::Unreachable, "gone"))
            });
            assert_eq!(fits, Some(limit >= end), "{limit}: {reply}");
            assert_eq!(reply.contains(r#""gone""#), limit >= end, "{limit}: {reply}");
            assert_eq!(reply.contains("reply too large"), limit < end, "{limit}: {reply}");
        }
    }
}

/// gevals gets other values as strings, whose quotes and escapes count.
#[test]
fn an_output_that_becomes_a_string_fits_with_its_quotes_and_escapes() {
    let line = execute("1", "write", "{}");
    let start = r#"{"jsonrpc":"2.0","id":1,"result":{"success":true,"outputs":{"x":"#;
    let list = ["a\\bcdefghijklmnop"; 32];
    let as_string = serde_json::to_string(&serde_json::to_string(&list).unwrap()).unwrap();
    let whole = reply(&[&line], 4096, 0, |cx| cx.output("x", &list).map(|()| Outcome::DONE));
    assert_eq!(whole, format!("{start}{as_string}}}}}}}"));
    let (raw_end, end) = (start.len() + serde_json::to_string(&list).unwrap().len(), start.len() + as_string.len());
    for limit in (raw_end - 3..raw_end + 3).chain(end - 3..end + 3) {
        let mut fits = None;
        let reply = reply(&[&line], limit + 1, 0, |cx| {
            fits = Some(cx.output("x", &list).is_ok());
            Err(Failure::new(FailureKind::Unreachable, "gone"))
        });
        assert_eq!(fits, Some(limit >= end), "{limit}: {reply}");
        assert_eq!(reply.contains(r#""gone""#), limit >= end, "{limit}: {reply}");
    }
}

/// The size that an error names is exact if all that was written before the end had fitted.
#[test]
fn content_fits_to_the_last_byte_and_the_size_that_is_needed_is_named() {
    let text = "y".repeat(LEAST_REPLY);
    let block = format!(r#"{{"type":"text","text":"{text}"}}"#);
    for outputs in [0, 2] {
        let write = |cx: &mut Context<'_>, fits: &mut bool| {
            for name in ["a", "b"].iter().take(outputs) {
                cx.output(name, &1)?;
            }
            *fits = cx.content("c", &Content::Text(&text)).is_ok();
            cx.done("done")
        };
        let whole = reply(&MCP, 4096, 0, |cx| write(cx, &mut false));
        let end = whole.find(&block).unwrap() + block.len();
        for limit in (end - 3..end + 3).chain(whole.len() - 3..whole.len() + 3) {
            let mut fits = false;
            let reply = reply(&MCP, limit + 1, 0, |cx| write(cx, &mut fits));
            assert_eq!(fits, limit >= end, "{limit}: {reply}");
            if limit >= whole.len() {
                assert_eq!(reply, whole);
                continue;
            }
            let least = if fits { "" } else { "at least " };
            let needs = format!("reply too large: it needs {least}{} bytes, the limit is {limit}", whole.len());
            assert!(reply.contains(&needs), "{needs}: {reply}");
        }
    }
}

/// The caller gave the time limit, and acts on it: it comes before faults that the call has had before.
#[test]
fn a_call_out_of_time_is_that_whatever_was_wrong_with_its_outputs() {
    let write = |name: &str, cx: &mut Context<'_>| {
        let _ = match name {
            "no JSON" => cx.output("x", &f64::NAN),
            "twice" => cx.output("x", &1).and_then(|()| cx.output("x", &2)),
            "too large" => cx.output("x", "y".repeat(4096).as_str()),
            _ => Ok(()),
        };
        Ok(Outcome::DONE)
    };
    for (name, code) in [("nothing", 0), ("no JSON", -32603), ("twice", -32603), ("too large", -32603)] {
        let in_time = reply(&[INITIALIZE, &execute("1", "write", "{}")], 1024, 20, |cx| write(name, cx));
        assert_eq!(crate::common::id_and_code(&in_time), ("1".to_owned(), code), "{name}: {in_time}");
        let limited = execute_in("1", "write", "{}", r#"{"timeout":"10ms"}"#);
        let late = reply(&[INITIALIZE, &limited], 1024, 20, |cx| write(name, cx));
        assert_eq!(crate::common::id_and_code(&late), ("1".to_owned(), -32001), "{name}: {late}");
    }
}

/// Also if it is the only one.
#[test]
fn an_output_is_not_written_twice() {
    let gevals = execute("1", "write", "{}");
    for lines in [&[&*gevals][..], &[AMPLIFIER], &[NAMEL3SS], &MCP] {
        let reply = reply(lines, 1024, 0, |cx| {
            assert!(cx.output("x", &1).is_ok());
            assert_eq!(cx.output("x", &2).unwrap_err().kind(), FailureKind::Internal);
            Ok(Outcome::DONE)
        });
        assert!(reply.contains("two outputs have the same name"), "{reply}");
    }
}

/// A server in front of another one passes on as many as that one has. With a look at each of those before, they would take minutes.
#[test]
fn outputs_of_new_names_take_the_time_of_their_bytes() {
    let began = std::time::Instant::now();
    let gevals = execute("1", "write", "{}");
    for lines in [&[&*gevals][..], &[AMPLIFIER], &[NAMEL3SS], &MCP] {
        let text = reply(lines, 2_000_000, 0, |cx| {
            (0..20_000).try_for_each(|number| cx.output_of_new_name(&format!("n{number}"), &number))?;
            Ok(Outcome::DONE)
        });
        assert!(text.contains(r#""n19999":"#) && !text.contains("twice"), "{lines:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// The text of a failure waits behind the outputs, and goes to its place over them, whether they are longer or shorter than what
/// is before it there.
#[test]
fn an_error_is_the_same_after_outputs_of_any_length() {
    let gevals = execute("1", "write", "{}");
    for lines in [&[&*gevals][..], &[AMPLIFIER], &[NAMEL3SS], &MCP] {
        let fail = |outputs: Option<usize>| {
            reply(lines, 1024, 0, |cx| {
                if let Some(length) = outputs {
                    cx.output("x", "y".repeat(length).as_str())?;
                }
                Err(cx.failure(FailureKind::Unreachable, "the \"meter\" at 0x40 is gone"))
            })
        };
        let error = fail(None);
        assert!(error.contains(r#""the \"meter\" at 0x40 is gone""#), "{error}");
        for length in 0..120 {
            assert_eq!(fail(Some(length)), error, "{length}");
        }
    }
}

/// More than the 32 bits by which a name is known as new.
#[test]
fn many_outputs_have_different_names() {
    let names: Vec<String> = (0..40).map(|number| format!("output {number}")).collect();
    for line in [&*execute("1", "write", "{}"), AMPLIFIER, NAMEL3SS] {
        let reply = reply(&[line], 4096, 0, |cx| {
            names.iter().try_for_each(|name| cx.output(name, name.as_str()))?;
            Ok(Outcome::DONE)
        });
        for name in &names {
            assert!(reply.contains(&format!(r#""{name}":"{name}""#)), "{name}: {reply}");
        }
    }
}

/// The text of a failure is written behind the outputs, and must fit there, and then at its own place.
#[test]
fn an_error_after_outputs_is_whole_or_names_the_size_that_it_needs() {
    let line = execute("1", "write", "{}");
    let start = r#"{"jsonrpc":"2.0","id":1,"result":{"success":true,"outputs":{"x":""}"#;
    let text = "t".repeat(LEAST_REPLY + 20);
    for length in [0, 10, 40, 100] {
        let fail = |size: usize| {
            reply(&[&line], size, 0, |cx| {
                cx.output("x", "y".repeat(length).as_str())?;
                Err(cx.failure(FailureKind::Unreachable, text.as_str()))
            })
        };
        let whole = fail(4096);
        assert!(whole.ends_with(&format!(r#""message":"{text}"}}}}"#)), "{whole}");
        // Behind the output, without the brace that closes all of them.
        let least = whole.len().max(start.len() - 1 + length + text.len());
        for limit in least - 70..least + 3 {
            let reply = fail(limit + 1);
            if limit >= least {
                assert_eq!(reply, whole, "{length} {limit}");
                continue;
            }
            let (_, needs) = reply.split_once("reply too large: it needs ").unwrap();
            let needs: usize = needs.split_once(" bytes").unwrap().0.parse().unwrap();
            assert!(needs > limit, "{reply}");
            assert_eq!(fail(needs + 1), whole, "{length} {limit}: {needs}");
        }
    }
}

/// In a batch, the sizes are those of the one reply.
#[test]
fn an_error_in_a_batch_names_the_room_that_is_left() {
    let text = "y".repeat(LEAST_REPLY);
    let batch = format!("[{},{}]", execute("1", "write", "{}"), execute("2", "write", "{}"));
    let calls = std::cell::Cell::new(0);
    let replies = |size: usize| {
        calls.set(0);
        reply(&[&batch], size, 0, |cx| {
            calls.set(calls.get() + 1);
            if calls.get() == 2 { cx.done(text.as_str()) } else { cx.done("done") }
        })
    };
    let whole = replies(4096);
    let first = whole.find(r#",{"jsonrpc":"2.0","id":2"#).unwrap();
    let second = whole.len() - first - ",]".len();
    let small = replies(whole.len() - 10);
    assert!(small.starts_with(&whole[..=first]), "{small}");
    let named: Vec<usize> =
        small[first..].split(|char: char| !char.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
    assert!(small.contains(&format!("reply too large: it needs {second} bytes, the limit is ")), "{small}");
    assert!(named.last().is_some_and(|limit| *limit < second), "{small}");
}

/// Clients hold MCP's structured content against the schema of outputs, in failures too.
#[test]
fn outputs_of_a_call_that_failed_are_no_structured_content() {
    let whole = |outputs: &[&str], has_content: bool, fails: bool| {
        reply(&MCP, 1024, 0, |cx| {
            outputs.iter().try_for_each(|name| cx.output(name, &1))?;
            if has_content {
                cx.content("c", &Content::Text("c"))?;
            }
            if fails { cx.failed("why") } else { cx.done("why") }
        })
    };
    let text = r#"{"type":"text","text":"c"},"#;
    for (has_content, before) in [(false, ""), (true, text)] {
        for (outputs, members) in [(&["a"][..], r#""a":1"#), (&["a", "b"], r#""a":1,"b":1"#)] {
            let (failed, done) = (whole(outputs, has_content, true), whole(outputs, has_content, false));
            let message = format!(r#""content":[{before}{{"type":"text","text":"why"}}"#);
            assert!(failed.contains(&format!(r#""incompleteOutputs":{{{members}}},{message}"#)), "{failed}");
            assert!(!failed.contains("structuredContent") && failed.contains(r#""isError":true"#), "{failed}");
            assert!(done.contains(&format!(r#""structuredContent":{{{members}}},"#)), "{done}");
            assert!(!done.contains("incompleteOutputs") && !done.contains("isError"), "{done}");
        }
        let failed = whole(&[], has_content, true);
        assert!(!failed.contains("incompleteOutputs") && !failed.contains("structuredContent"), "{failed}");
    }
}

#[test]
fn a_handler_knows_whether_content_reaches_its_caller_and_until_when_it_may_run() {
    let limited = execute_in("1", "write", "{}", r#"{"timeout":"10ms"}"#);
    let limited_in_mcp = MCP[1].replace("\"arguments\"", "\"_meta\":{\"rigline/timeoutMs\":7},\"arguments\"");
    for (lines, has_content, millis) in [
        (&[&*execute("1", "write", "{}")][..], false, None),
        (&[&limited], false, Some(10)),
        (&[AMPLIFIER], false, Some(1000 * rigline::protocol::amplifier::TIMEOUT.as_secs())),
        (&[NAMEL3SS], false, None),
        (&[r#"{"protocol_version":1,"tool":"write","payload":{},"timeout_ms":5}"#], false, Some(5)),
        (&MCP, true, None),
        (&[MCP[0], &limited_in_mcp], true, Some(7)),
    ] {
        let mut told = None;
        reply(lines, 1024, 0, |cx| {
            told = Some((cx.has_content(), cx.deadline()));
            cx.done("done")
        });
        let deadline = millis.map(|millis| rigline::Instant::from_nanos(millis * MS));
        assert_eq!(told, Some((has_content, deadline)), "{lines:?}");
    }
}

/// A driver of another crate may have a sink of three functions.
#[test]
fn a_plain_sink_sends_at_once_takes_all_progress_and_tells_no_length() {
    struct Plain;
    impl LogSink for Plain {
        fn room(&mut self) -> &mut [u8] {
            &mut []
        }

        fn commit(&mut self, _: usize) {}

        fn dropped(&mut self) {}
    }
    assert_eq!((Plain.is_queue(), Plain.progressed(0), Plain.progressed(0), Plain.capacity()), (false, true, true, 0));
}

/// Where the message is a member beside the outputs, there is only one member of this name.
#[test]
fn an_output_called_message_is_in_the_place_of_the_message() {
    for line in [AMPLIFIER, NAMEL3SS] {
        for (outputs, expected) in [
            (&["message"][..], r#"{"message":"output"}"#),
            (&["message", "x"], r#"{"message":"output","x":"output"}"#),
            (&["x", "message"], r#"{"x":"output","message":"output"}"#),
            (&["x"], r#"{"x":"output","message":"done"}"#),
            (&["messages"], r#"{"messages":"output","message":"done"}"#),
        ] {
            let reply = reply(&[line], 1024, 0, |cx| {
                outputs.iter().try_for_each(|name| cx.output(name, "output"))?;
                cx.done("done")
            });
            assert!(reply.contains(&format!(r#""result":{expected}"#)), "{reply}");
        }
    }
}
