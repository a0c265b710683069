//! The macros' output at work: manifests, decoders, dispatch.

#![allow(
    clippy::unnecessary_wraps,
    clippy::unused_self,
    clippy::unused_async,
    clippy::non_minimal_cfg,
    clippy::large_types_passed_by_value,
    reason = "as handlers are"
)]
#![allow(deprecated, reason = "the lint of what has no description")]

use std::convert::Infallible;

use embedded_io::{ErrorType, Read, Write};
use rigline::engine::{Engine, Memory};
use rigline::json::de::{from_checked, from_empty};
use rigline::json::{Decimal, RawJson};
use rigline::protocol::gevals::TaskContext;
use rigline::serve::blocking::Server;
use rigline::{
    CallContext, Clock, Context, Extension, Failure, FailureKind, GoDuration, Instant, Outcome, Outputs, Params, Schema,
};

trait Board {
    fn millivolts(&mut self, rail: &str) -> i32;
}

#[derive(Params)]
struct Measure<'a> {
    /// Channel to read, such as `3V3`.
    channel: &'a str,
    /// Number of samples
    /// to average.
    ///
    /// More are slower.
    ///
    /// # Not told
    #[param(minimum = 1, maximum = 1000, default = 16)]
    samples: u16,
}

#[derive(Outputs)]
struct Measured {
    /// The mean, in volts.
    volts: Decimal<3>,
    note: Option<&'static str>,
}

struct Rig<'b, B> {
    board: &'b mut B,
    safe: bool,
    port: u16,
}

#[derive(Params)]
struct Settings {
    #[param(minimum = 1024)]
    port: u16,
}

/// A rig
/// for tests.
#[rigline::extension(name = "rig", requires("kubectl", "curl"))]
impl<'b, B: Board> Rig<'b, B>
where
    B: 'b,
{
    /// Measure a rail's voltage.
    #[operation]
    async fn measure(&mut self, args: Measure<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let volts = Decimal::from_mantissa(self.board.millivolts(args.channel));
        cx.outputs(&Measured { volts, note: (args.samples < 2).then_some("a single sample") })?;
        cx.done(format_args!("{} samples of {}", args.samples, args.channel))
    }

    /// The same, by its outputs only.
    #[operation]
    fn measure_plainly(&mut self, args: Measure<'_>) -> Result<Measured, Failure> {
        Ok(Measured { volts: Decimal::from_mantissa(self.board.millivolts(args.channel)), note: None })
    }

    #[operation(name = "off", description = "Everything off")]
    async fn power_off(&mut self) -> Result<(), Failure> {
        self.all_off();
        Ok(())
    }

    #[operation(outputs = Measured)]
    async fn from_context(cx: &mut Context<'_>, about: CallContext<'_>) -> Result<Outcome, Failure> {
        cx.output("phase", if TaskContext::of(&about).phase == rigline::Phase::Verify { "verify" } else { "other" })?;
        cx.done("")
    }

    #[operation]
    fn port(&self, cx: &mut Context<'_>) -> Result<Outcome, Problem> {
        if self.port == 0 { Err(Problem) } else { Ok(cx.done(format_args!("{}", self.port))?) }
    }

    #[configure]
    async fn settings(&mut self, settings: Settings) -> Result<(), Failure> {
        self.port = settings.port;
        Ok(())
    }

    #[safe_state]
    fn all_off(&mut self) {
        self.safe = true;
    }

    fn not_an_operation(&self) -> bool {
        self.safe
    }
}

struct Problem;

impl From<Problem> for Failure {
    fn from(_: Problem) -> Self {
        Failure::new(FailureKind::Unreachable, "no port")
    }
}

impl From<Failure> for Problem {
    fn from(_: Failure) -> Self {
        Self
    }
}

struct Bench;

impl Board for Bench {
    fn millivolts(&mut self, rail: &str) -> i32 {
        if rail == "3V3" { 3300 } else { 0 }
    }
}

