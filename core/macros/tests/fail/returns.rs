#![allow(deprecated)]
use rigline::Failure;

struct Rig;

#[rigline::extension(name = "rig")]
impl Rig {
    #[operation]
    fn number(&mut self) -> Result<u8, Failure> {
        Ok(1)
    }

    #[operation]
    fn bare(&mut self) -> u8 {
        1
    }

    #[operation]
    fn text(&mut self) -> Result<(), &'static str> {
        Err("no")
    }
}

fn main() {}
