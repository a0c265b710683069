//! The manifest, and the handshake that it comes by.

use serde_json::Value;

use super::common::operations;
use crate::check::{Bench, Verdict};
use rigline_std::stdio::HOST_LINE_LIMIT;

pub(super) async fn handshake(bench: &mut Bench) -> Verdict {
    let mut peer = bench.connect().await?;
    let reply = bench.initialize(&mut peer).await?;
    match (reply.result(), reply.error()) {
        (_, Some(error)) => bench.fail(format!("initialize was refused: {error}")),
        (Some(Value::Object(_)), _) if reply.is_versioned() => Ok(None),
        (Some(Value::Object(_)), _) => bench.fail("the reply lacks \"jsonrpc\":\"2.0\", and the real host drops it"),
        (result, _) => bench.fail(format!("the result is not an object: {}", result.unwrap_or_default())),
    }
}

pub(super) async fn manifest_string(bench: &mut Bench, name: &str) -> Verdict {
    match &bench.manifest().await?[name] {
        Value::String(text) if !text.is_empty() => Ok(None),
        Value::Null => bench.fail(format!("{name} is missing")),
        value => bench.fail(format!("{name} must be a non-empty string, not {value}")),
    }
}

pub(super) async fn manifest_version(bench: &mut Bench) -> Verdict {
    manifest_string(bench, "version").await?;
    let manifest = bench.manifest().await?;
    let version = manifest["version"].as_str().unwrap_or_default();
    match semver::Version::parse(version) {
        Ok(_) => Ok(None),
        Err(error) => bench.fail(format!("version must be a semantic version, not `{version}`: {error}")),
    }
}

pub(super) async fn manifest_protocol_version(bench: &mut Bench) -> Verdict {
    match &bench.manifest().await?["protocolVersion"] {
        Value::String(version) if version == "0.0.1" => Ok(None),
        Value::Null => bench.fail("protocolVersion is missing"),
        version => bench.fail(format!("protocolVersion must be \"0.0.1\", and is {version}")),
    }
}

pub(super) async fn manifest_description(bench: &mut Bench) -> Verdict {
    match &bench.manifest().await?["description"] {
        Value::String(_) | Value::Null => Ok(None),
        value => bench.fail(format!("description must be a string, and is {value}")),
    }
}

pub(super) async fn manifest_requires(bench: &mut Bench) -> Verdict {
    let manifest = bench.manifest().await?;
    let requires = match &manifest["requires"] {
        Value::Null => return Ok(None),
        Value::Array(requires) => requires,
        value => return bench.fail(format!("requires must be a list, and is {value}")),
    };
    match requires.iter().find(|requirement| !requirement["command"].is_string()) {
        None => Ok(None),
        Some(wrong) => bench.fail(format!("requires must have {{\"command\":…}} objects, and has {wrong}")),
    }
}

pub(super) async fn manifest_operations(bench: &mut Bench) -> Verdict {
    let manifest = bench.manifest().await?;
    let Value::Object(operations) = &manifest["operations"] else {
        return bench.fail(format!("operations must be an object, and is {}", manifest["operations"]));
    };
    for (name, operation) in operations {
        if !operation.is_object() {
            return bench
                .fail(format!("operations.{name} must be an object, and is {operation}: it crashes the real host"));
        }
        if !matches!(operation["description"], Value::String(_) | Value::Null) {
            return bench.fail(format!("operations.{name}.description must be a string"));
        }
    }
    let is_undescribed = |operation: &Value| operation["description"].as_str().is_none_or(str::is_empty);
    let undescribed: Vec<&str> =
        operations.iter().filter(|(_, operation)| is_undescribed(operation)).map(|(name, _)| name.as_str()).collect();
    Ok(match () {
        () if operations.is_empty() => Some("there are no operations".to_owned()),
        () if undescribed.is_empty() => None,
        () => Some(format!("without a description, by which an agent chooses: {}", undescribed.join(", "))),
    })
}

pub(super) async fn manifest_schemas(bench: &mut Bench) -> Verdict {
    for (name, operation) in operations(bench).await? {
        let Some(operation) = operation.as_object() else { continue };
        match operation.get("params") {
            None => return bench.fail(format!("operations.{name}.params is missing")),
            Some(Value::Null) => {
                return bench
                    .fail(format!("operations.{name}.params is null, with which the real host refuses every call"));
            }
            // As the Go kit writes it.
            Some(Value::Bool(true)) => {}
            Some(schema @ Value::Object(_)) => {
                if let Err(error) = jsonschema::validator_for(schema) {
                    return bench.fail(format!("operations.{name}.params is not a valid JSON Schema: {error}"));
                }
            }
            Some(schema) => {
                return bench.fail(format!("operations.{name}.params must be a JSON Schema object, and is {schema}"));
            }
        }
    }
    Ok(None)
}

pub(super) async fn manifest_size(bench: &mut Bench) -> Verdict {
    let size = bench.manifest_line().await?.len();
    if size <= HOST_LINE_LIMIT {
        return Ok(None);
    }
    bench.fail(format!("the reply to initialize has {size} bytes, and the real host reads at most {HOST_LINE_LIMIT}"))
}

pub(super) async fn initialize_twice(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let again = peer.ask("initialize", r#"{"protocolVersion":"0.0.1"}"#).await?;
    Ok(again.error().map(|error| format!("the second initialize is refused: {error}")))
}

pub(super) async fn initialize_no_version(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    for params in ["", "{}"] {
        let reply = peer.ask("initialize", params).await?;
        if reply.error().is_some() {
            reply.expect_error(&[-32602, -32600])?;
        }
    }
    Ok(None)
}
