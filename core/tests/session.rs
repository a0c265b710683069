//! Whole sessions through the engine and its shells.

use std::convert::Infallible;

use embedded_io::{ErrorType, Read, Write};
use rigline::engine::{Engine, Memory};
use rigline::serve::blocking::serve;
use rigline::serve::{End, Transport};
use rigline::{Call, Clock, Context, Extension, Failure, FailureKind, Instant, Manifest, Operation, Outcome, Schema};

struct Kubernetes;

impl Extension for Kubernetes {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("kubernetes", "1.0.0").operations(&[
            Operation::new("apply", Schema::OBJECT).description("Apply"),
            Operation::new("fail", Schema::OBJECT),
            Operation::new("echo", Schema::OBJECT),
        ]);
        &MANIFEST
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        match call.operation() {
            "apply" => {
                #[derive(serde::Deserialize)]
                struct Apply<'a> {
                    file: &'a str,
                    #[serde(default = "default")]
                    namespace: &'a str,
                }
                fn default() -> &'static str {
                    "default"
                }
                let args: Apply<'_> = call.args()?;
                cx.info(format_args!("Applying {}", args.file));
                cx.output("resourceVersion", &12345)?;
                cx.output("labels", &["a\"b", "c"])?;
                cx.done(format_args!("Applied {} to namespace {}", args.file, args.namespace))
            }
            "fail" => {
                cx.output("lastStatus", "False")?;
                cx.failed("Timed out")
            }
            _ => Err(cx.failure(FailureKind::Unreachable, "gone")),
        }
    }
}

struct Pipe<'a> {
    input: &'a [u8],
    output: Vec<u8>,
}

impl ErrorType for Pipe<'_> {
    type Error = Infallible;
}

impl Read for Pipe<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        let count = buf.len().min(self.input.len());
        buf[..count].copy_from_slice(&self.input[..count]);
        self.input = &self.input[count..];
        Ok(count)
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
        self.output.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

struct NoTime;

impl Clock for NoTime {
    fn now(&self) -> Instant {
        Instant::default()
    }
}

fn session(input: &str) -> String {
    let (mut request, mut reply, mut log) = ([0; 4096], [0; 4096], [0; 1024]);
    let mut engine = Engine::new(Kubernetes.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
    let mut pipe = Pipe { input: input.as_bytes(), output: Vec::new() };
    let end = serve(&mut Kubernetes, &mut engine, &mut pipe, Transport::Process, &mut log, &NoTime).unwrap();
    assert!(matches!(end, End::Input | End::Shutdown));
    String::from_utf8(pipe.output).unwrap()
}

#[test]
fn a_session() {
    let out = session(concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"apply","args":{"file":"deployment.yaml","namespace":"my-app"},"context":{"workdir":"/path/to/task","phase":"setup","env":{"KUBECONFIG":"/home/user/.kube/config"},"timeout":"5m"}}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":"x","method":"execute","params":{"operation":"fail","args":null,"context":{}}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":"x","method":"execute","params":{"operation":"echo","context":{}}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":"x","method":"execute","params":{"operation":"apply","context":{}}}"#,
        "\n",
        r#"[{"jsonrpc":"2.0","id":3,"method":"execute","params":{"operation":"fail","context":{}}},1,{"jsonrpc":"2.0","id":4,"method":"nope"}]"#,
        "\n",
        "{oops\n",
        r#"{"jsonrpc":"2.0","id":9,"method":"shutdown","params":{}}"#,
        "\n",
    ));
    println!("{out}");
}
