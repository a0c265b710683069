#![allow(deprecated)]
use rigline::Failure;

struct Rig;

#[rigline::extension(name = "rig")]
impl Rig {
    #[operation]
    fn measure(&mut self, rail: u8) -> Result<(), Failure> {
    //~^ [u8] an operation's arguments are an object: a struct with #[derive(Params)]
        let _ = rail;
        Ok(())
    }
}

fn main() {}
