//! `rigline::client`.

use core::hint::black_box;

use rigline::client::{
    Anomalies, ClientSession, ExecuteResult, Incoming, Log, ReplyBody, Request, RequestContext, RpcError, Unquoted,
    member, write_refusal,
};
use rigline::json::write::Writer;
use rigline::json::{Json, RawJson};
use rigline::{GoDuration, Phase};

use crate::program::{bytes, keep, show, text};

pub(crate) fn all() {
    let mut client = ClientSession::new(black_box(7));
    if black_box(true) {
        client = client.strict();
    }
    let context = RequestContext {
        workdir: text(),
        phase: black_box(Phase::Setup),
        env: &[(text(), text())],
        timeout: black_box(Some(GoDuration::ZERO)),
        agent: Some((text(), text())),
    };
    for request in [
        Request::Initialize { config: black_box(None) },
        Request::Execute { operation: text(), args: RawJson::NULL, context },
        Request::Shutdown,
        Request::Other { method: text(), params: RawJson::NULL },
    ] {
        let mut memory = bytes::<64>();
        let mut out = Writer::new(&mut memory);
        request.write(black_box(1), &mut out);
        keep(request.measure());
        match client.start(&request, &mut out) {
            Ok(id) => keep(client.is_pending(id)),
            Err(error) => show(&error),
        }
    }
    client.pending().for_each(keep);
    let text = bytes::<64>();
    let mut line = &text[..];
    while !line.is_empty() {
        let received = client.receive(line);
        keep(received.before);
        keep(received.anomalies.and(Anomalies::EXTRA_TEXT).contains(black_box(Anomalies::NONE)));
        received.anomalies.texts().for_each(keep);
        incoming(received.incoming);
        line = received.rest;
    }
    client.forget(black_box(1));
    client.reset();
}

fn incoming(incoming: Incoming<'_>) {
    match incoming {
        Incoming::Reply(reply) => {
            keep(reply.id);
            body(reply.body);
        }
        Incoming::Malformed(broken) => {
            keep((broken.id, broken.fault, broken.text, broken.token()));
            show(&broken);
        }
        Incoming::UnknownId(stray) => {
            keep((stray.late, stray.id));
            body(stray.body);
        }
        Incoming::ErrorWithoutId { error, only } => {
            keep(only);
            rpc_error(error);
        }
        Incoming::Log(log) => log_line(log),
        Incoming::Notification { method, params } => {
            keep((method, params));
            log_line(Log::of_params(params));
        }
        Incoming::Request(request) => {
            keep((request.method, request.params));
            write_refusal(&request, &mut Writer::new(&mut bytes::<64>()));
        }
        Incoming::NonProtocol(noise) => {
            keep(noise.text);
            show(&noise.why);
        }
        _ => {}
    }
}

fn body(body: ReplyBody<'_>) {
    match body {
        ReplyBody::Result(result) => execute_result(result),
        ReplyBody::Error(error) => rpc_error(error),
        ReplyBody::Invalid(why) => keep(why),
        _ => {}
    }
}

fn execute_result(result: Json<'_>) {
    let result = ExecuteResult::new(result);
    keep((result.success(), result.outputs_error()));
    [result.message(), result.error()].into_iter().flatten().for_each(plain);
    for (name, value) in result.outputs() {
        show(&name);
        plain(value);
    }
}

fn rpc_error(error: RpcError<'_>) {
    keep((error.code(), error.data(), member(error.json(), text())));
    plain(error.message());
}

fn log_line(log: Log<'_>) {
    keep((log.level(), log.data()));
    log.level_name().into_iter().for_each(plain);
    plain(log.message());
}

fn plain(plain: Unquoted<'_>) {
    keep(plain.is_empty());
    show(&plain);
}
