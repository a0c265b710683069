//! The same job in several ways: a line in, its reply out.
//!
//! Every way reads the line from a [`Pipe`], finds its end, checks it, looks up method and operation, decodes the context
//! and the arguments, and writes the same reply, in the member order that is natural to it, as one line.

use std::convert::Infallible;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write as _};

use rigline::engine::{Engine, Memory};
use rigline::serve::blocking;
use rigline::{Call, Clock, Context, Extension, Failure, GoDuration, Instant, Manifest, Operation, Outcome, Schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::others;

/// The gevals text's `execute` example as one line without spaces, with its newline.
pub(crate) const LINE: &str = include_str!("../execute.jsonl");

/// A workload's name, and what does it so many times.
pub(crate) type Workload = (&'static str, fn(usize) -> usize);

/// The workloads.
pub(crate) const ALL: [Workload; 14] = [
    ("rigline", rigline_serve),
    ("rigline-apart", rigline_apart),
    ("serde_json", serde_json_serve),
    ("serde_json-apart", serde_json_apart),
    ("jsonrpsee", jsonrpsee),
    ("serde-json-core", serde_json_core),
    ("sonic-rs", others::sonic_rs),
    ("simd-json", others::simd_json),
    ("lsp-server", others::lsp_server),
    ("rigline-frame", rigline_frame),
    ("memchr", memchr),
    ("rigline-check", rigline_check),
    ("serde_json-check", serde_json_check),
    ("allocations", allocations),
];

pub(crate) const UID: &str = "abc-123-def";
pub(crate) const VERSION: &str = "12345";

/// Gives the line as often as it is told, each in a read of its own, and takes replies.
pub(crate) struct Pipe {
    left: usize,
    pub(crate) bytes: usize,
}

impl Pipe {
    pub(crate) fn new(left: usize) -> Self {
        Self { left, bytes: 0 }
    }

    fn give(&mut self, buf: &mut [u8]) -> usize {
        if self.left == 0 {
            return 0;
        }
        self.left -= 1;
        buf[..LINE.len()].copy_from_slice(black_box(LINE).as_bytes());
        LINE.len()
    }

    fn take(&mut self, buf: &[u8]) -> usize {
        self.bytes += black_box(buf).len();
        buf.len()
    }
}

impl embedded_io::ErrorType for Pipe {
    type Error = Infallible;
}

impl embedded_io::Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        Ok(self.give(buf))
    }
}

impl embedded_io::Write for Pipe {
    fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
        Ok(self.take(buf))
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl std::io::Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        Ok(self.give(buf))
    }
}

impl std::io::Write for Pipe {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        Ok(self.take(buf))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

// rigline

struct Kubernetes;

#[derive(Deserialize)]
pub(crate) struct Apply<'a> {
    pub(crate) file: &'a str,
    #[serde(default = "default_namespace")]
    pub(crate) namespace: &'a str,
}

fn default_namespace() -> &'static str {
    "default"
}

impl Extension for Kubernetes {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("kubernetes", "1.2.0").operations(&[
            Operation::new("apply", Schema::OBJECT).description("Apply a Kubernetes manifest"),
            Operation::new("condition", Schema::OBJECT).description("Verify a resource condition"),
        ]);
        &MANIFEST
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        match call.operation() {
            "apply" => {
                black_box(call.context);
                let Apply { file, namespace } = call.args()?;
                cx.output("resourceVersion", black_box(VERSION))?;
                cx.output("uid", black_box(UID))?;
                cx.done(["Applied ", file, " to namespace ", namespace])
            }
            _ => Err(Failure::UNKNOWN_OPERATION),
        }
    }
}

struct Still;

impl Clock for Still {
    fn now(&self) -> Instant {
        Instant::default()
    }
}

fn rigline_serve(count: usize) -> usize {
    let (mut request, mut reply, mut log) = ([0; 4096], [0; 4096], [0; 512]);
    let memory = Memory { request: &mut request, reply: &mut reply };
    let Ok(mut engine) = Engine::new(Kubernetes.manifest(), memory) else { return 0 };
    let mut pipe = Pipe::new(count);
    let _ = blocking::Server::new(&mut Kubernetes, &mut engine, &Still).log_buffer(&mut log).serve(&mut pipe);
    pipe.bytes
}

