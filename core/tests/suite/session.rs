//! Whole sessions through the engine and its shells.

use crate::common::{NoTime, Pipe};
use rigline::engine::{Engine, Memory};
use rigline::protocol::gevals::TaskContext;
use rigline::serve::End;
use rigline::serve::blocking::Server;
use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Phase, Schema};

struct Kubernetes;

impl Extension for Kubernetes {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("kubernetes", "1.0.0").operations(&[
            Operation::new("create-namespace", Schema::OBJECT).description("Create a namespace"),
            Operation::new("condition", Schema::OBJECT),
            Operation::new("apply", Schema::OBJECT),
        ]);
        &MANIFEST
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        match call.operation() {
            "create-namespace" => {
                #[derive(serde::Deserialize)]
                struct Create<'a> {
                    name: &'a str,
                }
                let Create { name } = call.args()?;
                cx.info(format_args!("Creating namespace {name}"));
                cx.done(format_args!("Created namespace {name}"))
            }
            "condition" => {
                #[derive(serde::Deserialize)]
                #[serde(rename_all = "camelCase")]
                struct Condition<'a> {
                    resource: &'a str,
                    condition_type: &'a str,
                }
                let context = TaskContext::of(&call.context);
                assert_eq!(context.phase, Phase::Verify);
                assert!(context.workdir.unwrap() == "/tasks/create-pod");
                assert!(context.agent.unwrap().output.unwrap() == "Done");
                let Condition { resource, condition_type } = call.args()?;
                cx.info(format_args!("Checking {resource}..."));
                cx.info("Waiting, status=ContainerCreating");
                let name = resource.trim_start_matches("pod/");
                cx.done(format_args!("Pod {name} {condition_type}=True"))
            }
            _ => {
                #[derive(serde::Deserialize)]
                struct Apply<'a> {
                    file: &'a str,
                    #[serde(default = "default")]
                    namespace: &'a str,
                }
                fn default() -> &'static str {
                    "default"
                }
                let Apply { file, namespace } = call.args()?;
                let mut variables = TaskContext::of(&call.context).env();
                if let Some((name, value)) = variables.next() {
                    cx.debug(format_args!("{name}={value}, and {} more", variables.count()));
                }
                cx.output("resourceVersion", &12345)?;
                cx.done(format_args!("Applied {file} to namespace {namespace}"))
            }
        }
    }
}

