#![deny(deprecated)]

use rigline::Failure;

struct Rig;

#[rigline::extension(name = "rig")]
impl Rig {
    #[operation]
    fn health(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[operation(name = "describe")]
    fn tell(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
