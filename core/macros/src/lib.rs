//! The macros of [rigline](https://docs.rs/rigline), which re-exports them: use them from there.

use proc_macro::TokenStream;

/// The examples of the README, which are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

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
/// The macro writes an implementation of the trait [`Extension`] and nothing else; the `impl` block
/// itself stays as it is.
///
/// # Attributes of the `impl` block
/// - `name = "…"`: the name of the extension [default: that of the package].
/// - `version = "…"`: the semantic version of the extension [default: that of the package].
/// - `description = "…"`: the purpose of the extension [default: the block's doc comment].
/// - `kind = "hook"`: the kind of Amplifier module: `provider`, `tool`, `agent`, `hook`,
///   `orchestrator` or `context` [default: `hook` if there is an `#[on_event]`, else `tool`].
/// - `requires("kubectl", …)`: commands that must be in `PATH` (on desktops).
/// - `guarantees(no_network, no_subprocess, …)`: the guarantees that namel3ss hosts may rely on.
/// - `secrets("API_KEY", …)`: the names of the secrets that the extension uses (namel3ss
///   `secrets_allowed`).
/// - `separate_frames`: polls each async operation in a stack frame of its own, as [`own_frame`] does.
///   On a board this needs less stack: without it, one frame has room for all operations. The image
///   then contains the panic for a future that is polled after its end, which never happens.
///
/// # Attributes of methods
/// - `#[operation]`: an operation. Its name is the method's in `kebab-case`, or `name = "…"`. Its
///   description is the text of the doc comment up to the first heading or code block, or
///   `description = "…"`.
///   - The method is a plain `fn` or an `async fn`, with `&mut self`, `&self` or no receiver. While
///     a plain one runs, all other requests wait.
///   - Its parameters are optional and may have any order: the context, `&mut Context<'_>`; the
///     context that the host sends with the call, [`CallContext<'_>`][CallContext]; and one of any
///     other type, the arguments, which implement [`Params`].
///   - It returns a `Result` of [`Outcome`], `()`, or a struct with `#[derive(Outputs)]`. The
///     schema of that struct is in the manifest. An operation that writes its outputs by
///     `cx.outputs` declares them with `#[operation(outputs = Measured)]`. The error is
///     [`Failure`], or a type that converts into it.
///   - `read_only`, `destructive` and `idempotent` declare its effects: it changes nothing; it may
///     destroy or overwrite something; a second run with the same arguments changes nothing more.
///     Each may be `= false`. If one of them is given, those that are not given are false. Agents'
///     programs use them to decide what to run without asking, and assume the worst if none is
///     given.
/// - `#[configure]`: receives the configuration that a host sends when it starts a session: a
///   [`Config<'_>`][Config], or a type that implements [`Params`], as arguments do; and the
///   context. It returns `Result<(), Failure>`.
/// - `#[on_event]` and `#[run_task]`: the methods of [`Extension`] of these names, with all their
///   parameters. A `#[cfg]` on them applies to the generated code, too. `#[run_task]` also
///   generates `run_job`.
/// - `#[safe_state]`: brings the hardware into a state that is safe without supervision.
///
/// The compiler warns of an operation without a description, of an argument or an output without a
/// doc comment, and of a block without an operation, because hosts show these texts to agents and
/// people. The warnings use the compiler's lint `deprecated`, which can carry a text of ours, and
/// begin with "use of deprecated macro". `#[allow(deprecated)]` on the item turns them off.
///
/// Amplifier has operations of its own called `health`, `describe` and `invoke`. An operation of
/// the extension with such a name can be reached there only by a nested `invoke`, and the compiler
/// warns of it.
///
/// # Limits
/// An extension has at most 500 operations. Each needs a name of its own, also in the form that MCP
/// clients see: `_` for all characters but letters and digits, and at most 64 characters. The
/// manifest must fit into the 65,535 bytes of a line that a gevals host reads. The compiler refuses
/// an extension beyond these limits.
///
/// [`own_frame`]: https://docs.rs/rigline/latest/rigline/fn.own_frame.html
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
        /// An attribute of a method in an `impl` block under [`macro@extension`], which removes it.
        /// Anywhere else it is an error of the compiler.
        #[doc(hidden)]
        #[proc_macro_attribute]
        pub fn $name(_: TokenStream, item: TokenStream) -> TokenStream {
            extension::misplaced(stringify!($name), item.into()).into()
        }
    )*};
}

