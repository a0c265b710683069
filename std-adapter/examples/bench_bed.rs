//! An extension that does all that can go wrong on standard input and output: the tests drive it.
//!
//! Environment: `REQUEST_LIMIT` and `REPLY_LIMIT`, in bytes; `REQUIRES=1` for a manifest that
//! requires a command that is missing as long as nobody puts it into `PATH`.

use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rigline::protocol::gevals::TaskContext;
use rigline::{Call, Config, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
use rigline_std::stdio::Stdio;

struct BenchBed {
    requires: bool,
}

const OPERATIONS: &[Operation] = &[
    Operation::new("echo", Schema::OBJECT).description("Gives `text` back, and the file it names in `path`"),
    Operation::new("slow", Schema::OBJECT).description("Logs, waits, logs, waits `millis` in all, awaiting"),
    Operation::new("busy", Schema::OBJECT).description("The same without an await"),
    Operation::new("big", Schema::OBJECT).description("A message of `size` bytes, after a log of `log` bytes"),
    Operation::new("agent", Schema::OBJECT).description("How long the agent's output was"),
    Operation::new("print", Schema::OBJECT).description("Prints to standard output, by itself and by a child"),
    Operation::new("panic", Schema::OBJECT).description("Panics at `place`"),
    Operation::new("chatter", Schema::OBJECT).description("Logs `count` lines without an await"),
];

impl Extension for BenchBed {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("bench-bed", "1.0.0").operations(OPERATIONS);
        const REQUIRING: Manifest = MANIFEST.requires(&["sh", "rigline-no-such-command"]);
        if self.requires { &REQUIRING } else { &MANIFEST }
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        #[derive(serde::Deserialize, Default)]
        #[serde(default)]
        struct Args<'a> {
            text: &'a str,
            path: &'a str,
            place: &'a str,
            millis: u64,
            size: usize,
            log: usize,
            count: usize,
        }
        let args: Args<'_> = call.args()?;
        match call.operation() {
            "echo" => {
                if !args.path.is_empty() {
                    let path = rigline_std::path::resolve(&call.context, args.path);
                    cx.output("path", &*path.to_string_lossy())?;
                }
                cx.done(args.text)
            }
            "slow" => {
                let half = Duration::from_millis(args.millis / 2);
                cx.info("first");
                tokio::time::sleep(half).await;
                cx.info("second");
                cx.sleep(half).await;
                cx.done("slept")
            }
            "busy" => {
                let half = Duration::from_millis(args.millis / 2);
                cx.info("first");
                std::thread::sleep(half);
                cx.info("second");
                std::thread::sleep(half);
                cx.done("worked")
            }
            "big" => {
                if args.log > 0 {
                    cx.info(&*"l".repeat(args.log));
                }
                cx.done(&*"m".repeat(args.size))
            }
            "agent" => {
                let output = TaskContext::of(&call.context).agent.and_then(|agent| agent.output);
                cx.output("length", &output.map_or(0, |output| output.chars().count()))?;
                cx.done("counted")
            }
            "print" => {
                println!("printed by the handler");
                print!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{}}}}");
                std::io::stdout().flush().map_err(|_| Failure::new(rigline::FailureKind::Internal, "no stdout"))?;
                match Command::new("sh").args(["-c", "echo hello; cat"]).status() {
                    Ok(status) => cx.done(format_args!("{status}")),
                    Err(error) => cx.failed(format_args!("{error}")),
                }
            }
            "panic" => {
                cx.info("about to panic");
                match args.place {
                    "thread" => drop(std::thread::spawn(|| panic!("boom")).join()),
                    "task" => drop(tokio::spawn(async { panic!("boom") }).await),
                    "blocking" => drop(tokio::task::spawn_blocking(|| panic!("boom")).await),
                    "later" => drop(std::thread::spawn(|| {
                        std::thread::sleep(Duration::from_millis(100));
                        panic!("boom")
                    })),
                    _ => panic!("boom"),
                }
                cx.done("survived")
            }
            "chatter" => {
                for number in 0..args.count {
                    cx.info(format_args!("line {number} {}", args.text));
                }
                cx.done("said all")
            }
            _ => Err(Failure::UNKNOWN_OPERATION),
        }
    }

    async fn configure(&mut self, _: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        cx.info("configured");
        Ok(())
    }

    async fn safe_state(&mut self) {
        tokio::task::yield_now().await;
        eprintln!("safe state");
    }
}

fn main() -> ExitCode {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    let mut stdio = Stdio::new();
    if let Some(limit) = number("REQUEST_LIMIT") {
        stdio = stdio.request_limit(limit);
    }
    if let Some(limit) = number("REPLY_LIMIT") {
        stdio = stdio.reply_limit(limit);
    }
    stdio.serve(BenchBed { requires: number("REQUIRES") == Some(1) })
}