#[test]
fn the_manifest_is_what_the_code_says() {
    let rig = Rig { board: &mut Bench, safe: false, port: 0 };
    assert!(!rig.not_an_operation());
    let manifest = rig.manifest();
    assert_eq!((manifest.name, manifest.version), ("rig", env!("CARGO_PKG_VERSION")));
    assert_eq!((manifest.description, manifest.requires), ("A rig for tests.", ["kubectl", "curl"].as_slice()));
    let names: Vec<_> = manifest.operations.iter().map(|operation| (operation.name, operation.description)).collect();
    assert_eq!(
        names,
        [
            ("measure", "Measure a rail's voltage."),
            ("measure-plainly", "The same, by its outputs only."),
            ("off", "Everything off"),
            ("from-context", ""),
            ("port", ""),
            (
                "state",
                "Tell whether something may be switched on: whether a tool that can change outputs has run since all were off"
            ),
            ("all-off", "Switch all outputs off: the safe state"),
        ]
    );
    assert_eq!(
        manifest.operations[0].params.to_string(),
        r#"{"type":"object","properties":{"channel":{"type":"string","description":"Channel to read, such as `3V3`."},"samples":{"type":"integer","minimum":1,"maximum":1000,"description":"Number of samples to average.\nMore are slower.","default":16}},"required":["channel"]}"#
    );
    let outputs: Vec<_> =
        manifest.operations.iter().map(|operation| operation.outputs.map(|it| it.to_string())).collect();
    let measured = r#"{"type":"object","properties":{"volts":{"type":"number","minimum":-2147483.648,"maximum":2147483.647,"description":"The mean, in volts. At most 3 digits behind the point."},"note":{"type":"string"}},"required":["volts"]}"#;
    assert_eq!(outputs, [None, Some(measured.into()), None, Some(measured.into()), None, None, None]);
    assert_eq!(manifest.operations[2].params.to_string(), r#"{"type":"object","properties":{}}"#);
}

#[derive(Params)]
struct Window<T, const N: usize> {
    /// Größe – “q”
    #[param(example = 1)]
    size: T,
    bounds: heapless::Vec<Decimal<3>, N>,
}

/// An extension whose arguments depend on its type.
struct Generic<T, const N: usize>(T);

#[rigline::extension(name = "generic", version = "2.0.0")]
impl<T, const N: usize> Generic<T, N>
where
    T: Params + for<'de> serde::Deserialize<'de> + Copy,
{
    #[operation]
    fn set(&mut self, args: Window<T, N>) -> Result<(), Failure> {
        self.0 = args.size;
        assert!(args.bounds.len() <= N);
        Ok(())
    }

    #[operation]
    fn get(&self) -> Result<Outcome, Failure> {
        Ok(Outcome::DONE)
    }
}

#[test]
fn schemas_of_generic_types_are_whole_too() {
    let text = |manifest: &rigline::Manifest| {
        let schema = manifest.operations[0].params;
        let mut memory = [0; 1000];
        let mut out = rigline::json::write::Writer::new(&mut memory);
        schema.write(&mut out);
        assert_eq!((out.len(), out.as_written()), (schema.len(), schema.to_string().as_bytes()));
        schema.to_string()
    };
    assert_eq!(
        text(Generic::<u8, 3>(0).manifest()),
        r#"{"type":"object","properties":{"size":{"type":"integer","minimum":0,"maximum":255,"description":"Größe – “q”","examples":[1]},"bounds":{"type":"array","items":{"type":"number","minimum":-2147483.648,"maximum":2147483.647,"description":"at most 3 digits behind the point"},"maxItems":3}},"required":["size","bounds"]}"#
    );
    assert!(text(Generic::<bool, 40>(false).manifest()).contains(r#""size":{"type":"boolean""#));
    assert_eq!(Schema::of::<Window<u8, 3>>().to_string(), text(Generic::<u8, 3>(0).manifest()));
}

#[test]
fn nobody_pays_for_what_is_not_there() {
    struct Empty;
    #[rigline::extension]
    impl Empty {}
    assert_eq!((Empty.manifest().name, Empty.manifest().operations.len()), ("rigline-macros", 0));
}

struct Pipe<'a> {
    input: &'a [u8],
    output: Vec<u8>,
}

impl ErrorType for Pipe<'_> {
    type Error = Infallible;
}

impl Read for Pipe<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        self.input.read(buf).map_err(|error| match error {})
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
        self.output.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

struct NoTime;

impl Clock for NoTime {
    fn now(&self) -> Instant {
        Instant::default()
    }
}

fn session(extension: &mut impl Extension, input: &str) -> Vec<String> {
    let (mut request, mut reply, mut log) = ([0; 4096], [0; 4096], [0; 1024]);
    let mut engine = Engine::new(extension.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
    let mut pipe = Pipe { input: input.as_bytes(), output: Vec::new() };
    Server::new(extension, &mut engine, &NoTime).log_buffer(&mut log).serve(&mut pipe).unwrap();
    String::from_utf8(pipe.output).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn calls_reach_their_methods() {
    let execute = |operation: &str, args: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"execute","params":{{"operation":"{operation}","args":{args},"context":{{"phase":"verify"}}}}}}"#
        )
    };
    let result = |rest: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"success":true{rest}}}}}"#);
    let error = |code: i32, message: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"{message}"}}}}"#)
    };
    let table = [
        (
            execute("measure", r#"{"channel":"3\u00563"}"#),
            result(r#","outputs":{"volts":"3.300"},"message":"16 samples of 3V3""#),
        ),
        (
            execute("measure", r#"{"channel":"x","samples":1}"#),
            result(r#","outputs":{"volts":"0.000","note":"a single sample"},"message":"1 samples of x""#),
        ),
        (execute("measure", r#"{"channel":"x","samples":0}"#), error(-32602, "args.samples: 0 is below the minimum 1")),
        (
            execute("measure", r#"{"samples":"x","channel":"x"}"#),
            error(-32602, r#"args.samples: expected an integer from 1 to 1000; got the text \"x\""#),
        ),
        (
            execute("measure", r#"{"samples":1001,"channel":"x"}"#),
            error(-32602, "args.samples: 1001 is above the maximum 1000"),
        ),
        (execute("measure", "{}"), error(-32602, "args.channel: required, but missing")),
        (execute("measure", "null"), error(-32602, "args.channel: required, but missing")),
        (
            execute("measure", r#"{"channel":"x","channel":"y"}"#),
            error(-32602, "args.channel: given more than once"),
        ),
        (execute("measure-plainly", r#"{"channel":"3V3"}"#), result(r#","outputs":{"volts":"3.300"}"#)),
        (execute("measureplainly", r#"{"channel":"3V3"}"#), error(-32601, "Unknown operation: measureplainly")),
        (execute("off", "{}"), result("")),
        (execute("power-off", "{}"), error(-32601, "Unknown operation: power-off")),
        (execute("from-context", "{}"), result(r#","outputs":{"phase":"verify"},"message":"""#)),
        (execute("port", "{}"), error(-32000, "no port")),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1","config":{"port":80}}}"#.into(),
            error(-32602, "config.port: 80 is below the minimum 1024"),
        ),
    ];
    let mut rig = Rig { board: &mut Bench, safe: false, port: 0 };
    let input = table.iter().map(|(line, _)| line.as_str()).collect::<Vec<_>>().join("\n");
    let output = session(&mut rig, &input);
    assert_eq!(output.len(), table.len());
    for ((_, expected), line) in table.iter().zip(&output) {
        assert_eq!(line, expected);
    }
    assert!(rig.safe);
}

/// Arguments of every sort.
#[derive(Params, Debug, PartialEq)]
#[param(rename_all = "camelCase", deny_unknown_fields)]
struct Everything<'a> {
    #[param(default = true)]
    is_on: bool,
    #[param(minimum = 18446744073709551600, default = 18_446_744_073_709_551_601)]
    huge: u64,
    #[param(minimum = -3, maximum = "-1", default = -2)]
    low: i8,
    #[param(minimum = "3.135", maximum = 3.4, default = 3.3)]
    volts: Decimal<3>,
    #[param(minimum = 0.1, maximum = 0.5, default = 0.25)]
    ratio: f32,
    #[param(minimum = 1)]
    maybe: Option<u32>,
    #[param(default = "fast", rename = "SPEED", alias = "pace", alias = "tempo")]
    speed: Speed,
    #[param(default = "é", max_length = 4)]
    label: heapless::String<8>,
    #[param(default = "x", min_length = 1)]
    text: &'a str,
    #[param(default, max_length = 2)]
    list: heapless::Vec<u8, 4>,
    #[param(default = [1, 2])]
    pair: [u8; 2],
    #[param(default = GoDuration::from_nanos(5))]
    wait: GoDuration,
    #[param(default = RawJson::NULL)]
    raw: RawJson<'a>,
    #[serde(default = "seven", rename = "Seven")]
    seven: u8,
    #[param(skip)]
    skipped: u8,
    #[param(default)]
    nested: Option<Nested>,
    #[param(schema = r#"{"type":"string","format":"ipv4"}"#, default = core::net::Ipv4Addr::LOCALHOST)]
    address: core::net::Ipv4Addr,
    #[param(default)]
    percent: Percent,
}

fn seven() -> u8 {
    7
}

#[derive(Params, Debug, PartialEq)]
struct Nested {
    inner: u8,
}

/// How much.
#[derive(Params, Debug, PartialEq, Default)]
struct Percent(#[param(maximum = 100)] u8);

#[derive(Params, Debug, PartialEq, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum Speed {
    Fast,
    #[param(alias = "sluggish")]
    VerySlow,
}

#[test]
fn defaults_are_applied() {
    let all: Everything<'_> = from_empty().unwrap();
    assert_eq!(
        all,
        Everything {
            is_on: true,
            huge: 18_446_744_073_709_551_601,
            low: -2,
            volts: Decimal::from_mantissa(3300),
            ratio: 0.25,
            maybe: None,
            speed: Speed::Fast,
            label: "é".try_into().unwrap(),
            text: "x",
            list: heapless::Vec::new(),
            pair: [1, 2],
            wait: GoDuration::from_nanos(5),
            raw: RawJson::NULL,
            seven: 7,
            skipped: 0,
            nested: None,
            address: core::net::Ipv4Addr::LOCALHOST,
            percent: Percent(0),
        }
    );
}

#[test]
fn rules_are_enforced_and_named() {
    for (text, error) in [
        (r#"{"huge":18446744073709551599}"#, "huge: 18446744073709551599 is below the minimum 18446744073709551600"),
        (r#"{"huge":1}"#, "huge: 1 is below the minimum 18446744073709551600"),
        (r#"{"low":0}"#, "low: 0 is above the maximum -1"),
        (r#"{"low":-4}"#, "low: -4 is below the minimum -3"),
        (r#"{"low":-3}"#, ""),
        (r#"{"low":[]}"#, "low: expected an integer from -3 to -1; got an array"),
        (
            r#"{"volts":[]}"#,
            "volts: expected a number from -2147483.648 to 2147483.647 with at most 3 decimals; got an array",
        ),
        (r#"{"volts":3.134}"#, "volts: 3.134 is below the minimum 3.135"),
        (r#"{"volts":3.135}"#, ""),
        (r#"{"volts":34e-1}"#, ""),
        (r#"{"volts":3.401}"#, "volts: 3.401 is above the maximum 3.4"),
        (r#"{"ratio":0.1}"#, ""),
        (r#"{"ratio":5.1e-1}"#, "ratio: 5.1e-1 is above the maximum 0.5"),
        (r#"{"maybe":0}"#, "maybe: 0 is below the minimum 1"),
        (r#"{"maybe":null}"#, ""),
        (r#"{"SPEED":"very-slow"}"#, ""),
        (r#"{"pace":"sluggish"}"#, ""),
        (
            r#"{"speed":"fast"}"#,
            "speed is an unknown member; known: isOn, huge, low, volts, ratio, maybe, SPEED, label, text, list, pair, wait, raw, Seven, nested, address, percent",
        ),
        (r#"{"tempo":"slow"}"#, "tempo: expected one of: fast, very-slow"),
        (r#"{"tempo":"fast","SPEED":"fast"}"#, "SPEED: given more than once"),
        (r#"{"SPEED":{"fast":null}}"#, "SPEED: expected a string; got an object"),
        (r#"{"label":"äöüß"}"#, ""),
        (r#"{"label":"äöüß!"}"#, "label: length 9 does not fit"),
        (r#"{"label":"12345"}"#, "label: length 5 is above the maximum 4"),
        (r#"{"text":""}"#, "text: length 0 is below the minimum 1"),
        (r#"{"list":[1,2]}"#, ""),
        (r#"{"list":[1,2,3]}"#, "list: length 3 is above the maximum 2"),
        (r#"{"list":[1,2,3,4,5,6]}"#, "list: length 5 does not fit"),
        (r#"{"list":[1,256]}"#, "list[1]: expected an integer from 0 to 255"),
        (r#"{"pair":[1]}"#, "pair: expected an array of 2 elements"),
        (r#"{"wait":"1m"}"#, ""),
        (r#"{"wait":"1"}"#, "wait: expected a duration such as \"1m30s\""),
        (r#"{"nested":{}}"#, "nested.inner: required, but missing"),
        (r#"{"nested":[1]}"#, "nested: expected an object; got an array"),
        (r#"{"nested":3}"#, "nested: expected an object; got 3"),
        (r#"{"address":"1.2.3.4"}"#, ""),
        (r#"{"percent":101}"#, "percent: 101 is above the maximum 100"),
        (
            r#"{"skipped":1}"#,
            "skipped is an unknown member; known: isOn, huge, low, volts, ratio, maybe, SPEED, label, text, list, pair, wait, raw, Seven, nested, address, percent",
        ),
    ] {
        let mut bytes = text.as_bytes().to_vec();
        let found =
            from_checked::<Everything<'_>>(&mut bytes).map_or_else(|error| error.to_string(), |_| String::new());
        assert_eq!(found, error, "{text}");
    }
}

#[test]
fn schemas_say_the_same() {
    let schema: serde_json::Value = serde_json::from_str(&Schema::of::<Everything<'_>>().to_string()).unwrap();
    let properties = &schema["properties"];
    for (name, expected) in [
        ("isOn", r#"{"type":"boolean","default":true}"#),
        (
            "huge",
            r#"{"type":"integer","minimum":18446744073709551600,"maximum":18446744073709551615,"default":18446744073709551601}"#,
        ),
        ("low", r#"{"type":"integer","minimum":-3,"maximum":-1,"default":-2}"#),
        (
            "volts",
            r#"{"type":"number","minimum":3.135,"maximum":3.4,"description":"at most 3 digits behind the point","default":3.3}"#,
        ),
        ("ratio", r#"{"type":"number","minimum":0.1,"maximum":0.5,"default":0.25}"#),
        ("maybe", r#"{"type":["integer","null"],"minimum":1,"maximum":4294967295}"#),
        ("SPEED", r#"{"enum":["fast","very-slow"],"default":"fast"}"#),
        ("label", r#"{"type":"string","maxLength":4,"default":"é"}"#),
        ("text", r#"{"type":"string","minLength":1,"default":"x"}"#),
        ("list", r#"{"type":"array","items":{"type":"integer","minimum":0,"maximum":255},"maxItems":2}"#),
        (
            "pair",
            r#"{"type":"array","items":{"type":"integer","minimum":0,"maximum":255},"minItems":2,"maxItems":2,"default":[1,2]}"#,
        ),
        ("raw", "{}"),
        ("Seven", r#"{"type":"integer","minimum":0,"maximum":255}"#),
        (
            "nested",
            r#"{"type":["object","null"],"properties":{"inner":{"type":"integer","minimum":0,"maximum":255}},"required":["inner"]}"#,
        ),
        ("address", r#"{"type":"string","format":"ipv4"}"#),
        ("percent", r#"{"type":"integer","minimum":0,"maximum":100,"description":"How much."}"#),
    ] {
        assert_eq!(properties[name], serde_json::from_str::<serde_json::Value>(expected).unwrap(), "{name}");
    }
    assert_eq!(schema["description"], "Arguments of every sort.");
    assert_eq!(schema["additionalProperties"], false);
    assert!(schema.get("required").is_none());
}

struct Configured;

#[rigline::extension]
impl Configured {
    #[operation]
    #[cfg(any())]
    fn first() -> Result<Outcome, Failure> {
        Ok(Outcome::message("first"))
    }

    #[operation]
    #[cfg(all())]
    #[cfg(not(any()))]
    fn second() -> Result<Outcome, Failure> {
        Ok(Outcome::message("second"))
    }

    #[operation]
    #[cfg(all())]
    #[cfg(any())]
    fn third() -> Result<Outcome, Failure> {
        Ok(Outcome::message("third"))
    }

    #[operation]
    fn fourth() -> Result<Outcome, Failure> {
        Ok(Outcome::message("fourth"))
    }
}

#[test]
fn operations_that_are_configured_away_leave_no_gap() {
    let names: Vec<_> = Configured.manifest().operations.iter().map(|operation| operation.name).collect();
    assert_eq!(names, ["second", "fourth"]);
    let execute = |operation: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"execute","params":{{"operation":"{operation}","args":{{}},"context":{{}}}}}}"#
        )
    };
    let replies = session(&mut Configured, &[execute("second"), execute("fourth")].join("\n"));
    assert_eq!(
        replies,
        [
            r#"{"jsonrpc":"2.0","id":1,"result":{"success":true,"message":"second"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"success":true,"message":"fourth"}}"#
        ]
    );
}

/// The description of an extension for Amplifier hosts.
#[test]
fn kinds() {
    use rigline::ModuleKind;

    struct Said;
    #[rigline::extension(name = "said", kind = "orchestrator")]
    impl Said {}
    struct Told;
    #[rigline::extension(name = "told")]
    impl Told {
        #[on_event]
        async fn event(&mut self, _event: rigline::Event<'_>, _cx: &mut Context<'_>) {}
    }
    struct Plain;
    #[rigline::extension(name = "plain")]
    impl Plain {}
    assert_eq!(
        [Said.manifest().kind, Told.manifest().kind, Plain.manifest().kind],
        [ModuleKind::Orchestrator, ModuleKind::Hook, ModuleKind::Tool]
    );
}

/// Every handler may write: `?` on any error, in functions of its own too.
mod errors_of_handlers {
    use super::*;

    #[derive(Debug)]
    struct Nack(u8, &'static str);

    impl std::fmt::Display for Nack {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "no ack from \"{:#x}\"{}", self.0, self.1)
        }
    }

    impl std::error::Error for Nack {}

    struct Errors;

    #[rigline::extension(name = "errors", version = "1.0.0")]
    impl Errors {
        /// A file that is not there.
        #[operation]
        fn file(&mut self) -> Result<(), Failure> {
            let _ = std::fs::read("/nothing/here")?;
            Ok(())
        }

        /// A bus that does not answer.
        #[operation]
        fn bus(&mut self) -> Result<(), Nack> {
            Err(Nack(0x50, ""))
        }

        /// A long text.
        #[operation]
        fn long(&mut self) -> Result<Outcome, Failure> {
            Err(Nack(0x50, " äääääääääääääääääääääääääääääääääääääääääääääääääääääääääää"))?;
            Ok(Outcome::DONE)
        }

        /// An error of the decoder.
        #[operation]
        fn decode(&mut self) -> Result<(), Failure> {
            from_empty::<u8>()?;
            Ok(())
        }
    }

    #[test]
    fn any_error_is_a_failure() {
        let text = |operation: &str| {
            let mut errors = Errors;
            session(
                &mut errors,
                &format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"execute","params":{{"operation":"{operation}","context":{{}}}}}}"#
                ),
            )
            .remove(0)
        };
        let failed =
            |error: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"success":false,"error":"{error}"}}}}"#);
        assert_eq!(text("file"), failed("No such file or directory (os error 2)"));
        assert_eq!(text("bus"), failed(r#"no ack from \"0x50\""#));
        // With an allocator all of it is kept; this package has no features to tell the two apart.
        let long = text("long");
        let whole = failed(&format!(r#"no ack from \"0x50\" {}"#, "ä".repeat(59)));
        let cut = failed(&format!(r#"no ack from \"0x50\" {}..."#, "ä".repeat(13)));
        assert!(long == whole || long == cut, "{long}");
        assert!(text("decode").contains("-32602"));
    }
}
