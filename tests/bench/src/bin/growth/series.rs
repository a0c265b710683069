//! The series of growth, and the two ways to do each.

use std::convert::Infallible;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write as _};

use rigline::engine::{Engine, Memory};
use rigline::serve::{Transport, blocking};
use rigline::{Call, Clock, Context, Extension, Failure, Instant, Manifest, Operation, Outcome, Schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Something of which there can be more or less.
pub(crate) struct Series {
    /// As in the CSV file.
    pub(crate) name: &'static str,
    /// The work of a series, and the meaning of its size.
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) sizes: &'static [usize],
    /// Between so many repetitions the instructions are counted: a single one where a size is itself many calls.
    pub(crate) repetitions: (u32, u32),
    pub(crate) ours: Run,
    pub(crate) theirs: Option<Run>,
}

/// Does the job of a size so many times, and hands over all that was written if the last argument says so.
type Run = fn(usize, usize, bool) -> Written;

/// How many bytes were written, and which.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) bytes: usize,
    pub(crate) kept: Option<Vec<u8>>,
}

const FEW: (u32, u32) = (2, 6);

pub(crate) const ALL: [Series; 6] = [
    Series {
        name: "line",
        title: "one call, by the length of its line",
        unit: "bytes",
        sizes: &[100, 300, 1_000, 3_000, 10_000, 30_000, 65_536, 100_000, 300_000, 1_000_000],
        repetitions: FEW,
        ours: |size, count, keep| rigline(1, line(size), count, keep),
        theirs: Some(|size, count, keep| serde_json(line(size), count, keep, call)),
    },
    Series {
        name: "stream",
        title: "an NDJSON stream of calls of 246 bytes, by its length",
        unit: "bytes",
        sizes: &[STREAM, 10 * STREAM, 100 * STREAM, 1_000 * STREAM],
        repetitions: (0, 1),
        ours: |size, count, keep| rigline(1, stream(), count * size / STREAM, keep),
        theirs: Some(|size, count, keep| serde_json(stream(), count * size / STREAM, keep, call)),
    },
    Series {
        name: "batch",
        title: "a batch, by its members",
        unit: "calls",
        sizes: &[1, 2, 5, 10, 20, 50],
        repetitions: FEW,
        ours: |size, count, keep| rigline(1, batch(size), count, keep),
        theirs: Some(|size, count, keep| serde_json(batch(size), count, keep, calls)),
    },
    Series {
        name: "initialize",
        title: "the reply to `initialize`, by the operations in the manifest",
        unit: "operations",
        sizes: &[1, 10, 100, 1_000, 10_000],
        repetitions: FEW,
        ours: |size, count, keep| rigline(size, INITIALIZE.into(), count, keep),
        theirs: Some(|size, count, keep| {
            let names: Vec<String> = (0..size).map(name).collect();
            let operations = names.iter().map(|name| TheirOperation { name, description: TEXT, params: object() });
            let operations: Vec<_> = operations.collect();
            serde_json(INITIALIZE.into(), count, keep, |line, reply| initialize(&operations, line, reply))
        }),
    },
    Series {
        name: "lookup",
        title: "a call of the last operation, by the operations in the manifest",
        unit: "operations",
        sizes: &[1, 10, 100, 1_000, 10_000],
        repetitions: FEW,
        ours: |size, count, keep| rigline(size, line_for(size, ""), count, keep),
        theirs: None,
    },
    Series {
        name: "nesting",
        title: "the check of a line, by the arrays in one another",
        unit: "levels",
        sizes: &[1, 2, 4, 8, 16, 32, 64, 127, 128],
        repetitions: FEW,
        ours: |size, count, _| checked(size, count, |line| rigline::json::check::check(line).is_ok()),
        theirs: Some(|size, count, _| checked(size, count, |line| serde_json::from_slice::<IgnoredAny>(line).is_ok())),
    },
];

/// Instructions of a size, ours and theirs.
pub(crate) struct Point {
    pub(crate) size: usize,
    pub(crate) ours: f64,
    pub(crate) theirs: Option<f64>,
}

/// Prints all series as CSV. `instructions` counts a command line of this program.
pub(crate) fn measure(instructions: impl Fn(&[&str]) -> Option<f64>) -> Option<()> {
    println!("series,size,rigline,serde_json");
    for series in &ALL {
        for &size in series.sizes {
            let (few, many) = series.repetitions;
            let of = |who| {
                let count =
                    |count: u32| instructions(&["run", series.name, who, &size.to_string(), &count.to_string()]);
                Some((count(many)? - count(few)?) / f64::from(many - few))
            };
            let does_it = |run: Run| run(size, 1, false).bytes > 0;
            assert!(does_it(series.ours), "{} of {size}", series.name);
            let ours = of("rigline")?;
            let theirs = match series.theirs {
                Some(run) if does_it(run) => format!("{:.0}", of("serde_json")?),
                _ => String::new(),
            };
            println!("{},{size},{ours:.0},{theirs}", series.name);
        }
    }
    Some(())
}

