//! A protocol and a transport that the crate does not know, on whole messages alone:
//! `{"ping":"OPERATION","with":{…}}`, one a datagram.

use std::{future, future::Future as _, net::UdpSocket, pin::pin, task};

use crate::common::{FakeClock, MANIFEST, Rig};
use rigline::exchange::{Exchange, Next, Served, Session};
use rigline::{
    json::check::WatchedMember,
    protocol::{Action, CallAction, Code, Logs, MessagePlace, OutputsPlace, Protocol, Refusal, ReplyFormat, close_two},
    serve::whole::Runner,
};

static FORMAT: ReplyFormat = ReplyFormat {
    head: |out, _| out.byte(b'{'),
    success: b"\"pong\":{",
    outputs: OutputsPlace { start: b"", end: b"", as_strings: false },
    message: MessagePlace { after_outputs: b",\"say\":\"", alone: b"\"say\":\"", end: b"\"", is_beside_outputs: false },
    content: None,
    failed: None,
    error: |out, _, _| out.raw(b"\"pang\":{\"say\":\""),
    error_end: |out, _| out.byte(b'"'),
    parse_error: b"\"pang\":{\"unreadable\":\"",
    close: close_two,
    logs: Logs::OutOfBand,
    progress: None,
};
static MEMBERS: [WatchedMember; 2] = [WatchedMember::new("ping", 0), WatchedMember::new("with", 1)];
const UNKNOWN: &Refusal = &Refusal::quoting(Code::Name(""), "nobody answers to ", 0);
static PING: Protocol = Protocol::new(
    "ping",
    &MEMBERS,
    0,
    &FORMAT,
    |received, server| {
        if received.is(0, "what?") {
            return Ok(Action::Answer(|out, received, _| {
                out.raw(b"\"pong\":");
                out.raw(received.text());
                out.byte(b'}');
            }));
        }
        let index = server.manifest.operations.iter().position(|known| received.is(0, known.name)).ok_or(UNKNOWN)?;
        Ok(Action::Call(CallAction::new(received, index, received.span(1), received.span(0))))
    },
    |out, received, refusal, _| {
        out.raw(b"\"pang\":{\"say\":\"");
        refusal.write_text(out, received);
        out.raw(b"\"}}");
    },
);

/// Answers one datagram; `out` has room for the reply.
fn answer(message: &mut [u8], out: &mut [u8]) -> Option<usize> {
    let protocols = [&PING];
    let to = Served::new(&MANIFEST, &protocols, (message.len(), out.len()))?;
    let (mut session, mut exchange) = (Session::new(&to), Exchange::new(&to));
    let mut next = session.receive(&to, message, out, &mut exchange);
    while let Next::Run { .. } = next {
        let (mut rig, clock, mut logs) = (Rig::default(), FakeClock::default(), [0; 256]);
        let runner = Runner::new(&clock, &|_| (), &mut logs);
        let run = runner.run(&mut rig, &to, &mut exchange, message, out, future::pending());
        assert!(pin!(run).poll(&mut task::Context::from_waker(task::Waker::noop())).is_ready());
        next = session.settle(&to, message, out, &mut exchange);
    }
    if let Next::Reply(length) = next { Some(length) } else { None }
}

#[test]
fn a_datagram_is_a_message() {
    let (server, client) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    for (request, reply) in [
        (r#"{"ping":"say","with":{"text":"a\"b"}}"#, r#"{"pong":{"say":"a\"b"}}"#),
        ("{\n \"ping\" : \"say\"\n}", r#"{"pong":{"say":""}}"#),
        (r#"{"ping":"what?", "with":[1]}"#, r#"{"pong":{"ping":"what?", "with":[1]}}"#),
        (r#"{"ping":"nobody"}"#, r#"{"pang":{"say":"nobody answers to nobody"}}"#),
        ("", ""),
    ] {
        let (mut memory, mut out) = ([0; 500], [0; 600]);
        client.send_to(request.as_bytes(), server.local_addr().unwrap()).unwrap();
        let (length, _) = server.recv_from(&mut memory).unwrap();
        let length = answer(&mut memory[..length], &mut out).unwrap_or_default();
        server.send_to(&out[..length], client.local_addr().unwrap()).unwrap();
        let length = client.recv(&mut memory).unwrap();
        assert_eq!(str::from_utf8(&memory[..length]).unwrap(), reply);
    }
}
