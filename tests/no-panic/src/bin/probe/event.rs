//! `rigline::event`.

use rigline::json::Json;
use rigline::{Event, EventError, EventMember};

use crate::program::{bytes, keep, show};

pub(crate) fn all() {
    let text = bytes::<64>();
    match Event::parse(&text) {
        Ok(event) => seen(event),
        Err(error) => refused(&error),
    }
    if let Ok(json) = Json::parse(&text) {
        match Event::read(json) {
            Ok(event) => seen(event),
            Err(error) => refused(&error),
        }
    }
}

pub(crate) fn seen(event: Event<'_>) {
    keep((event.id(), event.ts(), event.event(), event.component(), event.json()));
    for text in [event.module(), event.status(), event.session_id(), event.request_id(), event.span_id()] {
        keep(matches!(text, EventMember::Null));
        keep(text.value());
    }
    keep(event.duration_ms().value().map(|duration| duration.to_u64()));
    keep((event.data().value(), event.error().value()));
}

fn refused(error: &EventError) {
    keep(error.member());
    show(error);
}
