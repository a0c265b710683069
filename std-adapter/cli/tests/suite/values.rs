//! Values on their way: from files and command lines through schemas to extensions, and back through graders into reports.

use crate::executable;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");

/// An extension whose operation `op` has the schema of `schema.json`, and returns its arguments as they were written.
const ECHO: &str = r#"#!/usr/bin/env python3
import json, os, re, sys
folder = os.path.dirname(os.path.abspath(__file__))
path = os.path.join(folder, "schema.json")
schema = open(path).read() if os.path.exists(path) else "true"
for line in sys.stdin:
    request = json.loads(line, parse_int=lambda text: ("number", text), parse_float=lambda text: ("number", text))
    identity = re.search(r'"id":(\d+)', line).group(1)
    result = "{}"
    if request["method"] == "initialize":
        result = '{"name":"echo","version":"1","protocolVersion":"0.0.1","operations":{"op":{"params":%s}}}' % schema
    elif request["method"] == "execute":
        args = request["params"].get("args") or {}
        def text(value):
            if isinstance(value, tuple):
                return value[1]
            return value if isinstance(value, str) else json.dumps(value)
        result = json.dumps({"success": True, "message": "done", "outputs": {name: text(value) for name, value in args.items()}})
    print('{"jsonrpc":"2.0","id":%s,"result":%s}' % (identity, result), flush=True)
    if request["method"] == "shutdown":
        break
"#;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    executable::script(folder.path(), "echo.py", ECHO);
    folder
}

