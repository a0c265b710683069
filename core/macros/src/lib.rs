//! The macros of [rigline](https://docs.rs/rigline), which re-exports them: use them from there.

use proc_macro::TokenStream;

mod attributes;
mod extension;
mod outputs;
mod params;
mod refused;
mod spelling;
mod text;

/// Implements [`Extension`] for a type, from the methods that are operations.
///
/// ```
/// use rigline::{Context, Failure, Outcome, Params};
///
/// #[derive(Params)]
/// struct Greet<'a> {
///     /// The name to greet.
///     name: &'a str,
///     /// How many times to greet.
///     #[param(minimum = 1, maximum = 10, default = 1)]
///     times: u8,
/// }
///
/// struct Greeter {
///     greeted: u32,
/// }
///
/// #[rigline::extension(name = "greeter", description = "Says hello")]
/// impl Greeter {
///     /// Greet somebody.
///     #[operation]
///     async fn greet(&mut self, args: Greet<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
///         for _ in 0..args.times {
///             cx.info(format_args!("Hello, {}!", args.name));
///         }
///         self.greeted += u32::from(args.times);
///         cx.done("greeted")
///     }
///
///     /// Start counting afresh.
///     #[operation(name = "reset-count")]
///     fn reset(&mut self) -> Result<(), Failure> {
///         self.greeted = 0;
///         Ok(())
///     }
/// }
///
/// use rigline::Extension;
/// let manifest = Greeter { greeted: 0 }.manifest();
/// assert_eq!(manifest.operations[0].name, "greet");
/// assert_eq!(manifest.operations[0].description, "Greet somebody.");
/// assert_eq!(manifest.operations[1].params.to_string(), r#"{"type":"object","properties":{}}"#);
/// ```
///
/// The macro writes an implementation of the trait [`Extension`] and nothing else; the `impl` block itself stays as it is.
///
/// # On the `impl` block
/// - `name = "…"`: the extension's name; the package's if it is not said.
/// - `version = "…"`: its semantic version; the package's if it is not said.
/// - `description = "…"`: what it is for; the block's doc comment if it is not said.
/// - `kind = "hook"`: what it is to Amplifier hosts: `provider`, `tool`, `agent`, `hook`, `orchestrator` or `context`; `hook` if it has
///   an `#[on_event]`, else `tool`, if it is not said.
/// - `requires("kubectl", …)`: commands that must be in `PATH` (on desktops).
/// - `guarantees(no_network, no_subprocess, …)`: what it promises to namel3ss hosts that require it.
/// - `secrets("API_KEY", …)`: the secrets that it makes use of, by their names: namel3ss `secrets_allowed`.
/// - `separate_frames`: each async operation is polled in a stack frame of its own, as [`apart`] does it. On a board this needs less
///   stack: without it, one frame has room for all operations. The image then has a panic for a future that is polled after its
///   end, which never happens.
///
/// # On methods
/// - `#[operation]`: an operation. Its name is the method's, `snake_case` turned into `kebab-case`, or `name = "…"`; its
///   description is the doc comment's text up to its first heading or code block, or `description = "…"`.
///   - The method is a plain `fn` or an `async fn`, on `&mut self`, `&self` or neither. A plain one keeps everybody
///     waiting while it runs.
///   - Its parameters, in any order and each of them optional: the context, `&mut Context<'_>`; what the host says about the
///     call, [`CallContext<'_>`][CallContext]; and one of any other type, the arguments, which implement [`Params`].
///   - It returns a `Result` of [`Outcome`], `()`, or a struct with `#[derive(Outputs)]`, whose schema the manifest then
///     has; an operation that writes them by `cx.outputs` declares them with `#[operation(outputs = Measured)]`. The error
///     is [`Failure`], or anything that converts into one.
///   - `read_only`, `destructive` and `idempotent` say what it does to the world: that it changes nothing, that it may destroy
///     or overwrite something, that a second run with the same arguments changes nothing more. Each may be `= false`. Where one of
///     them is said, those that are not are false. Agents' programs use them to decide what to run without asking, and
///     assume the worst where none is said.
/// - `#[configure]`: takes the configuration that a host sends when it starts a session: a [`Config<'_>`][Config], or a
///   type that implements [`Params`], as an operation's arguments do; and the context. It returns `Result<(), Failure>`.
/// - `#[on_event]` and `#[run_task]`: these methods of [`Extension`], with its own parameters, all of them. A `#[cfg]` on them
///   applies to what is written for them. `#[run_task]` writes `run_job`, too.
/// - `#[safe_state]`: brings what the extension drives into a state that is safe without supervision.
///
/// An operation without a description, an argument or an output without a doc comment, and a block without any operation are
/// warnings: hosts show these texts to agents and people. The compiler gives them as its lint `deprecated`, the only one that
/// carries a text of ours, and begins with "use of deprecated macro". `#[allow(deprecated)]` on the item turns them off.
///
/// Amplifier has operations of its own called `health`, `describe` and `invoke`: one of the extension's with such a
/// name can be reached there by a nested `invoke` only, and the compiler warns.
///
/// # Limits
/// At most 500 operations, each with a name of its own, also as MCP clients see it: with `_` for all but letters and digits, and
/// at most 64 characters. The manifest fits the 65,535 bytes of a line that a gevals host
/// reads. What is beyond does not compile.
///
/// [`apart`]: https://docs.rs/rigline/latest/rigline/fn.apart.html
/// [`Extension`]: https://docs.rs/rigline/latest/rigline/trait.Extension.html
/// [`Params`]: https://docs.rs/rigline/latest/rigline/trait.Params.html
/// [`Outcome`]: https://docs.rs/rigline/latest/rigline/struct.Outcome.html
/// [`Failure`]: https://docs.rs/rigline/latest/rigline/struct.Failure.html
/// [CallContext]: https://docs.rs/rigline/latest/rigline/struct.CallContext.html
/// [Config]: https://docs.rs/rigline/latest/rigline/struct.Config.html
#[proc_macro_attribute]
pub fn extension(attribute: TokenStream, item: TokenStream) -> TokenStream {
    extension::expand(attribute.into(), item.into()).into()
}

