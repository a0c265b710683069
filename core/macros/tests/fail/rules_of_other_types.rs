#![allow(deprecated)]
use rigline::Params;

#[derive(Params)]
struct Text<'a> {
    #[param(minimum = 1)]
    text: &'a str,
}

#[derive(Params)]
struct Count {
    #[param(max_length = 1)]
    count: u8,
}

#[derive(Params)]
struct Switch {
    #[param(default = 1)]
    on: bool,
}

#[derive(Params)]
struct Number {
    #[param(default = "1")]
    number: u8,
}

fn main() {}
