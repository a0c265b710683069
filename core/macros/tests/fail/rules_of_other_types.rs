#![allow(deprecated)]
use rigline::Params;

#[derive(Params)]
struct Text<'a> {
    #[param(minimum = 1)]
    text: &'a str,
    //~^ [&'a str] `&'a str` is not a number
}

#[derive(Params)]
struct Count {
    #[param(max_length = 1)]
    count: u8,
    //~^ [u8] `u8` has no length
}

#[derive(Params)]
struct Switch {
    #[param(default = 1)]
    on: bool,
    //~^ [bool] `bool` is not a number
}

#[derive(Params)]
struct Number {
    #[param(default = "1")]
    number: u8,
    //~^ [u8] `u8` is not text
}

fn main() {}
