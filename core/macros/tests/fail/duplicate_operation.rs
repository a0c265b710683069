#![allow(deprecated)]
use rigline::Failure;

struct Rig;

#[rigline::extension(name = "rig")]
impl Rig {
    #[operation]
    fn power_on(&mut self) -> Result<(), Failure> {
    //~^ [power_on] the other operation of this name
        Ok(())
    }

    #[operation(name = "power-on")]
    //~^ ["power-on"] two operations have the name `power-on`: rename one of the two
    fn other(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
