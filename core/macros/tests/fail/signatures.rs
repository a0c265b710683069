#![allow(deprecated)]
use rigline::{Context, Failure, Outcome, Params};

#[derive(Params)]
struct Args {
    a: u8,
}

struct Rig;

#[rigline::extension(name = "rig", colour = "red")]
//~^ [colour] unknown attribute; known here: name, version, description, kind, requires, guarantees, secrets, separate_frames
impl Rig {
    #[operation]
    fn two(&mut self, a: Args, b: Args) -> Result<(), Failure> {
    //~^ [&mut self, a: Args, b: Args] an operation has one struct with all its arguments: write one with a field for each, and #[derive(rigline::Params)]
        Ok(())
    }

    #[operation]
    fn shared(&mut self, cx: &Context<'_>) -> Result<(), Failure> {
    //~^ [&Context<'_>] expected `&mut Context<'_>`
        Ok(())
    }

    #[operation]
    fn borrowed(&mut self, args: &Args) -> Result<(), Failure> {
    //~^ [&Args] expected `&mut Context<'_>`, or the arguments: a type with #[derive(rigline::Params)], by value
        Ok(())
    }

    #[operation]
    fn consuming(self) -> Result<(), Failure> {
    //~^ [self] expected `&mut self` or `&self`
        Ok(())
    }

    #[operation]
    fn generic<T>(&mut self) -> Result<(), Failure> {
    //~^ [T] this method cannot be generic: its caller cannot choose the types
        Ok(())
    }

    #[operation]
    fn anything(&mut self, args: impl Sized) -> Result<(), Failure> {
    //~^ [impl Sized] expected the arguments' own type
        Ok(())
    }

    #[operation(title = "x")]
    //~^ [title] unknown attribute; did you mean `name`? Known here: name, description, outputs, read_only, destructive, idempotent
    fn unknown(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[operation]
    fn nothing(&mut self) {}
    //~^ [nothing] an operation returns `Result<Outcome, Failure>`, or a `Result` of a struct with #[derive(rigline::Outputs)]

    #[operation(name = "")]
    //~^ [""] a name is not empty
    fn nameless(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[safe_state]
    fn off(&mut self, args: Args) {}
    //~^ [args: Args] a #[safe_state] method has no argument except `&mut self`

    #[configure]
    fn one(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[configure]
    //~^ [#[configure]] an extension has one #[configure]
    fn another(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

#[rigline::extension]
impl Drop for Rig {
//~^ [Drop] #[rigline::extension] goes on an `impl` block without a trait: it writes the one of `Extension` itself
    fn drop(&mut self) {}
}

struct Twice;

#[rigline::extension(name = "twice", requires("a"), name = "again", requires("b"))]
//~^ [name] `name` is given twice: remove one of the two
impl Twice {
    #[operation(name = "a", name = "b")]
    //~^ [name] `name` is given twice: remove one of the two
    fn a(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[operation]
    //~^ [#[operation]] #[operation] goes on a method
    const B: u8 = 1;
}

#[rigline::extension]
struct NotABlock;
//~^ [struct NotABlock;] #[rigline::extension] goes on an `impl` block of your type

fn main() {
    let _: Option<Outcome> = None;
}
