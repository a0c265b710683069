//! One fault is one error: what uses the type goes on.
use rigline::{Context, Extension, Failure, Outcome, Outputs, Params};

#[derive(Params)]
struct Args<'a> {
    /// Which one.
    #[param(minimum = 1)]
    channel: &'a str,
    //~^ [&'a str] `&'a str` is not a number
}

#[derive(Params)]
enum Mode<T> {
    Slow(T),
    //~^ [(T)] only an enum of names is supported: derive serde's trait for this one, and give the fields of its type a schema, #[param(schema = "…")]
}

#[derive(Outputs)]
struct Measured {
    /// The voltage.
    #[output(name = "v", name = "w")]
    //~^ [name] unknown attribute; did you mean `rename`? Known here: rename, skip, example, schema
    volts: u8,
}

struct Rig;

#[rigline::extension(name = "rig", colour = "red")]
//~^ [colour] unknown attribute; known here: name, version, description, kind, requires, guarantees, secrets, separate_frames
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
