//! `rigline::link`, but for what serves it: see `serve`.

use core::hint::black_box;

use rigline::link::{Collected, Collector, Frame, FrameKind, Shared, decode, encode, encoded_size};

use crate::program::{bytes, keep};

pub(crate) fn all() {
    let payload = bytes::<300>();
    let kind = black_box(FrameKind::Request);
    let mut memory = bytes::<320>();
    keep(encoded_size(black_box(7)));
    keep(encode(&Frame { kind, sequence: black_box(7), payload: &payload }, &mut memory));
    if let Some(frame) = decode(&mut memory) {
        keep((frame.kind == kind, frame.sequence, frame.payload));
    }
    let mut memory = bytes::<64>();
    let mut collector = Collector::new(&mut memory);
    keep(collector.limit());
    for byte in bytes::<100>() {
        match collector.push(byte) {
            Some(Collected::Frame(frame)) => keep(frame.payload),
            Some(other) => keep(other),
            None => {}
        }
    }
    keep(Shared::new());
}