macro_rules! method_attributes {
    ($($name:ident)*) => {$(
        /// An attribute of a method under [`macro@extension`], which removes it. Anywhere else it is an error that says so.
        #[doc(hidden)]
        #[proc_macro_attribute]
        pub fn $name(_: TokenStream, item: TokenStream) -> TokenStream {
            extension::misplaced(stringify!($name), item.into()).into()
        }
    )*};
}

method_attributes! { operation configure safe_state on_event run_task }

/// Writes the JSON Schema of a struct or an enum of names, and the decoder that enforces it: serde's `Deserialize`. Do
/// not derive `Deserialize` as well.
///
/// ```
/// use rigline::{Params, Schema, json::Decimal, json::de::from_checked};
///
/// /// Measure a rail.
/// #[derive(Params)]
/// #[param(rename_all = "camelCase", deny_unknown_fields)]
/// struct Measure<'a> {
///     /// The rail, such as `3V3`.
///     #[param(min_length = 1, max_length = 8, example = "3V3")]
///     rail: &'a str,
///     #[param(minimum = 1, maximum = 1000, default = 16)]
///     sample_count: u16,
///     #[param(minimum = 0, maximum = 5.5)]
///     expected: Option<Decimal<3>>,
///     #[param(default = "fast")]
///     speed: Speed,
/// }
///
/// #[derive(Params, PartialEq, Debug)]
/// #[param(rename_all = "kebab-case")]
/// enum Speed {
///     Fast,
///     VerySlow,
/// }
///
/// let mut text = br#"{"rail":"5V","expected":5.0}"#.to_vec();
/// let args: Measure = from_checked(&mut text)?;
/// assert_eq!((args.sample_count, args.speed), (16, Speed::Fast));
///
/// let mut text = br#"{"rail":"5V","sampleCount":0}"#.to_vec();
/// let error = from_checked::<Measure>(&mut text).err().unwrap();
/// assert_eq!(error.to_string(), "sampleCount: 0 is below the minimum 1");
/// # Ok::<(), rigline::json::DecodeError>(())
/// ```
///
/// # What there is for each type
/// The table in [`rigline::params`](https://docs.rs/rigline/latest/rigline/params/index.html) says which types a field can
/// have, what their schemas say, and where schema and decoder differ. A struct of one field without a name is as that field
/// is. A type that holds itself has no schema that ends: write it out.
///
/// # Attributes
/// `#[param(…)]`; those that serde has too are also read in serde's spelling, `#[serde(…)]`.
///
/// On the struct or enum:
/// - `rename_all = "camelCase"`: or any other of serde's cases.
/// - `allow_unknown`, also as `#[params(allow_unknown)]`: unknown members are ignored. Without it they are an error in a call's
///   arguments, which names them and the known ones, and are ignored elsewhere, as in a configuration.
/// - `deny_unknown_fields`: unknown members are an error everywhere, and the schema says so.
/// - `default`: missing fields are those of `Default::default()`.
///
/// On a field or variant:
/// - `rename = "…"`, `alias = "…"`: its name, and names that are accepted too but are not in the schema.
/// - `skip`: it is not read, and is its default.
/// - `default = 16`: the value that stands for a missing one: a literal that suits the type (a number for a number
///   and for `Decimal`, a string for a string and for an enum), shown in the schema; or an expression, which is not.
///   `default` alone is `Default::default()`. In `#[serde(default = "path")]` it is a function.
/// - `minimum = 1`, `maximum = "3.135"`: bounds of a number, included. They are literals, or strings that hold one.
/// - `min_length = 1`, `max_length = 8`: characters of a string, elements of an array, members of a map.
/// - `one_of = RAILS`: the texts that it may be: a constant list of `&str`, or of
///   [`Choice`](https://docs.rs/rigline/latest/rigline/params/struct.Choice.html), whose descriptions become part of the field's. The schema
///   has them as `enum`, and others are refused.
/// - `example = "3V3"`: a value to show; there can be many.
/// - `schema = r#"{"type":"string"}"#`: the schema of a type that has none but implements serde's `Deserialize`. Whether the
///   two agree is then up to you.
/// - Its doc comment is its description.
#[proc_macro_derive(Params, attributes(param, params, serde))]
pub fn params(item: TokenStream) -> TokenStream {
    params::expand(item.into()).into()
}

