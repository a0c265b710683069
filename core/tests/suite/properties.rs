//! Properties of any session, any bytes, any cut.

use crate::common::{INITIALIZE, PLAIN, SHUTDOWN, Setup, execute, execute_in, id_and_code, request};
use proptest::prelude::*;
use rigline::exchange::LEAST_REPLY;
use rigline::frame::LineEnds;
use rigline::json::check::check;
use rigline::json::de;
use rigline::serve::Transport;
use serde::de::IgnoredAny;

/// `RIGLINE_CASES` is how many times as many.
fn cases(count: u32) -> ProptestConfig {
    let times = std::env::var("RIGLINE_CASES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    ProptestConfig::with_cases(count * times)
}

fn text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "3V3",
        " ",
        "\\\"",
        "\\\\",
        "\\/",
        "\\n",
        "\\u0001",
        "\\u00e9",
        "é",
        "\\ud83d\\ude00",
        "😀",
        "\\u2028",
        "{",
        "]",
        ",",
        "\\u005c",
        "\\u0022",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// One valid message, with an id from `id`.
fn message() -> impl Strategy<Value = String> {
    let id = prop::sample::select(vec!["1", "-5", "1.50", "1e400", "null", "\"a\\n\\u00e9\"", "18446744073709551616"]);
    let operation =
        prop::sample::select(vec!["say", "work", "outputs", "fail", "refuse", "swap", "stubborn", "nope", "s\\u0061y"]);
    let args =
        (text(), 0..40_usize, 0..4_usize, 0..20_u64, any::<bool>()).prop_map(|(text, times, logs, ms, quiet)| {
            format!(r#"{{"text":"{text}","times":{times},"logs":{logs},"ms":{ms},"quiet":{quiet}}}"#)
        });
    let args = prop_oneof![6 => args, 1 => Just("null".to_owned()), 1 => Just(r#"{"text":7}"#.to_owned())];
    let context = prop::sample::select(vec![
        "{}",
        r#"{"timeout":"15ms"}"#,
        r#"{"env":{"A":"1","B" : "2"}}"#,
        r#"{"workdir":"/tmp","phase":"","agent":null}"#,
        r#"{"timeout":"soon"}"#,
        "[]",
    ]);
    let execute = (id.clone(), operation, args, context).prop_map(|(id, op, args, cx)| execute_in(id, op, &args, cx));
    let rest = prop::sample::select(vec![
        INITIALIZE,
        r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"0.0.1","config":{"rail":"3\u00563"}}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"0.0.1","config":{"rail":"broken"}}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"9.0.0"}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"nope","params":[1]}"#,
        r#"{"jsonrpc":"2.0","method":"note"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#" { "id" : 3 , "method" : "execute" , "jsonrpc" : "2.0" } "#,
    ]);
    prop_oneof![
        6 => execute.clone(),
        1 => execute.prop_map(|line| line.replacen("\"id\"", "\"no\"", 1)),
        4 => rest.prop_map(str::to_owned),
    ]
}

fn line() -> impl Strategy<Value = String> {
    let batch = prop::collection::vec(message(), 1..5).prop_map(|members| format!("[{}]", members.join(",")));
    prop_oneof![
        12 => message(),
        3 => batch,
        1 => Just(String::new()),
        1 => Just(SHUTDOWN.to_owned()),
    ]
}

fn session() -> impl Strategy<Value = Vec<u8>> {
    let end = prop::sample::select(vec!["\n", "\r\n", "\n\n", " \r\r\n"]);
    (prop::collection::vec((line(), end), 1..8), any::<bool>()).prop_map(|(lines, open)| {
        let mut bytes: Vec<u8> = lines.iter().flat_map(|(line, end)| format!("{line}{end}").into_bytes()).collect();
        if open {
            while bytes.last().is_some_and(u8::is_ascii_whitespace) {
                bytes.pop();
            }
        }
        bytes
    })
}

