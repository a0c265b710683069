use rigline::{Failure, configure, operation};

struct Rig;

impl Rig {
    #[operation]
    fn press(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[rigline::safe_state]
    fn off(&mut self) {}
}

#[configure]
fn settings() {}

fn main() {
    let mut rig = Rig;
    rig.press().unwrap();
    rig.off();
}
