#![allow(deprecated)]
use rigline::{Outputs, Params};

#[derive(Params)]
struct Unknown {
    #[param(min = 1)]
    samples: u8,
}

#[derive(Params)]
#[param(rename_all = "dromedaryCase")]
struct Case {
    samples: u8,
}

#[derive(Params)]
struct Taken {
    #[param(rename = "b")]
    a: u8,
    b: u8,
}

#[derive(Params)]
struct Alias {
    a: u8,
    #[param(alias = "a")]
    b: u8,
}

#[derive(Params)]
struct Flat {
    #[serde(flatten)]
    a: Taken,
}

#[derive(Params)]
struct Bound {
    #[param(minimum = LEAST)]
    a: u8,
}

#[derive(Params)]
struct Long<'a> {
    #[param(default = "abc", max_length = 2)]
    a: &'a str,
}

#[derive(Outputs)]
struct Read {
    #[output(minimum = 1)]
    a: u8,
}

#[derive(Params)]
struct Twice<'a> {
    #[param(minimum = 1, minimum = 2)]
    a: u8,
    #[param(example = 1, example = 2, alias = "c", alias = "d")]
    b: u8,
    e: &'a str,
}

#[derive(Params)]
struct NoLength<'a> {
    #[param(min_length = -1)]
    a: &'a str,
}

fn main() {}