/// Bytes that are nearly something.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\n",
        "\r",
        " ",
        "\"",
        "\\",
        "\\u00",
        "\\ud83d",
        "null",
        "true",
        "1",
        "-",
        "1e5",
        "\"id\":",
        "\"jsonrpc\":\"2.0\",",
        "\"method\":\"execute\",",
        "\"method\":\"shutdown\"",
        "\"params\":{",
        "\"operation\":\"say\",",
        "\"context\":{}",
        "\"args\":{",
        "\u{feff}",
        "é",
        "\"op\":\"health\"",
        "\"protocol_version\":1",
    ])
    .prop_map(|token| token.as_bytes().to_vec());
    let valid = session();
    let piece = prop_oneof![8 => token, 2 => prop::collection::vec(any::<u8>(), 1..4), 1 => valid];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn setup() -> impl Strategy<Value = Setup> {
    (any::<u64>(), prop::sample::select(vec![1, 2, 5, 60, 500])).prop_map(|(seed, longest)| Setup {
        cuts: Some((seed, longest)),
        log: 1 << 16,
        ..PLAIN
    })
}

#[cfg(feature = "async")]
fn served_async(setup: &Setup, bytes: &[u8]) -> crate::common::asynch::Outcome {
    use crate::common::asynch::{In, Session};
    Session { setup: setup.clone(), ..Session::new(vec![In::Bytes(bytes.to_vec())]) }.serve()
}

