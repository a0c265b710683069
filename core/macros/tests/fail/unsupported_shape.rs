#![allow(deprecated)]
use rigline::{Outputs, Params};

#[derive(Params)]
struct Pair(u8, u8);

#[derive(Params)]
enum Shape {
    Dot,
    Circle { radius: u8 },
}

#[derive(Params)]
enum Never {}

#[derive(Params)]
union Bits {
    a: u8,
    b: i8,
}

#[derive(Outputs)]
struct Two(u8, u8);

fn main() {}
