//! The binary link: frames, damage, and each request exactly once.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll, Waker};

use embedded_io_async::{ErrorKind, ErrorType, Read, Write};

use crate::common::NoTime;
use crate::common::asynch::Wire;
use rigline::engine::{Engine, Memory, Step};
use rigline::link::{Collected, Collector, Frame, FrameKind, Shared, decode, encode, encoded_size, split};
use rigline::serve::Transport;
use rigline::serve::asynch::Server;
use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};

/// Counts how often it was pressed.
struct Button {
    presses: Rc<Cell<u32>>,
}

impl Extension for Button {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("button", "1.0.0")
            .operations(&[Operation::new("press", Schema::OBJECT), Operation::new("wait", Schema::OBJECT)]);
        &MANIFEST
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        if call.operation() == "wait" {
            std::future::pending::<()>().await;
        }
        self.presses.set(self.presses.get() + 1);
        cx.info("pressing\0");
        cx.done(format_args!("press {}", self.presses.get()))
    }
}

/// Runs `host` against a device that serves a button; `host` is polled until it is done.
fn against_a_device<T>(presses: Rc<Cell<u32>>, host: impl FnOnce(Wire, Wire, &mut dyn FnMut()) -> T) -> T {
    against_a_device_that_keeps(1024, presses, host)
}

/// The same, with so many bytes for the reply that can be sent again.
fn against_a_device_that_keeps<T>(
    bytes: usize,
    presses: Rc<Cell<u32>>,
    host: impl FnOnce(Wire, Wire, &mut dyn FnMut()) -> T,
) -> T {
    let (to_device, to_host) = (Wire::default(), Wire::default());
    with_a_device(to_device.clone(), to_host.clone(), bytes, presses, |turn| host(to_device, to_host, turn))
}

/// The frames that the device sends when it gets these bytes.
fn answers(to_device: &Wire, to_host: &Wire, turn: &mut dyn FnMut(), bytes: Vec<u8>) -> Vec<(FrameKind, u32, String)> {
    to_device.0.borrow_mut().extend(bytes);
    turn();
    frames(to_host.0.borrow_mut().drain(..))
}

/// Runs `host` beside a device with this reader and this writer, which serves again whatever ended serving.
fn with_a_device<T, E: embedded_io_async::Error>(
    reader: impl Read<Error = E>,
    writer: impl Write<Error = E>,
    keeps: usize,
    presses: Rc<Cell<u32>>,
    host: impl FnOnce(&mut dyn FnMut()) -> T,
) -> T {
    let shared = Shared::new();
    let (mut frames, mut kept) = ([0; 4096], vec![0; keeps]);
    let (mut reader, mut writer) = split(&shared, reader, writer, &mut frames, &mut kept);
    let mut device = pin!(async {
        let (mut request, mut reply, mut log) = ([0; 4096], [0; 1024], [0; 1200]);
        let mut button = Button { presses };
        let memory = Memory { request: &mut request, reply: &mut reply };
        let mut engine = Engine::new(button.manifest(), memory).unwrap();
        loop {
            let _ = Server::new(&mut button, &mut engine, &NoTime)
                .transport(Transport::Stream)
                .log_buffer(&mut log)
                .serve(&mut reader, &mut writer)
                .await;
        }
    });
    let mut turn = || {
        let _: Poll<()> = device.as_mut().poll(&mut Task::from_waker(Waker::noop()));
    };
    host(&mut turn)
}

fn frame(kind: FrameKind, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut memory = vec![0; encoded_size(payload.len())];
    let length = encode(&Frame { kind, sequence, payload }, &mut memory).unwrap();
    memory.truncate(length);
    memory
}

