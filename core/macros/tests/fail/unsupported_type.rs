#![allow(deprecated)]
use rigline::{Outputs, Params};

#[derive(Params)]
struct Measure {
    within: core::ops::Range<u8>,
}

#[derive(Outputs)]
struct Measured {
    within: core::ops::Range<u8>,
}

fn main() {}
