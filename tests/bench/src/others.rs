//! The same job with other JSON parsers, and with a language server's message type.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write as _};

use serde::{Deserialize, Serialize};

use crate::workloads::{Applied, Apply, Outputs, Pipe, UID, VERSION, phase, timeout};

/// Reads lines, and writes what `reply` puts into the buffer for each.
fn serve(count: usize, mut reply_to: impl FnMut(&mut Vec<u8>, &mut Vec<u8>) -> Option<()>) -> usize {
    let mut reader = BufReader::new(Pipe::new(count));
    let mut writer = Pipe::new(0);
    let (mut line, mut reply) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return writer.bytes,
            Ok(_) => {}
        }
        reply.clear();
        if reply_to(&mut line, &mut reply).is_some() {
            reply.push(b'\n');
            let _ = writer.write_all(&reply);
        }
    }
}

/// The request with arguments and environment in a parser's own value type.
#[derive(Deserialize)]
struct Request<'a, V> {
    jsonrpc: &'a str,
    id: Option<V>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<Execute<'a, V>>,
}

#[derive(Deserialize)]
struct Execute<'a, V> {
    operation: Option<&'a str>,
    args: Option<V>,
    #[serde(borrow)]
    context: Option<CallContext<'a, V>>,
}

#[derive(Deserialize)]
struct CallContext<'a, V> {
    workdir: Option<&'a str>,
    phase: Option<&'a str>,
    env: Option<V>,
    timeout: Option<&'a str>,
    #[serde(borrow)]
    agent: Option<Agent<'a>>,
}

#[derive(Deserialize)]
struct Agent<'a> {
    prompt: Option<&'a str>,
    output: Option<&'a str>,
}

#[derive(Serialize)]
struct Response<'a, V> {
    jsonrpc: &'a str,
    id: V,
    result: Applied<'a>,
}

/// The operation's arguments and the id, once everything else has been examined.
fn dispatch<V>(request: Request<'_, V>) -> Option<(V, V)> {
    let (Some(id), "2.0", "execute") = (request.id, request.jsonrpc, request.method) else { return None };
    let execute = request.params?;
    let CallContext { workdir, phase: name, env, timeout: limit, agent } = execute.context?;
    black_box((workdir, phase(name), env, timeout(limit).ok()?, agent.map(|agent| (agent.prompt, agent.output))));
    match execute.operation? {
        "apply" => Some((execute.args?, id)),
        _ => None,
    }
}

fn response<V>(id: V, message: &str) -> Response<'_, V> {
    let outputs = Outputs { resource_version: black_box(VERSION), uid: black_box(UID) };
    Response { jsonrpc: "2.0", id, result: Applied { success: true, message, outputs } }
}

/// `sonic-rs`, arguments and environment as lazy values.
pub(crate) fn sonic_rs(count: usize) -> usize {
    serve(count, |line, reply| {
        let request: Request<'_, sonic_rs::LazyValue<'_>> = sonic_rs::from_slice(line).ok()?;
        let (args, id) = dispatch(request)?;
        let Apply { file, namespace } = sonic_rs::from_str(args.as_raw_str()).ok()?;
        let message = format!("Applied {file} to namespace {namespace}");
        sonic_rs::to_writer(reply, &response(id, &message)).ok()
    })
}

/// `simd-json` with reused buffers; it has no raw values, so that arguments and environment become trees.
pub(crate) fn simd_json(count: usize) -> usize {
    let mut buffers = simd_json::Buffers::default();
    serve(count, |line, reply| {
        let request: Request<'_, simd_json::BorrowedValue<'_>> =
            simd_json::serde::from_slice_with_buffers(line, &mut buffers).ok()?;
        let (args, id) = dispatch(request)?;
        let Apply { file, namespace } = simd_json::serde::from_refborrowed_value(&args).ok()?;
        let message = format!("Applied {file} to namespace {namespace}");
        simd_json::serde::to_writer(reply, &response(id, &message)).ok()
    })
}

/// `lsp-server`'s message type over lines in place of its header framing; parameters become a tree first.
pub(crate) fn lsp_server(count: usize) -> usize {
    #[derive(Deserialize)]
    struct OwnedExecute {
        operation: String,
        args: OwnedApply,
        context: OwnedContext,
    }
    #[derive(Deserialize)]
    struct OwnedApply {
        file: String,
        #[serde(default = "namespace")]
        namespace: String,
    }
    #[derive(Deserialize)]
    struct OwnedContext {
        workdir: Option<String>,
        phase: Option<String>,
        env: Option<serde_json::Value>,
        timeout: Option<String>,
        agent: Option<OwnedAgent>,
    }
    #[derive(Deserialize)]
    struct OwnedAgent {
        prompt: Option<String>,
        output: Option<String>,
    }
    fn namespace() -> String {
        "default".to_owned()
    }
    serve(count, |line, reply| {
        let Ok(lsp_server::Message::Request(request)) = serde_json::from_slice(line) else { return None };
        let (id, execute) = request.extract::<OwnedExecute>("execute").ok()?;
        let OwnedContext { workdir, phase: name, env, timeout: limit, agent } = execute.context;
        let agent = agent.map(|agent| (agent.prompt, agent.output));
        black_box((workdir, phase(name.as_deref()), env, timeout(limit.as_deref()).ok()?, agent));
        if execute.operation != "apply" {
            return None;
        }
        let message = format!("Applied {} to namespace {}", execute.args.file, execute.args.namespace);
        let outputs = Outputs { resource_version: black_box(VERSION), uid: black_box(UID) };
        let applied = Applied { success: true, message: &message, outputs };
        let message: lsp_server::Message = lsp_server::Response::new_ok(id, applied).into();
        serde_json::to_writer(reply, &message).ok()
    })
}
