#![allow(deprecated)]
use rigline::Failure;

struct Rig;

struct Measure {
    _rail: u8,
}

#[rigline::extension(name = "rig")]
impl Rig {
    #[operation]
    fn measure(&mut self, args: Measure) -> Result<(), Failure> {
        let _ = args;
        Ok(())
    }
}

fn main() {}
