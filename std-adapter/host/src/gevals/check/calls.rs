//! Calls of operations: names, arguments, results.

use serde_json::{Map, Value, json};

use super::common::{NO_OPERATION, execute, operations};
use crate::check::{Bench, CaseFailure, Verdict, cut};
use rigline_std::stdio::HOST_LINE_LIMIT;

pub(super) async fn unknown_operation(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let reply = peer.ask("execute", &execute(NO_OPERATION, "{}")).await?;
    // The Go kit does so, and so does today's text.
    if reply.result().is_some_and(|result| result.is_null() || result["success"] == false) {
        return Ok(Some(
            "it returns a result with success false, as the Go kit and the current specification do".into(),
        ));
    }
    reply.expect_error(&[-32601])?;
    Ok(None)
}

pub(super) async fn missing_operation(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    for params in ["{}", r#"{"operation":5,"args":{},"context":{}}"#, "[]", ""] {
        peer.ask("execute", params).await?.expect_error(&[-32602, -32600])?;
    }
    Ok(None)
}

/// Operations that may be called with wrong arguments: in a program any, on a wire only those that
/// may run.
async fn callable(bench: &mut Bench) -> Result<Vec<(String, Value)>, CaseFailure> {
    let permitted: Vec<String> = bench.calls.iter().map(|(name, _)| name.clone()).collect();
    let live = bench.is_live();
    let operations = operations(bench).await?;
    Ok(operations.into_iter().filter(|(name, _)| !live || permitted.contains(name)).collect())
}

pub(super) async fn missing_argument(bench: &mut Bench) -> Verdict {
    let operations = callable(bench).await?;
    let with_required_args = operations.iter().filter_map(|(name, operation)| {
        let required = operation["params"]["required"].as_array()?.first()?.as_str()?;
        Some((name, required))
    });
    let with_required_args: Vec<_> = with_required_args.take(4).collect();
    if with_required_args.is_empty() {
        return bench.skip("no operation that may run needs an argument");
    }
    let mut peer = bench.session().await?;
    let mut unnamed = None;
    for (name, required) in with_required_args {
        let reply = peer.ask("execute", &execute(name, "{}")).await?;
        reply.expect_error(&[-32602])?;
        if !reply.error().is_some_and(|error| error["message"].to_string().contains(required)) {
            unnamed = Some(format!("the error of {name} does not name the argument {required}"));
        }
    }
    Ok(unnamed)
}

pub(super) async fn wrong_argument(bench: &mut Bench) -> Verdict {
    let wrong = |schema: &Value| match schema["type"].as_str()? {
        "string" => Some(json!({ "not": "a string" })),
        "integer" | "number" | "boolean" | "object" | "array" => Some(json!("not what it should be")),
        _ => None,
    };
    let operations = callable(bench).await?;
    let cases = operations.iter().filter_map(|(name, operation)| {
        let required = operation["params"]["required"].as_array()?;
        let properties = operation["params"]["properties"].as_object()?;
        // Were the wrong type let pass, the call would still fail for want of the others, where
        // there are several.
        let (argument, schema) =
            properties.iter().find(|(argument, _)| required.iter().any(|name| name == *argument))?;
        Some((name, argument, wrong(schema)?))
    });
    let cases: Vec<_> = cases.take(4).collect();
    if cases.is_empty() {
        return bench.skip("no operation that may run needs an argument with a type");
    }
    let mut peer = bench.session().await?;
    for (name, argument, value) in cases {
        let args = json!({ argument.as_str(): value }).to_string();
        peer.ask("execute", &execute(name, &args)).await?.expect_error(&[-32602])?;
    }
    Ok(None)
}

pub(super) async fn results(bench: &mut Bench) -> Verdict {
    let calls = bench.permitted_calls().await?;
    let mut peer = bench.session().await?;
    let mut remark = None;
    for (name, args) in calls {
        let reply = peer.ask("execute", &execute(&name, &args.to_string())).await?;
        if reply.line().len() > HOST_LINE_LIMIT {
            let size = reply.line().len();
            return bench.fail(format!(
                "the reply of {name} has {size} bytes, and the real host reads at most {HOST_LINE_LIMIT}"
            ));
        }
        let Some(result) = reply.result() else {
            return bench.fail(refused(&name, &reply.error().unwrap_or_default()));
        };
        if result.is_null() {
            remark = Some(format!("{name} returns the result null, which the real host treats as a failure"));
            continue;
        }
        match &result["success"] {
            Value::Bool(true) => {}
            Value::Bool(false) => remark = Some(format!("{name} failed: {}", result["error"])),
            value => return bench.fail(format!("{name}: success must be a boolean, and is {value}")),
        }
        for member in ["message", "error"] {
            if !matches!(result[member], Value::String(_) | Value::Null) {
                return bench.fail(format!("{name}: {member} must be a string, and is {}", result[member]));
            }
        }
        match &result["outputs"] {
            Value::Null => {}
            Value::Object(outputs) => {
                if let Some((output, value)) = outputs.iter().find(|(_, value)| !value.is_string()) {
                    return bench.fail(format!(
                        "{name}: the output {output} must be a string, and is {value}: the real host fails the call"
                    ));
                }
            }
            value => return bench.fail(format!("{name}: outputs must be an object, and is {value}")),
        }
    }
    Ok(remark)
}

/// A call of `--call` that was refused, and how `--call` is used where that is the likely reason.
fn refused(name: &str, error: &Value) -> String {
    let hint = match error["code"].as_i64() {
        Some(-32602) => "; add the required arguments: --call OPERATION '{…}'",
        _ => "",
    };
    format!("{name} was refused: {error}{hint}")
}

pub(super) async fn as_the_host_sends(bench: &mut Bench) -> Verdict {
    let calls = bench.permitted_calls().await?;
    let mut peer = bench.session().await?;
    for (name, args) in calls {
        let args = if args.as_object().is_some_and(Map::is_empty) { "null".to_owned() } else { args.to_string() };
        let params = format!(r#"{{"operation":"{name}","args":{args},"context":{{"workdir":"/tmp","phase":""}}}}"#);
        let reply = peer.ask("execute", &params).await?;
        if let Some(error) = reply.error() {
            return bench.fail(refused(&name, &error));
        }
    }
    Ok(None)
}

pub(super) async fn unknown_members(bench: &mut Bench) -> Verdict {
    let mut calls = bench.permitted_calls().await?;
    let (name, args) = calls.swap_remove(0);
    let mut peer = bench.session().await?;
    let params = format!(
        r#"{{"operation":"{name}","args":{args},"context":{{"workdir":"/tmp","phase":"verify","agent":{{"prompt":"p\u003c","output":"","x":1}},"x":[{{}}]}},"x":null}}"#
    );
    let reply = peer.ask("execute", &params).await?;
    match reply.error() {
        Some(error) => bench.fail(refused(&name, &error)),
        None => Ok(None),
    }
}

pub(super) async fn before_initialize(bench: &mut Bench) -> Verdict {
    let request = execute(NO_OPERATION, "{}");
    let mut peer = bench.session().await?;
    let within = peer.ask("execute", &request).await?;
    drop(peer);
    let without = bench.connect().await?.ask("execute", &request).await?;
    if within.code() == without.code() {
        return Ok(None);
    }
    bench
        .fail(format!("execute must work without initialize, and was answered with {}", cut(without.line().as_bytes())))
}