/// With nothing read or written: what the engine's own work comes to, from commit to the reply.
fn rigline_apart(count: usize) -> usize {
    use rigline::{engine::Step, exchange::Work};
    struct NoLog;
    impl rigline::LogSink for NoLog {
        fn room(&mut self) -> &mut [u8] {
            &mut []
        }
        fn commit(&mut self, _: usize) {}
        fn dropped(&mut self) {}
    }
    let (mut request, mut reply) = ([0; 4096], [0; 4096]);
    let memory = Memory { request: &mut request, reply: &mut reply };
    let Ok(mut engine) = Engine::new(Kubernetes.manifest(), memory) else { return 0 };
    let mut pipe = Pipe::new(count);
    let mut logs = NoLog;
    for _ in 0..count {
        let length = pipe.give(engine.space());
        engine.commit(length);
        let result = match engine.step() {
            Step::Run(run) => {
                let mut cx = Context::new(run.reply, &mut logs, &Still, None);
                let Work::Call(call) = run.work else { return 0 };
                block_on(Kubernetes.call(call, &mut cx))
            }
            _ => return 0,
        };
        engine.complete(&result);
        if let Step::Write(reply) = engine.step() {
            pipe.take(reply);
        }
    }
    pipe.bytes
}

fn rigline_check(count: usize) -> usize {
    let line = LINE.trim_end().as_bytes();
    (0..count).filter(|_| rigline::json::check::check(black_box(line)).is_ok()).count()
}

/// Framing alone: lines in, one by one, their bytes looked at by nobody else.
fn rigline_frame(count: usize) -> usize {
    let mut memory = [0; 4096];
    let mut framer = rigline::frame::Framer::new(&mut memory);
    let mut pipe = Pipe::new(count);
    let mut lines = 0;
    loop {
        let read = pipe.give(framer.space());
        if read == 0 {
            return lines;
        }
        framer.commit(read);
        while let Some(frame) = framer.next_frame() {
            black_box(frame);
            lines += 1;
        }
    }
}

/// The least cost of a framer: the search for the newline alone.
fn memchr(count: usize) -> usize {
    let mut memory = [0; 4096];
    let mut pipe = Pipe::new(count);
    let mut lines = 0;
    loop {
        let read = pipe.give(&mut memory);
        let mut rest = &memory[..read];
        if rest.is_empty() {
            return lines;
        }
        while let Some(at) = memchr::memchr(b'\n', rest) {
            black_box(&rest[..at]);
            rest = &rest[at + 1..];
            lines += 1;
        }
    }
}

// serde_json, by hand

#[derive(Deserialize)]
struct Request<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    /// Of all methods at once: a raw value, decoded once the method is known, would be read twice.
    #[serde(borrow)]
    params: Option<Execute<'a>>,
}

#[derive(Deserialize)]
struct Execute<'a> {
    operation: Option<&'a str>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    #[serde(borrow)]
    context: Option<CallContext<'a>>,
}

#[derive(Deserialize)]
struct CallContext<'a> {
    workdir: Option<&'a str>,
    phase: Option<&'a str>,
    #[serde(borrow)]
    env: Option<&'a RawValue>,
    timeout: Option<&'a str>,
    agent: Option<Agent<'a>>,
}

#[derive(Deserialize)]
struct Agent<'a> {
    prompt: Option<&'a str>,
    output: Option<&'a str>,
}

#[derive(Serialize)]
struct Response<'a> {
    jsonrpc: &'a str,
    id: &'a RawValue,
    result: Applied<'a>,
}

#[derive(Serialize)]
pub(crate) struct Applied<'a> {
    pub(crate) success: bool,
    pub(crate) message: &'a str,
    pub(crate) outputs: Outputs<'a>,
}

#[derive(Serialize)]
pub(crate) struct Outputs<'a> {
    #[serde(rename = "resourceVersion")]
    pub(crate) resource_version: &'a str,
    pub(crate) uid: &'a str,
}

fn serde_json_serve(count: usize) -> usize {
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
        if serde_json_reply(&line, &mut reply).is_some() {
            reply.push(b'\n');
            let _ = writer.write_all(&reply);
        }
    }
}

fn serde_json_apart(count: usize) -> usize {
    let line = LINE.trim_end().as_bytes();
    let mut reply = Vec::new();
    (0..count)
        .map(|_| {
            reply.clear();
            serde_json_reply(black_box(line), &mut reply);
            black_box(&reply).len()
        })
        .sum()
}