proptest! {
    #![proptest_config(cases(200))]

    /// Reads and writes of any size, blocking or async, in a buffer that holds little more than the
    /// longest line.
    #[test]
    fn cuts_do_not_matter(bytes in session(), cut in setup(), room in 0..40_usize) {
        let longest = bytes.split(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap_or_default();
        let request = longest + 1 + room;
        let whole = Setup { request, cuts: None, ..cut.clone() }.serve(&bytes);
        let cut = Setup { request, ..cut };
        let served = cut.serve(&bytes);
        prop_assert_eq!(String::from_utf8_lossy(&served.output), String::from_utf8_lossy(&whole.output));
        prop_assert_eq!((&served.events, served.end), (&whole.events, whole.end));
        // The async driver reads ahead, and a time limit counts from the arrival of its call.
        #[cfg(feature = "async")]
        {
            let bytes = String::from_utf8(bytes).unwrap().replace("15ms", "15h").into_bytes();
            let whole = Setup { request, cuts: None, ..cut.clone() }.serve(&bytes);
            let served = served_async(&cut, &bytes);
            prop_assert_eq!(String::from_utf8_lossy(&served.output), String::from_utf8_lossy(&whole.output));
            prop_assert_eq!((&served.events, served.result), (&whole.events, Ok(whole.end)));
        }
    }

    /// Messages beside bytes: what is said to a message does not depend on whether it comes whole
    /// or in a stream that is cut anywhere. Time limits are the drivers', so that no message here
    /// has one.
    #[test]
    fn whole_messages_have_the_outcomes_of_lines(bytes in session(), cut in setup()) {
        let bytes = String::from_utf8(bytes).unwrap().replace("15ms", "15h").into_bytes();
        let is_log = |line: &&str| line.starts_with(r#"{"jsonrpc":"2.0","method":"log""#);
        let served = cut.serve(&bytes);
        let lines: Vec<_> = served.lines().into_iter().filter(|line| !is_log(line)).collect();
        let messages: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
        prop_assume!(messages.iter().all(|line| line.len() < PLAIN.request));
        let whole = crate::common::exchanged(&messages);
        prop_assert_eq!(whole, lines);
    }

    /// Nothing panics, every line out is JSON and not blank, and no line in is answered twice.
    #[test]
    fn any_bytes_in_json_lines_out(
        bytes in noise(), cut in setup(), request in prop::sample::select(vec![1, 2, 50, 300, 4096]),
        reply in prop::sample::select(vec![LEAST_REPLY, 700, 4096]), serial in any::<bool>(), wire in any::<bool>(),
    ) {
        let ends = if serial { LineEnds::Serial } else { LineEnds::Lf };
        let kind = if wire { Transport::Stream } else { Transport::Stdio };
        let setup = Setup { request, reply, ends, kind, ..cut };
        let whole = Setup { cuts: None, ..setup.clone() }.serve(&bytes).output;
        let output = setup.serve(&bytes).output;
        prop_assert_eq!(&output, &whole);
        #[cfg(feature = "async")]
        let outputs = [output, served_async(&setup, &bytes).output];
        #[cfg(not(feature = "async"))]
        let outputs = [output];
        let most = bytes.split(|byte| *byte == b'\n' || serial && *byte == b'\r').count();
        for output in outputs {
            prop_assert!(output.is_empty() || output.ends_with(b"\n"), "half a line");
            let mut replies = 0;
            for line in output.split_inclusive(|byte| *byte == b'\n') {
                prop_assert!(serde_json::from_slice::<IgnoredAny>(line).is_ok(), "{}", line.escape_ascii());
                let is_log = line.windows(14).any(|part| part == b"\"method\":\"log\"");
                replies += usize::from(!is_log || line.starts_with(b"["));
            }
            prop_assert!(replies <= most, "{replies} replies to {most} lines");
        }
    }

    /// Each request that stands on a separate line is answered exactly once, whatever stands on the
    /// others.
    #[test]
    fn each_id_is_answered_once(noises in prop::collection::vec(noise(), 1..6), cut in setup()) {
        let mut bytes = Vec::new();
        for (id, mut noise) in noises.iter().cloned().enumerate() {
            // A shutdown would end it all, and these are our ids.
            noise.retain(|byte| !matches!(byte, b'h' | b'7'));
            bytes.extend([noise, b"\n".to_vec(), execute(&format!("\"7-{id}\""), "say", "{}").into_bytes(), b"\n".to_vec()].concat());
        }
        let check = |output: &[u8]| {
            let text = String::from_utf8_lossy(output).into_owned();
            let ids: Vec<_> = text.lines().filter(|line| line.starts_with(r#"{"jsonrpc":"2.0","id":"7-"#)).map(id_and_code).collect();
            let mut sorted = ids.clone();
            sorted.sort();
            let wanted: Vec<_> = (0..noises.len()).map(|id| (format!("\"7-{id}\""), 0)).collect();
            prop_assert_eq!(sorted, wanted);
            Ok(())
        };
        check(&cut.serve(&bytes).output)?;
        #[cfg(feature = "async")]
        check(&served_async(&cut, &bytes).output)?;
    }
}

/// JSON texts of at most six levels, spelt in many ways.
fn json() -> impl Strategy<Value = String> {
    let space = prop::sample::select(vec!["", "", "", " ", "\t", "\r\n"]);
    let string = text().prop_map(|text| format!("\"{text}\"")).boxed();
    let leaf = prop_oneof![
        prop::sample::select(vec![
            "null",
            "true",
            "false",
            "0",
            "-0",
            "17",
            "-1.5",
            "1e3",
            "1E-07",
            "0.0e+0",
            "12345678901234567890123",
            "\"\\ud800\"",
            "\"\"",
            "[]",
            "{}",
        ])
        .prop_map(str::to_owned),
        string.clone(),
    ];
    leaf.prop_recursive(6, 40, 5, move |inner| {
        let value =
            (space.clone(), inner, space.clone()).prop_map(|(before, value, after)| before.to_owned() + &value + after);
        let member = (space.clone(), string.clone(), space.clone(), value.clone())
            .prop_map(|(before, name, after, value)| format!("{before}{name}{after}:{value}"));
        prop_oneof![
            prop::collection::vec(value, 1..5).prop_map(|values| format!("[{}]", values.join(","))),
            prop::collection::vec(member, 1..5).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        prop::sample::select(b"{}[],:\"\\ntu01-+.eE \t\r\n\x00\x1f\x7f\xc3\xa9\xed\xa0\x80\xf0".to_vec()),
        any::<u8>()
    ];
    let change = (any::<prop::sample::Index>(), 0..4_u8, byte);
    (json(), prop::collection::vec(change, 0..4)).prop_map(|(text, changes)| {
        let mut bytes = text.into_bytes();
        for (at, how, byte) in changes {
            let at = at.index(bytes.len() + 1);
            match how {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                2 if at < bytes.len() => drop(bytes.remove(at)),
                _ => bytes.truncate(at),
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(cases(2000))]

    /// `serde_json` decides alike, both ways. It skips strings without a look at their UTF-8 (so
    /// they get a `str`), and takes 127 levels where we take 128; lone surrogates pass both until
    /// something decodes them.
    #[test]
    fn the_checker_agrees_with_serde_json(bytes in mutated()) {
        let theirs = std::str::from_utf8(&bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
        let ours = check(&bytes);
        prop_assert_eq!(ours.is_ok(), theirs, "{} {:?}", bytes.escape_ascii(), ours);
        crate::json_test_suite::scans_as_it_is_checked(&bytes);
        if let Err(error) = ours {
            prop_assert!(error.offset <= bytes.len());
            // All before the fault could still become JSON: a fault there would have been named
            // instead.
            if let Err(earlier) = check(&bytes[..error.offset]) {
                prop_assert_eq!(earlier.offset, error.offset, "{}", bytes.escape_ascii());
            }
        }
        // Decoded without the check, nothing panics.
        let _ = de::from_checked::<serde_json::Value>(&mut bytes.clone());
        let _ = de::from_checked::<std::collections::BTreeMap<String, Vec<Option<f64>>>>(&mut bytes.clone());
        let _ = de::from_checked::<Vec<(i8, &str)>>(&mut bytes.clone());
    }

    /// The decoder's values are those of `serde_json`, where both accept the text: it refuses lone
    /// surrogates as we do.
    #[test]
    fn the_decoder_agrees_with_serde_json(text in json()) {
        let strings = text.replace("1e3", "1000").replace("1E-07", "2").replace("0.0e+0", "0").replace("-1.5", "-1").replace("-0", "0");
        let theirs: Result<serde_json::Value, _> = serde_json::from_str(&strings);
        let ours: Result<serde_json::Value, _> = de::from_checked(&mut strings.clone().into_bytes());
        prop_assert_eq!(ours.ok(), theirs.ok(), "{}", strings);
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// A value that is passed on keeps every byte but line breaks, as text and in logs.
    #[test]
    fn raw_values_pass_through(value in json()) {
        let served = PLAIN.serve(execute("1", "data", &format!(r#"{{"value":{}}}"#, value.replace('\n', " "))));
        let expected = value.replace('\n', " ").replace('\r', "");
        let lines = served.lines();
        let log = r#"{"jsonrpc":"2.0","method":"log","params":{"level":"debug","message":"data","data":"#;
        let datum = lines[0].strip_prefix(log).and_then(|rest| rest.strip_suffix("}}"));
        let wanted = if expected.starts_with('{') { expected.clone() } else { format!(r#"{{"value":{expected}}}"#) };
        prop_assert_eq!(datum, Some(&*wanted));
        let outputs = lines[1].split_once(r#""outputs":{"value":"#).and_then(|(_, rest)| rest.strip_suffix(r#"},"message":"passed on"}}"#));
        if expected.starts_with('"') {
            prop_assert_eq!(outputs, Some(&*expected));
        } else {
            prop_assert_eq!(serde_json::from_str::<String>(outputs.unwrap()).unwrap(), expected);
        }
    }
}

/// Every size of the reply region: a whole line, or one that says what size it takes, and that size
/// is right.
#[test]
fn every_size_of_the_reply_region() {
    for text in ["\\\"", "\\u0001"] {
        let per = if text == "\\\"" { 2 } else { 6 };
        for room in [0, 1, 100, 300, 599] {
            let times = (LEAST_REPLY + room) / per;
            for (operation, id) in [("say", "1".to_owned()), ("fail", format!("\"{}\"", "x".repeat(398)))] {
                let line = execute(&id, operation, &format!(r#"{{"text":"{text}","times":{times}}}"#));
                let serve = |reply: usize| {
                    let served = Setup { reply, ..PLAIN }.serve(&line);
                    let [line] = served.lines()[..] else { panic!("one line") };
                    line.to_owned()
                };
                let whole = serve(20_000);
                for reply in LEAST_REPLY..LEAST_REPLY + 600 {
                    let line = serve(reply);
                    if reply > whole.len() {
                        assert_eq!(line, whole, "{reply}");
                    } else {
                        assert_eq!(id_and_code(&line), (id.clone(), -32603));
                        let needed = format!("it needs {} bytes, the limit is {}", whole.len(), reply - 1);
                        assert!(line.contains(&needed), "{line}: {needed}");
                    }
                }
                assert_eq!(serve(whole.len() + 1), whole);
            }
        }
    }
    assert_eq!(id_and_code(&crate::common::ask(request("1", "nope"))).1, -32601);
}
