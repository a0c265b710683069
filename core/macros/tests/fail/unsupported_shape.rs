#![allow(deprecated)]
use rigline::{Outputs, Params};

#[derive(Params)]
struct Pair(u8, u8);
//~^ [(u8, u8)] arguments have names: write a struct with named fields (or one without a name, to be as that is)

#[derive(Params)]
enum Shape {
    Dot,
    Circle { radius: u8 },
    //~^ [{ radius: u8 }] only an enum of names is supported: derive serde's trait for this one, and give the fields of its type a schema, #[param(schema = "…")]
}

#[derive(Params)]
enum Never {}
//~^ [Never] an enum without variants has no value

#[derive(Params)]
union Bits {
//~^ [union] a union cannot be decoded: write a struct or an enum
    a: u8,
    b: i8,
}

#[derive(Outputs)]
struct Two(u8, u8);
//~^ [(u8, u8)] outputs have names: write a struct with named fields

fn main() {}
