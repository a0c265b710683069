//! From the first byte in to the last byte out, nothing is put on a heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use embedded_io::{ErrorType, Read, Write};
use rigline::engine::{Engine, Memory};
use rigline::serve::{End, blocking};
use rigline::{Call, Clock, Context, Extension, Failure, Instant, Manifest, Operation, Outcome, Schema};

struct Counting;

thread_local! {
    /// This thread's: the harness has threads of its own.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Rig;

impl Extension for Rig {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("rig", "1.0.0")
            .operations(&[Operation::new("measure", Schema::OBJECT), Operation::new("fail", Schema::OBJECT)]);
        &MANIFEST
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        #[derive(serde::Deserialize)]
        struct Args<'a> {
            channel: &'a str,
            samples: u16,
            limits: [f32; 2],
        }
        let args: Args<'_> = call.args()?;
        cx.info(format_args!("channel {}", args.channel));
        cx.output("channel", args.channel)?;
        cx.output("samples", &args.samples)?;
        cx.output("limits", &args.limits)?;
        cx.sleep(std::time::Duration::from_nanos(1)).await;
        match call.operation() {
            "measure" => cx.done(format_args!("{} samples", args.samples)),
            _ => cx.failed("3V3 is \"low\""),
        }
    }
}

struct Ticking(AtomicUsize);

impl Clock for Ticking {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.fetch_add(1, Ordering::Relaxed) as u64)
    }
}

struct Memories<'a> {
    input: &'a [u8],
    output: &'a mut [u8],
    written: usize,
}

impl ErrorType for Memories<'_> {
    type Error = Infallible;
}

impl Read for Memories<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        let (now, later) = self.input.split_at(buf.len().min(self.input.len()).min(100));
        buf[..now.len()].copy_from_slice(now);
        self.input = later;
        Ok(now.len())
    }
}

impl Write for Memories<'_> {
    fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
        let count = buf.len().min(31);
        self.output[self.written..self.written + count].copy_from_slice(&buf[..count]);
        self.written += count;
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

#[test]
fn nothing_is_put_on_a_heap() {
    let args = r#""args":{"channel":"\u00b53V3\n","samples":1e2,"limits":[3.135,3.465]},"context":{"workdir":"/tmp","timeout":"5m"}"#;
    let call = |id: &str, operation: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"execute","params":{{"operation":"{operation}",{args}}}}}"#)
    };
    let input = [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#.to_owned(),
        call("2", "measure"),
        call("\"a\\n\"", "fail"),
        call("4", "nope"),
        call("5", "measure").replace("100", "\"many\"").replace("1e2", "1e9"),
        "{oops".to_owned(),
        "x".repeat(5000),
        format!("[{},1,{}]", call("6", "measure"), call("7", "fail")),
        r#"{"jsonrpc":"2.0","id":8,"method":"shutdown"}"#.to_owned(),
    ]
    .join("\n");
    let mut output = vec![0; 100_000];
    let (mut request, mut reply, mut log) = ([0; 2048], [0; 2048], [0; 256]);
    let mut pipe = Memories { input: input.as_bytes(), output: &mut output, written: 0 };

    let before = ALLOCATIONS.get();
    let memory = Memory { request: &mut request, reply: &mut reply };
    let mut engine = Engine::new(Rig.manifest(), memory).unwrap();
    let clock = Ticking(AtomicUsize::new(0));
    let end = blocking::Server::new(&mut Rig, &mut engine, &clock).log_buffer(&mut log).serve(&mut pipe).unwrap();
    let after = ALLOCATIONS.get();

    assert_eq!((end, after - before), (End::Shutdown, 0));
    let written = pipe.written;
    let text = std::str::from_utf8(&output[..written]).unwrap();
    assert_eq!(text.lines().count(), 9 + 4, "nine replies, four logs: {text}");
    assert!(text.ends_with("\"id\":8,\"result\":{}}\n") && ALLOCATIONS.get() > 0);
}
