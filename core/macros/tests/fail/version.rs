#![allow(deprecated)]
struct Rig;

#[rigline::extension(name = "rig", version = "1.2")]
impl Rig {}
//~^ [Rig] the manifest's version is not a semantic version such as 1.2.0

fn main() {}