/// The kind, sequence and payload of each whole frame in `bytes`.
fn frames(bytes: impl IntoIterator<Item = u8>) -> Vec<(FrameKind, u32, String)> {
    let mut memory = vec![0; 4096];
    let mut collector = Collector::new(&mut memory);
    let mut frames = Vec::new();
    for byte in bytes {
        if let Some(Collected::Frame(Frame { kind, sequence, payload })) = collector.push(byte) {
            frames.push((kind, sequence, String::from_utf8(payload.to_vec()).unwrap()));
        }
    }
    frames
}

fn execute(operation: &str, id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"execute","params":{{"operation":"{operation}","context":{{}}}}}}"#)
}

#[test]
fn every_payload_survives_the_wire() {
    for length in [0, 1, 253, 254, 255, 256, 508, 509, 1000] {
        for fill in [0, 1, 255] {
            let mut payload = vec![fill; length];
            if let Some(middle) = payload.get_mut(length / 2) {
                *middle = 0;
            }
            let bytes = frame(FrameKind::Reply, u32::MAX, &payload);
            assert!(bytes.len() <= encoded_size(length));
            assert_eq!(bytes.iter().filter(|byte| **byte == 0).count(), 1, "only the end is a zero");
            let mut memory = vec![0; encoded_size(length)];
            let mut collector = Collector::new(&mut memory);
            assert_eq!(collector.limit(), length);
            let mut got = None;
            for byte in bytes {
                if let Some(Collected::Frame(frame)) = collector.push(byte) {
                    got = Some((frame.sequence, frame.payload.to_vec()));
                }
            }
            assert_eq!(got, Some((u32::MAX, payload)), "{length} bytes of {fill}");
        }
    }
}

/// The length of a payload takes up to five bytes, and that of 900 takes two.
#[test]
fn the_size_of_a_frame_is_what_the_longest_ones_take() {
    assert_eq!(frame(FrameKind::Reply, u32::MAX, &[1; 900]).len() + 3, encoded_size(900));
}

#[test]
fn the_limit_of_a_collector_is_the_longest_payload_that_its_memory_has_room_for() {
    for size in (0..1100).chain([64_000, 64_770, 65_024, 65_535]) {
        let mut memory = vec![0; size];
        let limit = Collector::new(&mut memory).limit();
        assert!(limit == 0 || encoded_size(limit) <= size, "{size}: {limit}");
        assert!(encoded_size(limit + 1) > size, "{size}: {limit}");
    }
}

/// The collector takes a zero for the end of a frame, but others may pass a frame that they have cut otherwise.
#[test]
fn a_code_byte_that_does_not_fit_the_frame_is_damage() {
    let payload = &[0, 0];
    let whole = frame(FrameKind::Reply, 7, payload);
    let (_, whole) = whole.split_last().unwrap();
    // The code byte 1 between the two zeros, and the last code byte: that of the bytes behind them.
    let (single, last) = (4, 5);
    assert_eq!((whole[single], usize::from(whole[last])), (1, whole.len() - last));
    assert_eq!(decode(&mut whole.to_vec()), Some(Frame { kind: FrameKind::Reply, sequence: 7, payload }));
    for (at, code) in [(single, 0), (last, 0), (last, whole[last] + 1), (last, 255)] {
        let mut bytes = whole.to_vec();
        bytes[at] = code;
        assert_eq!(decode(&mut bytes), None, "the code byte at {at} is {code}");
    }
}

#[test]
fn a_repeated_request_gets_the_same_reply_and_runs_once() {
    let presses = Rc::new(Cell::new(0));
    against_a_device(presses.clone(), |to_device, to_host, turn| {
        to_device.0.borrow_mut().extend(frame(FrameKind::Hello, 7, b""));
        turn();
        let press = frame(FrameKind::Request, 1, execute("press", 5).as_bytes());
        to_device.0.borrow_mut().extend(&press);
        turn();
        to_device.0.borrow_mut().extend(&press);
        to_device.0.borrow_mut().extend(frame(FrameKind::Request, 2, execute("press", 6).as_bytes()));
        turn();
        let got = frames(to_host.0.borrow_mut().drain(..));
        let reply =
            |id, n| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"success":true,"message":"press {n}"}}}}"#);
        let kinds: Vec<_> = got.iter().map(|(kind, sequence, _)| (*kind, *sequence)).collect();
        use FrameKind::{Hello, Log, Reply};
        assert_eq!(kinds, [(Hello, 7), (Log, 1), (Reply, 1), (Reply, 1), (Log, 2), (Reply, 2)]);
        assert_eq!((&got[2].2, &got[3].2, &got[5].2), (&reply(5, 1), &reply(5, 1), &reply(6, 2)));
    });
    assert_eq!(presses.get(), 2);
}

