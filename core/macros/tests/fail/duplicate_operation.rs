#![allow(deprecated)]
use rigline::Failure;

struct Rig;

#[rigline::extension(name = "rig")]
impl Rig {
    #[operation]
    fn power_on(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[operation(name = "power-on")]
    fn other(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
