#![allow(deprecated)]
use rigline::Failure;

struct Rig;

#[rigline::extension(name = "rig")]
//~^ [#[rigline::extension(name = "rig")]] an operation cannot return `u8`
impl Rig {
    #[operation]
    fn number(&mut self) -> Result<u8, Failure> {
    //~^ [Result] an operation cannot return `u8`
        Ok(1)
    }

    #[operation]
    fn bare(&mut self) -> u8 {
    //~^ [u8] an operation cannot return `u8`
        1
    }

    #[operation]
    fn text(&mut self) -> Result<(), &'static str> {
    //~^ [Result]
        Err("no")
    }
}

fn main() {}
