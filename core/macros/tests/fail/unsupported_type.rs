#![allow(deprecated)]
use rigline::{Outputs, Params};

#[derive(Params)]
struct Measure {
    within: core::ops::Range<u8>,
    //~^ [core::ops::Range<u8>] has no schema, so that it cannot be an argument
}

#[derive(Outputs)]
struct Measured {
    within: core::ops::Range<u8>,
    //~^ [core::ops::Range<u8>] has no schema, so that it cannot be an output
}

fn main() {}
