#![allow(deprecated)]
use rigline::Params;
use rigline::json::Decimal;

#[derive(Params)]
struct TooLarge {
    #[param(maximum = 256)]
    //~^ [256] the field's type cannot hold this number
    a: u8,
}

#[derive(Params)]
struct Zero {
    #[param(default = 0)]
    //~^ [0] the field's type cannot hold this number
    a: core::num::NonZeroU8,
}

#[derive(Params)]
struct TooFine {
    #[param(minimum = 3.1355)]
    //~^ [3.1355] the field's type cannot hold this number exactly
    a: Decimal<3>,
}

#[derive(Params)]
struct Crossed {
    #[param(minimum = 2, maximum = -2)]
    //~^ [2] the minimum is above the maximum
    a: i32,
}

#[derive(Params)]
struct DefaultBelow {
    #[param(minimum = 2, default = 1)]
    //~^ [1] the default is below the minimum
    a: u32,
}

#[derive(Params)]
struct TooLong {
    #[param(default = "abc")]
    //~^ ["abc"] the field's type cannot hold a text of this length
    a: heapless::String<2>,
}

#[derive(Params)]
struct NoSuchName {
    #[param(default = "loud")]
    //~^ ["loud"] the field's type has no variant of this name
    a: Volume,
}

#[derive(Params)]
enum Volume {
    Quiet,
}

#[derive(Params)]
struct NoSchema {
    #[param(schema = "{'type':'string'}")]
    //~^ ["{'type':'string'}"] a schema must be a JSON object or boolean, on one line
    a: core::net::Ipv4Addr,
}

fn main() {}
