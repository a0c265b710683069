#![allow(deprecated)]
use rigline::Params;
use rigline::json::Decimal;

#[derive(Params)]
struct TooLarge {
    #[param(maximum = 256)]
    a: u8,
}

#[derive(Params)]
struct TooFine {
    #[param(minimum = 3.1355)]
    a: Decimal<3>,
}

#[derive(Params)]
struct Crossed {
    #[param(minimum = 2, maximum = -2)]
    a: i32,
}

#[derive(Params)]
struct DefaultBelow {
    #[param(minimum = 2, default = 1)]
    a: u32,
}

#[derive(Params)]
struct TooLong {
    #[param(default = "abc")]
    a: heapless::String<2>,
}

#[derive(Params)]
struct NoSuchName {
    #[param(default = "loud")]
    a: Volume,
}

#[derive(Params)]
enum Volume {
    Quiet,
}

#[derive(Params)]
struct NoSchema {
    #[param(schema = "{'type':'string'}")]
    a: core::net::Ipv4Addr,
}

fn main() {}
