//! A protocol that rigline does not have: `{"ping":"OPERATION","with":{…}}` is answered with `{"pong":{…}}`, or with
//! `{"pang":"…"}` where it failed.

use rigline::{
    json::check::WatchedMember,
    protocol::{
        Action, CallAction, Code, Logs, MessagePlace, OutputsPlace, Protocol, Received, Refusal, ReplyFormat,
        ServerState,
    },
};

const PING: usize = 0;
const WITH: usize = 1;
static MEMBERS: [WatchedMember; 2] = [WatchedMember::new("ping", PING), WatchedMember::new("with", WITH)];

static FORMAT: ReplyFormat = ReplyFormat {
    head: |out, _| out.byte(b'{'),
    success: b"\"pong\":{",
    outputs: OutputsPlace { start: b"", end: b"", as_strings: false },
    message: MessagePlace {
        after_outputs: b",\"message\":\"",
        alone: b"\"message\":\"",
        end: b"\"",
        is_beside_outputs: true,
    },
    content: None,
    failed: None,
    error: |out, _, _| out.raw(b"\"pang\":\""),
    error_end: |_, _| {},
    parse_error: b"\"pang\":{\"unreadable\":\"",
    close: |out, closing| out.raw(if closing.error.is_some() { b"\"}" } else { b"}}" }),
    logs: Logs::OutOfBand,
    progress: None,
};

pub static PING_PONG: Protocol =
    Protocol::new("ping-pong", &MEMBERS, PING, &FORMAT, read, |out, received, refusal, _| {
        out.raw(b"\"pang\":\"");
        refusal.write_text(out, received);
        out.raw(b"\"}");
    })
    .answers(|json| json.get("pong").is_some() || json.get("pang").is_some());

fn read(received: &Received<'_>, server: &ServerState<'_>) -> Result<Action, &'static Refusal> {
    const UNKNOWN: &Refusal = &Refusal::quoting(Code::Name(""), "nobody answers to ", PING);
    let known = server.manifest.operations.iter().position(|known| received.is(PING, known.name));
    let index = known.ok_or(UNKNOWN)?;
    Ok(CallAction::new(received, index, received.span(WITH), received.span(PING)).into())
}
