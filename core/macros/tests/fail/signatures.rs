#![allow(deprecated)]
use rigline::{Context, Failure, Outcome, Params};

#[derive(Params)]
struct Args {
    a: u8,
}

struct Rig;

#[rigline::extension(name = "rig", colour = "red")]
impl Rig {
    #[operation]
    fn two(&mut self, a: Args, b: Args) -> Result<(), Failure> {
        Ok(())
    }

    #[operation]
    fn shared(&mut self, cx: &Context<'_>) -> Result<(), Failure> {
        Ok(())
    }

    #[operation]
    fn borrowed(&mut self, args: &Args) -> Result<(), Failure> {
        Ok(())
    }

    #[operation]
    fn consuming(self) -> Result<(), Failure> {
        Ok(())
    }

    #[operation]
    fn generic<T>(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[operation]
    fn anything(&mut self, args: impl Sized) -> Result<(), Failure> {
        Ok(())
    }

    #[operation(title = "x")]
    fn unknown(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[operation]
    fn nothing(&mut self) {}

    #[operation(name = "")]
    fn nameless(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[safe_state]
    fn off(&mut self, args: Args) {}

    #[configure]
    fn one(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[configure]
    fn another(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

#[rigline::extension]
impl Drop for Rig {
    fn drop(&mut self) {}
}

struct Twice;

#[rigline::extension(name = "twice", requires("a"), name = "again", requires("b"))]
impl Twice {
    #[operation(name = "a", name = "b")]
    fn a(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[operation]
    const B: u8 = 1;
}

#[rigline::extension]
struct NotABlock;

fn main() {
    let _: Option<Outcome> = None;
}
