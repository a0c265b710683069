#![allow(deprecated)]
use rigline::Failure;

struct Rig;

struct Measure {
    _rail: u8,
}

#[rigline::extension(name = "rig")]
//~^ [#[rigline::extension(name = "rig")]] `Measure` cannot be decoded from a call's arguments or a configuration
impl Rig {
    #[operation]
    fn measure(&mut self, args: Measure) -> Result<(), Failure> {
    //~^ [Measure] `Measure` has no schema, so that it cannot be an argument
        let _ = args;
        Ok(())
    }
}

fn main() {}
