use rigline::{Failure, configure, operation};

struct Rig;

impl Rig {
    #[operation]
    //~^ [#[operation]] #[operation] goes on a method in an `impl` block under #[rigline::extension]: put that attribute on the block
    fn press(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[rigline::safe_state]
    //~^ [#[rigline::safe_state]] #[safe_state] goes on a method in an `impl` block under #[rigline::extension]: put that attribute on the block
    fn off(&mut self) {}
}

#[configure]
//~^ [#[configure]] #[configure] goes on a method in an `impl` block under #[rigline::extension]: put that attribute on the block
fn settings() {}

fn main() {
    let mut rig = Rig;
    rig.press().unwrap();
    rig.off();
}
