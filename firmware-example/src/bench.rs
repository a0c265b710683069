//! What the tests and the benchmark need besides the rig (feature `bench-images`).

use core::time::Duration;

use rigline::{Call, Config, Context, Extension, Failure, FailureKind, Level, Manifest, Operation, Outcome, Schema};
use serde::Deserialize;

use crate::board::Board;
use crate::rig::{self, Rig};

/// The gevals text's example, as far as its `execute` needs it: the extension that the figures are measured with.
#[derive(Debug)]
pub struct Kubernetes;

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
            "apply" => apply(call.args()?, cx),
            _ => Err(Failure::UNKNOWN_OPERATION),
        }
    }
}

fn apply(Apply { file, namespace }: Apply<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
    cx.output("resourceVersion", "12345")?;
    cx.output("uid", "abc-123-def")?;
    cx.done(["Applied ", file, " to namespace ", namespace])
}

/// The rig's manifest, with the operations below.
pub static MANIFEST: Manifest = Manifest::new("rig", env!("CARGO_PKG_VERSION"))
    .description("A hardware-test rig, with what its tests and the benchmark need")
    .operations(&OPERATIONS);

const APPLY: Schema = Schema::text(concat!(
    r#"{"type":"object","properties":{"#,
    r#""file":{"type":"string","description":"Path to manifest file"},"#,
    r#""namespace":{"type":"string","default":"default","description":"Target namespace"}},"#,
    r#""required":["file"]}"#
));

/// `apply` is the gevals text's example; the rest make the firmware do what it should not.
const EXTRA: [Operation; 8] = [
    Operation::new("apply", APPLY).description("Apply a Kubernetes manifest"),
    Operation::new("count", Schema::OBJECT).description("Count the calls of this operation since the reset"),
    Operation::new("say", Schema::OBJECT).description("Answer with a message of `length` bytes"),
    Operation::new("log", Schema::OBJECT).description("Log `count` lines of `length` bytes, `every_ms`"),
    Operation::new("spin", Schema::OBJECT).description("Keep the processor for `ms`, awaiting nothing"),
    Operation::new("panic", Schema::OBJECT).description("Panic, with `text`"),
    Operation::new("fault", Schema::OBJECT).description("Execute what is no instruction"),
    Operation::new("hang", Schema::OBJECT).description("Never come back"),
];

const OPERATIONS: [Operation; rig::OPERATIONS.len() + EXTRA.len()] = {
    let mut all = [EXTRA[0]; rig::OPERATIONS.len() + EXTRA.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < rig::OPERATIONS.len() { rig::OPERATIONS[at] } else { EXTRA[at - rig::OPERATIONS.len()] };
        at += 1;
    }
    all
};

/// The rig with the operations of the bench.
#[derive(Debug)]
pub struct BenchRig<B> {
    rig: Rig<B>,
    calls: u32,
}

impl<B: Board> BenchRig<B> {
    /// Around a rig.
    pub fn new(rig: Rig<B>) -> Self {
        Self { rig, calls: 0 }
    }
}

#[derive(Deserialize)]
struct Apply<'a> {
    file: &'a str,
    #[serde(default = "default_namespace")]
    namespace: &'a str,
}

fn default_namespace() -> &'static str {
    "default"
}

#[derive(Deserialize)]
struct Say<'a> {
    length: usize,
    #[serde(default)]
    fill: &'a str,
    #[serde(default)]
    fail: bool,
}

#[derive(Deserialize)]
struct Log {
    count: u32,
    #[serde(default)]
    length: usize,
    #[serde(default)]
    every_ms: u32,
}

#[derive(Deserialize)]
struct Spin {
    ms: u32,
}

#[derive(Deserialize)]
struct Panic<'a> {
    #[serde(default)]
    text: &'a str,
}

/// A text again and again, cut at so many bytes. Its characters are single bytes.
struct Filled<'a>(&'a str, usize);

impl core::fmt::Display for Filled<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        use core::fmt::Write;
        let fill = if self.0.is_empty() { "x" } else { self.0 };
        fill.chars().cycle().take(self.1).try_for_each(|character| f.write_char(character))
    }
}

impl<B: Board> Extension for BenchRig<B> {
    fn manifest(&self) -> &'static Manifest {
        &MANIFEST
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        match call.operation() {
            "apply" => apply(call.args()?, cx),
            "count" => {
                self.calls += 1;
                cx.output("calls", &self.calls)?;
                cx.done("counted")
            }
            "say" => {
                let Say { length, fill, fail } = call.args()?;
                if fail {
                    return Err(cx.failure(FailureKind::Unreachable, format_args!("{}", Filled(fill, length))));
                }
                cx.done(format_args!("{}", Filled(fill, length)))
            }
            "log" => {
                let Log { count, length, every_ms } = call.args()?;
                for number in 0..count {
                    cx.log(Level::Info, format_args!("{number} {}", Filled("", length)));
                    cx.sleep(Duration::from_millis(every_ms.into())).await;
                }
                cx.done("logged")
            }
            "spin" => {
                let Spin { ms } = call.args()?;
                let end = cx.now().after(Duration::from_millis(ms.into()));
                while cx.now() < end {
                    core::hint::spin_loop();
                }
                cx.done("span")
            }
            "panic" => {
                let Panic { text } = call.args()?;
                panic!("{text}");
            }
            #[cfg(target_os = "none")]
            "fault" => cortex_m::asm::udf(),
            "hang" => loop {
                // Asleep, so that an emulator need not run it step by step; interrupts wake it, and nobody polls anything.
                #[cfg(target_os = "none")]
                cortex_m::asm::wfi();
                #[cfg(not(target_os = "none"))]
                core::hint::spin_loop();
            },
            _ => self.rig.call(call, cx).await,
        }
    }

    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        self.rig.configure(config, cx).await
    }

    async fn safe_state(&mut self) {
        self.rig.safe_state().await;
    }
}
