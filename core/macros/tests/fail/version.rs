#![allow(deprecated)]
struct Rig;

#[rigline::extension(name = "rig", version = "1.2")]
impl Rig {}

fn main() {}
