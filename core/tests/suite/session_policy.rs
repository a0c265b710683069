//! Decides which connection may start a session, if several lead to one extension.

use std::cell::Cell;

use rigline::{Failure, FailureKind, Manifest, Operation, Schema};
use rigline::{
    engine::{Engine, Memory, Step},
    exchange::{Exchange, Served, Session, SessionPolicy},
};

/// Counts those who hold it: at most one may.
#[derive(Debug, Default)]
struct Turnstile(Cell<i32>);

impl SessionPolicy for Turnstile {
    fn open(&self) -> Result<(), Failure> {
        self.0.set(1);
        Ok(())
    }

    fn close(&self) {
        self.0.set(0);
    }
}

/// Lets `lines` through an engine with a reply region of `room` bytes, failing each configuration
/// that is 0; tells whether the policy is held and a session open at the end.
fn after(lines: &[&str], room: usize) -> (bool, bool) {
    const OPERATION: Operation =
        Operation::new("measure", Schema::OBJECT).description("Measures a rail, and tells it in volts");
    const MANIFEST: Manifest = Manifest::new("rig", "1.0.0").operations(&[OPERATION; 10]);
    let policy = Turnstile::default();
    let (mut request, mut reply) = (vec![0; 1024], vec![0; room]);
    let mut engine = Engine::new(&MANIFEST, Memory { request: &mut request, reply: &mut reply })
        .unwrap()
        .with_session_policy(&policy);
    for line in lines {
        engine.space()[..line.len()].copy_from_slice(line.as_bytes());
        engine.commit(line.len());
        loop {
            match engine.step() {
                Step::Read => break,
                Step::Run(_) => engine.complete(&Err(Failure::new(FailureKind::BadArguments, "no"))),
                _ => {}
            }
        }
    }
    (policy.0.get() == 1, engine.is_session_open())
}

#[test]
fn the_gate_is_held_for_as_long_as_a_session_is_open() {
    let start = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"0.0.1\"}}\n";
    let refused = &start.replace("0.0.1", "0.0.2");
    let failing = &start.replace("\"0.0.1\"", "\"0.0.1\",\"config\":{}");
    let end = "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"shutdown\"}\n";
    let restart = &format!("[{},{}]\n", end.trim(), failing.trim());
    for (lines, room, held) in [
        (&[start][..], 2000, true),
        (&[start, start], 2000, true),
        (&[start, end], 2000, false),
        (&[refused], 2000, false),
        (&[failing], 2000, false),
        (&[start, end, start], 2000, true),
        (&[start, restart], 2000, false),
        // The session that was open before goes on.
        (&[start, failing], 2000, true),
        (&[start, refused], 2000, true),
        // The manifest does not fit the reply region, so that no session starts.
        (&[start], 600, false),
    ] {
        assert_eq!(after(lines, room), (held, held), "{lines:?} {room}");
    }
}

#[test]
fn whole_messages_have_the_policy_too() {
    const MANIFEST: Manifest = Manifest::new("rig", "1.0.0");
    let policy = Turnstile::default();
    let to = Served::new(&MANIFEST, rigline::protocol::ALL, (1024, 1024)).unwrap().with_session_policy(&policy);
    let (mut session, mut exchange, mut out) = (Session::new(&to), Exchange::new(&to), [0; 1024]);
    session.receive(&to, crate::common::INITIALIZE.as_bytes(), &mut out, &mut exchange);
    assert_eq!((policy.0.get(), session.is_open()), (1, true));
}