fn session(input: &str) -> String {
    let (mut request, mut reply, mut log) = ([0; 4096], [0; 4096], [0; 1024]);
    let mut engine = Engine::new(Kubernetes.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
    let mut pipe = Pipe::new(input.as_bytes());
    let end = Server::new(&mut Kubernetes, &mut engine, &NoTime).log_buffer(&mut log).serve(&mut pipe).unwrap();
    assert!(matches!(end, End::Input | End::Shutdown));
    String::from_utf8(pipe.output).unwrap()
}

/// `→` goes in, `←` comes out.
fn plays(script: &str) {
    let lines = |arrow| script.lines().filter_map(move |line| line.trim_start().strip_prefix(arrow)).map(str::trim);
    let input = lines("→").flat_map(|line| [line, "\n"]).collect::<String>();
    assert_eq!(session(&input).lines().collect::<Vec<_>>(), lines("←").collect::<Vec<_>>());
}

/// gevals, "Example Session".
#[test]
fn the_example_session() {
    plays(
        r#"
        → {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}
        ← {"jsonrpc":"2.0","id":1,"result":{"name":"kubernetes","version":"1.0.0","protocolVersion":"0.0.1","operations":{"create-namespace":{"description":"Create a namespace","params":{"type":"object","properties":{}}},"condition":{"params":{"type":"object","properties":{}}},"apply":{"params":{"type":"object","properties":{}}}},"limits":{"request":4095,"reply":4095}}}
        → {"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"create-namespace","args":{"name":"test-ns"},"context":{"workdir":"/tasks/create-pod","phase":"setup"}}}
        ← {"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"Creating namespace test-ns"}}
        ← {"jsonrpc":"2.0","id":2,"result":{"success":true,"message":"Created namespace test-ns"}}
        → {"jsonrpc":"2.0","id":3,"method":"execute","params":{"operation":"condition","args":{"resource":"pod/nginx","conditionType":"Ready"},"context":{"workdir":"/tasks/create-pod","phase":"verify","agent":{"prompt":"Create nginx pod","output":"Done"}}}}
        ← {"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"Checking pod/nginx..."}}
        ← {"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"Waiting, status=ContainerCreating"}}
        ← {"jsonrpc":"2.0","id":3,"result":{"success":true,"message":"Pod nginx Ready=True"}}
        → {"jsonrpc":"2.0","id":4,"method":"shutdown","params":{}}
        ← {"jsonrpc":"2.0","id":4,"result":{}}
        → {"jsonrpc":"2.0","id":5,"method":"execute","params":{"operation":"apply","args":{"file":"never"},"context":{}}}
        "#,
    );
}

/// gevals, "One-Shot Mode" and "Execute"; the context before the arguments and after them.
#[test]
fn one_shot_mode() {
    plays(
        r#"
        → {"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"apply","args":{"file":"x.yaml"},"context":{"workdir":"/tmp","phase":"setup"}}}
        ← {"jsonrpc":"2.0","id":1,"result":{"success":true,"outputs":{"resourceVersion":"12345"},"message":"Applied x.yaml to namespace default"}}
        → {"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"apply","args":{"file":"deployment.yaml","namespace":"my-app"},"context":{"workdir":"/path/to/task","phase":"setup","env":{"KUBECONFIG":"/home/user/.kube/config","A\n":"\u0042"},"timeout":"5m"}}}
        ← {"jsonrpc":"2.0","method":"log","params":{"level":"debug","message":"KUBECONFIG=/home/user/.kube/config, and 1 more"}}
        ← {"jsonrpc":"2.0","id":2,"result":{"success":true,"outputs":{"resourceVersion":"12345"},"message":"Applied deployment.yaml to namespace my-app"}}
        → {"params":{"context":{"env":{"A":"\u0042"}},"operation":"apply","args":{"namespace":"a\/b","file":"c\"d"}},"id":3,"method":"execute","jsonrpc":"2.0"}
        ← {"jsonrpc":"2.0","method":"log","params":{"level":"debug","message":"A=B, and 0 more"}}
        ← {"jsonrpc":"2.0","id":3,"result":{"success":true,"outputs":{"resourceVersion":"12345"},"message":"Applied c\"d to namespace a/b"}}
        → {"jsonrpc":"2.0","id":4,"method":"execute","params":{"operation":"apply","context":{"env":{"A":"1"}}}}
        ← {"jsonrpc":"2.0","id":4,"error":{"code":-32602,"message":"args.file: required, but missing"}}
        "#,
    );
}

/// An empty request region could be read into without end: it is refused at the start.
#[test]
fn an_empty_request_region_is_refused() {
    use rigline::engine::{Engine, Memory, TooSmall};
    let refused = |request: &mut [u8], size: usize| {
        Engine::new(&crate::common::MANIFEST, Memory { request, reply: &mut vec![0; size] }).err()
    };
    assert_eq!(refused(&mut [], 600), Some(TooSmall::Request));
    assert_eq!(refused(&mut [0], 559), Some(TooSmall::Reply { size: 559 }));
    assert_eq!(refused(&mut [0], 560), None);
}

/// `params` that are neither an object nor absent are refused by every method.
#[test]
fn params_are_an_object() {
    for method in ["initialize", "execute", "shutdown"] {
        for params in ["\"x\"", "3", "true", "[1]", "[[]]", "[{}]"] {
            // `shutdown` has no params to read, and JSON-RPC lets them come by position.
            if method == "shutdown" && params.starts_with('[') {
                continue;
            }
            let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
            let answer = crate::common::ask(&line);
            assert!(answer.contains("-32602") && answer.contains("params: expected an object"), "{line} {answer}");
        }
    }
}

/// Each fault of a gevals request names its member, with the path below `params`.
#[test]
fn a_fault_in_a_gevals_request_names_the_member() {
    let execute = |params: &str| format!(r#""execute","params":{{{params}}}"#);
    let context = |members: &str| execute(&format!(r#""operation":"say","context":{{{members}}}"#));
    let zeros = |count: usize| context(&format!(r#""timeout":"\u0035{}s""#, "0".repeat(count)));
    for (request, code, message) in [
        (r#""execute""#.to_owned(), -32602, "params: required, but missing"),
        (r#""execute","params":null"#.to_owned(), -32602, "params: required, but missing"),
        (r#""initialize""#.to_owned(), -32602, "params: required, but missing"),
        (execute(r#""context":{}"#), -32602, "operation: required, but missing"),
        (execute(r#""operation":5,"context":{}"#), -32602, "operation: expected a string"),
        (execute(r#""operation":"say\"","context":{}"#), -32601, "Unknown operation: say\""),
        (execute(r#""operation":"say","args":[],"context":{}"#), -32602, "args: expected an object"),
        (execute(r#""operation":"say""#), -32602, "context: required, but missing"),
        (execute(r#""operation":"say","context":null"#), -32602, "context: expected an object"),
        (execute(r#""operation":"say","context":[]"#), -32602, "context: expected an object"),
        (context(r#""workdir":5"#), -32602, "context.workdir: expected a string"),
        (context(r#""phase":{}"#), -32602, "context.phase: expected a string"),
        (context(r#""env":["A"]"#), -32602, "context.env: expected an object"),
        (context(r#""env":{"A":"1","B":2}"#), -32602, "context.env: expected strings as values"),
        (context(r#""agent":"x""#), -32602, "context.agent: expected an object"),
        (context(r#""agent":{"prompt":5}"#), -32602, "context.agent.prompt: expected a string"),
        (context(r#""agent":{"output":[]}"#), -32602, "context.agent.output: expected a string"),
        (context(r#""timeout":5"#), -32602, "context.timeout: expected a duration such as \"1m30s\""),
        (context(r#""timeout":"5""#), -32602, "context.timeout: expected a duration such as \"1m30s\""),
        (context(r#""timeout":"-1ns""#), -32602, "context.timeout: must not be negative"),
        (zeros(63), -32602, "context.timeout: has escapes and is longer than 64 bytes"),
        (r#""initialize","params":{}"#.to_owned(), -32602, "protocolVersion: only 0.0.1 is supported"),
        (
            r#""initialize","params":{"protocolVersion":"0.0.10"}"#.to_owned(),
            -32602,
            "protocolVersion: only 0.0.1 is supported",
        ),
        (
            r#""initialize","params":{"protocolVersion":"0.0.1","config":[]}"#.to_owned(),
            -32602,
            "config: expected an object",
        ),
        (r#""Execute""#.to_owned(), -32601, "Unknown method: Execute"),
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":{request}}}"#);
        let reply: serde_json::Value = serde_json::from_str(&crate::common::ask(&line)).unwrap();
        let error = serde_json::json!({ "code": code, "message": message });
        assert_eq!(reply["error"], error, "{line}");
    }
    // What is null, or has an escape in it, is no fault.
    for members in [
        r#""workdir":null,"phase":null,"env":null,"agent":null,"timeout":null"#,
        r#""agent":{"prompt":null,"output":null},"env":{"A":""},"timeout":"0""#,
        r#""timeout":"\u0035s""#,
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":{}}}"#, context(members));
        assert!(crate::common::ask(&line).contains(r#""success":true"#), "{line}");
    }
}

/// The real host reads lines of at most 65,535 bytes without their newline (bufio.Scanner of its client): a manifest for it fits,
/// with an id of 20 digits and limits of ten digits each.
#[test]
fn a_manifest_for_the_gevals_host_fits_the_line_that_it_reads() {
    use rigline::protocol::gevals::HOST_LINE_LIMIT;

    fn manifest(length: usize) -> &'static Manifest {
        Box::leak(Box::new(Manifest::new("n", "1.0.0").description("d".repeat(length).leak())))
    }
    let reply = |manifest: &'static Manifest| {
        let (mut request, mut reply) = ([0; 1024], vec![0; 70_000]);
        let mut engine = Engine::new(manifest, Memory { request: &mut request, reply: &mut reply }).unwrap();
        let line = br#"{"jsonrpc":"2.0","id":12345678901234567890,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
        let mut pipe = Pipe::new(line);
        Server::new(&mut Kubernetes, &mut engine, &NoTime).serve(&mut pipe).unwrap();
        let reply = String::from_utf8(pipe.output).unwrap();
        reply.trim_end().replace("1023", "4294967295").replace("69999", "4294967295").len()
    };
    let longest = HOST_LINE_LIMIT - reply(manifest(1)) + 1;
    assert_eq!(reply(manifest(longest)), HOST_LINE_LIMIT);
    assert_eq!(manifest(longest).with_gevals_line_limit().description.len(), longest);
    assert!(std::panic::catch_unwind(|| manifest(longest + 1).with_gevals_line_limit()).is_err());
}

/// A peer that frames its messages by headers is told so.
#[test]
fn header_framing_is_named() {
    for line in ["Content-Length: 52", "content-length:52\r", " CONTENT-LENGTH: 1"] {
        let answer = crate::common::ask(line);
        assert!(answer.contains("-32700") && answer.contains("without Content-Length headers"), "{line} {answer}");
    }
    for line in ["Content-Type: x", "C", "content-length"] {
        assert!(crate::common::ask(line).contains("unexpected byte"), "{line}");
    }
}

/// Maps are outputs: a member each, or one of a struct's fields.
#[cfg(all(feature = "std", feature = "macros"))]
#[test]
fn maps_are_outputs() {
    use std::collections::{BTreeMap, HashMap};

    #[derive(rigline::Outputs)]
    struct Measured {
        /// Volts by rail.
        rails: BTreeMap<String, f64>,
        /// Counts by name.
        counts: HashMap<String, u8>,
    }

    struct Maps;

    #[rigline::extension(name = "maps", version = "1.0.0")]
    impl Maps {
        /// A struct of maps.
        #[operation]
        fn measure(&mut self) -> Result<Measured, Failure> {
            let rails = BTreeMap::from([("3V3".to_owned(), 3.25), ("5V".to_owned(), 5.0)]);
            Ok(Measured { rails, counts: HashMap::from([("a".to_owned(), 1)]) })
        }

        /// A member for each key.
        #[operation]
        fn tree(&mut self) -> Result<BTreeMap<&'static str, u8>, Failure> {
            Ok(BTreeMap::from([("a", 1), ("b", 2)]))
        }

        /// The same.
        #[operation]
        fn hashed(&mut self) -> Result<HashMap<String, u8>, Failure> {
            Ok(HashMap::from([("a".to_owned(), 1)]))
        }
    }

    let answer = |operation: &str| {
        let (mut request, mut reply, mut log) = ([0; 1024], [0; 2048], [0; 100]);
        let memory = Memory { request: &mut request, reply: &mut reply };
        let mut engine = Engine::new(Maps.manifest(), memory).unwrap();
        let line = crate::common::execute("1", operation, "{}");
        let mut pipe = Pipe::new(format!("{line}\n").as_bytes());
        Server::new(&mut Maps, &mut engine, &NoTime).log_buffer(&mut log).serve(&mut pipe).unwrap();
        let reply: serde_json::Value = serde_json::from_slice(&pipe.output).unwrap();
        reply["result"]["outputs"].clone()
    };
    let measured = serde_json::json!({ "rails": r#"{"3V3":3.25,"5V":5.0}"#, "counts": r#"{"a":1}"# });
    assert_eq!(answer("measure"), measured);
    assert_eq!(answer("tree"), serde_json::json!({ "a": "1", "b": "2" }));
    assert_eq!(answer("hashed"), serde_json::json!({ "a": "1" }));
    let schema = Maps.manifest().operations[1].outputs.unwrap().to_string();
    assert!(schema.contains("additionalProperties"), "{schema}");
}

/// A line that was answered takes no memory from those that come next; one that is needed again does.
#[test]
fn the_request_region_is_free_once_its_line_is_done_with() {
    use rigline::engine::Step;
    let (mut request, mut reply) = ([0; 256], [0; 1024]);
    let memory = Memory { request: &mut request, reply: &mut reply };
    let mut engine = Engine::new(Kubernetes.manifest(), memory).unwrap();
    let none = r#"{"jsonrpc":"2.0","id":1,"method":"none"}"#;
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"apply","args":{},"context":{}}}"#;
    for (line, runs) in [
        (none.to_owned(), false),
        (format!("[{none}]"), false),
        (call.to_owned(), true),
        (format!("[{none},{call}]"), true),
    ] {
        let is_batch = line.starts_with('[');
        let line = format!("{line}\n");
        assert_eq!(engine.space().len(), 256, "{line}");
        engine.space()[..line.len()].copy_from_slice(line.as_bytes());
        engine.commit(line.len());
        assert_eq!(matches!(engine.step(), Step::Run(_)), runs);
        if runs {
            // What comes after its member is read from the line, but not the LF.
            assert!(!is_batch || engine.space().len() == 256 - (line.len() - 1));
            engine.complete(&Ok(Outcome::DONE));
            assert!(matches!(engine.step(), Step::Write(_)));
        }
        assert_eq!(engine.space().len(), 256, "{line}");
        while !matches!(engine.step(), Step::Read) {}
    }
}