method_attributes! { operation configure safe_state on_event run_task }

/// Generates the JSON Schema of a struct, or of an enum whose variants are names, and the decoder
/// that enforces it: serde's `Deserialize`. Do not derive `Deserialize` as well.
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
/// # Ok::<(), rigline::json::de::DecodeError>(())
/// ```
///
/// # Types of fields
/// The table in [`rigline::params`](https://docs.rs/rigline/latest/rigline/params/index.html) lists
/// the types that a field can have, their schemas, and the differences between schema and decoder.
/// A struct with one unnamed field has the schema of that field. A type that contains itself has no
/// finite schema. Write its schema by hand.
///
/// # Attributes
/// The attributes are `#[param(…)]`. Those that serde has, too, are also read in serde's spelling,
/// `#[serde(…)]`.
///
/// On the struct or enum:
/// - `rename_all = "camelCase"`: the case of the names in JSON, one of serde's cases.
/// - `allow_unknown`, also as `#[params(allow_unknown)]`: unknown members are ignored. Without it
///   they are an error in a call's
///   arguments, which names them and the known ones, and are ignored elsewhere, as in a configuration.
/// - `deny_unknown_fields`: unknown members are an error everywhere, and the schema says so.
/// - `default`: missing fields have the values of `Default::default()`.
///
/// On a field or variant:
/// - `rename = "…"`: the name in JSON. `alias = "…"`: another name that is accepted but is not in
///   the schema.
/// - `skip`: the field is not read, and has its default.
/// - `default = 16`: the value for a missing field. A literal that suits the type (a number for a
///   number and for `Decimal`, a string for a string and for an enum) is shown in the schema. An
///   expression is not shown. `default` alone is `Default::default()`. In `#[serde(default =
///   "path")]` it is a function.
/// - `minimum = 1`, `maximum = "3.135"`: the bounds of a number, which are allowed values. They are
///   literals, or strings that contain one.
/// - `min_length = 1`, `max_length = 8`: the bounds of the number of characters of a string,
///   elements of an array, or members of a map.
/// - `one_of = RAILS`: the allowed texts: a constant list of `&str`, or of
///   [`Choice`](https://docs.rs/rigline/latest/rigline/params/struct.Choice.html), whose
///   descriptions become a part of the field's. The schema has them as `enum`, and other texts are
///   refused.
/// - `example = "3V3"`: an example value. There can be several.
/// - `schema = r#"{"type":"string"}"#`: the schema of a type that has none but implements serde's
///   `Deserialize`. You must make sure that the two agree.
///   two agree is then up to you.
/// - Its doc comment is its description.
#[proc_macro_derive(Params, attributes(param, params, serde))]
pub fn params(item: TokenStream) -> TokenStream {
    params::expand(item.into()).into()
}

/// Generates the JSON Schema of outputs, the code that writes each output into a reply, and serde's
/// `Serialize`. Do not derive `Serialize` as well. It can also be used on an enum whose variants
/// are names.
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
/// The attributes are those of [`Params`](derive@Params) that make sense for outputs, as
/// `#[output(…)]` or in serde's spelling: `rename`, `rename_all`, `skip`, `example`, `schema`.
#[proc_macro_derive(Outputs, attributes(output, outputs, serde))]
pub fn outputs(item: TokenStream) -> TokenStream {
    outputs::expand(item.into()).into()
}
