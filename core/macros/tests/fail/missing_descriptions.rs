#![deny(deprecated)]
use rigline::{Failure, Outputs, Params};

#[derive(Params)]
struct Args {
    /// Described.
    a: u8,
    b: u8,
    #[param(skip)]
    c: u8,
}

#[derive(Params)]
#[allow(deprecated)]
struct Quiet {
    a: u8,
}

#[derive(Outputs)]
struct Measured {
    volts: u8,
}

struct Rig;

#[rigline::extension(name = "rig")]
impl Rig {
    #[operation]
    fn measure(&mut self, args: Args) -> Result<Measured, Failure> {
        Ok(Measured { volts: args.a + args.b + args.c })
    }

    #[operation(description = "Described.")]
    fn press(&mut self, args: Quiet) -> Result<(), Failure> {
        let _ = args.a;
        Ok(())
    }
}

struct Empty;

#[rigline::extension(name = "empty")]
impl Empty {
    fn press(&mut self) {}
}

fn main() {
    Empty.press();
}
