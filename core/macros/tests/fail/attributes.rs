#![allow(deprecated)]
use rigline::{Outputs, Params};

#[derive(Params)]
struct Unknown {
    #[param(min = 1)]
    //~^ [min] unknown attribute; did you mean `minimum`? Known here: rename, alias, skip, default, minimum, maximum, min_length, max_length, one_of, example, schema
    samples: u8,
}

#[derive(Params)]
#[param(rename_all = "dromedaryCase")]
//~^ ["dromedaryCase"] unknown case; known here: lowercase, UPPERCASE, PascalCase, camelCase, snake_case, SCREAMING_SNAKE_CASE, kebab-case, SCREAMING-KEBAB-CASE
struct Case {
    samples: u8,
}

#[derive(Params)]
struct Taken {
    #[param(rename = "b")]
    a: u8,
    b: u8,
    //~^ [b] two fields have the name `b`: rename one of them
}

#[derive(Params)]
struct Alias {
    a: u8,
    #[param(alias = "a")]
    //~^ ["a"] two fields have the name `a`: rename one of them
    b: u8,
}

#[derive(Params)]
struct Flat {
    #[serde(flatten)]
    //~^ [flatten] rigline does not read this attribute of serde: derive serde's trait for a type of its own, and give the field a schema, #[param(schema = "…")]
    a: Taken,
}

#[derive(Params)]
struct Bound {
    #[param(minimum = LEAST)]
    //~^ [LEAST] expected a number, such as 1, -0.5 or "3.135"
    a: u8,
}

#[derive(Params)]
struct Long<'a> {
    #[param(default = "abc", max_length = 2)]
    //~^ ["abc"] the default breaks the rule for the field's length
    a: &'a str,
}

#[derive(Outputs)]
struct Read {
    #[output(minimum = 1)]
    //~^ [minimum] unknown attribute; known here: rename, skip, example, schema
    a: u8,
}

#[derive(Params)]
struct Twice<'a> {
    #[param(minimum = 1, minimum = 2)]
    //~^ [minimum] `minimum` is given twice: remove one of the two
    a: u8,
    #[param(example = 1, example = 2, alias = "c", alias = "d")]
    b: u8,
    e: &'a str,
}

#[derive(Params)]
struct NoLength<'a> {
    #[param(min_length = -1)]
    //~^ [-] expected a length: an integer from 0 to 4294967295
    a: &'a str,
}

fn main() {}
