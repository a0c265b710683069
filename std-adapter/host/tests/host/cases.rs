//! The cases of what an extension writes: a script, and what comes of it.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;

use crate::common::{fake, go, message, options, trial};
use rigline_host::Host;
use rigline_host::{Options, Shutdown};

/// A case: its name; what the extension does; what the start gives (its error, or nothing); what each call gives; texts
/// that must be among the events.
struct Case {
    name: &'static str,
    script: &'static str,
    start: &'static str,
    calls: &'static [&'static str],
    events: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        // editor-code-assistant/eca#298, microsoft/azure-devops-mcp#147.
        name: "noise before and between replies",
        script: r#"
            say Loading config...
            say 🚀 ready
            say [1,2]
            say "text"
            say 42
            init
            say {"status":200}
            ok
            forever"#,
        start: "",
        calls: &["ok 2"],
        events: &[
            "skipped: Loading config... (not JSON",
            "skipped: 🚀 ready",
            "skipped: [1,2] (JSON, but not an object)",
            "skipped: \"text\"",
            "skipped: 42",
            "skipped: {\"status\":200} (JSON, but not a JSON-RPC message)",
        ],
    },
    Case {
        // yc-software/qm#1034, BYVoid/OpenCC#1201.
        name: "the last reply without a newline",
        script: r#"
            init
            read
            print {"jsonrpc":"2.0","id":$id,"result":{"success":true,"message":"last"}}
            exit 0"#,
        start: "",
        calls: &["last", "error: fake has ended: exit status 0"],
        events: &[],
    },
    Case {
        // yc-software/qm#1034, BYVoid/OpenCC#1201.
        name: "the stream ends in a message",
        script: r#"
            init
            read
            print {"jsonrpc":"2.0","id":$id,"res
            exit 0"#,
        start: "",
        calls: &["error: fake answered with something that cannot be used: not JSON: the line ends inside a value"],
        events: &[],
    },
    Case {
        // modelcontextprotocol/go-sdk#665, stackql/stackql#668.
        name: "cr lf and more",
        script: r#"
            read
            say {"jsonrpc":"2.0","id":$id,"result":{"name":"fake"}}\x0d
            read
            say {"jsonrpc":"2.0","id":$id,"result":{"success":true,"message":"m"}}\x0d\x0d
            forever"#,
        start: "",
        calls: &["m"],
        events: &[],
    },
    Case {
        // FellouAI/eko#276, FellouAI/eko#286.
        name: "a byte at a time",
        script: r#"
            init
            read
            trickle {"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"slow"}}
            trickle {"jsonrpc":"2.0","id":$id,"result":{"success":true,"message":"m"}}
            forever"#,
        start: "",
        calls: &["m"],
        events: &["info: slow"],
    },
    Case {
        // FellouAI/eko#276, FellouAI/eko#286.
        name: "many messages at once",
        script: r#"
            init
            read
            print {"jsonrpc":"2.0","method":"log","params":{"message":"a"}}\x0a{"jsonrpc":"2.0","method":"log","params":{"message":"b"}}\x0a\x0a{"jsonrpc":"2.0","id":$id,"result":{"success":true,"message":"m"}}\x0a{"jsonrpc":"2.0","method":"log","params":{"message":"c"}}\x0a
            ok
            forever"#,
        start: "",
        calls: &["m", "ok 3"],
        events: &["info: a", "info: b", "info: c"],
    },
    Case {
        // mark3labs/mcp-go#956, simonx1/ruby-mcp-client#142.
        name: "a megabyte of standard error",
        script: "errors 1048576\ninit\nread\nerrors 307200\nsay {\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"success\":true,\"message\":\"m\"}}\nforever",
        start: "",
        calls: &["m"],
        events: &["0000000000000"],
    },
    Case {
        // modelcontextprotocol/python-sdk#332, earendil-works/pi#4764.
        name: "it exits at once",
        script: "exit 1",
        start: "has ended: exit status 1",
        calls: &[],
        events: &["ended: exit status 1"],
    },
    Case {
        // modelcontextprotocol/python-sdk#332, earendil-works/pi#4764.
        name: "it dies in a call",
        script: "init\nread\nerror thread 'main' panicked\nerror panic: boom \\xbd\nexit 3",
        start: "",
        calls: &[
            "error: fake has ended: exit status 3\nits standard error ends with:\n  thread 'main' panicked\n  panic: boom \u{fffd}",
            "error: fake has ended: exit status 3",
        ],
        events: &["panic: boom \u{fffd}"],
    },
    Case {
        // modelcontextprotocol/python-sdk#332, earendil-works/pi#4764.
        name: "it is killed",
        script: "init\nread\ndie",
        start: "",
        calls: &["error: fake has ended: killed by signal 9 (SIGKILL)"],
        events: &[],
    },
    Case {
        // modelcontextprotocol/python-sdk#332, earendil-works/pi#4764.
        name: "it closes its output and goes on",
        script: "init\nread\nclose-output\nforever",
        start: "",
        calls: &[
            "error: fake: it closed its standard output, and still runs",
            "error: fake: it closed its standard output",
        ],
        events: &[],
    },
    Case {
        // BaseIntelligence/bounty-challenge#15386, BaseIntelligence/bounty-challenge#12850.
        name: "logs before, between and after",
        script: r#"
            init
            read
            say {"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"one"}}
            say {"jsonrpc":"2.0","method":"log","params":{"level":"trace","message":"two"}}
            say {"jsonrpc":"2.0","method":"log","params":{"message":"three","data":{"a":1}}}
            say {"jsonrpc":"2.0","method":"x.y"}
            say {"jsonrpc":"2.0","id":$id,"result":{"success":true,"message":"m"}}
            say {"jsonrpc":"2.0","method":"log","params":{"level":"warn","message":"four"}}
            ok
            forever"#,
        start: "",
        calls: &["m", "ok 3"],
        events: &["info: one", "trace: two", "info: three {\"a\":1}", "notification x.y null", "warn: four"],
    },
    Case {
        // anomalyco/opencode#17282, logancyang/obsidian-copilot#2876.
        name: "text glued to the reply",
        script: r#"
            read
            say \x1b]0;dev: ready\x07{"jsonrpc":"2.0","id":$id,"result":{"name":"fake"}}
            read
            say \x1b[2K\x0d{"jsonrpc":"2.0","id":$id,"result":{"success":true,"message":"a"}}
            read
            say Booting v1.2...{"jsonrpc":"2.0","id":$id,"result":{"success":true,"message":"b"}}
            read
            say {"jsonrpc":"2.0","id":$id,"result":{"success":true,"message":"c"}}done
            forever"#,
        start: "",
        calls: &["a", "b", "c"],
        events: &["skipped: Booting v1.2...", "there is other text on the message's line", "skipped: done"],
    },
    Case {
        // modelcontextprotocol/kotlin-sdk#956, modelcontextprotocol/typescript-sdk#2790.
        name: "a byte order mark",
        script: "read\nsay \\xef\\xbb\\xbf{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"name\":\"fake\"}}\nok\nforever",
        start: "",
        calls: &["ok 2"],
        events: &[],
    },
    Case {
        // helidon-io/helidon-mcp#65, zawatton/anvil.el#35.
        name: "an error with id null",
        script: r#"
            init
            read
            say {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}
            read
            print {"jsonrpc":"2.0","error":{"code":-32700,"message":"again"}}\x0a{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"nobody's"}}\x0a
            ok
            forever"#,
        start: "",
        calls: &["failed: Parse error (-32700)", "failed: again (-32700)", "ok 4"],
        events: &["an error that names no request: Parse error", "an error that names no request: nobody's"],
    },
    Case {
        // helidon-io/helidon-mcp#65, zawatton/anvil.el#35.
        name: "initialize is answered with id null",
        script: "read\nsay {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"Parse error\"}}\nforever",
        start: "refused to start a session: Parse error (-32700)",
        calls: &[],
        events: &[],
    },
    Case {
        // smart-mcp-proxy/mcpproxy-go#953, kubescape/kubescape#3505.
        name: "null and numbers",
        script: r#"
            read
            say {"jsonrpc":"2.0","id":$id,"result":{"name":"fake","requires":null,"operations":null}}
            read
            say {"jsonrpc":"2.0","id":$id,"result":{"success":true,"message":null,"outputs":null}}
            read
            say {"jsonrpc":"2.0","id":$id,"result":{"success":true,"message":"m","outputs":{"n":3,"b":true,"z":null}}}
            forever"#,
        start: "",
        calls: &["", "m"],
        events: &[],
    },
    Case {
        // theoriclabs/LeanDB#57, sysprog21/zhtw-mcp#7.
        name: "not utf-8",
        script: r#"
            init
            read
            say {"jsonrpc":"2.0","id":$id,"result":{"success":true,"message":"\xbd"}}
            ok
            forever"#,
        start: "",
        calls: &["error: fake answered with something that cannot be used: not JSON: not UTF-8 at byte", "ok 3"],
        events: &["a damaged message: not JSON: not UTF-8"],
    },
    Case {
        // ndjson/ndjson-spec#1, BaseIntelligence/bounty-challenge#4400.
        name: "multi-line json",
        script: r#"
            init
            read
            say {
            say   "jsonrpc": "2.0",
            say   "id": $id,
            say   "result": {
            say     "success": true
            say   }
            say }
            ok
            forever"#,
        start: "",
        calls: &["error: fake answered with something that cannot be used: multi-line JSON", "ok 3"],
        events: &["multi-line JSON"],
    },
    Case {
        // ndjson/ndjson-spec#1, BaseIntelligence/bounty-challenge#4400.
        name: "a multi-line manifest",
        script: "read\nsay {\nsay \"jsonrpc\": \"2.0\",\nsay \"id\": $id,\nsay \"result\": {}\nsay }\nforever",
        start: "multi-line JSON",
        calls: &[],
        events: &[],
    },
    Case {
        // zonemaster/zonemaster-backend#431.
        name: "failures of every shape",
        script: r#"
            init
            read
            say {"jsonrpc":"2.0","id":$id,"result":{"success":false,"error":"unknown operation: appply"}}
            read
            say {"jsonrpc":"2.0","id":$id,"error":{"code":-32601,"message":"Unknown operation: appply"}}
            read
            say {"jsonrpc":"2.0","id":$id,"result":{"message":"m"}}
            read
            say {"jsonrpc":"2.0","id":$id,"error":{"code":"-32601","message":"m"}}
            read
            say {"jsonrpc":"2.0","id":$id,"error":"text"}
            read
            say {"jsonrpc":"2.0","id":$id,"result":{"success":false}}
            read
            say {"jsonrpc":"2.0","id":$id,"result":null,"error":{"code":1,"message":"both"}}
            read
            say {"jsonrpc":"2.0","id":$id}
            forever"#,
        start: "",
        calls: &[
            "failed: unknown operation: appply",
            "failed: Unknown operation: appply (-32601)",
            "failed: invalid result: the result has no success (its message: m)",
            "failed: m (-32601)",
            "failed: text",
            "failed: the operation failed without a reason",
            "failed: both (1)",
            "error: fake answered with something that cannot be used: the reply has neither a result nor an error",
        ],
        events: &[],
    },
    Case {
        // apify/apify-client-python#87, flop-labs/technocore-chat#90.
        name: "not a number",
        script: r#"
            init
            read
            say {"jsonrpc":"2.0","id":$id,"result":{"success":true,"data":{"t":NaN}}}
            ok
            forever"#,
        start: "",
        calls: &["error: fake answered with something that cannot be used: not JSON: invalid number", "ok 3"],
        events: &["(NaN)"],
    },
    Case {
        name: "a reply without jsonrpc",
        script: r#"
            read
            say {"id":$id,"result":{"name":"fake"}}
            read
            say {"id":$id,"result":5}
            read
            say {"error":{"code":-32700,"message":"{\"jsonrpc\":..."}}
            forever"#,
        start: "",
        calls: &["failed: invalid result: the result is not an object", "failed: {\"jsonrpc\":... (-32700)"],
        events: &["the message lacks \"jsonrpc\":\"2.0\""],
    },
    Case {
        name: "a manifest that is none",
        script: "read\nsay {\"id\":$id,\"result\":5}\nforever",
        start: "the manifest is not an object: 5",
        calls: &[],
        events: &[],
    },
    Case {
        name: "initialize is refused",
        script: "read\nsay {\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32602,\"message\":\"protocolVersion\"}}\nforever",
        start: "refused to start a session: protocolVersion (-32602)",
        calls: &[],
        events: &[],
    },
    Case {
        name: "a late reply is nobody else's",
        script: r#"
            init
            read
            sleep 1800
            say {"jsonrpc":"2.0","id":$2,"result":{"success":true,"message":"late"}}
            ok
            say {"jsonrpc":"2.0","id":$3,"result":{"success":true,"message":"twice"}}
            ok
            forever"#,
        start: "",
        calls: &["error: fake did not answer `go` within 1.5s", "ok 3", "ok 4"],
        events: &["a late reply to request 2 was dropped", "a late reply to request 3 was dropped"],
    },
    Case {
        name: "a reply to an id of its own",
        script: "init\nread\nsay {\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":{\"success\":true}}\nforever",
        start: "",
        calls: &["error: fake did not answer `go` within 1.5s (a reply came to an id that was never sent: \"x\")"],
        events: &["a reply to a request that was never sent was dropped: id \"x\""],
    },
    Case {
        name: "a request from the extension is refused",
        script: "init\nread\nsay {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"sampling\"}\nread\nsay {\"jsonrpc\":\"2.0\",\"id\":$2,\"result\":{\"success\":true,\"message\":\"m\"}}\nforever",
        start: "",
        calls: &["m"],
        events: &["a request was refused: sampling"],
    },
    Case {
        name: "a program that echoes",
        script: "read\nsay {\"jsonrpc\":\"2.0\",\"id\":$id,\"method\":\"initialize\",\"params\":{}}\nsay {\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"name\":\"fake\"}}\nok\nforever",
        start: "",
        calls: &["ok 2"],
        events: &["a request came back"],
    },
    Case {
        name: "it says nothing",
        script: "read\nforever",
        start: "did not answer within 4s of its start (it has written nothing at all)",
        calls: &[],
        events: &[],
    },
    Case {
        // can1357/oh-my-pi#1710, anomalyco/opencode#43258.
        name: "it closes its input and goes on",
        script: "init\nclose-input\nsleep 100\nsay ready\nforever",
        start: "",
        calls: &["", "error: fake: it closed its standard input, and still runs"],
        events: &[],
    },
    Case {
        // The same number, in another spelling, is the same id; and no other number is (erpc/erpc#869, erpc/erpc#851).
        // erpc/erpc#869, erpc/erpc#851.
        name: "ids that come back respelt",
        script: r#"
            init
            read
            say {"jsonrpc":"2.0","id":$id.0,"result":{"success":true,"message":"fraction"}}
            read
            say {"jsonrpc":"2.0","id":$ide0,"result":{"success":true,"message":"exponent"}}
            read
            say {"jsonrpc":"2.0","id":"$id","result":{"success":true,"message":"text"}}
            read
            say {"jsonrpc":"2.0","id":$id0e-1,"result":{"success":true,"message":"shifted"}}
            read
            say {"jsonrpc":"2.0","id":$id.5,"result":{"success":true,"message":"no"}}
            say {"jsonrpc":"2.0","id":$ide1,"result":{"success":true,"message":"no"}}
            say {"jsonrpc":"2.0","id":-$id,"result":{"success":true,"message":"no"}}
            say {"jsonrpc":"2.0","id":"$id ","result":{"success":true,"message":"no"}}
            say {"jsonrpc":"2.0","id":18446744073709551616,"result":{"success":true,"message":"no"}}
            say {"jsonrpc":"2.0","id":1e400,"result":{"success":true,"message":"no"}}
            say {"jsonrpc":"2.0","id":$id,"result":{"success":true,"message":"itself"}}
            forever"#,
        start: "",
        calls: &["fraction", "exponent", "text", "shifted", "itself"],
        events: &[],
    },
    Case {
        // mark3labs/mcp-go#588, mark3labs/mcp-go#155.
        name: "replies around 64 KiB and of megabytes",
        script: "init\npadded 65535\npadded 65536\npadded 65537\npadded 1048576\npadded 5242880\nok\nforever",
        start: "",
        calls: &["xxx", "xxx", "xxx", "xxx", "xxx", "ok 7"],
        events: &[],
    },
    Case {
        // btsouth/toolport#801, macanderson/stella#592.
        name: "no newline at all on standard error",
        script: "init\nread\nflood 31457280\nsay {\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"success\":true,\"message\":\"m\"}}\nforever",
        start: "",
        calls: &["m"],
        events: &["....."],
    },
];

pub(crate) fn trials() -> Vec<Trial> {
    CASES.iter().map(|case| trial(case.name, move || run(case))).chain(more()).collect()
}

async fn run(case: &Case) {
    let (mut options, seen) = options();
    if case.script.contains("padded") || case.script.contains("errors") || case.script.contains("flood") {
        // Megabytes take their time in a build without optimisation, on a machine with other things to do.
        options.start_timeout = Duration::from_secs(20);
        options.call_timeout = Duration::from_secs(20);
    }
    let started = Instant::now();
    let host = match Host::connect(&fake(case.script), options).await {
        Ok(host) => host,
        Err(error) => {
            let error = error.to_string();
            assert!(!case.start.is_empty() && error.contains(case.start), "{error}");
            assert!(started.elapsed() < Duration::from_secs(5));
            for expected in case.events {
                assert!(seen.has(expected), "{expected} is not among {:#?}", seen.lines());
            }
            return;
        }
    };
    assert_eq!(case.start, "");
    for expected in case.calls {
        if case.name == "it closes its input and goes on" && expected.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        let called = Instant::now();
        let found = message(go(&host).await);
        assert!(
            found.starts_with(expected),
            "{expected:?} is not the beginning of {:?}",
            found.get(..300).unwrap_or(&found)
        );
        if found.contains("has ended") {
            assert!(called.elapsed() < Duration::from_secs(1), "{:?}", called.elapsed());
        }
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    for expected in case.events {
        assert!(seen.has(expected), "{expected} is not among {:#?}", seen.lines());
    }
}

/// A case of the end: its script, and what the report must be.
type Ending = (&'static str, &'static str, Box<dyn Fn(&Shutdown) -> bool + Send>);

fn shutdowns() -> Vec<Ending> {
    let clean = |report: &Shutdown| report.is_clean();
    vec![
        // justrach/devswarm#387, rust-lang/rls#61.
        ("a clean end", "init\nack\nexit 0", Box::new(move |report| clean(report) && report.acknowledged)),
        (
            // justrach/devswarm#387, rust-lang/rls#61.
            "exit without a reply",
            "init\nread\nexit 0",
            Box::new(move |report| clean(report) && !report.acknowledged),
        ),
        // justrach/devswarm#387, rust-lang/rls#61.
        ("a reply and no exit", "init\nack\nforever", Box::new(|report| report.acknowledged && report.killed)),
        // justrach/devswarm#387, rust-lang/rls#61.
        ("shutdown is ignored", "init\nread\nforever", Box::new(|report| !report.acknowledged && report.killed)),
        (
            // justrach/devswarm#387, rust-lang/rls#61.
            "exit 1 after the reply",
            "init\nack\nexit 1",
            Box::new(|report| {
                report.acknowledged && !report.killed && report.exit.unwrap().to_string() == "exit status 1"
            }),
        ),
        (
            // justrach/devswarm#387, rust-lang/rls#61.
            "a log after the reply",
            "init\nack\nsay {\"jsonrpc\":\"2.0\",\"method\":\"log\",\"params\":{\"message\":\"bye\"}}\nexit 0",
            Box::new(clean),
        ),
        ("it waits for the end of its input", "init\nack\nread\nexit 0", Box::new(clean)),
        // It says nothing any more, and is not waited for (modelcontextprotocol/python-sdk#332, earendil-works/pi#4764).
        (
            "its output is closed",
            "init\nclose-output\nforever",
            Box::new(|report| report.killed && !report.acknowledged),
        ),
        ("it had ended before", "init\nexit 4", Box::new(|report| report.exit.unwrap().to_string() == "exit status 4")),
        (
            "shutdown is refused",
            "init\nread\nsay {\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"m\"}}\nexit 0",
            Box::new(|report| report.error.as_deref() == Some("m (-32601)") && !report.is_clean()),
        ),
    ]
}

fn more() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, script, is_right) in shutdowns() {
        trials.push(trial(name, move || async move {
            let (options, seen) = options();
            let host = Host::connect(&fake(script), options).await.unwrap();
            let started = Instant::now();
            let report = host.shutdown().await.unwrap();
            assert!(is_right(&report), "{report:?}");
            assert!(started.elapsed() < Duration::from_secs(2));
            assert!(!script.contains("bye") || seen.has("info: bye"));
            assert!(message(go(&host).await).starts_with("error: "));
        }));
    }
    trials.push(trial("a line over the limit fails that call alone", || async {
        for (length, is_too_long) in [(99_999, false), (100_000, false), (100_001, true)] {
            let (mut options, seen) = options();
            options.line_limit = 100_000;
            let host = Host::connect(&fake(&format!("init\npadded {length}\nok\nforever")), options).await.unwrap();
            let found = message(go(&host).await);
            let expected =
                format!("error: fake wrote a line that is too long: {length} bytes or more, and the limit is 100000");
            assert_eq!(found.starts_with(&expected), is_too_long, "{length}");
            assert_eq!(found.starts_with("xxx"), !is_too_long, "{length}");
            assert_eq!(seen.has(&format!("a line of {length} bytes was dropped")), is_too_long);
            assert_eq!(message(go(&host).await), "ok 3");
        }
    }));
    // btsouth/toolport#801, macanderson/stella#592.
    trials.push(trial("a line of 300 MB costs no more than the limit", || async {
        let before = resident();
        let (mut options, _) = options();
        options.call_timeout = Duration::from_secs(55);
        let host = Host::connect(&fake("init\nread\nzeros 300000000\nsay\nok\nforever"), options).await.unwrap();
        let found = message(go(&host).await);
        assert!(found.starts_with("error: fake wrote a line that is too long"), "{found}");
        assert_eq!(message(go(&host).await), "ok 3");
        let grown = resident().saturating_sub(before);
        // Other cases run beside this one.
        assert!(grown < 64 * 1024 * 1024, "{grown}");
    }));
    trials.push(trial("noise is bounded", || async {
        let (options, seen) = options();
        let script = format!(
            "init\nread\n{}say {{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{{\"success\":true}}}}\nforever",
            "say noise\n".repeat(1000)
        );
        let host = Host::connect(&fake(&script), options).await.unwrap();
        go(&host).await.unwrap();
        assert_eq!(seen.count(|kind| kind.to_string().starts_with("skipped: noise")), 100);
        assert!(seen.has("skipped 900 more lines"));
    }));
    trials.push(trial("a strict host wants jsonrpc", || async {
        let (mut options, _) = options();
        options.strict = true;
        let error = Host::connect(&fake("read\nsay {\"id\":$id,\"result\":{}}\nforever"), options).await.unwrap_err();
        assert!(error.to_string().contains("the reply lacks \"jsonrpc\":\"2.0\""), "{error}");
    }));
    trials.push(trial("the defaults are those of the documents", || async {
        let options = Options::default();
        let seconds = |duration: Duration| duration.as_secs();
        let deadlines = [options.start_timeout, options.call_timeout, options.shutdown_timeout].map(seconds);
        assert_eq!((deadlines, options.line_limit), ([10, 30, 5], 16 * 1024 * 1024));
    }));
    trials
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or_default() * 4096
}