#[test]
fn a_reply_that_is_too_long_to_be_kept_is_sent_again_from_the_engines_memory() {
    for kept in [0, 16] {
        let presses = Rc::new(Cell::new(0));
        against_a_device_that_keeps(kept, presses.clone(), |to_device, to_host, turn| {
            let mut say = |bytes: Vec<u8>| {
                let got = answers(&to_device, &to_host, &mut *turn, bytes);
                got.into_iter().filter(|(kind, ..)| *kind != FrameKind::Log).collect::<Vec<_>>()
            };
            say(frame(FrameKind::Hello, 7, b""));
            let press = frame(FrameKind::Request, 1, execute("press", 5).as_bytes());
            let reply = r#"{"jsonrpc":"2.0","id":5,"result":{"success":true,"message":"press 1"}}"#;
            for _ in 0..3 {
                assert_eq!(say(press.clone()), [(FrameKind::Reply, 1, reply.to_owned())]);
            }
            // Also behind a hello, whose answer is another word of the link's.
            assert_eq!(say([frame(FrameKind::Hello, 7, b""), press].concat()).len(), 2);
            assert_eq!(
                say(frame(FrameKind::Request, 2, execute("press", 6).as_bytes())).len(),
                1,
                "the session goes on"
            );
        });
        assert_eq!(presses.get(), 2);
    }
}

