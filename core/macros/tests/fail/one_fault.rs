//! One fault is one error: what uses the type goes on.
use rigline::{Context, Extension, Failure, Outcome, Outputs, Params};

#[derive(Params)]
struct Args<'a> {
    /// Which one.
    #[param(minimum = 1)]
    channel: &'a str,
}

#[derive(Params)]
enum Mode<T> {
    Slow(T),
}

#[derive(Outputs)]
struct Measured {
    /// The voltage.
    #[output(name = "v", name = "w")]
    volts: u8,
}

struct Rig;

#[rigline::extension(name = "rig", colour = "red")]
impl Rig {
    /// Measures.
    #[operation]
    fn measure(&mut self, args: Args<'_>) -> Result<Measured, Failure> {
        let _ = args.channel;
        Ok(Measured { volts: 1 })
    }

    /// Presses.
    #[operation]
    fn press(&mut self, mode: Mode<u8>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let Mode::Slow(_) = mode;
        cx.done("pressed")
    }
}

fn serve(_: impl Extension) {}

fn main() {
    serve(Rig);
}