/// Does what [`measure`] counts.
pub(crate) fn run(name: &str, who: &str, size: usize, count: usize) -> Option<usize> {
    let series = ALL.iter().find(|series| series.name == name)?;
    let run = match who {
        "rigline" => series.ours,
        "serde_json" => series.theirs?,
        _ => return None,
    };
    Some(run(size, count, false).bytes)
}

/// The points of a series in what [`measure`] printed.
pub(crate) fn points(csv: &str, name: &str) -> Option<Vec<Point>> {
    let rows = csv.lines().map(|line| line.split(',').collect::<Vec<_>>()).filter(|row| row.first() == Some(&name));
    let points = rows.map(|row| match row[..] {
        [_, size, ours, theirs] => {
            Some(Point { size: size.parse().ok()?, ours: ours.parse().ok()?, theirs: theirs.parse().ok() })
        }
        _ => None,
    });
    points.collect::<Option<Vec<Point>>>().filter(|points| points.len() > 2)
}

const INITIALIZE: &str =
    concat!(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#, "\n");
const TEXT: &str = "Does what it is for";

fn name(number: usize) -> String {
    format!("o{number}")
}

/// A call of the last of so many operations with these arguments.
fn call_of(operations: usize, id: usize, args: &str) -> String {
    let name = name(operations - 1);
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"execute","params":{{"operation":"{name}","args":{{{args}}},"context":{{}}}}}}"#
    )
}

fn line_for(operations: usize, args: &str) -> Vec<u8> {
    (call_of(operations, 1, args) + "\n").into_bytes()
}

/// A call of this length, its end included: its arguments are a list of small objects, filled up with spaces.
fn line(size: usize) -> Vec<u8> {
    const ITEM: &str = r#"{"n":1234,"s":"abcdef","b":true}"#;
    let around = line_for(1, r#""a":[]"#).len();
    let Some(room) = size.checked_sub(around) else {
        return line_for(1, &" ".repeat((size + 6).saturating_sub(around)));
    };
    let mut items = vec![ITEM; room / (ITEM.len() + 1)].join(",");
    items.extend(std::iter::repeat_n(' ', room - items.len()));
    line_for(1, &format!(r#""a":[{items}]"#))
}

/// Calls of as many bytes as the bench's example, one behind another.
const STREAM: usize = 407 * CALL;
const CALL: usize = 246;

fn stream() -> Vec<u8> {
    line(CALL).repeat(STREAM / CALL)
}

fn batch(size: usize) -> Vec<u8> {
    let calls: Vec<String> = (1..=size).map(|id| call_of(1, id, "")).collect();
    format!("[{}]\n", calls.join(",")).into_bytes()
}

fn checked(depth: usize, count: usize, check: fn(&[u8]) -> bool) -> Written {
    let line = ["[".repeat(depth), "]".repeat(depth)].concat();
    let passed = (0..count).filter(|_| check(black_box(line.as_bytes()))).count();
    Written { bytes: passed, kept: Some(format!("{passed} passed").into_bytes()) }
}

/// Gives a text so many times, as much of it in a read as there is room for, and takes replies.
struct Source {
    text: Vec<u8>,
    at: usize,
    left: usize,
    written: Written,
}

impl Source {
    fn new(text: Vec<u8>, count: usize, keep: bool) -> Self {
        Self { text, at: 0, left: count, written: Written { bytes: 0, kept: keep.then(Vec::new) } }
    }

    fn give(&mut self, buf: &mut [u8]) -> usize {
        if self.left == 0 {
            return 0;
        }
        let rest = &black_box(self.text.as_slice())[self.at..];
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        if self.at == self.text.len() {
            (self.at, self.left) = (0, self.left - 1);
        }
        count
    }

    fn take(&mut self, buf: &[u8]) -> usize {
        self.written.bytes += black_box(buf).len();
        if let Some(kept) = &mut self.written.kept {
            kept.extend(buf);
        }
        buf.len()
    }
}

impl embedded_io::ErrorType for Source {
    type Error = Infallible;
}

impl embedded_io::Read for Source {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        Ok(self.give(buf))
    }
}

impl embedded_io::Write for Source {
    fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
        Ok(self.take(buf))
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl std::io::Read for Source {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        Ok(self.give(buf))
    }
}

impl std::io::Write for Source {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        Ok(self.take(buf))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

// rigline

struct Still;

impl Clock for Still {
    fn now(&self) -> Instant {
        Instant::default()
    }
}

struct Grown(&'static Manifest);

impl Extension for Grown {
    fn manifest(&self) -> &'static Manifest {
        self.0
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        black_box(call.operation());
        cx.done("done")
    }
}

/// Serves a text so many times, with so many operations.
fn rigline(operations: usize, text: Vec<u8>, count: usize, keep: bool) -> Written {
    let operations =
        (0..operations).map(|number| Operation::new(name(number).leak(), Schema::OBJECT).description(TEXT));
    let operations: Vec<Operation> = operations.collect();
    let manifest = Manifest::new("growth", "1.0.0").operations(operations.leak());
    let mut extension = Grown(Box::leak(Box::new(manifest)));
    // As the reader of serde_json's loop has, or as much as the longest line needs.
    let room = if text.iter().filter(|byte| **byte == b'\n').count() > 1 { 0 } else { text.len() };
    let (mut request, mut reply, mut log) = (vec![0; room.max(8 * 1024)], vec![0; 2 << 20], [0; 512]);
    let memory = Memory { request: &mut request, reply: &mut reply };
    let Ok(mut engine) = Engine::new(extension.manifest(), memory) else { return Written::default() };
    let mut source = Source::new(text, count, keep);
    let server = blocking::Server::new(&mut extension, &mut engine, &Still).transport(Transport::Stdio);
    let _ = server.log_buffer(&mut log).serve(&mut source);
    source.written
}

// serde_json, by hand

#[derive(Deserialize)]
struct Request<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<Parameters<'a>>,
}

#[derive(Deserialize)]
struct Parameters<'a> {
    operation: Option<&'a str>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    #[serde(rename = "protocolVersion")]
    version: Option<&'a str>,
}

#[derive(Serialize)]
struct Response<'a, T> {
    jsonrpc: &'a str,
    id: &'a RawValue,
    result: T,
}

