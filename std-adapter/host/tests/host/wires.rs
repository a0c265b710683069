//! TCP, and wires that a test brings.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};

use crate::common::{go, message, options, trial};
use crate::fake::MANIFEST;
use rigline_host::Host;
use rigline_host::check::Bench;
use rigline_host::wire::{Connect, Connecting, Control, RawConnection, TransportTraits};

/// Answers `initialize` and `shutdown`; `execute` from the second connection on.
async fn serve(reader: impl AsyncRead + Unpin, mut writer: impl AsyncWrite + Unpin, connection: usize) {
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let id: String =
            line.split("\"id\":").nth(1).unwrap_or_default().chars().take_while(char::is_ascii_digit).collect();
        let result = match () {
            () if line.contains("\"initialize\"") => MANIFEST,
            () if line.contains("\"shutdown\"") => "{}",
            () if line.contains("\"execute\"") && connection > 1 => r#"{"success":true,"message":"m"}"#,
            () => continue,
        };
        let reply = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
        if writer.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Serves a board's wire with what a client before has left there: half a line, which the first line ends, and then replies to calls that were out.
async fn serve_with_leftovers(listener: tokio::net::TcpListener) {
    let (stream, _) = listener.accept().await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    while reader.read_u8().await.unwrap() != b'\n' {}
    let parse_error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#;
    let late = |id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"success\":true}}}}\n");
    let left: String = (1..9).map(late).collect();
    writer.write_all(format!("{parse_error}\n").as_bytes()).await.unwrap();
    let mut second = vec![reader.read_u8().await.unwrap()];
    while !second.ends_with(b"\n") {
        second.push(reader.read_u8().await.unwrap());
    }
    writer.write_all(left.as_bytes()).await.unwrap();
    serve(io::Cursor::new(second).chain(reader), writer, 2).await;
}

/// Dials a task of the test's, with a port's lines that remember what was done to them.
#[derive(Clone, Default)]
struct Lines {
    done: Arc<Mutex<Vec<&'static str>>>,
}

impl Control for Lines {
    fn set_dtr(&self, on: bool) -> io::Result<()> {
        self.done.lock().unwrap().push(if on { "dtr on" } else { "dtr off" });
        Ok(())
    }

    fn discard(&self) -> io::Result<()> {
        self.done.lock().unwrap().push("discard");
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Connect for Lines {
    fn name(&self) -> String {
        "test".into()
    }

    fn dial(&self) -> Connecting<'_> {
        Box::pin(async {
            self.done.lock().unwrap().push("dial");
            let connection = self.done.lock().unwrap().iter().filter(|done| **done == "dial").count();
            let (ours, theirs) = tokio::io::duplex(64);
            let (reader, writer) = tokio::io::split(theirs);
            tokio::spawn(serve(reader, writer, connection));
            let (reader, writer) = tokio::io::split(ours);
            Ok(RawConnection {
                control: Some(Arc::new(self.clone())),
                ..RawConnection::new(reader, writer, TransportTraits::SERIAL)
            })
        })
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("cancelling drops and raises dtr", || async {
            let lines = Lines::default();
            let host = Host::over(Box::new(lines.clone()), options().0).await.unwrap();
            let (called, cancelled) = tokio::join!(go(&host), async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                host.cancel().await
            });
            cancelled.unwrap();
            assert_eq!(message(called), "error: the call of fake was cancelled");
            assert_eq!(message(go(&host).await), "m");
            let done = lines.done.lock().unwrap().clone();
            assert_eq!(done, ["dial", "dtr off", "dtr on", "discard", "dial"]);
        }),
        trial("tcp: a whole session, a cancelled call, a lost connection", || async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let served = Arc::new(Mutex::new(tokio::task::JoinSet::new()));
            let serving = Arc::clone(&served);
            let accepting = tokio::spawn(async move {
                for connection in 1..=usize::MAX {
                    let (stream, _) = listener.accept().await.unwrap();
                    let (reader, writer) = stream.into_split();
                    serving.lock().unwrap().spawn(serve(reader, writer, connection));
                }
            });
            let target = format!("tcp:127.0.0.1:{port}").parse().unwrap();
            let host = Host::connect(&target, options().0).await.unwrap();
            let (called, cancelled) = tokio::join!(go(&host), async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                host.cancel().await
            });
            cancelled.unwrap();
            assert_eq!(message(called), "error: the call of fake was cancelled");
            assert_eq!(message(go(&host).await), "m");
            assert!(host.shutdown().await.unwrap().is_clean());
            assert_eq!(message(go(&host).await), "error: the session with fake was shut down");

            let host = Host::connect(&target, options().0).await.unwrap();
            served.lock().unwrap().abort_all();
            let started = Instant::now();
            let found = message(go(&host).await);
            assert!(found.starts_with("error: fake: "), "{found}");
            assert!(started.elapsed() < Duration::from_secs(1));
            host.reconnect().await.unwrap();
            assert_eq!(message(go(&host).await), "m");
            accepting.abort();
        }),
        trial("tcp: what a client before has left on a board's wire", || async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let accepting = tokio::spawn(serve_with_leftovers(listener));
            let target = format!("tcp:127.0.0.1:{port}").parse().unwrap();
            let host = Host::connect(&target, options().0).await.unwrap();
            assert!(!host.describe().name.is_empty());
            assert_eq!(message(go(&host).await), "m");
            accepting.abort();
        }),
        trial("tcp: what a client before has left on a board's wire, in a check", || async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let accepting = tokio::spawn(serve_with_leftovers(listener));
            let target = format!("tcp:127.0.0.1:{port}").parse().unwrap();
            let mut bench = Bench::new(&target, &options().0).unwrap();
            let mut peer = bench.session().await.unwrap();
            assert_eq!(bench.manifest().await.unwrap()["name"], "fake");
            let reply = peer.ask("execute", r#"{"operation":"go"}"#).await.unwrap();
            assert_eq!(reply.result().unwrap()["message"], "m");
            accepting.abort();
        }),
        trial("tcp: nobody listens", || async {
            let error = Host::connect(&"tcp:127.0.0.1:1".parse().unwrap(), options().0).await.unwrap_err().to_string();
            assert!(error.starts_with("tcp:127.0.0.1:1 cannot be opened: Connection refused"), "{error}");
        }),
        trial("targets that have no gevals", || async {
            let error = Host::connect(&"http://localhost/".parse().unwrap(), options().0).await.unwrap_err();
            assert!(matches!(error, rigline_host::HostError::Unsupported(_)), "{error}");
        }),
        trial("sim is a real child", || async {
            let (mut options, _) = options();
            options.sim_program = Some("/bin/echo".into());
            let error = Host::connect(&"sim".parse().unwrap(), options).await.unwrap_err().to_string();
            assert!(error.starts_with("sim has ended: exit status 0\nlines that were skipped:\n  rig"), "{error}");
        }),
    ]
}