fn serde_json_reply(line: &[u8], reply: &mut Vec<u8>) -> Option<()> {
    let request: Request<'_> = serde_json::from_slice(line).ok()?;
    let (Some(id), "2.0") = (request.id, request.jsonrpc) else { return None };
    match request.method {
        "execute" => {
            let execute = request.params?;
            let CallContext { workdir, phase, env, timeout, agent } = execute.context?;
            let (phase, timeout) = (self::phase(phase), self::timeout(timeout).ok()?);
            black_box((workdir, phase, env, timeout, agent.map(|agent| (agent.prompt, agent.output))));
            match execute.operation? {
                "apply" => {
                    let Apply { file, namespace } = serde_json::from_str(execute.args?.get()).ok()?;
                    let message = &format!("Applied {file} to namespace {namespace}");
                    let outputs = Outputs { resource_version: black_box(VERSION), uid: black_box(UID) };
                    let result = Applied { success: true, message, outputs };
                    serde_json::to_writer(reply, &Response { jsonrpc: "2.0", id, result }).ok()
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// A phase as the number of its meaning.
pub(crate) fn phase(name: Option<&str>) -> u8 {
    match name {
        Some("setup") => 1,
        Some("verify") => 2,
        Some("cleanup") => 3,
        _ => 0,
    }
}

/// A time limit, none if it is absent.
pub(crate) fn timeout(text: Option<&str>) -> Result<Option<GoDuration>, rigline::ParseDurationError> {
    text.map(GoDuration::parse).transpose()
}

fn serde_json_check(count: usize) -> usize {
    let line = LINE.trim_end().as_bytes();
    (0..count).filter(|_| serde_json::from_slice::<IgnoredAny>(black_box(line)).is_ok()).count()
}

// jsonrpsee

fn jsonrpsee(count: usize) -> usize {
    let mut module = jsonrpsee_core::server::RpcModule::new(());
    let registered = module.register_method("execute", |params, (), _| {
        let execute: Execute<'_> = params.parse()?;
        let refused = || jsonrpsee_types::ErrorObjectOwned::from(jsonrpsee_types::ErrorCode::InvalidParams);
        let CallContext { workdir, phase, env, timeout, agent } = execute.context.ok_or_else(refused)?;
        black_box((workdir, phase, env, timeout, agent.map(|agent| (agent.prompt, agent.output))));
        let args = execute.args.filter(|_| execute.operation == Some("apply")).ok_or_else(refused)?;
        let Apply { file, namespace } = serde_json::from_str(args.get()).map_err(|_| refused())?;
        Ok::<_, jsonrpsee_types::ErrorObjectOwned>(OwnedApplied {
            success: true,
            message: format!("Applied {file} to namespace {namespace}"),
            outputs: Outputs { resource_version: black_box(VERSION), uid: black_box(UID) },
        })
    });
    if registered.is_err() {
        return 0;
    }
    let mut reader = BufReader::new(Pipe::new(count));
    let mut writer = Pipe::new(0);
    let mut line = String::new();
    loop {
        line.clear();
        match reader.read_line(&mut line) {
            Ok(0) | Err(_) => return writer.bytes,
            Ok(_) => {}
        }
        if let Ok((reply, _)) = block_on(module.raw_json_request(line.trim_end(), 1)) {
            let _ = writer.write_all(reply.get().as_bytes());
            let _ = writer.write_all(b"\n");
        }
    }
}

#[derive(Clone, Serialize)]
struct OwnedApplied {
    success: bool,
    message: String,
    outputs: Outputs<'static>,
}

impl Clone for Outputs<'_> {
    fn clone(&self) -> Self {
        Self { resource_version: self.resource_version, uid: self.uid }
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut task) {
            return output;
        }
    }
}

// serde-json-core: typed through and through, since it has no raw values; it neither checks the whole nor dispatches.

#[derive(Deserialize)]
struct CoreRequest<'a> {
    id: u32,
    #[serde(borrow)]
    params: CoreExecute<'a>,
}

#[derive(Deserialize)]
struct CoreExecute<'a> {
    #[serde(borrow)]
    args: Apply<'a>,
}

#[derive(Serialize)]
struct CoreResponse<'a> {
    jsonrpc: &'a str,
    id: u32,
    result: Applied<'a>,
}

fn serde_json_core(count: usize) -> usize {
    let mut pipe = Pipe::new(count);
    let (mut line, mut reply) = ([0; 4096], [0; 4096]);
    for _ in 0..count {
        let length = pipe.give(&mut line);
        let Ok((request, _)) = serde_json_core::from_slice::<CoreRequest<'_>>(&line[..length - 1]) else { return 0 };
        let Apply { file, namespace } = request.params.args;
        let message = &format!("Applied {file} to namespace {namespace}");
        let outputs = Outputs { resource_version: black_box(VERSION), uid: black_box(UID) };
        let result = Applied { success: true, message, outputs };
        let Ok(length) =
            serde_json_core::to_slice(&CoreResponse { jsonrpc: "2.0", id: request.id, result }, &mut reply)
        else {
            return 0;
        };
        reply[length] = b'\n';
        pipe.take(&reply[..=length]);
    }
    pipe.bytes
}

// Heap allocations

/// The heap's use in `count` calls of ours.
fn allocations(count: usize) -> usize {
    crate::heap::count(|| {
        black_box(rigline_serve(count));
    })
}
