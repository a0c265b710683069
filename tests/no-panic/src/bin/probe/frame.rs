//! `rigline::frame`.

use core::hint::black_box;

use rigline::frame::{Frame, Framer, InputBehind, LineEnds, OwnedFramer, Taken};

use crate::program::{bytes, keep, show};

pub(crate) fn all() {
    let mut memory = bytes::<64>();
    let size = black_box(64);
    let ends = if black_box(true) { LineEnds::Lf } else { LineEnds::Serial };
    let mut framer = Framer::new(memory.get_mut(..size).unwrap_or_default()).with_mode(ends);
    keep(framer.limit());
    framer.space().fill(black_box(b'x'));
    framer.commit(black_box(3));
    while let Some(frame) = framer.next_frame() {
        one(frame);
    }
    while let Some(taken) = framer.take() {
        match taken {
            Taken::Line(line, rest) => {
                keep(line);
                tail(rest);
            }
            Taken::TooLong(event) => show(&event),
        }
    }
    let (line, rest) = framer.held();
    keep(line);
    tail(rest);
    framer.finish();
    framer.reset();

    let mut framer = black_box(OwnedFramer::<32>::new()).with_mode(ends);
    keep(OwnedFramer::<8>::default().limit());
    framer.space().fill(black_box(b'x'));
    framer.commit(black_box(3));
    while let Some(frame) = framer.next_frame() {
        one(frame);
    }
    while let Some(taken) = framer.take() {
        if let Taken::Line(_, rest) = taken {
            tail(rest);
        }
    }
    framer.finish();
    framer.reset();
}

fn one(frame: Frame<'_>) {
    match frame {
        Frame::Line(line) => keep(line),
        Frame::TooLong(event) => show(&event),
    }
}

fn tail(mut tail: InputBehind<'_>) {
    tail.space().fill(black_box(b'x'));
    tail.commit(black_box(3));
    while let Some(mut peeked) = tail.peek() {
        keep(peeked.line());
        if black_box(true) {
            peeked.keep();
        } else {
            peeked.discard();
        }
    }
    tail.finish();
}
