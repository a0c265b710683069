use rigline::{Failure, Outputs, Params};

#[derive(Params)]
struct Args {
    /// Described.
    a: u8,
    b: u8,
    //~^ [b] `the_argument_b_has_no_doc_comment`: hosts show it to agents and people: write `/// …` above `b`
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
    //~^ [volts] `the_output_volts_has_no_doc_comment`: hosts show it to agents and people: write `/// …` above `volts`
}

struct Rig;

#[rigline::extension(name = "rig")]
impl Rig {
    #[operation]
    fn measure(&mut self, args: Args) -> Result<Measured, Failure> {
    //~^ [measure] `the_operation_measure_has_no_doc_comment`: hosts show it to agents and people: write `/// …` above the method
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
//~^ [Empty] `this_extension_has_no_operation`: no host can call anything of it: put `#[operation]` on the methods that are operations
    fn press(&mut self) {}
}

fn main() {
    Empty.press();
}