#[derive(Serialize)]
struct Done {
    success: bool,
    message: &'static str,
}

#[derive(Serialize)]
struct TheirManifest<'a> {
    name: &'a str,
    version: &'a str,
    operations: &'a [TheirOperation<'a>],
}

#[derive(Serialize)]
struct TheirOperation<'a> {
    name: &'a str,
    description: &'a str,
    params: &'a RawValue,
}

fn object() -> &'static RawValue {
    serde_json::from_str(r#"{"type":"object"}"#).unwrap_or(RawValue::NULL)
}

fn serde_json(
    text: Vec<u8>,
    count: usize,
    keep: bool,
    mut reply_to: impl FnMut(&[u8], &mut Vec<u8>) -> Option<()>,
) -> Written {
    let mut reader = BufReader::new(Source::new(text, count, false));
    let mut writer = Source::new(Vec::new(), 0, keep);
    let (mut line, mut reply) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return writer.written,
            Ok(_) => {}
        }
        reply.clear();
        if reply_to(&line, &mut reply).is_some() {
            reply.push(b'\n');
            let _ = writer.write_all(&reply);
        }
    }
}

fn answer<'a>(request: &Request<'a>) -> Option<Response<'a, Done>> {
    let (Some(id), "2.0", "execute") = (request.id, request.jsonrpc, request.method) else { return None };
    let params = request.params.as_ref()?;
    black_box(params.args);
    match params.operation? {
        "o0" => Some(Response { jsonrpc: "2.0", id, result: Done { success: true, message: "done" } }),
        _ => None,
    }
}

fn call(line: &[u8], reply: &mut Vec<u8>) -> Option<()> {
    let request: Request<'_> = serde_json::from_slice(line).ok()?;
    serde_json::to_writer(reply, &answer(&request)?).ok()
}

fn calls(line: &[u8], reply: &mut Vec<u8>) -> Option<()> {
    let requests: Vec<Request<'_>> = serde_json::from_slice(line).ok()?;
    let responses: Option<Vec<_>> = requests.iter().map(answer).collect();
    serde_json::to_writer(reply, &responses?).ok()
}

fn initialize(operations: &[TheirOperation<'_>], line: &[u8], reply: &mut Vec<u8>) -> Option<()> {
    let request: Request<'_> = serde_json::from_slice(line).ok()?;
    let (Some(id), "2.0", "initialize") = (request.id, request.jsonrpc, request.method) else { return None };
    black_box(request.params?.version);
    let result = TheirManifest { name: "growth", version: "1.0.0", operations: black_box(operations) };
    serde_json::to_writer(reply, &Response { jsonrpc: "2.0", id, result }).ok()
}

#[cfg(test)]
mod tests {
    use super::{ALL, CALL, line};

    #[test]
    fn lines_have_their_length() {
        for size in [100, 101, 300, 1_000, 65_536, 1_000_000] {
            assert_eq!(line(size).len(), size);
        }
    }

    /// The counted work is that of the title: each size has as many answers, all of them good, from both.
    #[test]
    fn every_series_does_its_work() {
        for series in ALL {
            for &size in series.sizes.iter().filter(|size| **size <= 1_000_000) {
                // serde_json takes one level less than rigline.
                let theirs = series.theirs.filter(|_| (series.name, size) != ("nesting", 128));
                for run in std::iter::once(series.ours).chain(theirs) {
                    let text = String::from_utf8(run(size, 2, true).kept.unwrap()).unwrap();
                    let (needle, count) = match series.name {
                        "line" | "lookup" => (r#""success":true"#, 2),
                        "stream" => (r#""success":true"#, 2 * size / CALL),
                        "batch" => (r#""success":true"#, 2 * size),
                        "initialize" => (r#""type":"object""#, 2 * size),
                        "nesting" => ("2 passed", 1),
                        name => panic!("{name}?"),
                    };
                    let found = text.matches(needle).count();
                    assert_eq!(found, count, "{} {size}: {text:.500}", series.name);
                }
            }
        }
    }
}
