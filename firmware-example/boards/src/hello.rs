use rigline::{Context, Failure, Outcome, Params};

/// The hardware that the extension needs.
pub trait Lamp {
    /// Switches the lamp on or off.
    fn set(&mut self, on: bool);
}

#[derive(Params)]
struct Greet<'a> {
    /// The name to greet.
    name: &'a str,
    /// How many times to greet.
    #[param(minimum = 1, maximum = 10, default = 1)]
    times: u8,
}

#[derive(Params)]
struct Light {
    /// Whether the lamp is on.
    on: bool,
}

/// The extension `hello`, which is the same on every chip: it greets, and has a lamp.
#[derive(Debug)]
pub struct Hello<L> {
    /// The lamp of the board.
    pub lamp: L,
}

#[rigline::extension(name = "hello", description = "Says hello, and has a lamp")]
impl<L: Lamp> Hello<L> {
    /// Greet somebody.
    #[operation]
    async fn greet(&mut self, args: Greet<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        for n in 1..=args.times {
            cx.info(format_args!("greeting {n} of {}", args.times));
        }
        cx.output("times", &args.times)?;
        cx.done(format_args!("Hello, {}!", args.name))
    }

    /// Switch the lamp on or off.
    #[operation]
    async fn light(&mut self, args: Light, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.lamp.set(args.on);
        cx.done(format_args!("the lamp is {}", if args.on { "on" } else { "off" }))
    }

    /// Runs when a session is lost (the cable is unplugged, the host has ended) or a call timed
    /// out.
    #[safe_state]
    fn dark(&mut self) {
        self.lamp.set(false);
    }
}
