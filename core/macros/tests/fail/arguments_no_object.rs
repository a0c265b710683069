#![allow(deprecated)]
use rigline::Failure;

struct Rig;

#[rigline::extension(name = "rig")]
impl Rig {
    #[operation]
    fn measure(&mut self, rail: u8) -> Result<(), Failure> {
        let _ = rail;
        Ok(())
    }
}

fn main() {}
