//! `rigline::exchange`: whole messages, without an engine.

use core::hint::black_box;

use rigline::exchange::{Ahead, Exchange, Next, Served, Session, Work};
use rigline::frame::TooLong;
use rigline::protocol::GEVALS;
use rigline::{Failure, Outcome};

use crate::context::{MANIFEST, PROTOCOLS};
use crate::program::{bytes, keep};

pub(crate) fn all() {
    let Some(to) = Served::new(&MANIFEST, PROTOCOLS, (black_box(512), black_box(1024))) else { return };
    #[cfg(feature = "protocols")]
    let evals = rigline::protocol::waza::Evals::new(crate::context::EVALS);
    #[cfg(feature = "protocols")]
    let to = to.with_service(&evals);
    let to = if black_box(true) { to.with_protocol(black_box(GEVALS)) } else { to };
    keep((to.limits(), to.is_own_work_due()));
    let (mut session, mut exchange) = (Session::new(&to), Exchange::new(&to));
    let (mut message, mut out) = (bytes::<512>(), bytes::<1024>());
    message.fill(black_box(b'x'));
    let length = black_box(300);
    let message = message.get_mut(..length).unwrap_or_default();
    keep(match session.look_ahead(&to, message, &mut out, black_box(b"1")) {
        Ahead::Reply(length) => length,
        Ahead::Forget(span) => span.range().start,
        _ => 0,
    });
    let mut next = session.receive(&to, message, &mut out, &mut exchange);
    if black_box(true) {
        next = session.own_work(&to, &mut exchange);
    }
    while let Next::Run { .. } = next {
        keep(exchange.id(message));
        keep((exchange.timeout_nanos(), exchange.operation()));
        let Some(run) = exchange.run(&to, message, &mut out) else { break };
        keep(matches!(run.work, Work::Call(_)));
        if black_box(true) {
            exchange.cancel();
        }
        let result = if black_box(true) { Ok(Outcome::DONE) } else { Err(Failure::UNKNOWN_OPERATION) };
        exchange.complete(&to, message, &mut out, &result);
        next = session.settle(&to, message, &mut out, &mut exchange);
    }
    let fault = TooLong { limit: black_box(1), dropped: black_box(2) };
    keep((session.too_long(fault, &mut out), session.is_open(), session.lost(&to)));
}
