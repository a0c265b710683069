//! JSON-RPC 2.0: the specification's own examples (§7), ids, batches, envelopes.

use crate::common::{INITIALIZE, PLAIN, SHUT, SHUTDOWN, ask, execute, id_and_code, request, talk};
use rigline::rpc::{MAX_BATCH, MAX_ID};

#[test]
fn members_of_replies_in_a_request_are_nothing_to_it() {
    let plain = execute("1", "work", r#"{"ms":1,"logs":1}"#);
    let wanted = talk(std::slice::from_ref(&plain));
    for more in [r#""result":{"ms":"x"}"#, r#""error":["x"]"#, r#""result":1,"error":{"code":1,"message":"x"}"#] {
        let behind = plain.strip_suffix('}').unwrap().to_owned() + "," + more + "}";
        let before = format!("{{{more},{}", plain.strip_prefix('{').unwrap());
        assert_eq!(talk(&[behind]), wanted, "{more}");
        assert_eq!(talk(&[before]), wanted, "{more}");
    }
}

/// §7, its methods being unknown to an extension: a request is -32601 where the text has a result.
#[test]
fn the_examples_of_the_specification() {
    // The ids and codes of what comes out; none where nothing does.
    let table: &[(&str, &[(&str, i64)])] = &[
        // "rpc call with positional parameters"
        (r#"{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}"#, &[("1", -32601)]),
        (r#"{"jsonrpc": "2.0", "method": "subtract", "params": [23, 42], "id": 2}"#, &[("2", -32601)]),
        // "rpc call with named parameters"
        (
            r#"{"jsonrpc": "2.0", "method": "subtract", "params": {"subtrahend": 23, "minuend": 42}, "id": 3}"#,
            &[("3", -32601)],
        ),
        (
            r#"{"jsonrpc": "2.0", "method": "subtract", "params": {"minuend": 42, "subtrahend": 23}, "id": 4}"#,
            &[("4", -32601)],
        ),
        // "a Notification"
        (r#"{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}"#, &[]),
        (r#"{"jsonrpc": "2.0", "method": "foobar"}"#, &[]),
        // "rpc call of non-existent method"
        (r#"{"jsonrpc": "2.0", "method": "foobar", "id": "1"}"#, &[("\"1\"", -32601)]),
        // "rpc call with invalid JSON"
        (r#"{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]"#, &[("null", -32700)]),
        // "rpc call with invalid Request object"
        (r#"{"jsonrpc": "2.0", "method": 1, "params": "bar"}"#, &[("null", -32600)]),
        // "rpc call Batch, invalid JSON"
        (
            r#"[ {"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"}, {"jsonrpc": "2.0", "method" ]"#,
            &[("null", -32700)],
        ),
        // "rpc call with an empty Array"
        ("[]", &[("null", -32600)]),
    ];
    for (line, expected) in table {
        let replies: Vec<_> = talk(&[line]).iter().map(|reply| id_and_code(reply)).collect();
        let expected: Vec<_> = expected.iter().map(|(id, code)| ((*id).to_owned(), *code)).collect();
        assert_eq!(replies, expected, "{line}");
    }
    // "rpc call with an invalid Batch (but not empty)", "rpc call with invalid Batch"
    for count in [1, 3] {
        let members = vec![(String::from("null"), -32600); count];
        assert_eq!(batch(&format!("{:?}", (1..=count).collect::<Vec<_>>())), members);
    }
    // "rpc call Batch"; `shutdown` is the one method here that answers without arguments.
    let mixed = r#"[
        {"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
        {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]},
        {"jsonrpc": "2.0", "method": "subtract", "params": [42,23], "id": "2"},
        {"foo": "boo"},
        {"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},
        {"jsonrpc": "2.0", "method": "shutdown", "id": "9"}
    ]"#;
    let expected = [("\"1\"", -32601), ("\"2\"", -32601), ("null", -32600), ("\"5\"", -32601), ("\"9\"", 0)].map(owned);
    assert_eq!(batch(&mixed.replace('\n', " ")), expected);
    // "rpc call Batch (all notifications)"
    let notifications = r#"[{"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]}, {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]}]"#;
    assert_eq!(talk(&[notifications]), [""; 0]);
}

fn owned((id, code): (&str, i64)) -> (String, i64) {
    (id.to_owned(), code)
}

/// The members of the one line that comes out.
fn members(line: &str) -> Vec<String> {
    let members: Vec<&serde_json::value::RawValue> =
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    members.iter().map(|member| member.get().to_owned()).collect()
}

fn batch(line: &str) -> Vec<(String, i64)> {
    members(&ask(line)).iter().map(|member| id_and_code(member)).collect()
}

#[test]
fn ids_come_back_byte_for_byte() {
    let longest = format!("\"{}\"", "x".repeat(MAX_ID - 2));
    let escaped = format!("\"{}\"", "\\u00e9".repeat(66));
    let digits = "7".repeat(MAX_ID);
    let ids = [
        r#""1""#,
        r#""abc-123""#,
        r#""a\"b\\c""#,
        r#""\u00e9\n""#,
        r#""é\/\u002F""#,
        r#""7b9e2f60-3a56-4f29-9c1e-5d0b8a6c7e11""#,
        r#""""#,
        r#"" ""#,
        "\"\u{2028}\u{7f}\"",
        r#""\ud83d\ude00😀""#,
        r#""{\"id\":1}""#,
        r#""],""#,
        "0",
        "1",
        "-5",
        "-0",
        "2147483648",
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
        "1501691352102",
        "1.5",
        "1e3",
        "1E+3",
        "1.0",
        "0.10",
        "1e400",
        "-1.50e-400",
        "null",
        &longest,
        &escaped,
        &digits,
    ];
    for id in ids {
        let success = ask(execute(id, "say", r#"{"text":"hi"}"#));
        assert_eq!(success, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"success":true,"message":"hi"}}}}"#));
        let cases = [
            (request(id, "nope"), -32601),
            (execute(id, "nope", "{}"), -32601),
            (execute(id, "say", "[]"), -32602),
            (execute(id, "say", r#"{"text":1}"#), -32602),
            (execute(id, "refuse", r#"{"text":"gone"}"#), -32000),
            (request(id, "shutdown"), 0),
            (format!(r#"{{"jsonrpc":"1.0","id":{id},"method":"shutdown"}}"#), -32600),
            (format!(r#"{{"jsonrpc":"2.0","id":{id},"method":7}}"#), -32600),
            (format!("{{\"method\":\"shutdown\",\"id\" \t:\r {id} \t,\"jsonrpc\":\"2.0\"}}"), 0),
            (format!(r#"{{"jsonrpc":"2.0","id":{{}},"method":"shutdown","\u0069d":{id}}}"#), 0),
        ];
        for (line, code) in cases {
            assert_eq!(id_and_code(&ask(&line)), owned((id, code)), "{line}");
            assert_eq!(batch(&format!("[{line}]")), [owned((id, code))], "{line}");
        }
    }
}

#[test]
fn an_id_is_never_cut() {
    for length in [MAX_ID - 1, MAX_ID, MAX_ID + 1, 10 * MAX_ID] {
        for id in
            [format!("\"{}\"", "x".repeat(length - 2)), "1".repeat(length), format!("-1.{}", "0".repeat(length - 3))]
        {
            let served = crate::common::Setup { request: 8192, ..PLAIN }.serve(request(&id, "shutdown"));
            let expected = if length <= MAX_ID { (id, 0) } else { ("null".to_owned(), -32600) };
            assert_eq!(id_and_code(served.lines()[0]), expected);
            let is_named = served.lines()[0].contains("Invalid Request: the id is longer than 400 bytes");
            assert_eq!(is_named, length > MAX_ID, "{length}");
        }
    }
}

#[test]
fn no_other_id_is_one() {
    for id in ["{}", "[]", "[1]", "true", "false", r#"{"id":1}"#] {
        for line in [request(id, "shutdown"), request(id, "nope"), execute(id, "say", "{}")] {
            assert_eq!(id_and_code(&ask(&line)), owned(("null", -32600)), "{line}");
        }
    }
}

/// JSON, but no JSON-RPC request.
/// Reports: vshulcz/deja-vu#1796, modelcontextprotocol/typescript-sdk#2488,
/// modelcontextprotocol/go-sdk#999.
#[test]
fn bad_envelopes() {
    let table = [
        ("{}", "null", -32600),
        (r#"{"id":4,"method":"shutdown"}"#, "4", -32600),
        (r#"{"jsonrpc":"1.0","id":4,"method":"shutdown"}"#, "4", -32600),
        (r#"{"jsonrpc":2.0,"id":4,"method":"shutdown"}"#, "4", -32600),
        (r#"{"jsonrpc":null,"id":4,"method":"shutdown"}"#, "4", -32600),
        (r#"{"jsonrpc":"2.00","id":4,"method":"shutdown"}"#, "4", -32600),
        (r#"{"jsonrpc":["2.0"],"id":4,"method":"shutdown"}"#, "4", -32600),
        (r#"{"jsonrpc":"2.0","id":4}"#, "4", -32600),
        (r#"{"jsonrpc":"2.0","id":4,"method":1}"#, "4", -32600),
        (r#"{"jsonrpc":"2.0","id":4,"method":null}"#, "4", -32600),
        (r#"{"jsonrpc":"2.0","id":4,"method":["shutdown"]}"#, "4", -32600),
        (r#"{"jsonrpc":"2.0","id":4,"method":""}"#, "4", -32601),
        (r#"{"jsonrpc":"2.0","id":4,"method":"Shutdown"}"#, "4", -32601),
        (r#"{"jsonrpc":"2.0","id":4,"method":"shutdown "}"#, "4", -32601),
        (r#"{"jsonrpc":"2.0","id":4,"method":"shutdown\u0000"}"#, "4", -32601),
        (r#"{"jsonrpc":"2.0","id":{},"method":"shutdown"}"#, "null", -32600),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"shutdown"}"#, "null", -32600),
        (r#"{"jsonrpc":"1.0","id":{"a":"é"},"method":"shutdown"}"#, "null", -32600),
        (r#"{"JSONRPC":"2.0","ID":4,"METHOD":"shutdown"}"#, "null", -32600),
        (r#"{"jsonrpc":"2.0","params":{"id":4,"method":"shutdown"}}"#, "null", -32600),
        (r#"{"method":"nope"}"#, "null", -32600),
        (r#"{"jsonrpc":"2.0","method":5}"#, "null", -32600),
        ("\"hi\"", "null", -32600),
        ("null", "null", -32600),
        ("true", "null", -32600),
        ("3", "null", -32600),
        ("-0.5e1", "null", -32600),
    ];
    for (line, id, code) in table {
        assert_eq!(id_and_code(&ask(line)), owned((id, code)), "{line}");
        assert_eq!(batch(&format!("[{line}]")), [owned((id, code))], "{line}");
    }
}

/// The text of an invalid request says which member is wrong.
#[test]
fn a_bad_envelope_names_its_member() {
    for (line, text) in [
        ("3", "a request must be an object"),
        ("[5]", "a request must be an object"),
        ("[]", "an empty batch"),
        ("{}", "the member method is missing"),
        (r#"{"jsonrpc":"2.0","id":4}"#, "the member method is missing"),
        (r#"{"id":4,"method":"shutdown"}"#, "the member jsonrpc must be \"2.0\""),
        (r#"{"jsonrpc":"2.1","id":4,"method":7}"#, "the member jsonrpc must be \"2.0\""),
        (r#"{"jsonrpc":"2.0","id":4,"method":7}"#, "the member method must be a string"),
        (r#"{"jsonrpc":"2.0","id":[],"method":"shutdown"}"#, "the id must be a string, a number or null"),
        (r#"{"jsonrpc":"2.0","id":true,"method":"shutdown"}"#, "the id must be a string, a number or null"),
    ] {
        let reply: serde_json::Value = serde_json::from_str(&ask(line)).unwrap();
        let error = if line == "[5]" { &reply[0]["error"] } else { &reply["error"] };
        assert_eq!(
            *error,
            serde_json::json!({"code": -32600, "message": format!("Invalid Request: {text}")}),
            "{line}"
        );
    }
}

#[test]
fn replies_are_nobodys_to_answer() {
    let replies = [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
        r#"{"id":1,"result":5}"#,
        r#"{"error":{"code":-32700}}"#,
        r#"{"jsonrpc":"2.0","id":{},"error":3}"#,
    ];
    assert_eq!(talk(&replies), [""; 0]);
    assert_eq!(talk(&[format!("[{}]", replies.join(","))]), [""; 0]);
    let mixed = format!("[{},{},{}]", replies[0], request("7", "nope"), replies[2]);
    assert_eq!(batch(&mixed), [owned(("7", -32601))]);
}

/// §4.1, errors included.
/// Reports: HatriGt/hana-mcp-server#22, shaun0927/openchrome#144, jershell/simple-jsonrpc-js#6.
#[test]
fn notifications_get_silence() {
    let notifications = [
        r#"{"jsonrpc":"2.0","method":"nope"}"#,
        r#"{"jsonrpc":"2.0","method":""}"#,
        r#"{"jsonrpc":"2.0","method":"execute","params":{"operation":"bad"}}"#,
        r#"{"jsonrpc":"2.0","method":"execute"}"#,
        r#"{"jsonrpc":"2.0","method":"execute","params":7}"#,
        r#"{"jsonrpc":"2.0","method":"execute","params":{"operation":"say","context":{},"args":[]}}"#,
        r#"{"jsonrpc":"2.0","method":"execute","params":{"operation":"say","context":{},"args":{"text":5}}}"#,
        r#"{"jsonrpc":"2.0","method":"execute","params":{"operation":"work","context":{},"args":{"logs":3}}}"#,
        r#"{"jsonrpc":"2.0","method":"execute","params":{"operation":"outputs","context":{},"args":{}}}"#,
        r#"{"jsonrpc":"2.0","method":"execute","params":{"operation":"fail","context":{},"args":{}}}"#,
        r#"{"jsonrpc":"2.0","method":"execute","params":{"operation":"swap","context":{},"args":{}}}"#,
        r#"{"jsonrpc":"2.0","method":"execute","params":{"operation":"say","context":{"timeout":"never"}}}"#,
        r#"{"jsonrpc":"2.0","method":"initialize","params":17}"#,
        r#"{"jsonrpc":"2.0","method":"initialize","params":{"protocolVersion":"0.0.1","config":{"rail":"broken"}}}"#,
        r#"{"jsonrpc":"2.0","method":"initialize","params":{"protocolVersion":"0.0.1","config":{"rail":"3V3"}}}"#,
        r#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"m"}}"#,
    ];
    let mut lines: Vec<_> = notifications.iter().map(|line| (*line).to_owned()).collect();
    lines.push(format!("[{}]", notifications.join(",")));
    lines.push(request("5", "nope"));
    let replies = talk(&lines);
    assert_eq!(replies.iter().map(|reply| id_and_code(reply)).collect::<Vec<_>>(), [owned(("5", -32601))]);
}

/// A notification ends the session as well as a request does, in silence.
#[test]
fn shutdown_may_be_a_notification() {
    let shutdown = r#"{"jsonrpc":"2.0","method":"shutdown"}"#;
    for shutdown in [shutdown.to_owned(), format!("[{shutdown}]")] {
        let served = PLAIN.serve(crate::common::joined(&[INITIALIZE, &shutdown, &request("6", "nope")]));
        assert_eq!((served.lines().len(), served.end), (1, rigline::serve::End::Shutdown));
        assert!(served.events.is_empty());
    }
}

#[test]
fn a_batch_is_bounded_before_any_member_runs() {
    for count in [1, MAX_BATCH - 1, MAX_BATCH, MAX_BATCH + 1, 10 * MAX_BATCH] {
        let line = format!("[{}]", vec![execute("1", "say", "{}"); count].join(","));
        let served = crate::common::Setup { request: 200_000, reply: 100_000, ..PLAIN }.serve(line);
        let [reply] = served.lines()[..] else { panic!("one line") };
        if count <= MAX_BATCH {
            assert_eq!((members(reply).len(), served.events.len()), (count, 2 * count));
        } else {
            assert_eq!(id_and_code(reply), owned(("null", -32600)));
            assert!(served.events.is_empty());
        }
    }
    // Notifications are members too.
    let line = format!("[{}]", vec![r#"{"jsonrpc":"2.0","method":"x"}"#; MAX_BATCH + 1].join(","));
    assert_eq!(id_and_code(&ask(line)), owned(("null", -32600)));
}

/// The room that a batch needs is that of an error for each of its requests, with the commas and the brackets. It is exact.
#[test]
fn a_batch_is_refused_where_its_replies_may_not_fit() {
    let ids = ["1", "\"a longer one\"", "22", &"7".repeat(200), "null"];
    let members: Vec<_> = ids.iter().map(|id| request(id, "nope")).collect();
    let line = format!(r#"[{},{{"jsonrpc":"2.0","method":"nope"}}]"#, members.join(","));
    // A number stands for what is no request, which has no id of its own.
    for (line, room) in [
        (line.clone(), ids.iter().map(|id| 161 + id.len()).sum::<usize>()),
        (line.replacen('[', "[5,", 1), 161 + ids.iter().map(|id| 161 + id.len()).sum::<usize>()),
    ] {
        for limit in room..room + 6 {
            let served = crate::common::Setup { reply: limit + 1, ..PLAIN }.serve(&line);
            let [reply] = served.lines()[..] else { panic!("one line: {:?}", served.lines()) };
            if room + 2 <= limit {
                let codes: Vec<_> = self::members(reply).iter().map(|member| id_and_code(member).1).collect();
                assert!(codes.ends_with(&[-32601; 5]), "{limit}: {reply}");
            } else {
                assert_eq!(id_and_code(reply), owned(("null", -32600)), "{limit}");
                assert!(reply.contains("a batch whose replies may not fit the reply buffer"), "{reply}");
            }
        }
    }
}

/// A member that does not fit costs its own reply, whichever member it is, and however little room
/// there is.
#[test]
fn a_member_whose_reply_does_not_fit_leaves_the_others_intact() {
    for place in 0..3 {
        for size in (1200..1300).step_by(7).chain([2000, 4000]) {
            let mut lines = [1, 2, 3].map(|id| execute(&id.to_string(), "say", r#"{"text":"fits"}"#));
            lines[place] = execute(&(place + 1).to_string(), "say", r#"{"text":"\u0001","times":4000}"#);
            let served = crate::common::Setup { reply: size, ..PLAIN }.serve(format!("[{}]", lines.join(",")));
            let replies = members(served.lines()[0]);
            assert_eq!(replies.len(), 3);
            for (index, reply) in replies.iter().enumerate() {
                let code = if index == place { -32603 } else { 0 };
                assert_eq!(id_and_code(reply), ((index + 1).to_string(), code), "{size}");
            }
        }
    }
}

#[test]
fn a_batch_without_room_for_its_replies_is_refused_as_a_whole() {
    let line = format!("[{}]", vec![execute("1", "say", "{}"); 20].join(","));
    for size in 600..4000 {
        let served = crate::common::Setup { reply: size, ..PLAIN }.serve(&line);
        let reply = served.lines()[0];
        if reply.starts_with('[') {
            assert_eq!(members(reply).len(), 20);
        } else {
            assert_eq!(id_and_code(reply), owned(("null", -32600)));
            assert!(served.events.is_empty());
        }
    }
}

#[test]
fn batches_of_everything() {
    // Logs go out as they are written; the batch's line follows them all.
    let work = |id| execute(id, "work", r#"{"logs":2,"ms":5}"#);
    let lines = talk(&[format!("[{},{},{}]", work("1"), request("2", "nope"), work("3"))]);
    assert_eq!(lines.len(), 5);
    assert!(lines[..4].iter().all(|line| line.contains(r#""method":"log""#)), "{lines:?}");
    assert_eq!(members(&lines[4]).len(), 3);

    // `initialize` with a configuration.
    let configure = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1","config":{"rail":"3\u00563"}}}"#;
    let served = PLAIN.serve(format!("[{configure},{}]", execute("2", "outputs", r#"{"text":"\"\n"}"#)));
    let replies = members(served.lines()[1]);
    assert!(replies[0].contains(r#""name":"test-rig""#) && replies[1].contains(r#""text":"\"\n""#), "{replies:?}");
    assert_eq!(served.events, ["rail 3V3", "outputs", "ended", "safe"]);

    // `shutdown` in the middle: what follows is refused, the batch is answered, then the session
    // ends.
    let say = |id| execute(id, "say", "{}");
    let served = PLAIN.serve(format!("[{},{},{}]\n{}", say("1"), SHUTDOWN, say("2"), say("3")));
    let replies: Vec<_> = members(served.lines()[0]).iter().map(|reply| id_and_code(reply)).collect();
    assert_eq!(replies, [("1", 0), ("\"end\"", 0), ("2", -32600)].map(owned));
    assert_eq!((served.lines().len(), served.end), (1, rigline::serve::End::Shutdown));

    // `shutdown` and a new session in one batch: the connection goes on.
    let served = PLAIN.serve(format!("[{SHUTDOWN},{INITIALIZE}]\n{}", say("3")));
    assert_eq!(served.lines().len(), 2);
    assert_eq!(id_and_code(served.lines()[1]), owned(("3", 0)));

    // Batches do not nest.
    assert_eq!(batch(&format!("[[{}],[]]", say("1"))), vec![owned(("null", -32600)); 2]);
    assert_eq!(batch("[[[]]]"), [owned(("null", -32600))]);
}

/// RFC 8259 §4: of members with one name, the last counts.
#[test]
fn of_duplicate_members_the_last_counts() {
    let table = [
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"shutdown"}"#, "2", 0),
        (r#"{"jsonrpc":"2.0","id":[],"id":2,"method":"shutdown"}"#, "2", 0),
        (r#"{"jsonrpc":"2.0","id":2,"id":[],"method":"shutdown"}"#, "null", -32600),
        (r#"{"jsonrpc":"1.0","id":2,"method":"shutdown","jsonrpc":"2.0"}"#, "2", 0),
        (r#"{"jsonrpc":"2.0","id":2,"method":"shutdown","jsonrpc":"1.0"}"#, "2", -32600),
        (r#"{"jsonrpc":"2.0","id":2,"method":"nope","method":"shutdown"}"#, "2", 0),
        (r#"{"jsonrpc":"2.0","id":2,"method":"shutdown","meth\u006fd":"nope"}"#, "2", -32601),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"0.0.1"},"params":{}}"#,
            "2",
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"0.0.1"},"params":[]}"#,
            "2",
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"0.0.1"},"params":null}"#,
            "2",
            -32602,
        ),
        (r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":7,"params":{"protocolVersion":"0.0.1"}}"#, "2", 0),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"say","context":{}},"par\u0061ms":{"operation":"say"}}"#,
            "2",
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"say","context":{"timeout":"bad"}},"params":{"operation":"say","context":{}}}"#,
            "2",
            0,
        ),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"say","context":{"timeout":"bad"},"context":{}}}"#,
            "2",
            0,
        ),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"say","context":{"agent":{"prompt":1}},"context":{"agent":{}}}}"#,
            "2",
            0,
        ),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"say","context":{"env":{"A":1},"env":{"A":"1"}}}}"#,
            "2",
            0,
        ),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"say","context":{"env":{"A":1}},"context":{"env":{}}}}"#,
            "2",
            0,
        ),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"say","context":{},"context":3}}"#,
            "2",
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"say","context":{},"args":{"text":7},"args":{}}}"#,
            "2",
            0,
        ),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"say","context":{},"args":{"text":7},"args":null}}"#,
            "2",
            0,
        ),
        // A typed argument is no view: twice is an error.
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"say","context":{},"args":{"text":"a","text":"b"}}}"#,
            "2",
            -32602,
        ),
    ];
    for (line, id, code) in table {
        assert_eq!(id_and_code(&ask(line)), owned((id, code)), "{line}");
        assert_eq!(batch(&format!("[{line}]")), [owned((id, code))], "{line}");
    }
}

#[test]
fn names_may_be_escaped_and_tokens_spaced() {
    let expected = r#"{"jsonrpc":"2.0","id":1,"result":{"success":true,"message":"hi"}}"#;
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"m\u0065thod":"execute","params":{"operation":"say","args":{"text":"hi"},"context":{}}}"#,
        r#"{"\u006asonrpc":"\u0032.0","\u0069\u0064":1,"method":"\u0065xecut\u0065","p\u0061rams":{"oper\u0061tion":"s\u0061y","arg\u0073":{"t\u0065xt":"\u0068i"},"cont\u0065xt":{}}}"#,
        r#"{"params":{"context":{},"args":{"text":"hi"},"operation":"say"},"method":"execute","id":1,"jsonrpc":"2.0"}"#,
        "{ \"jsonrpc\" : \"2.0\" , \"id\" : 1 , \"method\" : \"execute\" , \"params\" : { \"operation\" : \"say\" , \"args\" : { \"text\" : \"hi\" } , \"context\" : { } } } ",
        "\t{\r\t\"jsonrpc\"\t:\r\"2.0\"\r,\t\"id\"\r:\t1\r,\t\"method\"\r:\t\"execute\"\r,\t\"params\"\t:\r{\t\"operation\"\r:\t\"say\"\t,\r\"args\"\r:\r{\t\"text\"\r:\t\"hi\"\t}\r,\t\"context\"\t:\r{\r}\t}\r}\r\t",
        "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"execute\",\"params\":{\"operation\":\"say\",\"args\":{\"text\":\"hi\"},\"context\":{}}}",
        "\u{feff} \t{\"extra\":[{\"id\":2}],\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"execute\",\"params\":{\"id\":3,\"operation\":\"say\",\"method\":\"x\",\"args\":{\"text\":\"hi\"},\"context\":{\"x\":[]},\"y\":null},\"z\":\"\\\"}\"}\r\r",
    ];
    for line in lines {
        assert_eq!(ask(line), expected, "{line}");
        if !line.starts_with('\u{feff}') {
            assert_eq!(ask(format!("\r [\t{line}\r] ")), format!("[{expected}]"), "{line}");
        }
    }
    // Names that only begin or end like ours are others.
    let others = r#"{"jsonrpc":"2.0","id":1,"method":"shutdown","id2":2,"i":3,"":4,"id\u0000":5,"methodical":6,"params2":7,"\"id":8,"ID":9}"#;
    assert_eq!(id_and_code(&ask(others)), owned(("1", 0)));
}

/// `params` absent, null, empty, positional, or no structure at all.
/// Reports: neandertech/jsonrpclib#104, diem/diem#7208, neo-project/neo-modules#742.
#[test]
fn params_of_every_kind() {
    let methods: [(&str, [i64; 7]); 4] = [
        ("shutdown", [0, 0, 0, 0, 0, -32602, -32602]),
        ("initialize", [-32602; 7]),
        ("execute", [-32602; 7]),
        ("nope", [-32601; 7]),
    ];
    let params = [
        "",
        r#","params":null"#,
        r#","params":{}"#,
        r#","params":[]"#,
        r#","params":["say",{}]"#,
        r#","params":3"#,
        r#","params":"{}""#,
    ];
    for (method, codes) in methods {
        for (params, code) in params.iter().zip(codes) {
            let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"{params}}}"#);
            assert_eq!(id_and_code(&ask(&line)), owned(("1", code)), "{line}");
        }
    }
    assert_eq!(ask(SHUTDOWN), SHUT);
}

/// Bytes may come in between any two steps, in the middle of a batch too.
#[test]
fn reading_between_the_steps_of_a_batch_loses_nothing() {
    use rigline::engine::{Engine, Memory, Step};
    let line = format!("[{},{},{}]\n", execute("1", "say", "{}"), execute("2", "say", "{}"), request("3", "nope"));
    let later = format!("{}\n", request("4", "nope"));
    let mut later = later.as_bytes();
    let (mut request, mut reply) = ([0; 1024], [0; 1024]);
    let mut engine =
        Engine::new(&crate::common::MANIFEST, Memory { request: &mut request, reply: &mut reply }).unwrap();
    engine.space()[..line.len()].copy_from_slice(line.as_bytes());
    engine.commit(line.len());
    let mut out = Vec::new();
    loop {
        match engine.step() {
            Step::Read if later.is_empty() => break,
            Step::Read => {}
            Step::Write(line) => out.push(String::from_utf8(line.to_vec()).unwrap()),
            Step::Run(_) => engine.complete(&Ok(rigline::Outcome::message("ran"))),
            _ => unreachable!(),
        }
        if let (Some((byte, rest)), [place, ..]) = (later.split_first(), engine.space()) {
            *place = *byte;
            later = rest;
            engine.commit(1);
        }
    }
    assert_eq!(
        members(&out[0]).iter().map(|reply| id_and_code(reply)).collect::<Vec<_>>(),
        [("1", 0), ("2", 0), ("3", -32601)].map(owned)
    );
    assert_eq!(id_and_code(&out[1]), owned(("4", -32601)));
}
