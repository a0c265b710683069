//! Two servers for the same load: `rigline-load rigline` and `rigline-load twin`. Each prints its address.
//!
//! The twin is what one would write without rigline: axum, a worker thread behind a bounded queue, `serde_json`. What it
//! lacks beside rigline's server is everything but the way of a good request.

use std::error::Error;
use std::thread;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
use rigline_std::http::{Options, Server};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("rigline") => {
            let server = Server::bind("127.0.0.1:0", Options::amplifier())?;
            println!("http://{}", server.address()?);
            server.run(|_| Bench)?;
            Ok(())
        }
        Some("twin") => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(twin())
        }
        _ => Err("usage: rigline-load rigline|twin".into()),
    }
}

struct Bench;

impl Extension for Bench {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest =
            Manifest::new("bench", "1.0.0").operations(&[Operation::new("measure", Schema::OBJECT)]);
        &MANIFEST
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        #[derive(Deserialize)]
        struct Arguments<'a> {
            channel: &'a str,
            samples: u32,
        }
        let arguments: Arguments<'_> = call.args()?;
        cx.output("millivolts", &(3300 + arguments.samples))?;
        cx.done(format_args!("{} measured", arguments.channel))
    }
}

#[derive(Deserialize)]
struct Invocation<'a> {
    op: &'a str,
    args: Measure<'a>,
}

#[derive(Deserialize)]
struct Measure<'a> {
    channel: &'a str,
    samples: u32,
}

#[derive(Serialize)]
struct Success {
    ok: bool,
    result: Measured,
}

#[derive(Serialize)]
struct Measured {
    millivolts: u32,
    message: String,
}

type Job = (Bytes, oneshot::Sender<Vec<u8>>);

async fn twin() -> Result<(), Box<dyn Error>> {
    let (queue, mut jobs) = mpsc::channel::<Job>(1024);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::spawn(move || {
        runtime.block_on(async {
            while let Some((body, reply)) = jobs.recv().await {
                let _ = reply.send(answer(&body));
            }
        });
    });
    let router = Router::new().route("/invoke", post(invoke)).with_state(queue);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

async fn invoke(State(queue): State<mpsc::Sender<Job>>, body: Bytes) -> (StatusCode, Vec<u8>) {
    let (reply, answer) = oneshot::channel();
    if queue.try_send((body, reply)).is_err() {
        return (StatusCode::SERVICE_UNAVAILABLE, Vec::new());
    }
    match answer.await {
        Ok(answer) => (StatusCode::OK, answer),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Vec::new()),
    }
}

fn answer(body: &[u8]) -> Vec<u8> {
    let reply = match serde_json::from_slice::<Invocation<'_>>(body) {
        Ok(Invocation { op: "measure", args }) => serde_json::to_vec(&Success {
            ok: true,
            result: Measured { millivolts: 3300 + args.samples, message: format!("{} measured", args.channel) },
        }),
        Ok(other) => serde_json::to_vec(&error("unsupported_op", other.op)),
        Err(fault) => serde_json::to_vec(&error("bad_request", &fault.to_string())),
    };
    reply.unwrap_or_default()
}

fn error(code: &str, message: &str) -> Value {
    serde_json::json!({ "ok": false, "error": { "code": code, "message": message } })
}
