#![deny(deprecated)]

use rigline::Failure;

struct Rig;

#[rigline::extension(name = "rig")]
impl Rig {
    /// Described.
    #[operation]
    fn health(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Described.
    #[operation(name = "describe")]
    fn tell(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