fn run(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let output = Command::new(RIGLINE)
        .args(args)
        .current_dir(folder)
        .env("XDG_STATE_HOME", folder.join("state"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn eval(folder: &Path, args: &[&str]) -> (i32, Value) {
    let (code, stdout, stderr) = run(folder, &[&["eval", "run", "eval.yaml", "--json", "--quiet"], args].concat());
    let report = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
    (code, report)
}

/// The outcome of an eval whose one step has this output `v`, an output `five`, and this grader: `passed`, `failed` or the error.
fn graded(output: &str, grader: &str) -> String {
    let output = Value::from(output);
    let text = format!(
        "name: x\nconfig: {{ executor: mock }}\ntasks:\n  - id: t\n    steps: [ {{ id: a, operation: op, mock: {{ v: {output}, five: '5' }} }} ]\n    graders: [ {grader} ]\n"
    );
    let folder = folder(&[("eval.yaml", &text)]);
    let (_, report) = eval(folder.path(), &[]);
    match report["errors"][0]["error"].as_str() {
        Some(error) => error.to_owned(),
        None => report["runs"][0]["tasks"][0]["status"].as_str().unwrap().to_owned(),
    }
}

#[test]
fn a_number_is_what_it_is_in_the_spelling_of_an_instrument() {
    for (output, value, wanted) in [
        ("+3.30000000E+00", "3.3", "passed"),
        ("+3.30000000E+00", "3.31", "failed"),
        ("007", "7", "passed"),
        (".5", "0.5", "passed"),
        ("5.", "5", "passed"),
        (" 5\r\n", "5", "passed"),
        // A text is a text.
        ("007", "'7'", "failed"),
        ("+7", "'7'", "failed"),
        ("0x10", "16", "failed"),
        ("7 V", "7", "failed"),
        ("٧", "7", "failed"),
    ] {
        assert_eq!(
            graded(output, &format!("{{ type: output_equals, step: a, output: v, value: {value} }}")),
            wanted,
            "{output} {value}"
        );
    }
    let long = graded(&"1".repeat(10_001), "{ type: output_range, step: a, output: v, min: 1 }");
    assert_eq!(long, "failed");
}

#[test]
fn outputs_within_a_wanted_value_are_compared_as_values() {
    for (output, value, wanted) in [
        (r#"{"a": "5", "b": 2}"#, "{ b: 2.0, a: '{{steps.a.outputs.five}}' }", "passed"),
        (r#"{"a": 5.0, "b": 2}"#, "{ b: 2.0, a: '{{steps.a.outputs.five}}' }", "passed"),
        (r#"{"a": 6, "b": 2}"#, "{ b: 2.0, a: '{{steps.a.outputs.five}}' }", "failed"),
        (r#"{"a": 5}"#, "{ b: 2.0, a: '{{steps.a.outputs.five}}' }", "failed"),
        (r#"{"a": 5, "b": 2, "c": 1}"#, "{ b: 2.0, a: '{{steps.a.outputs.five}}' }", "failed"),
        (r#"[ "x5", 1 ]"#, "[ 'x{{steps.a.outputs.five}}', 1.0 ]", "passed"),
        (r#"[ "x6", 1 ]"#, "[ 'x{{steps.a.outputs.five}}', 1.0 ]", "failed"),
        (r#"[ "x5" ]"#, "[ 'x{{steps.a.outputs.five}}', 1.0 ]", "failed"),
        ("5.00", "'{{steps.a.outputs.five}}'", "passed"),
        ("5.01", "'{{steps.a.outputs.five}}'", "failed"),
    ] {
        assert_eq!(
            graded(output, &format!("{{ type: output_equals, step: a, output: v, value: {value} }}")),
            wanted,
            "{output} {value}"
        );
    }
}

#[test]
fn no_setting_of_a_grader_hides_another() {
    for (grader, wanted) in [
        ("{ type: contains, value: a, values: [z] }", "failed"),
        ("{ type: contains, value: a, config: { value: z } }", "failed"),
        ("{ type: contains, value: a, config: { values: [b, c] } }", "passed"),
        ("{ type: not_contains, not_contains: [z], value: a }", "failed"),
        ("{ type: regex, pattern: '^z', must_match: ['^a'] }", "failed"),
        ("{ type: regex, must_match: ['^a'], config: { must_match: ['^z'] } }", "failed"),
        ("{ type: regex, must_not_match: ['z'], regex_not_match: ['a'] }", "failed"),
        ("{ type: text, contains: [a], config: { contains: [z] } }", "failed"),
        ("{ type: file_exists, path: eval.yaml, must_exist: [missing] }", "failed"),
    ] {
        let grader = grader
            .replace("{ type", "{ step: a, output: v, type")
            .replace("step: a, output: v, type: file", "type: file");
        assert_eq!(graded("abc", &grader), wanted, "{grader}");
    }
    for (grader, settings) in [
        ("{ type: output_equals, value: 5, expected: 6 }", "value, expected"),
        ("{ type: output_range, min: 1, config: { min: 9 } }", "min, min"),
        ("{ type: measurement, output: v, low: 1, config: { low: 9 } }", "low, low"),
        ("{ type: max_duration, max: 100, max_ms: 1 }", "max, max_ms"),
        ("{ type: contains, value: a, ignore_case: true, case_sensitive: true }", "ignore_case, case_sensitive"),
        ("{ type: contains, value: a, step: a, config: { step: b } }", "step, step"),
    ] {
        let error = graded("abc", grader);
        assert!(
            error.contains(&format!("only one of these counts, so keep that one: {settings}")),
            "{grader}: {error}"
        );
    }
    assert!(graded("abc", "{ type: max_duration, max_ms: 0 }").contains("max_ms: expected a number of milliseconds"));
}

/// The warnings of the eval in a folder.
fn warnings(folder: &Path) -> Vec<String> {
    let (_, report) = eval(folder, &[]);
    let warnings = report["runs"][0]["warnings"].as_array().unwrap();
    warnings.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_member_at_the_wrong_level_is_said() {
    let text = "name: x
trials_per_task: 3
pass_threshold: 0.1
timeout_seconds: 5
owner: me
priority: { high: true }
config: { executor: mock, pass_threshold: 0.5, graders: [] }
health: [ { operation: op, measure: { output: v, low: 1 } } ]
range: [1, 2]
tasks:
  - id: t
    retries: 3
    assert: [ { type: contains, value: zz } ]
    output_contains: [zz]
    steps:
      - { id: a, operation: op, expect: { v: 1 }, graders: [], note: mine }
";
    let folder = folder(&[("eval.yaml", text)]);
    let texts = warnings(folder.path());
    for wanted in [
        "trials_per_task: an eval has no such member; it is one of config (eval.yaml:2)",
        "pass_threshold: an eval has no such member; it is one of metrics (eval.yaml:3)",
        "timeout_seconds: an eval has no such member; it is one of config, of a task (eval.yaml:4)",
        "pass_threshold: config has no such member; it is one of metrics (eval.yaml:7)",
        "graders: config has no such member; it is one of an eval, of a task (eval.yaml:7)",
        "measure: a step of the preflight has no such member; it is one of a step (eval.yaml:8)",
        "range: it has no effect without tasks_from (eval.yaml:9)",
        "retries: a task has no such member; it is one of config (eval.yaml:12)",
        "assert: not supported here; it has no effect (eval.yaml:13)",
        "output_contains: a task has no such member; it is one of expected (eval.yaml:14)",
        "expect: a step has no such member; it is one of a step of the preflight (eval.yaml:16)",
        "graders: a step has no such member; it is one of an eval, of a task (eval.yaml:16)",
        "note: a step has no such member, so it has no effect; expected one of: id, phase, operation, args, timeout, mock, measure, attach (eval.yaml:16)",
    ] {
        assert!(texts.iter().any(|text| text == wanted), "{wanted} in {texts:#?}");
    }
    assert_eq!(texts.len(), 13, "{texts:#?}");
    assert_eq!(eval(folder.path(), &["--strict"]).0, 2);
}

/// NR-03: what is judged, and what is run, is told also where the right name stands beside the wrong one.
#[test]
fn a_member_that_is_written_in_two_ways_is_said() {
    let text = "name: x
config: { executor: mock }
grader: [ { type: contains, value: zz } ]
graders: []
tasks:
  - id: t
    steps: [ { id: a, operation: op } ]
    step: [ { id: b, operation: op } ]
    graders: [ { type: contains, value: mock } ]
    grader: [ { type: contains, value: zz } ]
    cleanup: [ { operation: all-off } ]
    owner: me
";
    let folder = folder(&[("eval.yaml", text)]);
    let texts = warnings(folder.path());
    for wanted in [
        "grader: an eval has no such member, so it has no effect; `graders` is there too (eval.yaml:3)",
        "step: a task has no such member, so it has no effect; `steps` is there too (eval.yaml:8)",
        "grader: a task has no such member, so it has no effect; `graders` is there too (eval.yaml:10)",
        "cleanup: not supported here; it has no effect (eval.yaml:11)",
    ] {
        assert!(texts.iter().any(|text| text == wanted), "{wanted} in {texts:#?}");
    }
}

#[test]
fn a_misspelt_placeholder_is_a_warning() {
    let text = "name: x
config: { executor: mock, env: { A: '{{input.x}}' } }
inputs: { x: 1 }
graders: [ { type: contains, value: '{{Inputs.x}}' } ]
health: [ { operation: op, args: { v: '{{Env.HOME}}' } } ]
tasks:
  - id: t
    steps:
      - id: a
        operation: op
        args: { q: '{{step.a.outputs.v}} {{Matrix.y}}', '{{inputs.x}}': 1, mine: '{{foo.bar}} {{user.name}} {{ x }} {{inputs.x}}', go: '{{.Values.x}}' }
";
    let folder = folder(&[("eval.yaml", text)]);
    let texts = warnings(folder.path());
    for wanted in [
        "{{input.x}}: there are no placeholders of input; did you mean `inputs`? (eval.yaml:2)",
        "{{Inputs.x}}: there are no placeholders of Inputs; did you mean `inputs`? (eval.yaml:4)",
        "{{Env.HOME}}: there are no placeholders of Env; did you mean `env`? (eval.yaml:5)",
        "{{step.a.outputs.v}}: there are no placeholders of step; did you mean `steps`? (eval.yaml:11)",
        "{{Matrix.y}}: there are no placeholders of Matrix; did you mean `matrix`? (eval.yaml:11)",
        "{{inputs.x}}: placeholders in names are not filled in (eval.yaml:11)",
    ] {
        assert!(texts.iter().any(|text| text == wanted), "{wanted} in {texts:#?}");
    }
    assert_eq!(texts.len(), 6, "{texts:#?}");
}

#[test]
fn of_outputs_with_one_name_the_last_counts_everywhere() {
    let text = "name: x
config: { target: 'exec:./twice.py' }
tasks:
  - id: t
    steps: [ { id: a, operation: op } ]
    graders: [ { type: output_equals, step: a, output: v, value: 2 }, { type: output_equals, step: a, output: w, value: 1 } ]
";
    let folder = folder(&[("eval.yaml", text)]);
    let twice = ECHO.replace("    elif request", "    elif request[\"method\"] == \"execute\":\n        result = '{\"success\":true,\"outputs\":{\"v\":\"1\",\"w\":\"1\",\"v\":\"2\"}}'\n    elif request");
    executable::script(folder.path(), "twice.py", &twice);
    let (code, report) = eval(folder.path(), &[]);
    assert_eq!(code, 0, "{report:#}");
    let outputs = &report["runs"][0]["tasks"][0]["trials"][0]["steps"][0]["outputs"];
    assert_eq!(outputs, &serde_json::json!({ "w": "1", "v": "2" }));
    let (_, stdout, _) = run(folder.path(), &["call", "exec:./twice.py", "op", "--json"]);
    let called: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(called["outputs"]["v"], "2", "{stdout}");
}

#[test]
fn what_a_task_expects_is_judged_or_said_not_to_be() {
    let status = |expected: &str| {
        let text = format!(
            "name: x\nconfig: {{ executor: mock }}\ntasks:\n  - id: t\n    expected: {expected}\n    steps: [ {{ id: a, operation: op, mock: {{ v: abc }} }} ]\n"
        );
        let folder = folder(&[("eval.yaml", &text)]);
        let (_, report) = eval(folder.path(), &[]);
        report["runs"][0]["tasks"][0]["status"].clone()
    };
    assert_eq!(status("{ output_not_contains: [zz] }"), "passed");
    assert_eq!(status("{ output_not_contains: [zz, b] }"), "failed");
    assert_eq!(status("{ behavior: { max_tool_calls: 3 } }"), "skipped");
    assert_eq!(status("{ outcomes: [ { type: x } ], tool_calls: [] }"), "skipped");
    assert_eq!(status("{ behavior: { max_tool_calls: 3 }, output_contains: [b] }"), "passed");
}

#[test]
fn a_schemas_numbers_have_all_their_digits() {
    let schema = r#"{"properties":{
        "above":{"type":"integer","exclusiveMinimum":18446744073709551616},"step":{"type":"number","multipleOf":0.01},"big":{"const":123456789012345678901234567890},
        "far":{"type":"number","maximum":1e20},"list":{"uniqueItems":true},"a.b":{"type":"object","properties":{"x/y":{"type":"number","maximum":5}}}}}"#;
    let schema = schema.replace('\n', "");
    let folder = folder(&[("schema.json", &schema)]);
    for (argument, wanted) in [
        ("above=18446744073709551617", Ok("18446744073709551617")),
        (
            "above=18446744073709551616",
            Err("18446744073709551616 is less than or equal to the minimum of 18446744073709551616"),
        ),
        ("step=0.07", Ok("0.07")),
        ("step=1e400", Ok("1e400")),
        ("step=0.075", Err("0.075 is not a multiple of 0.01")),
        ("big=123456789012345678901234567890", Ok("123456789012345678901234567890")),
        ("big=123456789012345678901234567891", Err("123456789012345678901234567890 was expected")),
        ("far=100000000000000000000.5", Err("100000000000000000000.5 is greater than the maximum of 1e20")),
        ("list=[123456789012345678901234567890,123456789012345678901234567891]", Ok("")),
        (r#"a.b={"x/y":6}"#, Err("op: a.b.x/y: 6 is greater than the maximum of 5")),
    ] {
        let (code, stdout, stderr) = run(folder.path(), &["call", "--json", "exec:./echo.py", "op", argument]);
        match wanted {
            Ok(text) => {
                assert!(code == 0 && stdout.contains(text) && stderr.is_empty(), "{argument}: {stdout}{stderr}");
            }
            Err(text) => assert!(code == 2 && stderr.contains(text), "{argument}: {stdout}{stderr}"),
        }
    }
    let (_, stdout, _) = run(folder.path(), &["describe", "exec:./echo.py"]);
    assert!(stdout.contains("number up to 1e20") && stdout.contains("123456789012345678901234567890"), "{stdout}");
    let required =
        schema.replacen('{', r#"{"required":["far","step"],"#, 1).replace("\"maximum\":1e20", "\"minimum\":1e20");
    fs::write(folder.path().join("schema.json"), required).unwrap();
    let (_, stdout, _) = run(folder.path(), &["describe", "exec:./echo.py", "op"]);
    assert!(stdout.contains("far=1e20 step=1") || stdout.contains("step=1 far=1e20"), "{stdout}");
}

#[test]
fn a_mean_has_the_digits_of_what_was_measured() {
    let text = "name: x
config: { target: 'exec:./echo.py' }
tasks:
  - id: t
    matrix: { n: [123456789012345678901234567890] }
    steps: [ { id: a, operation: op, args: { v: '{{matrix.n}}', w: 7 }, measure: [ { output: v, low: 1 }, { output: w } ] } ]
";
    let folder = folder(&[("eval.yaml", text)]);
    let (code, report) = eval(folder.path(), &[]);
    let text = report.to_string();
    assert_eq!(code, 0, "{report:#}");
    assert!(!text.contains("e+29") && text.contains(r#""mean":"123456789012345678901234567890""#), "{report:#}");
    let values = &report["runs"][0]["tasks"][0]["measurements"];
    assert_eq!((values[1]["value"].to_string(), values[1]["mean"].to_string()), ("7".into(), "7".into()), "{values:#}");
}

#[test]
fn a_table_of_tasks_has_one_column_of_each_name() {
    let eval_of = |more: &str| {
        format!(
            "name: x\nconfig: {{ executor: mock }}\ntasks_from: t.csv\n{more}tasks:\n  - {{ id: t, steps: [ {{ id: a, operation: op, args: {{ v: '{{{{vars.code}}}}' }} }} ] }}\n"
        )
    };
    for (more, table, wanted) in [
        ("", "code,n,code\n1,2,3\n", Some("tasks_from: two columns have the name code (t.csv:1)")),
        ("", "code,n, code \n1,2,3\n", Some("two columns have the name code")),
        ("", "code,,\n1,,\n", None),
        ("range: [1, x, 2]\n", "code\n1\n2\n", Some("range: expected the first and the last row")),
        ("range: [2, 2]\n", "code\n1\n2\n", None),
    ] {
        let folder = folder(&[("eval.yaml", &eval_of(more)), ("t.csv", table)]);
        let (code, report) = eval(folder.path(), &[]);
        match wanted {
            Some(text) => assert!(code == 2 && report.to_string().contains(text), "{table}: {report:#}"),
            None => assert_eq!(code, 0, "{table}: {report:#}"),
        }
    }
}

#[test]
fn an_eval_that_cannot_be_read_is_in_every_report() {
    let good = "name: good\nconfig: { executor: mock }\ntasks: [ { id: t, prompt: p } ]\n";
    let folder = folder(&[("eval.yaml", "name: x\nname: y\n")]);
    let run_all = || {
        run(
            folder.path(),
            &["eval", "run", ".", "--json", "--quiet", "--junit", "j.xml", "--tap", "t.tap", "--ctrf", "c.json"],
        )
    };
    for has_good in [false, true] {
        if has_good {
            fs::create_dir(folder.path().join("good")).unwrap();
            fs::write(folder.path().join("good/eval.yaml"), good).unwrap();
        }
        let (code, stdout, _) = run_all();
        let report: Value = serde_json::from_str(&stdout).unwrap();
        let runs = report["runs"].as_array().unwrap().len();
        assert_eq!((code, runs, &report["exit_code"]), (2, usize::from(has_good), &Value::from(2)), "{report:#}");
        let error = "duplicate mapping key `name` is not allowed here";
        assert!(report["errors"][0]["error"].as_str().unwrap().contains(error), "{report:#}");
        for file in ["j.xml", "t.tap", "c.json"] {
            let text = fs::read_to_string(folder.path().join(file)).unwrap();
            assert!(text.contains(error), "{file}: {text}");
            fs::remove_file(folder.path().join(file)).unwrap();
        }
        let (code, stdout, _) = run(folder.path(), &["eval", "validate", ".", "--json"]);
        let report: Value = serde_json::from_str(&stdout).unwrap();
        assert!(code == 2 && report["errors"][0].as_str().unwrap().contains(error), "{report:#}");
    }
}

#[test]
fn the_exit_code_in_the_report_is_the_real_one() {
    let text = "name: x\nconfig: { executor: command, command: [sh, -c, 'rm -r out; touch out'] }\ntasks: [ { id: t, prompt: p } ]\n";
    let folder = folder(&[("eval.yaml", text)]);
    let (code, report) = eval(folder.path(), &["--context-dir", ".", "--junit", "out/j.xml", "--json-file", "r.json"]);
    assert_eq!(
        (code, &report["exit_code"], &report["success"]),
        (1, &Value::from(1), &Value::Bool(false)),
        "{report:#}"
    );
    let written: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("r.json")).unwrap()).unwrap();
    assert_eq!(written["exit_code"], 1);
}

#[test]
fn more_files_of_others_are_named_and_not_listed() {
    let table = [
        ("kind: Task\nmetadata: { name: x }\nsteps: { setup: { inline: x } }\n", "a task of gevals"),
        ("prompts: [p]\ntargets: [x]\ntests: file://tests.csv\n", "an eval of promptfoo"),
        ("name: x\ndataset: x.json\nsolver: [generate]\nscorer: match\n", "an eval of Inspect"),
        ("tasks: [x.py]\nmodel: m\nepochs: 3\n", "an eval set of Inspect"),
        ("name: x\nexecution: { target: default }\ntests: [ { id: a } ]\n", "an eval of agentv"),
        ("name: x\ntest_cases: [ { input: a } ]\n", "an eval of DeepEval"),
        ("task: mmlu\ndataset_path: x\n", "a task of lm-evaluation-harness"),
        ("trigger: [main]\nsteps: [ { script: x } ]\n", "a CI pipeline"),
        ("version: 2.1\njobs: {}\nworkflows: {}\n", "a CI pipeline"),
        ("name: x\ndescription: d\nruns: { using: composite }\n", "an action of GitHub"),
        ("apiVersion: v1\nkind: ConfigMap\n", "a Kubernetes resource"),
        ("openapi: 3.1.0\npaths: {}\n", "an OpenAPI description"),
        ("name: x\nservices: { web: { image: x } }\n", "a Compose file"),
        ("repos: [ { repo: x } ]\n", "a configuration of pre-commit"),
    ];
    let folder = folder(&[]);
    for (place, (text, whose)) in table.iter().enumerate() {
        let path = folder.path().join(format!("{place}/eval.yaml"));
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let (code, stdout, _) = run(folder.path(), &["eval", "validate", path.to_str().unwrap()]);
        assert!(code == 1 && stdout.contains(&format!("Not an eval of rigline: it is {whose}")), "{text}: {stdout}");
    }
    let (code, stdout, stderr) = run(folder.path(), &["eval", "list", ".", "--json"]);
    let listed: Value = serde_json::from_str(&stdout).unwrap();
    assert!(
        code == 2 && listed["evals"].as_array().unwrap().is_empty() && listed["errors"].as_array().unwrap().is_empty(),
        "{stdout}{stderr}"
    );
    // What has tasks is ours, whatever else it has.
    fs::write(
        folder.path().join("eval.yaml"),
        "name: x\nconfig: { executor: mock }\nservices: {}\nrepos: []\ntests_of: me\ntasks: [ { id: t, prompt: p } ]\n",
    )
    .unwrap();
    assert_eq!(eval(folder.path(), &[]).0, 0);
}

#[test]
fn values_of_the_command_line_are_what_the_schema_wants() {
    let schema = r#"{"type":"object","properties":{"n":{"type":"number"},"i":{"type":"integer"},"l":{"type":"array","items":{"type":"string"}},"o":{"type":"object","properties":{"a.b":{"type":"string"}}},"t":{"type":"string"},"any":{}}}"#;
    let folder = folder(&[("schema.json", schema)]);
    for (argument, wanted) in [
        ("n=+3.30E+00", r#""n": "3.30E+00""#),
        ("i=007", r#""i": "7""#),
        ("i=0x1F", r#""i": "31""#),
        ("any=007", r#""any": "007""#),
        ("l=[1,1.50]", r#""l": "[\"1\", \"1.50\"]""#),
        ("o.a.b=007", r#""o": "{\"a.b\": \"007\"}""#),
        ("t=[1]", r#""t": "[1]""#),
    ] {
        let (code, stdout, stderr) = run(folder.path(), &["call", "--json", "exec:./echo.py", "op", argument]);
        assert!(code == 0 && stdout.contains(wanted), "{argument}: {stdout}{stderr}");
    }
    // Each by its own schema, whatever the others need.
    let all = ["call", "--json", "exec:./echo.py", "op", "l=[1,1.50]", "t=[1]", "any=[7]"];
    let (code, stdout, stderr) = run(folder.path(), &all);
    let wanted = [r#""l": "[\"1\", \"1.50\"]""#, r#""t": "[1]""#];
    assert!(code == 0 && wanted.iter().all(|wanted| stdout.contains(wanted)), "{stdout}{stderr}");
    let (code, _, stderr) = run(folder.path(), &["call", "exec:./echo.py", "op", r#"any={"a":1,"a":2}"#]);
    assert!(code == 2 && stderr.contains("`a` is given more than once"), "{stderr}");
}

#[test]
fn no_report_takes_the_place_of_another_or_of_an_eval() {
    let text = "name: x\nconfig: { executor: mock }\ntasks: [ { id: t, prompt: p } ]\n";
    let folder = folder(&[("eval.yaml", text)]);
    fs::create_dir(folder.path().join("d")).unwrap();
    for (args, wanted) in [
        (&["--junit", "r", "--html", "./r"][..], "--html ./r: another report goes there"),
        (&["--junit", "new/r", "--tap", "new/../new/r"], "--tap new/../new/r: another report goes there"),
        (&["--junit", "d/../eval.yaml"], "--junit d/../eval.yaml: this is an eval, which would be lost"),
    ] {
        let (code, report) = eval(folder.path(), args);
        assert!(code == 2 && report["error"] == wanted, "{args:?}: {report:#}");
    }
    assert_eq!(fs::read_to_string(folder.path().join("eval.yaml")).unwrap(), text);
    assert_eq!(eval(folder.path(), &["--junit", "r", "--html", "d/r"]).0, 0);
}

#[test]
fn two_keys_of_one_name_are_refused_however_they_are_written() {
    for (args, twice) in [
        ("{ 1: a, '1': b }", Some("1")),
        ("{ true: a, 'true': b }", Some("true")),
        ("{ 1.0: a, '1.0': b }", Some("1.0")),
        ("{ v: a, \"v\": b }", Some("v")),
        ("{ m: { 1: a, '1': b } }", Some("1")),
        ("{ 1: a, 01: b, '1.0': c, V: d, v: e }", None),
    ] {
        let text = format!(
            "name: x\nconfig: {{ executor: mock }}\ntasks:\n  - {{ id: t, steps: [ {{ operation: op, args: {args} }} ] }}\n"
        );
        let folder = folder(&[("eval.yaml", &text)]);
        let (code, report) = eval(folder.path(), &[]);
        match twice {
            Some(name) => {
                let error = report["errors"][0]["error"].as_str().unwrap_or_default();
                assert!(code == 2 && error.contains(&format!("duplicate mapping key `{name}`")), "{args}: {report:#}");
            }
            None => assert_eq!(code, 0, "{args}: {report:#}"),
        }
    }
}

#[test]
fn an_eval_whose_tasks_are_a_table_is_listed() {
    let text =
        "name: rows\nconfig: { executor: mock }\ntasks_from: t.csv\ngraders: [ { type: max_duration, max: 60 } ]\n";
    let folder = folder(&[("rails.yaml", text), ("t.csv", "id,prompt\na,b\n")]);
    let (code, stdout, _) = run(folder.path(), &["eval", "list", "--json"]);
    assert!(code == 0 && stdout.contains("./rails.yaml"), "{stdout}");
}

#[test]
fn a_value_that_a_template_fills_in_is_compared_as_what_it_is() {
    for (value, output, wanted) in [
        ("3.3", "3.30", "passed"),
        ("3.3", "+3.3E+00", "passed"),
        ("3.3", "3.31", "failed"),
        ("'007'", "007", "passed"),
        ("'007'", "7", "failed"),
        ("abc", "abc", "passed"),
        ("true", "true", "passed"),
        ("[1, 2]", "[1, 2.0]", "passed"),
        ("[1, 2]", "[2, 1]", "failed"),
        ("'{x}'", "{x}", "passed"),
    ] {
        let output = Value::from(output);
        let text = format!(
            "name: x\nconfig: {{ executor: mock }}\ninputs: {{ v: {value} }}\ntasks:\n  - id: t\n    steps: [ {{ id: a, operation: op, mock: {{ v: {output} }} }} ]\n    graders: [ {{ type: output_equals, step: a, output: v, value: '{{{{inputs.v}}}}' }} ]\n"
        );
        let folder = folder(&[("eval.yaml", &text)]);
        let (_, report) = eval(folder.path(), &[]);
        assert_eq!(report["runs"][0]["tasks"][0]["status"], wanted, "{value} {output}: {report:#}");
    }
}

#[test]
fn lists_of_an_evals_inputs_keep_the_spelling_of_their_numbers() {
    for (items, set, wanted) in [
        ("string", None, r#"["00123", "010", "1.50", "{\"a\"}"]"#),
        ("string", Some("codes=[7,8.0]"), r#"["7", "8.0"]"#),
        ("number", Some("codes=[7,8.0]"), "[7, 8.0]"),
    ] {
        let schema = format!(r#"{{"properties":{{"c":{{"type":"array","items":{{"type":"{items}"}}}}}}}}"#);
        let text = "name: x\nconfig: { target: 'exec:./echo.py' }\ninputs: { codes: [00123, 010, 1.50, '{\"a\"}'] }\ntasks:\n  \
                    - id: t\n    steps: [ { id: a, operation: op, args: { c: '{{inputs.codes}}' } } ]\n";
        let folder = folder(&[("schema.json", &schema), ("eval.yaml", text)]);
        let set: Vec<&str> = set.map(|set| ["--set", set]).into_iter().flatten().collect();
        let (code, report) = eval(folder.path(), &set);
        let sent = report["runs"][0]["tasks"][0]["trials"][0]["steps"][0]["outputs"]["c"].as_str().unwrap_or_default();
        // The extension shows a number of the list as what its parser made of it.
        let sent = sent.replace(r#"["number", "7"]"#, "7").replace(r#"["number", "8.0"]"#, "8.0");
        assert!(code == 0 && sent == wanted, "{items}: {report:#}");
    }
    // In a map, and in the preflight; a column of a table goes before an input of its name.
    let schema =
        r#"{"properties":{"c":{"type":"object","additionalProperties":{"type":"string"}},"s":{"type":"string"}}}"#;
    let text = "name: x\nconfig: { target: 'exec:./echo.py' }\ninputs: { codes: { a: 007 } }\n\
                health: [ { operation: op, args: { c: '{{inputs.codes}}' }, expect: { c: { a: '007' } } } ]\n\
                tasks: [ { id: t, steps: [ { id: a, operation: op, args: { c: '{{inputs.codes}}', s: '{{inputs.codes}}' } } ] } ]\n";
    let folder =
        folder(&[("schema.json", schema), ("eval.yaml", text), ("t.csv", "id,codes\nx,\"{\"\"b\"\":\"\"8\"\"}\"\n")]);
    let sent = |report: &Value| report["runs"][0]["tasks"][0]["trials"][0]["steps"][0]["outputs"].clone();
    let (code, report) = eval(folder.path(), &[]);
    let wanted = serde_json::json!({ "c": "{\"a\": \"007\"}", "s": "{\"a\":7}" });
    assert!(code == 0 && sent(&report) == wanted, "{report:#}");
    let health = "health: [ { operation: op, args: { c: '{{inputs.codes}}' }, expect: { c: { a: '007' } } } ]\n";
    fs::write(folder.path().join("eval.yaml"), text.replace(health, "tasks_from: t.csv\n")).unwrap();
    let (code, report) = eval(folder.path(), &[]);
    assert!(code == 0 && sent(&report)["c"] == "{\"b\": \"8\"}", "{report:#}");
}

#[test]
fn a_file_that_cannot_be_looked_at_is_neither_there_nor_absent() {
    let folder = folder(&[]);
    std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
    for (grader, status) in [
        ("type: file_exists, must_not_exist: loop/x", "failed"),
        ("type: file, must_not_exist: loop", "failed"),
        ("type: file_exists, path: loop/x", "failed"),
        ("type: file_exists, must_not_exist: eval.yaml/x", "passed"),
        ("type: file_exists, must_not_exist: nowhere/x", "passed"),
    ] {
        let text =
            format!("name: x\nconfig: {{ executor: mock }}\ntasks: [ {{ id: t, graders: [ {{ {grader} }} ] }} ]\n");
        fs::write(folder.path().join("eval.yaml"), text).unwrap();
        let (_, report) = eval(folder.path(), &[]);
        assert_eq!(report["runs"][0]["tasks"][0]["status"], status, "{grader}: {report:#}");
    }
}

#[test]
fn patterns_of_a_files_content_are_looked_for() {
    for (pattern, status) in [
        ("pattern: import", "passed"),
        ("patterns: [nowhere]", "failed"),
        ("must_not_match: import", "failed"),
        ("must_match: []", "invalid"),
        ("must_match: [], must_not_match: []", "invalid"),
    ] {
        let grader = format!("{{ type: file, content_patterns: [ {{ path: echo.py, {pattern} }} ] }}");
        let text = format!("name: x\nconfig: {{ executor: mock }}\ntasks: [ {{ id: t, graders: [ {grader} ] }} ]\n");
        let folder = folder(&[("eval.yaml", &text)]);
        let (code, report) = eval(folder.path(), &[]);
        let found = report["runs"][0]["tasks"][0]["status"].as_str().unwrap_or("invalid");
        assert!(found == status && (code == 2) == (status == "invalid"), "{pattern}: {report:#}");
    }
}

/// `/dev/stderr` is a link that the whole system needs. Root may replace it, so these files stand in for it.
#[test]
#[cfg(target_os = "linux")]
fn a_report_takes_the_place_of_no_stream() {
    let folder = folder(&[("eval.yaml", "name: x\nconfig: { executor: mock }\ntasks: [ { id: t } ]\n")]);
    for (args, wanted) in [
        (&["eval", "run", "-q", "--junit", "/dev/fd/1"][..], "<testsuites"),
        (&["check", "sim", "--case", "handshake", "--junit", "/proc/self/fd/1"], "<testsuites"),
    ] {
        let file = fs::File::create(folder.path().join("out")).unwrap();
        let mut command = Command::new(RIGLINE);
        command.args(args).current_dir(folder.path()).env("XDG_STATE_HOME", folder.path()).stdin(Stdio::null());
        assert!(command.stdout(file).status().unwrap().success(), "{args:?}");
        let written = fs::read_to_string(folder.path().join("out")).unwrap();
        assert!(written.contains(wanted) && !written.contains('│'), "{args:?}: {written}");
    }
    for path in ["/dev/rigline-report", "/dev/../dev/rigline-report", "/proc/self/fd/rigline-report"] {
        let (code, _, stderr) = run(folder.path(), &["eval", "run", "-q", "--html", path]);
        assert!(code == 2 && stderr.contains("a stream or a device"), "{path}: {stderr}");
        assert!(!Path::new(path).exists(), "{path}");
    }
}

/// Reports: oven-sh/bun#41466, web-infra-dev/rstest#927.
#[test]
fn a_report_of_check_that_cannot_be_written_does_not_take_the_other() {
    let folder = folder(&[]);
    // The folder of one report goes while the extension runs.
    let script = "#!/bin/sh\nrm -rf gone && : >gone\nexec ./echo.py\n";
    executable::script(folder.path(), "spoil.sh", script);
    let (code, _, stderr) = run(
        folder.path(),
        &["check", "exec:./spoil.sh", "--case", "handshake", "--json-file", "gone/r.json", "--junit", "j.xml"],
    );
    assert!(code == 2 && stderr.contains("gone/r.json"), "{stderr}");
    assert!(fs::read_to_string(folder.path().join("j.xml")).unwrap().contains("<testsuites"));
}

#[test]
fn a_target_that_is_written_to_a_file_means_the_same_in_every_folder() {
    let folder = folder(&[("token", "secret")]);
    fs::create_dir(folder.path().join("elsewhere")).unwrap();
    let place = folder.path().canonicalize().unwrap();
    let (place, here) = (place.to_str().unwrap(), folder.path());
    let (code, _, stderr) = run(here, &["call", "exec:python3 echo.py", "op", "--record", "rec", "-q"]);
    assert_eq!(code, 0, "{stderr}");
    for target in ["exec:python3 echo.py", "exec:./echo.py", "replay:rec"] {
        let name = target.replace(|char: char| !char.is_ascii_alphanumeric(), "-");
        let (code, stdout, stderr) = run(here, &["eval", "new", &name, "--target", target]);
        assert!(code == 0 && stdout.contains("next: rigline eval run"), "{target}: {stdout}{stderr}");
        let (code, stdout, stderr) = run(here, &["eval", "run", "-q", &name]);
        assert!(code == 0, "{target}: {stdout}{stderr}");
    }
    let commands: [&[&str]; 4] =
        [&["gevals-shim"], &["namel3ss-shim"], &["namel3ss-shim", "--bridge"], &["mcp-config", "--client", "cursor"]];
    for command in commands {
        for (target, wanted) in [
            ("exec:python3 echo.py", "/echo.py"),
            ("replay:rec", "/rec"),
            ("tcp:localhost:7000?token-file=token", "/token"),
        ] {
            let (code, stdout, stderr) = run(here, &[command, &[target]].concat());
            assert!(
                code == 0 && stdout.contains(&format!("{place}{wanted}")),
                "{command:?} {target}: {stdout}{stderr}"
            );
        }
    }
    for target in ["exec:python3 echo.py", "replay:rec"] {
        let (code, stdout, stderr) = run(here, &["descriptor", target]);
        assert!(code == 0 && stdout.contains(place), "{target}: {stdout}{stderr}");
    }
    // The program that a host starts in a folder of its own.
    for target in ["exec:python3 echo.py", "replay:rec"] {
        assert_eq!(run(here, &["gevals-shim", target, "-o", "elsewhere/shim"]).0, 0);
        let (code, stdout, stderr) = run(&here.join("elsewhere"), &["call", "./shim", "op"]);
        assert!(code == 0, "{target}: {stdout}{stderr}");
    }
    // What is no file here stays as it is.
    let (_, stdout, _) = run(here, &["gevals-shim", "exec:python3 -c pass.py elsewhere"]);
    assert!(stdout.contains(" -c pass.py elsewhere "), "{stdout}");
}

#[test]
fn a_trend_is_of_one_eval_wherever_it_is_run_from() {
    let text =
        "name: rails\nconfig: { executor: mock }\ntasks: [ { id: t, graders: [ { type: max_duration, max: 9 } ] } ]\n";
    let folder = folder(&[]);
    for project in ["a", "b"] {
        fs::create_dir_all(folder.path().join(project).join("evals")).unwrap();
        fs::write(folder.path().join(project).join("evals/eval.yaml"), text).unwrap();
    }
    let runs = folder.path().join("runs");
    let html = folder.path().join("r.html");
    let (runs, html) = (runs.to_str().unwrap(), html.to_str().unwrap());
    let trend = |at: &str, eval: &str| {
        let (code, _, stderr) =
            run(&folder.path().join(at), &["eval", "run", "-q", eval, "--runs", runs, "--html", html]);
        assert_eq!(code, 0, "{stderr}");
        fs::read_to_string(html).unwrap().contains("Trend")
    };
    assert!(!trend("a", "evals"));
    assert!(!trend("b", "evals"), "another eval at the same path of another folder");
    assert!(trend("", "a/evals/eval.yaml"), "the same eval by another path");
    assert!(trend("b", "evals"));
}

#[test]
fn letters_of_both_cases_are_found_wherever_a_word_ends() {
    for (output, grader, wanted) in [
        ("ΟΔΟΣΑ", "{ step: a, output: v, type: text, contains: ΟΔΟΣ }", "passed"),
        ("οδος", "{ step: a, output: v, type: contains, ignore_case: true, value: ΟΔΟΣ }", "passed"),
        ("ΟΔΟΣ 5", "{ step: a, output: v, type: contains, ignore_case: true, value: οδοσ }", "passed"),
        ("ΟΔΟΣΑ", "{ step: a, output: v, type: text, not_contains: οδος }", "failed"),
        ("ÉCOLE", "{ step: a, output: v, type: text, contains: école }", "passed"),
        ("ΟΔΟΣΑ", "{ step: a, output: v, type: contains, value: οδος }", "failed"),
    ] {
        assert_eq!(graded(output, grader), wanted, "{output} {grader}");
    }
}

#[test]
fn a_time_in_a_table_is_one_of_seconds_or_with_a_unit() {
    for (timeout, code) in [("30", 0), ("0.5", 0), ("2s", 0), ("soon", 2), ("0", 2), ("-1", 2)] {
        let folder = folder(&[
            ("eval.yaml", "name: x\nconfig: { executor: mock }\ntasks_from: t.csv\n"),
            ("t.csv", &format!("id,prompt,timeout\r\nx,\"a\r\nb\",{timeout}\r\n")),
        ]);
        let (found, report) = eval(folder.path(), &[]);
        assert_eq!(found, code, "{timeout}: {report:#}");
    }
}