/// The call of a notification is acknowledged before it ends, so that a request may follow it.
#[test]
fn a_reply_that_was_written_during_a_call_is_sent_again_if_it_was_kept() {
    for keeps in [0, 16, 1024] {
        against_a_device_that_keeps(keeps, Rc::new(Cell::new(0)), |to_device, to_host, turn| {
            let mut say = |bytes: Vec<u8>| answers(&to_device, &to_host, &mut *turn, bytes);
            say(frame(FrameKind::Hello, 3, b""));
            let wait = execute("wait", 1).replace(r#""id":1,"#, "");
            assert_eq!(say(frame(FrameKind::Request, 1, wait.as_bytes())), [(FrameKind::Reply, 1, String::new())]);
            let faulty = frame(FrameKind::Request, 2, b"{");
            let refused = say(faulty.clone());
            assert_eq!(refused.len(), 1, "{refused:?}");
            assert!(refused[0].2.contains(r#""error""#), "{}", refused[0].2);
            let again = if keeps == 1024 { refused } else { Vec::new() };
            assert_eq!(say(faulty.clone()), again, "{keeps}");
            let hello = (FrameKind::Hello, 3, String::new());
            assert_eq!(say([frame(FrameKind::Hello, 3, b""), faulty].concat()), [&[hello], &again[..]].concat());
        });
    }
}

/// A serial driver may fill a buffer of any size, and a frame may be of any length.
#[test]
fn a_line_is_read_in_pieces_of_any_size() {
    fn at_once<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Task::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("there was nothing to read"),
        }
    }
    let lines = ["{}", "{\"a\":\r\n1}", "\n", "\n\n", "", "{\"a\":\"a text that is longer than the pieces are\"}\r"];
    for size in 1..=40 {
        let (to_device, shared) = (Wire::default(), Shared::new());
        let (mut memory, mut kept) = ([0; 256], [0; 64]);
        let (mut reader, mut writer) = split(&shared, to_device.clone(), Wire::default(), &mut memory, &mut kept);
        let mut wire = to_device.0.borrow_mut();
        wire.extend(frame(FrameKind::Hello, 3, b""));
        for (sequence, line) in (1..).zip(lines) {
            // A frame that says nothing comes before each, in the same packet.
            wire.extend(frame(FrameKind::Cancel, 100, b""));
            wire.extend(frame(FrameKind::Request, sequence, line.as_bytes()));
        }
        drop(wire);
        for line in lines {
            // A line break within a payload becomes white space, as it would end the line.
            let expected = line.replace(['\r', '\n'], " ") + "\n";
            let mut pieces = Vec::new();
            while pieces.len() < expected.len().div_ceil(size) {
                let mut piece = vec![0xFF; size];
                match at_once(reader.read(&mut piece)) {
                    Ok(count) => pieces.push(piece[..count].to_vec()),
                    Err(_) => at_once(writer.flush()).unwrap(),
                }
            }
            assert_eq!(pieces.concat().escape_ascii().to_string(), expected.as_bytes().escape_ascii().to_string());
            assert!(pieces.iter().rev().skip(1).all(|piece| piece.len() == size), "each piece but the last is full");
            // Each of them is acknowledged by the writer, as a request that was answered.
            at_once(writer.write(b"{}\n")).unwrap();
        }
    }
}

#[test]
fn without_a_session_or_after_a_cancel_the_answer_is_unknown() {
    let presses = Rc::new(Cell::new(0));
    against_a_device(presses.clone(), |to_device, to_host, turn| {
        let mut say = |bytes: Vec<u8>| answers(&to_device, &to_host, &mut *turn, bytes);
        let unknown = |sequence| vec![(FrameKind::Unknown, sequence, String::new())];
        assert_eq!(say(frame(FrameKind::Request, 9, execute("press", 1).as_bytes())), unknown(9));
        assert_eq!(say(frame(FrameKind::Hello, 3, b"")), [(FrameKind::Hello, 3, String::new())]);
        assert_eq!(say(frame(FrameKind::Request, 1, execute("wait", 1).as_bytes())), []);
        assert_eq!(say(frame(FrameKind::Cancel, 1, b"")), unknown(1));
        assert_eq!(say(frame(FrameKind::Request, 3, execute("press", 1).as_bytes())), unknown(3), "a gap");
        assert_eq!(say(frame(FrameKind::Request, 2, execute("press", 1).as_bytes())).len(), 2);
        assert_eq!(
            say(frame(FrameKind::Hello, 3, b"")),
            [(FrameKind::Hello, 3, String::new())],
            "the same session goes on"
        );
        assert_eq!(say(frame(FrameKind::Request, 2, execute("press", 1).as_bytes())).len(), 1, "its reply is kept");
        assert_eq!(
            say(frame(FrameKind::Request, 3, br#"{"jsonrpc":"2.0","method":"nope"}"#)),
            [(FrameKind::Reply, 3, String::new())]
        );
        assert_eq!(say(b"\0noise\0".to_vec()), [(FrameKind::Damaged, 0, String::new())]);
    });
    assert_eq!(presses.get(), 1);
}

#[test]
fn a_request_waits_for_the_end_of_the_one_before_it() {
    let presses = Rc::new(Cell::new(0));
    against_a_device(presses.clone(), |to_device, to_host, turn| {
        let mut say = |bytes: Vec<u8>| answers(&to_device, &to_host, &mut *turn, bytes);
        let unknown = |sequence| vec![(FrameKind::Unknown, sequence, String::new())];
        let press = frame(FrameKind::Request, 2, execute("press", 2).as_bytes());
        let wait = frame(FrameKind::Request, 1, execute("wait", 1).as_bytes());
        say(frame(FrameKind::Hello, 3, b""));
        assert_eq!(say(wait.clone()), []);
        assert_eq!(say(press.clone()), [], "the reply that comes next is another's");
        assert_eq!(say(wait.clone()), []);
        assert_eq!(say(frame(FrameKind::Cancel, 1, b"")), unknown(1));
        assert_eq!(say(wait.clone()), unknown(1), "that was lost");
        assert_eq!(say(frame(FrameKind::Cancel, 1, b"")), unknown(1), "so was this");
        let got = say(press.clone());
        assert_eq!(got.last().map(|(kind, sequence, _)| (*kind, *sequence)), Some((FrameKind::Reply, 2)));
        assert_eq!(say(press), got[1..]);
    });
    assert_eq!(presses.get(), 1);
}

#[test]
fn no_session_has_the_number_0() {
    against_a_device(Rc::new(Cell::new(0)), |to_device, to_host, turn| {
        let mut say = |bytes: Vec<u8>| answers(&to_device, &to_host, &mut *turn, bytes);
        let press = frame(FrameKind::Request, 1, execute("press", 1).as_bytes());
        assert_eq!(say(frame(FrameKind::Hello, 0, b"")), []);
        assert_eq!(say(press.clone()), [(FrameKind::Unknown, 1, String::new())], "no session was opened");
        say(frame(FrameKind::Hello, 5, b""));
        let replied = say(press.clone())[1..].to_vec();
        assert_eq!(say(frame(FrameKind::Hello, 0, b"")), []);
        assert_eq!(say(press), replied, "the session goes on");
    });
}

/// Numbers are compared as they go round: of those that are not the next one, half are ahead of the last request.
#[test]
fn a_request_ahead_of_the_next_one_is_unknown_and_an_earlier_one_is_ignored() {
    let presses = Rc::new(Cell::new(0));
    against_a_device(presses.clone(), |to_device, to_host, turn| {
        let mut say = |kind, sequence| {
            answers(&to_device, &to_host, &mut *turn, frame(kind, sequence, execute("press", 1).as_bytes()))
        };
        say(FrameKind::Hello, 3);
        for sequence in 1..=5 {
            say(FrameKind::Request, sequence);
        }
        for ahead in [7, 8, 100, 5 + 0x7FFF_FFFF] {
            assert_eq!(say(FrameKind::Request, ahead), [(FrameKind::Unknown, ahead, String::new())]);
        }
        for earlier in [4, 1, 0, u32::MAX, 5 + 0x8000_0000] {
            assert_eq!(say(FrameKind::Request, earlier), [], "{earlier}");
        }
    });
    assert_eq!(presses.get(), 5);
}

#[test]
fn a_cancel_concerns_the_last_request_only() {
    let presses = Rc::new(Cell::new(0));
    against_a_device(presses.clone(), |to_device, to_host, turn| {
        let mut say = |bytes: Vec<u8>| answers(&to_device, &to_host, &mut *turn, bytes);
        let cancel = |sequence| frame(FrameKind::Cancel, sequence, b"");
        assert_eq!(say(cancel(1)), [(FrameKind::Unknown, 1, String::new())], "there is no session");
        say(frame(FrameKind::Hello, 3, b""));
        for none in [0, 1, 2] {
            assert_eq!(say(cancel(none)), [], "nothing ran");
        }
        let replied = say(frame(FrameKind::Request, 1, execute("press", 1).as_bytes()))[1..].to_vec();
        assert_eq!(replied.len(), 1);
        assert_eq!(say(cancel(1)), replied, "the call has ended: its reply comes again");
        assert_eq!(say(frame(FrameKind::Request, 2, execute("wait", 2).as_bytes())), []);
        for another in [0, 1, 3, u32::MAX] {
            assert_eq!(say(cancel(another)), [], "{another} does not run");
        }
        assert_eq!(say(frame(FrameKind::Request, 2, execute("wait", 2).as_bytes())), [], "it still runs");
        assert_eq!(say(cancel(2)), [(FrameKind::Unknown, 2, String::new())]);
        for another in [0, 1, 3] {
            assert_eq!(say(cancel(another)), [], "{another}");
        }
    });
    assert_eq!(presses.get(), 1);
}

/// A wire that breaks once, and then goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Read,
    End,
    Write,
    Flush,
}

struct Faulty(Wire, Rc<Cell<Option<Fault>>>);

impl Faulty {
    fn breaks(&self, by: Fault) -> bool {
        let breaks = self.1.get() == Some(by);
        if breaks {
            self.1.set(None);
        }
        breaks
    }
}

impl ErrorType for Faulty {
    type Error = ErrorKind;
}

impl Read for Faulty {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, ErrorKind> {
        std::future::poll_fn(|_| {
            if self.breaks(Fault::Read) {
                return Poll::Ready(Err(ErrorKind::ConnectionReset));
            }
            if self.breaks(Fault::End) {
                return Poll::Ready(Ok(0));
            }
            let mut read = pin!(self.0.read(buf));
            read.as_mut().poll(&mut Task::from_waker(Waker::noop())).map(|read| Ok(read.unwrap()))
        })
        .await
    }
}

impl Write for Faulty {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, ErrorKind> {
        if self.breaks(Fault::Write) {
            return Err(ErrorKind::BrokenPipe);
        }
        Ok(self.0.write(buf).await.unwrap())
    }

    async fn flush(&mut self) -> Result<(), ErrorKind> {
        if self.breaks(Fault::Flush) { Err(ErrorKind::BrokenPipe) } else { Ok(()) }
    }
}

/// The call is lost with the wire, so that its request would never be answered.
#[test]
fn the_request_of_a_call_that_ended_with_the_wire_is_unknown() {
    for (fault, operation, times, noise) in [
        (Fault::Read, "wait", 0, false),
        (Fault::End, "wait", 0, false),
        // The log of a call that has ended, and whose reply was not written yet.
        (Fault::Write, "press", 1, false),
        (Fault::Flush, "press", 1, false),
        // The word that a frame was damaged.
        (Fault::Write, "wait", 0, true),
        (Fault::Flush, "wait", 0, true),
    ] {
        let (to_device, to_host, breaks) = (Wire::default(), Wire::default(), Rc::new(Cell::new(None)));
        let presses = Rc::new(Cell::new(0));
        let reader = Faulty(to_device.clone(), breaks.clone());
        let writer = Faulty(to_host.clone(), breaks.clone());
        with_a_device(reader, writer, 1024, presses.clone(), |turn| {
            let mut say = |bytes: Vec<u8>| answers(&to_device, &to_host, &mut *turn, bytes);
            say(frame(FrameKind::Hello, 3, b""));
            let request = frame(FrameKind::Request, 1, execute(operation, 1).as_bytes());
            if operation == "press" {
                breaks.set(Some(fault));
            }
            say(request.clone());
            if operation == "wait" {
                breaks.set(Some(fault));
                say(if noise { b"noise\0".to_vec() } else { Vec::new() });
            }
            assert_eq!(breaks.get(), None, "{fault:?}: it was used");
            // What the fault has left of a frame ends here.
            say(vec![0]);
            let unknown = [(FrameKind::Unknown, 1, String::new())];
            assert_eq!(say(request.clone()), unknown, "{fault:?} during {operation}");
            assert_eq!(say(request), unknown, "{fault:?} during {operation}");
            let next = say(frame(FrameKind::Request, 2, execute("press", 2).as_bytes()));
            assert_eq!(next.last().map(|(kind, sequence, _)| (*kind, *sequence)), Some((FrameKind::Reply, 2)));
        });
        assert_eq!(presses.get(), times + 1, "{fault:?} during {operation}");
    }
}

/// A reply that could not be sent is kept as one that got lost on the way.
#[test]
fn a_reply_that_the_wire_did_not_take_is_sent_when_its_request_is_repeated() {
    for fault in [Fault::Write, Fault::Flush] {
        let (to_device, to_host, breaks) = (Wire::default(), Wire::default(), Rc::new(Cell::new(None)));
        let reader = Faulty(to_device.clone(), breaks.clone());
        let writer = Faulty(to_host.clone(), breaks.clone());
        with_a_device(reader, writer, 1024, Rc::new(Cell::new(0)), |turn| {
            let mut say = |bytes: Vec<u8>| answers(&to_device, &to_host, &mut *turn, bytes);
            say(frame(FrameKind::Hello, 3, b""));
            breaks.set(Some(fault));
            // It logs nothing: the first that is written is the reply.
            let refused = frame(FrameKind::Request, 1, execute("none", 1).as_bytes());
            say(refused.clone());
            assert_eq!(breaks.get(), None);
            let again = say(refused);
            assert_eq!(again.len(), 1, "{fault:?}");
            assert_eq!((again[0].0, again[0].1), (FrameKind::Reply, 1));
            assert!(again[0].2.contains(r#""id":1,"error""#), "{}", again[0].2);
        });
    }
}

/// MCP answers it by a notification, and leaves it open.
const LISTEN: &str = r#"{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

fn is_notification(line: &[u8]) -> bool {
    let line: serde_json::Value =
        serde_json::from_slice(line).unwrap_or_else(|error| panic!("{error}: {}", line.escape_ascii()));
    line.get("method").is_some() && line.get("id").is_none()
}

/// A host that got no reply would ask for ever, and one that got two would take the second for the
/// next request's.
#[test]
fn every_request_has_one_reply_be_it_what_it_may() {
    let many = |count: usize| format!("[{}]", vec![r#"{"jsonrpc":"2.0","method":"x"}"#; count].join(","));
    let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"x"}}"#, "x".repeat(500));
    let (fits, most, over, deep) = (many(3), many(64), many(65), "[".repeat(200));
    let mixed = format!("[{},{}]", r#"{"jsonrpc":"2.0","method":"x"}"#, r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#);
    let listen_in_a_batch = format!("[{LISTEN}]");
    let lines: &[&str] = &[
        "",
        " \t ",
        "\r\n\r",
        "\u{feff}",
        "\u{feff} ",
        "\u{feff}{\"jsonrpc\":\"2.0\",\"method\":\"x\"}",
        "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}",
        "\u{c}",
        "\0",
        "{",
        "[",
        &deep,
        "{}",
        "[]",
        "3",
        "null",
        "[1]",
        "[[]]",
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","method":1}"#,
        r#"{"jsonrpc":"2.0","id":[],"method":"x"}"#,
        r#"{"jsonrpc":"1.0","method":"x"}"#,
        r#"{"jsonrpc":"2.0","method":"x"} x"#,
        r#"{"jsonrpc":"2.0","method":"log","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"shutdown"}"#,
        r#"{"jsonrpc":"2.\u0030","\u006dethod":"x"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"x","result":1}"#,
        r#"{"id":1,"result":5}"#,
        r#"{"id":1,"method":"x","result":5}"#,
        r#"{"error":{"code":-32700,"message":"x"}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#,
        r#"[{"op":"x","result":1}]"#,
        r#"[{"op":"x"}]"#,
        &fits,
        &most,
        &over,
        &mixed,
        &long,
        LISTEN,
        r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}"#,
        &listen_in_a_batch,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
        r#"{"op":"health"}"#,
        r#"{"op":"press","result":1}"#,
        r#"{"op":1,"error":1}"#,
        r#"{"result":1}"#,
        r#"{"protocol_version":1,"tool":"press","payload":{}}"#,
        r#"{"protocol_version":1,"tool":"x","error":1}"#,
        r#"{"error":1}"#,
    ];
    // The same lines on a plain wire, whose replies are those of the link.
    let button = Button { presses: Rc::default() };
    let (mut request, mut reply) = ([0; 4096], [0; 1024]);
    let memory = Memory { request: &mut request, reply: &mut reply };
    let mut engine = Engine::new(button.manifest(), memory).unwrap();
    let mut has_reply = |line: &str| {
        let line = format!("{line}\n");
        engine.space()[..line.len()].copy_from_slice(line.as_bytes());
        engine.commit(line.len());
        let mut has_reply = false;
        loop {
            match engine.step() {
                Step::Read => return has_reply,
                Step::Write(line) => has_reply |= !is_notification(line),
                Step::Run(_) => engine.complete(&Ok(Outcome::DONE)),
                _ => {}
            }
        }
    };
    against_a_device(Rc::new(Cell::new(0)), |to_device, to_host, turn| {
        let mut say = |bytes: Vec<u8>| answers(&to_device, &to_host, &mut *turn, bytes);
        say(frame(FrameKind::Hello, 3, b""));
        for (sequence, line) in (1..).zip(lines) {
            let mut got = say(frame(FrameKind::Request, sequence, line.as_bytes()));
            got.retain(|(kind, ..)| *kind != FrameKind::Log);
            assert_eq!(got.len(), 1, "{line}: {got:?}");
            assert_eq!((got[0].0, got[0].1), (FrameKind::Reply, sequence), "{line}");
            // A line break would end the line on a plain wire.
            if !line.contains(['\r', '\n']) {
                assert_eq!(!got[0].2.is_empty(), has_reply(line), "{line}: {}", got[0].2);
            }
            assert_eq!(say(frame(FrameKind::Request, sequence, line.as_bytes())), got, "{line} again");
        }
    });
}

#[test]
fn no_damaged_frame_runs_and_every_request_runs_once() {
    // xorshift64*, so that a failure repeats.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move |below: usize| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        usize::try_from(state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap() % below
    };
    let presses = Rc::new(Cell::new(0));
    let requests = 1000;
    against_a_device(presses.clone(), |to_device, to_host, turn| {
        to_device.0.borrow_mut().extend(frame(FrameKind::Hello, 7, b""));
        turn();
        to_host.0.borrow_mut().clear();
        for sequence in 1..=requests {
            let request = frame(FrameKind::Request, sequence, execute("press", sequence).as_bytes());
            let mut tries = 0;
            let reply = loop {
                tries += 1;
                assert!(tries < 100, "request {sequence} is never answered");
                let mut damaged = request.clone();
                for _ in 0..random(3) {
                    let bit = random(damaged.len() * 8);
                    damaged[bit / 8] ^= 1 << (bit % 8);
                }
                to_device.0.borrow_mut().extend(damaged);
                // What a lost end leaves is flushed by an empty frame.
                to_device.0.borrow_mut().push_back(0);
                turn();
                let mut answer: Vec<u8> = to_host.0.borrow_mut().drain(..).collect();
                if random(3) == 0 && !answer.is_empty() {
                    let bit = random(answer.len() * 8);
                    answer[bit / 8] ^= 1 << (bit % 8);
                }
                let reply = frames(answer)
                    .into_iter()
                    .find(|(kind, number, _)| (*kind, *number) == (FrameKind::Reply, sequence));
                if let Some((_, _, reply)) = reply {
                    break reply;
                }
            };
            assert_eq!(
                reply,
                format!(
                    r#"{{"jsonrpc":"2.0","id":{sequence},"result":{{"success":true,"message":"press {sequence}"}}}}"#
                )
            );
        }
    });
    assert_eq!(presses.get(), requests);
}

#[test]
fn why_a_link_stopped_is_told_in_words() {
    use rigline::link::LinkError;
    for (error, text) in [
        (LinkError::Wire(embedded_io::ErrorKind::TimedOut), "the wire failed: TimedOut"),
        (LinkError::Reset, "the host opened a new session or cancelled the call"),
        (LinkError::Interrupted, "there is something to be flushed first"),
        (LinkError::Repeated, "the last reply is to be written again first"),
    ] {
        assert_eq!(error.to_string(), text);
    }
}
