//! Two servers for the same load: `rigline-load rigline` and `rigline-load twin`. Each prints its address. And
//! `rigline-load vanish ADDRESS N`: clients that go away in the middle, N each, beside one that counts its replies.
//!
//! The twin is what one would write without rigline: axum, a worker thread behind a bounded queue, `serde_json`. What it
//! lacks beside rigline's server is everything but the way of a good request.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
use rigline_std::http::{HttpServer, Options};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("rigline") => {
            let server = HttpServer::bind("127.0.0.1:0", Options::amplifier())?;
            println!("http://{}", server.address()?);
            server.run(|_| Bench)?;
            Ok(())
        }
        Some("twin") => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(twin())
        }
        Some("vanish") => {
            let (address, count) = (std::env::args().nth(2), std::env::args().nth(3));
            vanish(&address.unwrap_or_default(), count.and_then(|count| count.parse().ok()).unwrap_or(1000))
        }
        _ => Err("usage: rigline-load rigline|twin|vanish ADDRESS [N]".into()),
    }
}

/// Clients that vanish: in the head, in the body, before the reply, in the middle of it. Meanwhile one stays, and gets the
/// reply to each of its requests, and no other's.
fn vanish(address: &str, count: u32) -> Result<(), Box<dyn Error>> {
    let address = address.trim_start_matches("http://");
    let request = |samples: u32| {
        let body = format!(r#"{{"op":"measure","args":{{"channel":"3V3","samples":{samples}}}}}"#);
        format!("POST /invoke HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    thread::scope(|scope| {
        let vanishing: Vec<_> = (0..4)
            .map(|way| {
                let request = request(7);
                scope.spawn(move || -> std::io::Result<()> {
                    let most = if way == 0 { 20 } else { request.len() - usize::from(way == 1) };
                    for _ in 0..count {
                        let mut stream = TcpStream::connect(address)?;
                        stream.write_all(request.as_bytes().get(..most).unwrap_or_default())?;
                        if way == 3 {
                            stream.read_exact(&mut [0; 9])?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut piece = [0; 1024];
        for samples in 0..count {
            stream.write_all(request(samples).as_bytes())?;
            let wanted =
                format!(r#"{{"ok":true,"result":{{"millivolts":{},"message":"3V3 measured"}}}}"#, 3300 + samples);
            let mut reply = String::new();
            while !reply.ends_with("}}\n") {
                let read = stream.read(&mut piece)?;
                if read == 0 {
                    return Err(format!("request {samples} had no answer: {reply}").into());
                }
                reply += &String::from_utf8_lossy(piece.get(..read).unwrap_or_default());
            }
            if !reply.starts_with("HTTP/1.1 200 ") || reply.trim_end().rsplit("\r\n").next() != Some(&wanted) {
                return Err(format!("request {samples} had another answer than {wanted}: {reply}").into());
            }
        }
        let mut gone = 0;
        for client in vanishing {
            client.join().map_err(|_| "a client panicked")??;
            gone += count;
        }
        println!("{count} requests had their own replies while {gone} clients vanished");
        Ok(())
    })
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