/// Writes the JSON Schema of outputs, what puts each of them into a reply, and serde's `Serialize`, so that they can be parts
/// of others. Do not derive that one beside it. An enum of names can be an output too.
///
/// ```
/// use rigline::{Outputs, json::{Decimal, ser::to_slice}, params::OutputValue};
///
/// #[derive(Outputs)]
/// struct Measured {
///     /// The mean, in volts.
///     volts: Decimal<3>,
///     /// The voltage that was asked for; left out where none was.
///     expected: Option<Decimal<3>>,
///     verdict: Verdict,
/// }
///
/// #[derive(Outputs)]
/// #[output(rename_all = "lowercase")]
/// enum Verdict {
///     Good,
///     Bad,
/// }
///
/// let measured = Measured { volts: Decimal::from_mantissa(3300), expected: None, verdict: Verdict::Good };
/// let mut memory = [0; 64];
/// let length = to_slice(&measured, &mut memory)?;
/// assert_eq!(&memory[..length], br#"{"volts":3.300,"verdict":"good"}"#);
/// # Ok::<(), rigline::json::ser::SerError>(())
/// ```
///
/// The attributes are those of [`Params`](derive@Params) that make sense for outputs, as `#[output(…)]` or in serde's
/// spelling: `rename`, `rename_all`, `skip`, `example`, `schema`.
#[proc_macro_derive(Outputs, attributes(output, outputs, serde))]
pub fn outputs(item: TokenStream) -> TokenStream {
    outputs::expand(item.into()).into()
}
